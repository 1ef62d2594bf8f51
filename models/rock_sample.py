"""RockSample(4,3): three rocks, good or bad, which can be sensed from afar and sampled, and an exit on the right.

Smith and Simmons (2004), in the version of Nuijten, Lukashchuk, van de Laar and de Vries (UAI 2026), which has a
control for each rock's sensor. θ holds the rocks' qualities, one bit each, the first rock's slowest.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif
from npro_aif.models.grids import MOVES, distances, targets

SIDE, START, ROCKS = 4, 8, (6, 9, 10)
CELLS, NUM = SIDE * SIDE, len(ROCKS)
CONTROLS = (*MOVES, *(f"sense {j}" for j in range(NUM)), "sample")
WEIGHTS = (1.0, 1.0, 1.0, 1.0, 0.7, 0.7, 0.7, 0.8)  # of the controls, a priori
SENSE, SAMPLE = 4, 7  # the first sensor's control, and that of a sample
EVENTS = ("none", *(f"sense {j}" for j in range(NUM)), "sample")
SAMPLED = 4  # the event of a sample
WORDS = ("bad", "good", "none")
BEST, SAMPLE_RIGHT = 0.99, 0.999
PREFERENCES = {"published": (2.0, -4.0, 0.5), "reward": (200.0, -300.0, 100.0)}  # good, bad, exit at the last step
HURRY = {"published": 0.0, "reward": 2.0}  # nats for every step at the exit: a fiftieth of the exit's own worth
MAX_STEPS, HORIZON = 25, 12
QUALITIES = np.array([[theta >> (NUM - 1 - j) & 1 for j in range(NUM)] for theta in range(2**NUM)])  # (Θ, rocks)
TAKEN = QUALITIES  # the bits of what was taken, likewise
QUALITY_LABELS = tuple(" ".join(WORDS[bit] for bit in bits) for bits in QUALITIES)
TAKEN_LABELS = tuple("+".join(str(j) for j in range(NUM) if bits[j]) or "none" for bits in TAKEN)
TOLD = tuple(", ".join(words) for words in itertools.product(WORDS, repeat=NUM))  # the contents of the memory
AT_EXIT = np.arange(CELLS) % SIDE == SIDE - 1


def initial_belief() -> aif.Belief:
    """Any qualities, at the start, nothing taken."""
    state = np.zeros((2**NUM, CELLS, 2**NUM, len(EVENTS)))
    state[:, START, 0, 0] = 1
    return aif.Belief(jnp.full(2**NUM, 1 / 2**NUM), jnp.asarray(state.reshape(2**NUM, -1)))


def results() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The next cell, the rocks taken by then, and the event, by (cell, taken, u)."""
    cell, taken, u = np.indices((CELLS, 2**NUM, len(CONTROLS)))
    free = ~AT_EXIT[cell]
    to = targets(SIDE, SIDE)[cell, np.minimum(u, SENSE - 1)]
    rock = sum((cell == place) * 2 ** (NUM - 1 - j) for j, place in enumerate(ROCKS))  # its bit
    takes = (u == SAMPLE) & (rock & ~taken > 0)
    event = np.where(takes, SAMPLED, np.where((u >= SENSE) & (u < SAMPLE), u - SENSE + 1, 0))
    return np.where(free & (u < SENSE), to, cell), np.where(takes, taken | rock, taken), np.where(free, event, 0)


def words() -> np.ndarray:
    """p(word | θ, cell, event, rock), (Θ, 16, 5, 3, 3)."""
    table = np.zeros((2**NUM, CELLS, len(EVENTS), NUM, 3))
    table[..., WORDS.index("none")] = 1
    accuracy = np.minimum(BEST, 0.5 + 0.5 * 2.0 ** (-distances(SIDE, SIDE, "chebyshev") / 2))
    for j, place in enumerate(ROCKS):
        right = np.where(QUALITIES[:, j, None] == np.arange(2), 1.0, 0.0)[:, None]  # (Θ, 1, word)
        sure = accuracy[:, place, None]
        table[:, :, 1 + j, j] = np.pad(sure * right + (1 - sure) * (1 - right), ((0, 0), (0, 0), (0, 1)))
        sampled = SAMPLE_RIGHT * right + (1 - SAMPLE_RIGHT) * (1 - right)
        table[:, place, SAMPLED, j] = np.pad(sampled[:, 0], ((0, 0), (0, 1)))
    return table


def replaced(told: Any, rock: int, word: Any) -> Any:
    """The memory of the rocks' words (in base 3, the first rock's word first) with one rock's word replaced."""
    place = 3 ** (NUM - 1 - rock)
    return jnp.where(word == WORDS.index("none"), told, told + (word - told // place % 3) * place)


def rock_sample(
    belief: aif.Belief, horizon: Any = HORIZON, *, memory: str | None = None, preference: str = "published"
) -> None:
    """The world with preferences for rocks taken and the exit, at the plan's last step.

    :param memory: "told" if the policy remembers the last word about each rock.
    :param preference: the "published" one, or the "reward" of the world itself, a hundredfold, and two nats for every
        step that is left at the exit.

    >>> from numpyro.handlers import seed, trace
    >>> list(trace(seed(rock_sample, 0)).get_trace(initial_belief(), horizon=1))[4:]
    ['u_1', 'cell_1', 'taken_1', 'event_1', 'rock_0_1', 'rock_1_1', 'rock_2_1', 'goal_1']
    """
    next_cell, next_taken, next_event = map(jnp.asarray, results())
    word, prior = jnp.asarray(words()), jnp.asarray(WEIGHTS) / sum(WEIGHTS)
    if preference not in PREFERENCES:
        raise ValueError(f"preference: found {preference!r}, expected one of {tuple(PREFERENCES)}")
    good, bad, leaves = PREFERENCES[preference]
    gain = jnp.asarray(np.where(QUALITIES, good, bad) @ TAKEN.T)  # (Θ, taken)
    theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter), labels=QUALITY_LABELS)
    sizes = {"cell": CELLS, "taken": 2**NUM, "event": len(EVENTS)}
    labels = {"taken": TAKEN_LABELS, "event": EVENTS}
    start = aif.initial_state(sizes, belief.state[theta], labels=labels)

    if memory not in (None, "told"):
        raise ValueError(f"memory: found {memory!r}, expected None or 'told'")
    told = aif.memory("told", 3**NUM - 1, 3**NUM, labels=TOLD) if memory else None

    def step(state: tuple[Any, Any, Any], t: Any) -> tuple[Any, Any, Any]:
        *place, told = state
        u = aif.control("u", dist.Categorical(probs=prior), labels=CONTROLS)
        cell = aif.state("cell", aif.DeterministicCategorical(next_cell[(*place, u)], CELLS))
        taken = aif.state("taken", aif.DeterministicCategorical(next_taken[(*place, u)], 2**NUM), labels=TAKEN_LABELS)
        event = aif.state("event", aif.DeterministicCategorical(next_event[(*place, u)], len(EVENTS)), labels=EVENTS)
        for j in range(NUM):
            y = aif.observation(f"rock_{j}", dist.Categorical(probs=word[theta, cell, event, j]), labels=WORDS)
            told = replaced(told, j, y) if memory else None
        for site, value in {"cell": cell, "taken": taken, "event": event}.items():
            seen = aif.DeterministicCategorical(value, sizes[site])
            aif.observation(f"seen_{site}", seen, plan=False, labels=labels.get(site))
        out = jnp.asarray(AT_EXIT, float)[cell]
        last = gain[theta, taken] + leaves * out
        aif.preference("goal", HURRY[preference] * out + jnp.where(t == horizon, last, 0.0))
        return cell, taken, aif.memory("told", told, 3**NUM) if memory else None

    aif.rollout(step, (start["cell"], start["taken"], told), horizon)
