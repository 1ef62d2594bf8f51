"""Frozen Lake, Wumpus and RockSample: the numbers of the programs against the environments and published figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npro_aif.envs import FrozenLake, RockSample, Wumpus
from npro_aif.models import frozen_lake, rock_sample, wumpus
from npro_aif.program.program import program_of
from tests.envs.test_against_models import probability, random_steps

pytestmark = pytest.mark.usefixtures("quick_compile")

WORLDS = [
    pytest.param(FrozenLake(), frozen_lake.frozen_lake, frozen_lake.initial_belief(), id="frozen lake"),
    pytest.param(Wumpus(), wumpus.wumpus, wumpus.initial_belief(), id="wumpus"),
    pytest.param(RockSample(), rock_sample.rock_sample, rock_sample.initial_belief(), id="rock sample"),
]


def score(happened: np.ndarray, expected: np.ndarray) -> float:
    """How many standard deviations a count is from what it should be."""
    return float(abs((happened - expected).sum()) / np.sqrt((expected * (1 - expected)).sum() + 1e-9))


@pytest.mark.parametrize(("env", "model", "belief"), WORLDS)
def test_what_happens_is_as_probable_as_the_program_says(env: Any, model: Any, belief: Any) -> None:
    rows, seen = random_steps(env, 10_000)
    world = program_of(model, belief, 1).world(belief, 1)
    theta, state, control, after = rows.T
    kernels = world.observation | world.sensor
    assert set(kernels) == set(env.observation_space.spaces)  # so an agent passes observations on as they are
    taken = probability(world.state, (theta, state, control), after)
    assert (taken > 0).all()
    moves = np.exp(np.asarray(world.state.at(0).table()))
    row = moves[np.minimum(theta, len(moves) - 1), state, control]
    assert score(after == row.argmax(-1), row.max(-1)) < 4
    for name, kernel in kernels.items():
        values = np.array([observation[name] for observation in seen])
        assert (probability(kernel, (theta, after), values) > 0).all(), name
        for value in range(kernel.size):
            expected = probability(kernel, (theta, after), np.full_like(values, value))
            assert score(values == value, expected) < 4, (name, value)


@pytest.mark.parametrize(("env", "model", "belief"), WORLDS[:2])
def test_what_is_over_stays_as_it_is(env: Any, model: Any, belief: Any) -> None:
    """Nothing is scanned or sensed any more, so that no plan can put off looking until it does not matter."""
    world = program_of(model, belief, 1).world(belief, 1)
    rows = np.exp(np.asarray(world.state.at(0).table()))  # (Θ, X, U, X')
    over = {"FrozenLake": frozen_lake, "Wumpus": wumpus}[type(env).__name__].IS_OVER
    theta, cell = np.nonzero(over)
    for flag in range(2):
        state = 2 * cell + flag
        np.testing.assert_allclose(rows[theta, state, :, state], 1.0, atol=1e-6)


def best(moves: np.ndarray, ends: np.ndarray, worth: np.ndarray, start: int, steps: int) -> float:
    """The most that a policy can have which knows θ, (cells, U, cells) and (cells,)."""
    value = np.where(ends, worth, 0.0)
    for _ in range(steps):
        value = np.where(ends, worth, (moves @ value).max(1))
    return float(value[start])


def test_the_lake_with_known_holes() -> None:
    goal = np.arange(frozen_lake.CELLS) == frozen_lake.GOAL
    moves = zip(frozen_lake.moves(), frozen_lake.IS_HOLE, strict=True)
    chances = [best(p, goal | holes, goal, frozen_lake.START, frozen_lake.MAX_STEPS) for p, holes in moves]
    assert np.mean(chances) == pytest.approx(0.9536, abs=5e-5)


def test_the_wumpus_world_with_known_layout() -> None:
    worlds = zip(wumpus.moves(), wumpus.IS_OVER, wumpus.IS_GOLD, strict=True)
    chances = [best(p, over, gold, wumpus.START, wumpus.MAX_STEPS) for p, over, gold in worlds]
    assert np.mean(chances) == pytest.approx(0.875, abs=5e-4)
    assert sum(chance < 0.1 for chance in chances) == 3  # where the gold is out of reach


def test_the_rocks_with_known_qualities() -> None:
    """All good rocks and the exit: 1 + 2 · 3/2 on average."""
    cell, taken, _ = rock_sample.results()
    rewards = np.array([2 * q - 3 * (1 - q) for q in rock_sample.QUALITIES])  # (Θ, rocks)
    values = np.zeros((len(rewards), *cell.shape[:2]))
    for _ in range(rock_sample.MAX_STEPS):
        later = values[:, cell, taken]
        fresh = rock_sample.TAKEN[taken] - rock_sample.TAKEN[:, None][None]  # (cells, taken, U, rocks)
        reward = np.einsum("ctur,kr->kctu", fresh, rewards)
        leaves = rock_sample.AT_EXIT[cell] & ~rock_sample.AT_EXIT[:, None, None]
        values = (reward + leaves + later).max(-1)
    assert values[:, rock_sample.START, 0].mean() == pytest.approx(4.0)
