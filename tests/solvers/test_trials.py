"""Searches within limits in a world of chance: plans as vectors, which bound every belief from above, and trials."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npro_aif as aif
from npro_aif.models import tiger
from tests.solvers.test_search import HORIZON, KEY, THETAS, family, optimum, replayed
from tests.support import assert_close

pytestmark = pytest.mark.usefixtures("quick_compile", "x64")


def limited(worlds: Any, max_nodes: int, **limits: Any) -> aif.Planner:
    solver = aif.SearchSolver(max_nodes=max_nodes, **limits)
    guide = aif.guides.RecallGuide(worlds.model)
    return aif.Planner(worlds.model, guide, aif.Planning(), solver, max_horizon=HORIZON)


def test_enough_trials_find_the_optimum() -> None:
    worlds = family(certain=False)
    plans = limited(worlds, 20_000)
    for world in range(10):
        belief = worlds.belief(world)
        plan, expected = plans(KEY, belief), optimum(worlds, belief, HORIZON)
        assert plan.info.optimal
        assert_close(plan.info.upper, expected, 1e-6, world)
        assert_close(replayed(worlds, plan), plan.info.upper, 1e-9, world)


def test_plans_for_one_belief_bound_every_other() -> None:
    """What was found from one belief is a bound for beliefs that were never looked at, and a good one near by."""
    worlds = family(certain=False)
    plans = limited(worlds, 2000)
    belief = worlds.belief(0)
    plans(KEY, belief)
    search = plans.functions_for(belief, HORIZON).search._search
    rng = np.random.default_rng(0)
    for share in np.linspace(0.05, 1.0, 20):
        parameter = np.asarray(belief.parameter).copy()
        parameter[:THETAS] = (1 - share) * parameter[:THETAS] + share * rng.dirichlet(np.ones(THETAS))
        other = belief._replace(parameter=jnp.asarray(parameter))
        point = search.vectors.point(*search.game.classes(*search.game.hypotheses(other)), HORIZON)
        assert point is not None
        expected = optimum(worlds, other, HORIZON)
        assert expected <= point.look() + 1e-9
        assert point.look() <= expected + 4 * share


def test_a_known_limit_leaves_a_good_plan() -> None:
    """Within 200 looks the Tiger's plan of 6 steps is the best one, before that is proven."""
    guide = aif.guides.RecallGuide(tiger.tiger)
    planner = aif.Planner(tiger.tiger, guide, aif.Planning(), aif.SearchSolver(max_nodes=200), max_horizon=6)
    limited = planner(jax.random.key(0), tiger.initial_belief())
    best = aif.Planner(tiger.tiger, guide, aif.Planning(), aif.SearchSolver(), max_horizon=6)
    optimal = best(jax.random.key(0), tiger.initial_belief())
    assert optimal.info.optimal
    assert_close(limited.info.upper, optimal.info.upper, 1e-6)


def test_new_parameters_make_new_groups() -> None:
    worlds = family(certain=False)
    plans = limited(worlds, 3000)
    for world in (7, 3, 7):
        plan = plans(KEY, worlds.belief(world))
        assert_close(plan.info.upper, optimum(worlds, worlds.belief(world), HORIZON), 1e-6)
        assert_close(replayed(worlds, plan), plan.info.upper, 1e-9)


def test_the_first_plan_may_take_longer() -> None:
    worlds = family(certain=False)
    plans = limited(worlds, 1, first_nodes=50)
    assert [int(plans(KEY, worlds.belief(world)).info.nodes) > 1 for world in (0, 1)] == [True, False]
    with pytest.raises(ValueError, match="first_nodes: found 3 without max_nodes"):
        aif.SearchSolver(first_nodes=3)
