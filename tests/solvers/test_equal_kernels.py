"""A deterministic world gives the same plans whether its tables are indices or rows of probabilities.

And with indices, too, what is left out of a belief's tables and how many plans are made at once does not matter.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

import npro_aif as aif
from npro_aif.inference.objectives import Objective
from npro_aif.planning import support
from npro_aif.tables.dense import DenseEmission, DenseTransition
from npro_aif.tables.index import IndexEmission, IndexTransition
from tests.layouts import HORIZON, THETA, ring, ring_belief
from tests.planning.test_batch import assert_same_plan, row, together
from tests.support import planner_of_all

pytestmark = pytest.mark.usefixtures("quick_compile", "x64")

COORDINATE = aif.CoordinateSolver(max_sweeps=6, tol=1e-9)
SVI = aif.SVISolver(optax.sgd(0.1), 3)


def planner_of(solver: Any, objective: Objective, dense: bool = False) -> aif.Planner:
    return planner_of_all(ring(dense), objective, solver, HORIZON)


def where_visited(plan: aif.Plan) -> aif.Plan:
    """The plan with its policy at the states that it visits alone: elsewhere it does not matter."""
    return plan._replace(policy=jnp.where(plan.state[..., :-1, :, None] > 0, plan.policy, 0.0))


def check_kernels(solver: Any, objective: Objective) -> None:
    belief, key = ring_belief(3), jax.random.key(0)
    by_index, by_rows = (planner_of(solver, objective, dense) for dense in (False, True))
    kinds = (IndexTransition, IndexEmission), (DenseTransition, DenseEmission)
    for planner, (moves, sights) in zip((by_index, by_rows), kinds, strict=True):
        world = jax.eval_shape(lambda belief, p=planner: p.program(belief).world(belief, HORIZON), belief)
        assert isinstance(world.state, moves)
        assert all(isinstance(kernel, sights) for kernel in world.observation.values())
    assert_same_plan(where_visited(by_index(key, belief)), where_visited(by_rows(key, belief)))


OTHERS = [(solver, objective) for solver in (COORDINATE, SVI) for objective in (aif.Marginal(), aif.Planning())]


@pytest.mark.parametrize("solver", [COORDINATE, pytest.param(SVI, marks=pytest.mark.slow)], ids=["coordinate", "svi"])
def test_indices_and_rows(solver: Any) -> None:
    """With the objective that has every term."""
    check_kernels(solver, aif.Active())


@pytest.mark.slow
@pytest.mark.parametrize(("solver", "objective"), OTHERS)
def test_indices_and_rows_with_other_objectives(solver: Any, objective: Objective) -> None:
    check_kernels(solver, objective)


SOLVERS = [COORDINATE, pytest.param(SVI, marks=pytest.mark.slow)]


@pytest.mark.slow  # of dense kernels: tests/planning/test_batch.py
@pytest.mark.parametrize("solver", SOLVERS, ids=["coordinate", "svi"])
def test_pruned_and_batched_plans_by_index(solver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planned from all parameters one by one, and from those that are possible in a batch."""
    planner = planner_of(solver, aif.Active())
    beliefs = [ring_belief(3, seed) for seed in range(2)]
    keys = jax.random.split(jax.random.key(0), len(beliefs))
    plans = planner.batch(keys, together(beliefs))
    assert plans.theta.shape == (len(beliefs), 4)
    monkeypatch.setattr(support, "PRUNE_FROM", 10**9)
    whole = planner_of(solver, aif.Active())
    for i, belief in enumerate(beliefs):
        plan = whole(keys[i], belief)
        assert plan.theta.shape == (THETA,)
        assert_same_plan(where_visited(row(plans, i)), where_visited(plan))
