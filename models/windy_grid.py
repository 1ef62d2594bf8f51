"""A grid with wind, which blows upwards in each column with an unknown strength.

Places are (x, y), counted from 1, x to the right and y upwards. A move takes one step, and the wind of the column where
it began carries the agent up by its strength; nobody leaves the grid.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif

SIZE = 5
CONTROLS = ("up", "right", "down", "left")
STEPS = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])
WIND = (0, 1, 1, 1, 0)  # by column
STRENGTHS = 2  # how many different strengths there are: 0 and 1
START, GOAL = (1, 1), (4, 3)
GAMMA = 4.0


def cell(place: Sequence[int]) -> int:
    """The index of a place.

    >>> cell((1, 1)), cell((4, 3))
    (0, 13)
    """
    x, y = place
    return (x - 1) + SIZE * (y - 1)


def winds(strengths: int = STRENGTHS) -> np.ndarray:
    """Every possible wind, (strengths ** 5, 5)."""
    return np.array(list(itertools.product(range(strengths), repeat=SIZE)))


def transitions(wind: Sequence[int] | np.ndarray = WIND) -> np.ndarray:
    """The next cell, (25, 4)."""
    y, x = np.divmod(np.arange(SIZE * SIZE)[:, None], SIZE)
    right, up = STEPS.T
    to_x = np.clip(x + right, 0, SIZE - 1)
    to_y = np.clip(y + up + np.asarray(wind)[x], 0, SIZE - 1)
    return to_x + SIZE * to_y


def windy_grid(
    belief: aif.Belief,
    horizon: int = 4,
    *,
    gamma: Any = GAMMA,
    strengths: int = STRENGTHS,
    table: Any = None,
) -> None:
    """The grid as a NumPyro program, with the wind as its parameter; the agent's place is seen.

    :param gamma: how much better the goal is at the end than any other place (log units).
    :param strengths: how many strengths the wind may have in a column.
    :param table: p(cell' | cell, u), (25, 4, 25), in place of the wind; it may be traced. The world then has no
        parameter.

    >>> from numpyro.handlers import seed, trace
    >>> list(trace(seed(windy_grid, 0)).get_trace(initial_belief(), horizon=1))
    ['wind', 'cell_0', 'u_1', 'cell_1', 'place_1', 'goal_1']
    """
    num_cells, row = SIZE * SIZE, belief.state[0]
    wind: Any = None
    if table is None:
        every = winds(strengths)
        next_cell = jnp.asarray(np.stack([transitions(wind) for wind in every]))
        wind = aif.parameter("wind", dist.Categorical(probs=belief.parameter), labels=_labels(every))
        row = belief.state[wind]
    at = aif.state("cell", dist.Categorical(probs=row))

    def step(at: Any, t: Any) -> Any:
        u = aif.control("u", dist.Categorical(probs=jnp.full(4, 0.25)), labels=CONTROLS)
        if table is None:
            moved: Any = aif.DeterministicCategorical(next_cell[wind, at, u], num_cells)
        else:
            moved = dist.Categorical(probs=jnp.asarray(table)[at, u])
        at = aif.state("cell", moved)
        aif.observation("place", aif.DeterministicCategorical(at, num_cells))
        aif.preference("goal", jnp.where((t == horizon) & (at == cell(GOAL)), gamma, 0.0))
        return at

    aif.rollout(step, at, horizon)


def _labels(every: np.ndarray) -> tuple[str, ...]:
    return tuple("".join(map(str, wind)) for wind in every)


def initial_belief(place: Sequence[int] = START, strengths: int | None = STRENGTHS) -> aif.Belief:
    """At a place, with every wind equally likely; ``strengths=None`` is for a world with a table.

    >>> initial_belief().state.shape, initial_belief(strengths=None).state.shape
    ((32, 25), (1, 25))
    """
    count = 1 if strengths is None else strengths**SIZE
    return aif.Belief(jnp.full(count, 1 / count), jnp.tile(jax.nn.one_hot(cell(place), SIZE * SIZE), (count, 1)))
