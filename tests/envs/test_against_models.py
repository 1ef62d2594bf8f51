"""Random steps of every environment under the program of the same name: nothing that happens is impossible there."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from npro_aif.envs import DoorKey, ReactivityMaze, TMaze
from npro_aif.models import doorkey, reactivity_maze, tmaze
from npro_aif.program.program import program_of
from npro_aif.tables.kernels import Kernel

STEPS = 10_000


def random_steps(env: Any, steps: int) -> tuple[np.ndarray, list[dict[str, int]]]:
    """Rows of θ, state, control, next state; and what was observed then."""
    rng, rows, seen, seed = np.random.default_rng(0), [], [], 0
    while len(rows) < steps:
        _, info = env.reset(seed=seed)
        seed, over = seed + 1, False
        while not over:
            control = int(rng.integers(env.action_space.n))
            observation, _, terminated, truncated, after = env.step(control)
            rows.append((info["theta"], info["state"], control, after["state"]))
            seen.append(observation)
            info, over = after, terminated or truncated
    return np.array(rows), seen


def probability(kernel: Kernel, given: tuple[np.ndarray, ...], outcome: np.ndarray) -> np.ndarray:
    """p(outcome | given) at slice 1; axes of size 1 stand for all values."""
    table = np.exp(np.asarray(kernel.at(0).table()))
    entry = table[tuple(np.zeros_like(i) if size == 1 else i for i, size in zip(given, table.shape, strict=False))]
    return entry[np.arange(len(outcome)), outcome]


@pytest.mark.parametrize(
    ("env", "model", "belief"),
    [
        (TMaze(), tmaze.tmaze, tmaze.initial_belief()),
        (TMaze(arm_shortcut=True), functools.partial(tmaze.tmaze, arm_shortcut=True), tmaze.initial_belief()),
        (ReactivityMaze(), reactivity_maze.reactivity_maze, reactivity_maze.initial_belief()),
        (DoorKey(size=6), functools.partial(doorkey.doorkey, size=6), doorkey.initial_belief(6)),
    ],
    ids=["tmaze", "authors' tmaze", "reactivity", "doorkey"],
)
def test_what_happens_is_possible(env: Any, model: Any, belief: Any, quick_compile: None) -> None:
    rows, seen = random_steps(env, STEPS)
    world = program_of(model, belief, 1).world(belief, 1)
    theta, state, control, after = rows.T
    assert (probability(world.state, (theta, state, control), after) > 0).all()
    kernels = world.observation | world.sensor
    assert set(kernels) == set(env.observation_space.spaces)  # so an agent passes observations on as they are
    for name, kernel in kernels.items():
        values = np.array([observation[name] for observation in seen])
        assert (probability(kernel, (theta, after), values) > 0).all(), name
