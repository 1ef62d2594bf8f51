"""Bounds for agents with a 3×3 view in DoorKey: the shortest path with the whole map known, and the optimum.

The optimum is the Bayes-optimal policy's expected number of steps under MiniGrid's prior, computed exactly by AND/OR
search over information states with two independent programs (not part of this package): 18.149 at size 8, 1.0825 times
the shortest path with the map known (16.766).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from npro_aif.models.doorkey import CONTROLS, Layout, State, next_state, site_sizes

OPTIMUM_SIZE, OPTIMUM = 8, 18.149  # expected steps
OPTIMUM_ON = {(1000, 100): 17.74}  # by first seed and number of episodes: its mean over just these


def optimum(size: int, first_seed: int, episodes: int) -> float | None:
    """The fewest steps that can be expected, of these episodes where it is known, else under the prior.

    >>> optimum(8, 1000, 100), optimum(8, 42, 100), optimum(5, 0, 20)
    (17.74, 18.149, None)
    """
    return OPTIMUM_ON.get((first_seed, episodes), OPTIMUM) if size == OPTIMUM_SIZE else None


@functools.lru_cache(maxsize=4096)
def shortest_path(theta: int, state: int, size: int) -> int:
    """How many controls lead from a state to the goal at least, by breadth-first search.

    :param theta: the layout, as the model counts them.
    :param state: the agent's state, as the model counts them.

    >>> shortest_path(theta=0, state=0, size=5)
    13
    """
    to = successors(theta, size)
    num_goals = 16  # the goal is the last position, in any of its directions and statuses
    reached = np.zeros(len(to), dtype=bool)
    reached[state] = True
    for steps in range(len(to)):
        if reached[-num_goals:].any():
            return steps
        reached[to[reached]] = True
    raise ValueError(f"theta: found the layout {theta}, from which the state {state} does not reach the goal")


@functools.lru_cache(maxsize=4096)
def successors(theta: int, size: int) -> np.ndarray:
    """The next state by (state, control), (X, U), in one layout."""
    parameters, sizes = site_sizes(size)
    cells: Any = np.divmod(np.int32(theta), np.int32(parameters["door"]))
    flat = np.arange(np.prod(list(sizes.values())))[:, None]
    values: Any = [index.astype(np.int32) for index in np.unravel_index(flat, tuple(sizes.values()))]
    controls: Any = np.arange(len(CONTROLS), dtype=np.int32)
    after = next_state(State(*values), controls, Layout(*cells), size)
    position, direction, status = map(np.asarray, after)
    return (position * 4 + direction) * 4 + status
