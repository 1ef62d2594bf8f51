"""Belief updates against enumeration on random worlds, and on DoorKey against MiniGrid itself.

The DoorKey filter here has no model: every hypothesis is a copy of MiniGrid's own environment, all copies do what
the agent does, and those that do not show what it sees are dropped.
"""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from minigrid.envs import DoorKeyEnv

import npro_aif as aif
from npro_aif.acting.filter import Filter
from npro_aif.envs import DoorKey
from npro_aif.models import doorkey, tmaze
from npro_aif.program.program import program_of
from tests.models.test_doorkey import ACTIONS, cells_of, find, put, state_of
from tests.worlds import random_world

# Every fourth recipe in the long run; in the short one several sites, zeros, and moves that are certain.
SEEDS = [s if s in (4, 16, 20) else pytest.param(s, marks=pytest.mark.slow) for s in range(0, 40, 4)]


def enumerated(world: Any, control: int | None, seen: dict[int, int]) -> np.ndarray:
    """p(θ, x | u, y) ∝ Σ_x0 p(θ) p(x0|θ) p(x|x0,u,θ) Π p(y|x,θ), entry by entry."""
    tables = world.tables
    joint = np.zeros_like(tables.initial)
    for theta, start in np.ndindex(joint.shape):
        mass = tables.parameter[theta] * tables.initial[theta, start]
        if control is None:
            joint[theta, start] += mass
        else:
            joint[theta] += mass * tables.state[0, theta, start, control]
    for site, value in seen.items():
        joint = joint * tables.observations[site][0, :, :, value]
    return joint


@pytest.mark.parametrize("seed", SEEDS)
def test_equals_enumeration(seed: int, x64: None, quick_compile: None) -> None:
    world, rng = random_world(seed), np.random.default_rng(seed)
    names = list(world.shapes.observation)
    belief = world.belief()
    for control in (None, int(rng.integers(world.tables.control.shape[-1]))):
        for sites in ([], [0], list(range(len(names)))):
            expected, seen = enumerated(world, control, {}), {}
            for site in sites:  # draw what is seen, so that it is possible
                predicted = np.einsum("ix,ixy->y", expected, world.tables.observations[site][0])
                seen[site] = int(rng.choice(len(predicted), p=predicted / predicted.sum()))
                expected = enumerated(world, control, seen)
            expected = expected / expected.sum()
            observation = {names[site]: value for site, value in seen.items()}
            found = aif.update_belief(world.model, belief, control, observation or None)
            joint = np.asarray(found.parameter)[:, None] * np.asarray(found.state)
            np.testing.assert_allclose(joint, expected, atol=1e-12, err_msg=world.description)
            np.testing.assert_allclose(np.asarray(found.state).sum(-1), 1, atol=1e-12)


class MiniGridFilter:
    """Exact inference by running MiniGrid once for every layout, cell and direction that it could have drawn."""

    def __init__(self, size: int):
        self.size = size
        n = size - 2
        prior = doorkey.initial_belief(size)
        self.shape = prior.state.shape
        self.weights: list[float] = []
        self.envs: list[DoorKeyEnv] = []
        for wall in range(1, n - 1):
            for door_row in range(n - 1):
                room = [(row, column) for row in range(n) for column in range(wall)]
                for key in room:
                    for agent in room:
                        for direction in range(4 if agent != key else 0):
                            layout = key[0] * (n - 2) + key[1], door_row * (n - 2) + wall - 1
                            env = DoorKeyEnv(size=size, agent_view_size=3)
                            env.reset(seed=0)
                            env.door = env.grid.get(*find(env, "door"))
                            put(env, layout, (agent[0] * n + agent[1], direction, 0))
                            env.theta = layout[0] * (n - 1) * (n - 2) + layout[1]
                            self.envs.append(env)
                            self.weights.append(1 / (n - 2) / (n - 1) / len(room) / (len(room) - 1) / 4)
        self.images = [env.gen_obs() for env in self.envs]
        self.over = [False] * len(self.envs)

    def step(self, action: int) -> None:
        for i, env in enumerate(self.envs):
            if not self.over[i]:
                self.images[i], _, self.over[i], _, _ = env.step(ACTIONS[action])

    def see(self, observation: dict[str, int]) -> np.ndarray:
        """Drop what shows something else; p(θ, x) of the rest."""
        cells = [observation[f"cell_{k}"] for k in range(9)]
        kept = [
            i
            for i, image in enumerate(self.images)
            if cells_of(image["image"]) == cells and image["direction"] == observation["heading"]
        ]
        self.envs, self.weights, self.images, self.over = (
            [values[i] for i in kept] for values in (self.envs, self.weights, self.images, self.over)
        )
        joint = np.zeros(self.shape)
        for env, weight in zip(self.envs, self.weights, strict=True):
            position, direction, status = state_of(env)
            joint[env.theta, (position * 4 + direction) * 4 + status] += weight
        return joint / joint.sum()


def doorkey_filter(size: int) -> tuple[Filter, aif.Belief]:
    belief = doorkey.initial_belief(size)
    return Filter(program_of(functools.partial(doorkey.doorkey, size=size), belief, 1)), belief


def compare_with_minigrid(size: int, episodes: int, steps: int) -> None:
    update, prior = doorkey_filter(size)
    rng = np.random.default_rng(size)
    env = DoorKey(size=size)
    for seed in range(episodes):
        oracle = MiniGridFilter(size)
        observation, info = env.reset(seed=seed)
        belief, control = prior, None
        for _ in range(steps):
            belief = update(belief, control, observation)
            joint = np.asarray(belief.parameter)[:, None] * np.asarray(belief.state)
            np.testing.assert_allclose(joint, oracle.see(observation), atol=1e-6)
            assert joint[info["theta"], info["state"]] > 0
            control = int(rng.choice(5, p=[0.15, 0.15, 0.4, 0.15, 0.15]))
            oracle.step(control)
            observation, _, terminated, _, info = env.step(control)
            if terminated:
                break


@pytest.mark.optimised
def test_doorkey_equals_minigrids_own_hypotheses() -> None:
    compare_with_minigrid(5, episodes=2, steps=20)


@pytest.mark.slow
def test_doorkey_equals_minigrids_own_hypotheses_long() -> None:
    compare_with_minigrid(6, episodes=20, steps=30)


def random_play_stays_believed(size: int, episodes: int) -> None:
    """The true layout and state keep positive probability, whatever the agent does."""
    update, prior = doorkey_filter(size)
    env, rng = DoorKey(size=size), np.random.default_rng(size)
    for seed in range(episodes):
        observation, info = env.reset(seed=seed)
        belief, control, over = prior, None, False
        while not over:
            belief = update(belief, control, observation)
            theta, state = info["theta"], info["state"]
            assert belief.parameter[theta] > 0
            assert belief.state[theta, state] > 0
            np.testing.assert_allclose(np.asarray(belief.parameter).sum(), 1, atol=1e-5)
            control = int(rng.integers(5))
            observation, _, terminated, truncated, info = env.step(control)
            over = terminated or truncated


@pytest.mark.optimised
@pytest.mark.parametrize(("size", "episodes"), [(5, 8), pytest.param(6, 2, marks=pytest.mark.slow)])
def test_the_truth_stays_believed(size: int, episodes: int) -> None:
    random_play_stays_believed(size, episodes)


@pytest.mark.slow
@pytest.mark.parametrize("size", [5, 6, 8])
def test_the_truth_stays_believed_long(size: int) -> None:
    random_play_stays_believed(size, 300)


def test_an_impossible_observation_names_the_site_and_the_step() -> None:
    start = tmaze.initial_belief()
    seen = {"cue": 0, "place": tmaze.LEFT}  # two moves away
    with pytest.raises(aif.ImpossibleObservation, match=r"site 'place' at step 3: observed left \(2\)"):
        aif.update_belief(tmaze.tmaze, start, tmaze.SOUTH, seen, step=3)
    ignored = aif.update_belief(tmaze.tmaze, start, tmaze.SOUTH, seen, ignore_impossible=True)
    assert np.asarray(ignored.parameter).tolist() == [1, 0]  # the cue counts, the place does not
    assert np.asarray(ignored.state[0]).tolist() == [1, 0, 0, 0, 0]
    assert np.isfinite(np.asarray(ignored.state)).all()


def test_wrong_arguments_are_refused() -> None:
    start = tmaze.initial_belief()
    with pytest.raises(ValueError, match="found 'smell', expected some of the sites"):
        aif.update_belief(tmaze.tmaze, start, 0, {"smell": 1})
    with pytest.raises(ValueError, match="observation 'place': found 9, expected a whole number from 0 to 4"):
        aif.update_belief(tmaze.tmaze, start, 0, {"place": 9})
    with pytest.raises(ValueError, match="control: found 4, expected a whole number from 0 to 3"):
        aif.update_belief(tmaze.tmaze, start, 4, {"place": 0})
    with pytest.raises(ValueError, match="expected a dict with some of the sites"):
        aif.update_belief(tmaze.tmaze, start, 0, 1)
    with pytest.raises(aif.ModelError, match="sums to"):
        aif.update_belief(tmaze.tmaze, aif.Belief(jnp.ones(2), start.state), 0, {"place": 0})
