"""DoorKey by search: a small grid against a recursion over all that may be known, and the figures of the large one."""

from __future__ import annotations

import functools
from collections import defaultdict

import jax
import numpy as np
import pytest

import npro_aif as aif
from benchmarks.bench_search import DoorKey, look_ahead, optimum
from npro_aif.envs import DoorKey as Environment
from npro_aif.models import doorkey
from npro_aif.solvers.search.contingency import Contingency
from npro_aif.solvers.search.hypotheses import Step
from tests.support import assert_close

pytestmark = pytest.mark.usefixtures("quick_compile")

Known = tuple[tuple[int, int], ...]  # where each hypothesis that is still possible began, and where it is now


def least_cost(steps: list[Step], weight: dict[int, float], known: Known) -> float:
    """Every control at every turn, without bounds, merging or leaving out; times the probability of being here.

    :param steps: those that are left.
    """

    @functools.cache
    def least(known: Known, left: int) -> float:
        if left == 0:
            return 0.0
        step = steps[len(steps) - left]
        options = []
        for control in range(step.cost.shape[1]):
            cost = sum(weight[first] * step.cost[h, control] for first, h in known)
            seen = defaultdict(list)
            for first, h in known:
                ahead = int(step.to[h, control, 0])
                seen[int(step.label[ahead, 0])].append((first, ahead))
            options.append(cost + sum(least(tuple(part), left - 1) for part in seen.values()))
        return min(options)

    return least(known, len(steps))


def test_a_small_grid() -> None:
    """The first looks that cost most beyond perfect information, on a grid of size 6; and look-ahead to the end."""
    horizon = 13
    world = DoorKey(6, horizon)
    best = optimum(world)
    assert best.solved == len(best.seconds)
    assert_close(best.upper, best.lower, 1e-9)
    steps = [world.game.plain(left).step for left in range(horizon, 0, -1)]
    label = steps[0].label[world.support, 0]
    prior = dict(zip(world.support.tolist(), world.weight.tolist(), strict=True))
    looks = zip(np.unique(label), world.looks(horizon), strict=True)
    for value, (share, node) in sorted(looks, key=lambda look: -look[1][0] * look[1][1].low)[:3]:
        known = tuple((h, h) for h in world.support[label == value].tolist())
        expected = least_cost(steps, prior, known) / share
        assert_close(node.floor + node.low, expected, 1e-9)
        assert node.floor < expected - 0.1
    far, _ = look_ahead(world, horizon)
    assert_close(far, best.steps, 1e-9)


def followed_cost(steps: list[Step], support: np.ndarray, weight: np.ndarray, policy: Contingency) -> float:
    """What a plan costs, hypothesis by hypothesis along its graph."""
    total, ((_, start),) = 0.0, policy.starts
    for h, share in zip(support.tolist(), weight.tolist(), strict=True):
        place = start
        for step in steps:
            control = policy.controls[place]
            total += share * step.cost[h, control]
            h = int(step.to[h, control, 0])
            place = policy.follow(place, tuple(step.shown[h, 0].tolist()))
    return total


def test_a_small_grid_in_a_hurry() -> None:
    """What the search does not reach is done by a rule, whose cost is known before the plan is replayed."""
    world = DoorKey(6, 13)
    steps = [world.game.plain(left).step for left in range(13, 0, -1)]
    model, belief = functools.partial(doorkey.doorkey, size=6), doorkey.initial_belief(6)
    (look, _), upper = Environment(size=6).reset(seed=1002), np.inf
    for nodes in (1, 5, None):
        solver = aif.SearchSolver(max_nodes=nodes)
        plans = aif.Planner(model, aif.guides.RecallGuide(model), aif.Planning(), solver, max_horizon=13)
        agent = aif.Agent(plans, belief, max_steps=13)
        agent.act(look)
        plan = agent.plans[-1]
        info = plan.info
        hypotheses = world.game.hypotheses(plan.belief)
        assert_close(followed_cost(steps, *hypotheses, plan.params["contingency"]), info.upper, 1e-9)
        assert_close(plans.certificates[-1].upper, info.upper, 1e-5)
        assert bool(info.optimal) == (nodes is None)
        assert info.upper <= upper + 1e-5
        upper = float(info.upper)
    assert info.lower >= upper - 1e-5


@pytest.mark.slow
def test_the_figures_of_the_large_grid() -> None:
    """The optimum of two independent programs, 18.149 steps, and what looking 1, 2 and 3 steps ahead takes."""
    world = DoorKey(8, 35)
    assert_close(world.informed(), 44.7134, 5e-4)
    best = optimum(world)
    assert best.solved == len(best.seconds) == 300
    assert_close(best.lower, 45.4050, 5e-4)
    assert_close(best.upper, best.lower, 1e-6)
    assert_close(best.steps, 18.1494, 5e-4)
    for depth, steps in ((1, 18.96), (2, 18.30), (3, 18.23)):
        assert_close(look_ahead(world, depth)[0], steps, 0.02)


@pytest.mark.slow
def test_an_agent_on_the_large_grid() -> None:
    """It reaches the goal every time, and goes on in its tree: later decisions hardly ever look at anything new."""
    model, belief = doorkey.doorkey, doorkey.initial_belief(8)
    plans = aif.Planner(model, aif.guides.RecallGuide(model), aif.Planning(), aif.SearchSolver(), max_horizon=35)
    agent = aif.Agent(plans, belief, max_steps=35)
    with jax.enable_x64(False):
        outcomes = aif.run_episodes(Environment, agent, range(1000, 1020))
    assert all(episode.reward > 0 for episode in outcomes.episodes)
    assert np.mean([c.optimal for c in plans.certificates]) == 1.0
    first = sum(c.nodes for c in plans.certificates if c.horizon == 35)
    later = sum(c.nodes for c in plans.certificates if c.horizon < 35)
    assert later < 0.05 * first
