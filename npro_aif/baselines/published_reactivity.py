"""The Reactivity Maze as the paper's authors model it in pymdp: three modalities, and the reward is never observed.

Every state with the knob below 4, and the cue, show the reward "none", to which their C gives 0. By the paper's own
rewards a knob below 4 is worth −0.33; with an outcome of its own for that both baselines do better (docs/baselines.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from npro_aif.baselines.published import Arrays, PublishedAgent
from npro_aif.models.reactivity_maze import CONTROLS, CUE, FULL, GOALS, KNOBS, LOCATIONS, SINK, variant

NONE, GOAL, WRONG, SAFE, LOW_KNOB = range(5)  # outcomes of the reward, the last one not in the authors' code
PREFERENCES = (0.0, 1.0, -1.0, 0.33)  # C of the authors' code
TIE_SEED = 42  # theirs are drawn unseeded


def published_arrays(c_low_knob: float | None = None) -> Arrays:
    """The authors' A, B, C and D.

    :param c_low_knob: C of an outcome of its own for states with the knob below 4; by default they show "none".

    >>> arrays = published_arrays()
    >>> [a.shape for a in arrays.A], arrays.B.shape
    ([(7, 35, 2), (3, 35, 2), (4, 35, 2)], (8, 35, 35))
    """
    tables = variant(details=True)
    num_states = LOCATIONS * KNOBS
    location, knob = np.divmod(np.arange(num_states), KNOBS)
    states, goals = np.arange(num_states)[:, None], np.arange(GOALS)

    moves = np.zeros((CONTROLS, LOCATIONS, KNOBS, num_states))
    for u in range(CONTROLS):
        for x in range(num_states):
            moves[u, :, tables.knob[location[x], knob[x], u], x] = tables.location[location[x], knob[x], u]

    seen = np.zeros((LOCATIONS, num_states, GOALS))
    seen[location[:, None], states, goals] = 1
    word = np.moveaxis(tables.cue[location], -1, 0)
    right = np.where(location[:, None] == goals, GOAL, WRONG)
    outcome = np.where((location == CUE)[:, None], NONE, right)
    outcome = np.where((location == SINK)[:, None], SAFE, outcome)
    outcome = np.where((knob < FULL)[:, None], NONE if c_low_knob is None else LOW_KNOB, outcome)
    preferences = np.array(PREFERENCES if c_low_knob is None else (*PREFERENCES, c_low_knob))
    reward = np.zeros((len(preferences), num_states, GOALS))
    reward[outcome, states, goals] = 1
    start = (knob == FULL) / LOCATIONS
    return Arrays(
        A=(seen, word, reward),
        B=moves.reshape(CONTROLS, num_states, num_states),
        C=(np.zeros(LOCATIONS), np.zeros(GOALS + 1), preferences),
        D=(start, np.full(GOALS, 1 / GOALS)),
    )


def modalities(observation: Mapping[str, int]) -> tuple[int, int, None]:
    """What the agent observes: location and word, never the reward."""
    return observation["seen_location"], observation["cue"], None


def published_agent(
    method: Literal["efe", "sophisticated"],
    horizon: int,
    max_steps: int,
    *,
    c_low_knob: float | None = None,
    seed: int = TIE_SEED,
) -> PublishedAgent:
    """The baseline of the paper's Table 2."""
    return PublishedAgent(published_arrays(c_low_knob), horizon, max_steps, modalities, method=method, seed=seed)
