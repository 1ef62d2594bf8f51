"""What each first control costs, term by term: forward in time against the backward pass, and against F's own terms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npro_aif as aif
from npro_aif.guides import FACTORS, TemporalGuide
from npro_aif.models import tmaze
from npro_aif.solvers.costs import control_cost
from npro_aif.solvers.terms import control_terms
from tests.support import assert_close, temporal, world_of
from tests.worlds import random_temporal, random_world

OBJECTIVES = (
    aif.Marginal(),
    aif.Planning(),
    aif.Active(weight=0.7, novelty=0.5),
    aif.Active(normalize=True, planning_correction=False),
    aif.Active(weight=0.7, ambiguity=0.3, gradient="through"),
)


def check_the_sum(seed: int, objective: aif.Objective) -> None:
    random = random_world(seed)
    world = world_of(random)
    posterior = temporal(random, world, random_temporal(random, np.random.default_rng(seed)))

    @jax.jit
    def both(posterior: Any) -> Any:
        return control_cost(world, objective, posterior), control_terms(world, objective, posterior)

    cost, terms = both(posterior)
    assert_close(sum(terms.values()), cost, 1e-9, objective)
    assert np.isfinite(np.asarray(cost)).any()


@pytest.mark.parametrize("objective", OBJECTIVES[2:5:2], ids=["held", "through"])
@pytest.mark.usefixtures("x64", "quick_compile")
def test_the_terms_sum_to_the_cost_in_a_random_world(objective: aif.Objective) -> None:
    check_the_sum(0, objective)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 7))
@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
@pytest.mark.usefixtures("x64", "quick_compile")
def test_the_terms_sum_to_the_cost_in_random_worlds(seed: int, objective: aif.Objective) -> None:
    check_the_sum(seed, objective)


@pytest.mark.parametrize(
    "objective", [pytest.param(aif.Planning(), marks=pytest.mark.slow), aif.Active()], ids=["planning", "active"]
)
@pytest.mark.usefixtures("quick_compile")
def test_the_terms_of_the_control_that_is_chosen_are_those_of_the_plan(objective: aif.Objective) -> None:
    """All factors are learned: what θ costs is the same for every control, and not among the terms."""
    guide = TemporalGuide(tmaze.tmaze, learn=FACTORS)
    planner = aif.Planner(tmaze.tmaze, guide, objective, aif.CoordinateSolver(max_sweeps=20), max_horizon=3)
    plan = planner(jax.random.key(0), tmaze.initial_belief(tmaze.CUE, theta=1))
    best = int(plan.best_control())
    assert float(plan.control[0, best]) > 0.999
    terms = plan.control_terms
    assert set(terms) == set(plan.terms)
    for name, values in terms.items():
        assert values.shape == (4,)
        assert_close(values[best], plan.terms[name], 1e-4, name)
    assert_close(sum(terms.values()), plan.control_cost, 1e-4)


@pytest.mark.usefixtures("quick_compile")
def test_plans_without_slices_are_refused() -> None:
    search = aif.Planner(tmaze.tmaze, aif.guides.RecallGuide(tmaze.tmaze), aif.Planning(), aif.SearchSolver())
    plan = search(jax.random.key(0), tmaze.initial_belief(), horizon=2)
    with pytest.raises(ValueError, match="control_terms: found a plan by search"):
        _ = plan.control_terms
    assert jnp.isfinite(plan.control_cost).all()
