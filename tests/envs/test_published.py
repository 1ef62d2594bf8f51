"""The environments with the draws of the paper's code, against Python's generator used directly."""

from __future__ import annotations

import random

import pytest
from minigrid.core.world_object import Key

from npro_aif.envs import PublishedDoorKey, PublishedReactivityMaze, PublishedTMaze
from npro_aif.envs.reactivity_maze import CUE, KNOB_DOWN, KNOB_UP, VISIT_CUE
from npro_aif.envs.tmaze import NORTH, SOUTH, START, WEST


def test_the_tmazes_sides_are_those_of_the_published_rows() -> None:
    env = PublishedTMaze()
    sides = [env.reset(seed=k)[1]["theta"] for k in range(200)]
    assert sides.count(0) == 95  # 47.5 %: F_marginal's 48 %, and F_planning's 52 % are the others
    for stream, left in zip(range(42, 47), (15, 10, 10, 10, 12), strict=True):  # appendix B: 75 %, and 0.14 ± 0.22
        env = PublishedTMaze(stream=stream)
        assert [env.reset(seed=k)[1]["theta"] for k in range(20)].count(0) == left
    with pytest.raises(ValueError, match="seed: found None"):
        env.reset()


def test_south_from_an_arm_leads_to_the_start() -> None:
    env = PublishedTMaze()
    env.reset(seed=0)
    for control in (NORTH, WEST):
        env.step(control)
    assert env.step(SOUTH)[0]["place"] == START


def test_one_stream_runs_through_the_episodes_of_the_reactivity_maze() -> None:
    """θ, location, then at each step one number for the observation and what the move needs."""
    env, draws = PublishedReactivityMaze(), random.Random(42)
    controls = [VISIT_CUE, KNOB_DOWN, 1, KNOB_UP, 2]
    for episode in range(30):
        observation, info = env.reset(seed=episode)
        theta, location, knob = draws.randint(0, 1), draws.randint(0, 4), 4
        assert (info["theta"], observation["seen_location"]) == (theta, location)
        draws.random()
        for control in controls:
            if location == CUE:
                new = draws.randint(0, 4)
            elif location == 5:
                new = 5
            elif control == VISIT_CUE:
                new = CUE
            elif draws.random() < knob / 4:
                new = (location + control) % 5 if control < 5 else location
            else:
                new = 5
            knob = min(4, max(0, knob + {KNOB_DOWN: -1, KNOB_UP: 1}.get(control, 0)))
            location = new
            observation = env.step(control)[0]
            draws.random()
            assert (observation["seen_location"], observation["seen_knob"]) == (location, knob)


def test_the_episodes_of_a_stream_cannot_be_skipped() -> None:
    env = PublishedReactivityMaze()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="seed: found 5, expected 1: the episodes are one stream"):
        env.reset(seed=5)
    with pytest.raises(ValueError, match="options: found"):
        env.reset(options={"theta": 0})


def test_the_details_of_the_code() -> None:
    env = PublishedReactivityMaze(details=True, first_look=False)
    observation, info = env.reset()
    assert observation == {}
    observation = env.step(KNOB_DOWN)[0]
    assert (observation["cue"], observation["seen_knob"]) == (2, 3)
    observation = env.step(VISIT_CUE)[0]
    assert (observation["cue"], observation["seen_knob"]) == (info["theta"], 3)
    assert env.step(KNOB_UP)[0]["seen_knob"] == 3  # it stood at the cue


def test_drop_really_drops_the_key() -> None:
    env = PublishedDoorKey(size=5)
    env.reset(seed=0)
    env.minigrid.carrying = Key("yellow")
    assert env.action_space.n == 7
    env.minigrid.grid.set(*env.minigrid.front_pos, None)  # there is room for it
    env.step(4)
    assert env.minigrid.carrying is None
