"""Sweeps on random worlds: F never rises, and where it settles every factor is the best one given the others.

The best is found by brute force: F of the enumerated joint (`tests.oracle`) against the same with one factor replaced.
"""

import itertools
from typing import Any

import jax
import numpy as np
import pytest

import npro_aif as aif
from npro_aif.inference.objectives import Objective
from npro_aif.planning.plan import Plan
from tests import oracle
from tests.support import planner_of_all
from tests.worlds import RandomWorld, TemporalTables, random_temporal, random_world

pytestmark = pytest.mark.usefixtures("quick_compile")

NAMES: dict[type, oracle.Objective] = {aif.Marginal: "marginal", aif.Planning: "planning"}
FEW, MANY = ((aif.Marginal(), 18), (aif.Planning(), 27)), range(30)
STEPS = (1.0, 0.3, 1e-2, 1e-3)  # how far to go towards another factor


def solve(random: RandomWorld, objective: Objective, **settings: Any) -> Plan:
    solver = aif.CoordinateSolver(**({"max_sweeps": 100, "tol": 1e-9} | settings))
    planner = planner_of_all(random.model, objective, solver, random.horizon)
    return planner(jax.random.key(0), random.belief())


def numbers(random: RandomWorld, plan: Plan) -> TemporalTables:
    """The plan's posterior as probabilities, over all axes."""
    q: Any = jax.jit(Plan.complete)(plan)

    def full(kernel: Any, shape: tuple[int, ...]) -> np.ndarray:
        return np.broadcast_to(np.exp(np.asarray(kernel.table())), shape)

    return TemporalTables(
        np.exp(np.asarray(q.parameter)),
        np.exp(np.asarray(q.control)),
        full(q.state, random.tables.state.shape),
        tuple(
            full(q.observation[name], table.shape)
            for name, table in zip(random.shapes.observation, random.tables.observations, strict=True)
        ),
    )


def check(seed: int, objective: Objective) -> None:
    random = random_world(seed)
    plan = solve(random, objective)
    history = np.asarray(plan.free_energy)
    assert (np.diff(history) <= 1e-6).all(), random.description
    q = numbers(random, plan)

    def at(tables: TemporalTables) -> float:
        joint = oracle.temporal_joint(random.tables, *tables)
        return oracle.free_energy(joint, random.tables, NAMES[type(objective)], "temporal")

    least = at(q)
    np.testing.assert_allclose(history[-1], least, atol=1e-8)
    assert plan.info.converged, random.description
    rng = np.random.default_rng(seed)
    for other in (random_temporal(random, rng, zeros) for zeros in (0.0, 0.5, 0.8)):
        for name, step in itertools.product(q._fields, STEPS):
            mixed = jax.tree.map(lambda a, b, step=step: (1 - step) * a + step * b, q, other)
            assert at(q._replace(**{name: getattr(mixed, name)})) >= least - 1e-6, (random.description, name, step)


@pytest.mark.parametrize(("objective", "seed"), FEW)
def test_sweeps_descend_to_the_best_factors(objective: Objective, seed: int, x64: None) -> None:
    check(seed, objective)


@pytest.mark.slow
@pytest.mark.parametrize("objective", [aif.Marginal(), aif.Planning()])
@pytest.mark.parametrize("seed", MANY)
def test_sweeps_descend_to_the_best_factors_everywhere(seed: int, objective: Objective, x64: None) -> None:
    check(seed, objective)
