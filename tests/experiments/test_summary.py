"""The statistics against SciPy, and the shortest path against a search in MiniGrid itself."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import numpy as np
import pytest
from scipy import stats

from npro_aif.acting.episodes import Effort, Episode
from npro_aif.envs import DoorKey
from npro_aif.experiments.shortest import shortest_path
from npro_aif.experiments.summary import summarize, wilson
from npro_aif.experiments.tasks import make_task

EFFORT = Effort(decisions=10, problems=4, seconds=9.0, compile_seconds=1.0)


@pytest.mark.parametrize(("successes", "count"), [(0, 7), (7, 7), (1, 200), (123, 200), (200, 200)])
def test_wilson_is_scipys(successes: int, count: int) -> None:
    expected = stats.binomtest(successes, count).proportion_ci(0.95, method="wilson")
    assert wilson(successes, count) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_refuses_what_is_no_proportion() -> None:
    for successes, count in ((3, 2), (-1, 2), (0, 0)):
        with pytest.raises(ValueError, match="successes: found"):
            wilson(successes, count)


def reactivity(reward: float, locations: list[int]) -> Episode:
    infos: Any = tuple({"theta": 0, "state": location * 5 + 4} for location in locations)
    return Episode(0, reward, len(locations) - 1, True, (0,) * (len(locations) - 1), infos)


def test_a_summary_by_hand() -> None:
    episodes = [
        reactivity(1.0, [1, 6, 2, 0]),
        reactivity(0.33, [1, 1, 5]),
        reactivity(-1.0, [1, 1, 1]),
        reactivity(0.33, [5, 5]),
    ]
    found = summarize(make_task("reactivity"), episodes, EFFORT)
    assert (found["success"], found["cue"], found["safe"]) == (0.25, 0.25, 0.5)
    assert (found["safe_low"], found["safe_high"]) == wilson(2, 4)
    assert found["reward"] == pytest.approx(0.165)
    assert found["reward_std"] == pytest.approx(np.std([1, 0.33, -1, 0.33]))
    assert found["steps"] == 2
    assert found["shortest"] is found["steps_over_shortest"] is None
    assert found["seconds_per_decision"] == 2.0
    assert (found["compile_seconds"], found["decisions"], found["problems"]) == (1.0, 10, 4)


def test_nothing_ended_yet() -> None:
    found = summarize(make_task("tmaze"), [], EFFORT)
    assert found["episodes"] == 0
    assert found["success"] is found["reward"] is found["success_low"] is None


def search(env: DoorKey) -> int:
    """Breadth-first search that steps copies of MiniGrid's environment."""
    queue, seen = deque([(env, 0)]), {env._info()["state"]}
    while queue:
        here, steps = queue.popleft()
        for control in range(5):
            there = copy.deepcopy(here)
            _, _, terminated, _, info = there.step(control)
            if terminated:
                return steps + 1
            if info["state"] not in seen:
                seen.add(info["state"])
                queue.append((there, steps + 1))
    raise AssertionError("the goal is out of reach")


@pytest.mark.parametrize("seed", range(3))
def test_the_shortest_path_is_minigrids(seed: int) -> None:
    env = DoorKey(size=5, max_steps=1000)
    _, info = env.reset(seed=seed)
    assert shortest_path(info["theta"], info["state"], 5) == search(env)


def test_the_shortest_path_is_in_the_summary() -> None:
    env = DoorKey(size=5)
    _, info = env.reset(seed=0)
    shortest = shortest_path(info["theta"], info["state"], 5)
    episode = Episode(0, 0.9, 2 * shortest, True, (), (info,))
    found = summarize(make_task("doorkey", size=5), [episode], EFFORT)
    assert found["steps_over_shortest"] == 2
    assert found["shortest"] == shortest
    assert found["cue"] is found["safe"] is None
