"""The Reactivity Maze as a NumPyro program with two state sites: a location, and a knob that sets how surely it moves.

Locations 0–4 are for navigation, 5 is an absorbing safe sink and 6 the cue, which tells θ, the right goal.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif

LOCATIONS, KNOBS, CONTROLS, GOALS = 7, 5, 8, 2
NAVIGATION, SINK, CUE = 5, 5, 6  # the number of navigation locations, and the two special ones
FULL = KNOBS - 1  # the knob value at which moves never fail
KNOB_DOWN, KNOB_UP, VISIT_CUE = 5, 6, 7
CUE_COST = 1.2  # the paper's ε: the cue's prior probability is 1/ε of another control's

PUBLISHED_CUE_COST = 1.229  # what the paper's code has

LEARN = ("parameter", "control", "state", "observation")
WEIGHT = 1.0

LOCATION_LABELS = ("0", "1", "2", "3", "4", "sink", "cue")
CONTROL_LABELS = ("+0", "+1", "+2", "+3", "+4", "knob down", "knob up", "cue")


class Variant(NamedTuple):
    """The tables of one reading of the maze."""

    location: np.ndarray  # (7, 5, 8, 7) p(location' | location, knob, u)
    knob: np.ndarray  # (5, 8) the next knob by (knob, u), or (7, 5, 8) by (location, knob, u)
    cue: np.ndarray  # (7, 2, words) p(word | location, θ)
    reward: np.ndarray  # (7, 5, 2) log p̂ at the end
    cue_cost: float


def _location_table() -> np.ndarray:
    """p(location' | location, knob, u): (7, 5, 8, 7)."""
    table = np.zeros((LOCATIONS, KNOBS, CONTROLS, LOCATIONS))
    stays_up = np.arange(KNOBS) / FULL  # probability that the agent does not fall into the sink
    for location in range(NAVIGATION):
        for control in range(CONTROLS):
            target = (location + control) % NAVIGATION if control < NAVIGATION else location
            table[location, :, control, target] = stays_up
            table[location, :, control, SINK] = 1 - stays_up
        table[location, :, VISIT_CUE] = np.eye(LOCATIONS)[CUE]
    table[SINK, ..., SINK] = 1
    table[CUE, ..., :NAVIGATION] = 1 / NAVIGATION
    return table


def _knob_table() -> np.ndarray:
    """The next knob value by (knob, u): (5, 8)."""
    turn = np.zeros(CONTROLS, dtype=np.int32)
    turn[[KNOB_DOWN, KNOB_UP]] = -1, 1
    return np.clip(np.arange(KNOBS, dtype=np.int32)[:, None] + turn, 0, FULL)


def _cue_table() -> np.ndarray:
    """p(cue | location, θ): (7, 2, 2), uniform everywhere but at the cue."""
    table = np.full((LOCATIONS, GOALS, 2), 0.5)
    table[CUE] = np.eye(GOALS)
    return table


def _reward_table() -> np.ndarray:
    """R_T by (location, knob, θ): (7, 5, 2); 0 at the cue with the knob at 4, where the paper has no case."""
    reward = np.full((LOCATIONS, KNOBS, GOALS), -0.33)
    reward[:NAVIGATION, FULL] = -1.0
    reward[np.arange(GOALS), FULL, np.arange(GOALS)] = 1.0
    reward[CUE, FULL] = 0.0
    reward[SINK] = 0.33
    return reward


@functools.cache
def variant(details: bool) -> Variant:
    """The maze of the paper's text, or with the details of its code."""
    if not details:
        return Variant(LOCATION, KNOB, CUE_GIVEN, REWARD, CUE_COST)
    knob = np.broadcast_to(KNOB, (LOCATIONS, KNOBS, CONTROLS)).copy()
    knob[[SINK, CUE]] = np.arange(KNOBS)[:, None]
    cue = np.zeros((LOCATIONS, GOALS, GOALS + 1))
    cue[..., GOALS] = 1
    cue[CUE] = np.eye(GOALS, GOALS + 1)
    reward = np.where(REWARD[0, 0, 0] == REWARD, -1.0, REWARD)
    reward[CUE] = -1.0
    return Variant(LOCATION, knob, cue, reward, PUBLISHED_CUE_COST)


TOLD = ("nothing", *(f"goal {goal}" for goal in range(GOALS)))  # the contents of the memory of the cue
LOCATION = _location_table()
KNOB = _knob_table()
CUE_GIVEN = _cue_table()
REWARD = _reward_table()


def initial_belief(locations: int = NAVIGATION) -> aif.Belief:
    """θ uniform; location uniform over 0–4 and the knob at 4, before the first observation.

    :param locations: the number of locations over which the belief is uniform; 7 in the paper's code.

    >>> initial_belief().state.shape
    (2, 35)
    """
    state = np.zeros((GOALS, LOCATIONS, KNOBS))
    state[:, :locations, FULL] = 1 / locations
    return aif.Belief(jnp.full(GOALS, 1 / GOALS), jnp.asarray(state.reshape(GOALS, -1)))


def reactivity_maze(
    belief: aif.Belief,
    horizon: int | jax.Array = 3,
    *,
    cue_cost: float | None = None,
    memory: str | None = None,
    details: bool = False,
    scale: float | jax.Array = 1.0,
) -> None:
    """The Reactivity Maze with the preference exp R at the last step.

    :param cue_cost: the prior probability of any other control relative to the cue's; 1.2 by default.
    :param memory: "told" if the policy remembers the last word at the cue.
    :param details: the details of the paper's code that differ from its text: −1, not −0.33 with the knob below 4, and
        −1 at the cue; off the cue a third word, and no coin; the knob stands still at the cue and in the sink; a cue
        cost of 1.229.
    :param scale: by how much the rewards are multiplied.

    >>> from numpyro.handlers import seed, trace
    >>> sites = trace(seed(reactivity_maze, 0)).get_trace(initial_belief(), horizon=1)
    >>> [name for name in sites]
    ['theta', 'location_0', 'knob_0', 'u_1', 'location_1', 'knob_1', 'cue_1', 'reward_1']
    """
    tables = variant(details)
    prior = np.ones(CONTROLS)
    prior[VISIT_CUE] = 1 / (tables.cue_cost if cue_cost is None else cue_cost)
    prior /= prior.sum()
    location_table, knob_table = jnp.asarray(tables.location, float), jnp.asarray(tables.knob, int)
    cue_table, reward_table = jnp.asarray(tables.cue, float), jnp.asarray(tables.reward, float)
    by_location = knob_table.ndim == 3  # whether the knob's turn depends on where the agent was

    theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
    start = aif.initial_state(
        {"location": LOCATIONS, "knob": KNOBS}, belief.state[theta], labels={"location": LOCATION_LABELS}
    )

    if memory is not None and details:
        raise ValueError("details: found True with a memory, expected one of the two")
    if memory not in (None, "told"):
        raise ValueError(f"memory: found {memory!r}, expected None or 'told'")
    first = aif.memory("told", 0, len(TOLD), labels=TOLD) if memory else None

    def step(state: tuple[Any, ...], t: int | jax.Array) -> tuple[Any, ...]:
        location, knob, told = state
        u = aif.control("u", dist.Categorical(probs=jnp.asarray(prior)), labels=CONTROL_LABELS)
        new_location = aif.state(
            "location", dist.Categorical(probs=location_table[location, knob, u]), labels=LOCATION_LABELS
        )
        turned = knob_table[location, knob, u] if by_location else knob_table[knob, u]
        new_knob = aif.state("knob", aif.DeterministicCategorical(turned, KNOBS))
        cue: Any = aif.observation("cue", dist.Categorical(probs=cue_table[new_location, theta]))
        aif.observation("seen_location", aif.DeterministicCategorical(new_location, LOCATIONS), plan=False)
        aif.observation("seen_knob", aif.DeterministicCategorical(new_knob, KNOBS), plan=False)
        reward = reward_table[new_location, new_knob, theta]
        aif.preference("reward", jnp.where(t == horizon, scale * reward, 0.0))
        if memory:
            told = aif.memory("told", jnp.where(new_location == CUE, cue + 1, told), len(TOLD))
        return new_location, new_knob, told

    aif.rollout(step, (start["location"], start["knob"], first), horizon)
