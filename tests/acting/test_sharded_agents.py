"""Agents whose beliefs are laid over devices act and play as those of a planner without a mesh."""

from __future__ import annotations

import jax
import numpy as np
import optax
import pytest

import npro_aif as aif
from npro_aif.envs import TMaze
from npro_aif.models import tmaze
from tests.layouts import ring, ring_belief

pytestmark = pytest.mark.usefixtures("quick_compile")

SOLVER = aif.CoordinateSolver(max_sweeps=4, restarts=1)


@pytest.fixture(scope="module")
def planners() -> list[aif.Planner]:
    """With a mesh, and without one."""
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("parameter",))
    return [aif.Planner(tmaze.tmaze, solver=SOLVER, max_horizon=4, mesh=m) for m in (mesh, None)]


def test_episodes_are_the_same(planners: list[aif.Planner]) -> None:
    agents = [aif.Agent(planner, tmaze.initial_belief(), max_steps=4) for planner in planners]
    laid, alone = (aif.run_episodes(TMaze, agent, range(3)) for agent in agents)
    assert [e.controls for e in laid.episodes] == [e.controls for e in alone.episodes]
    assert laid.records() == alone.records()


def test_an_agent_acts_by_cost_and_keeps_its_plans(planners: list[aif.Planner]) -> None:
    """After a few steps only, so that the costs tell where a plan started."""
    belief, solver = ring_belief(13), aif.SVISolver(optax.adam(0.5), 3)
    planners = [aif.Planner(ring(), objective=aif.Planning(), solver=solver, mesh=p.mesh) for p in planners]
    laid, alone = (aif.Agent(planner, belief, act_by="cost", warm_start=True) for planner in planners)
    for seen in ({"ahead": 0, "here": 0}, None):
        assert laid.act(seen) == alone.act(seen)
    assert len(laid.plans) == len(alone.plans) == 2
    for mine, other in zip(laid.plans, alone.plans, strict=True):
        np.testing.assert_allclose(mine.free_energy[-1], other.free_energy[-1], rtol=1e-4)
    key, first = jax.random.key(1), laid.plans[0]
    cold, warm = (planners[0].first_scores(key, laid.belief, by_cost=True, warm=w)[0] for w in (None, first))
    np.testing.assert_allclose(warm, alone.plans[1].control_cost, rtol=1e-4)  # whatever the key
    assert not np.allclose(cold, warm, rtol=1e-3)
