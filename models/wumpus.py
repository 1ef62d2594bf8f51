"""Wumpus World: gold among pits and one wumpus, none of them seen; the agent may stop and sense what is near.

The world of Nuijten, Lukashchuk, van de Laar and de Vries (UAI 2026): θ is one of 25 layouts. After sensing, breeze (a
pit beside), stench (the wumpus beside) and glitter (gold here) are mostly right; otherwise they are coins.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif
from npro_aif.models.grids import MOVES, distances, slippery

SIDE, START, SENSE = 5, 0, 4
CELLS = SIDE * SIDE
LAYOUTS = (  # four pits; the wumpus; the gold (in three layouts out of reach)
    ((6, 8, 11, 13), 1, 17), ((11, 16, 17, 18), 13, 22), ((1, 9, 13, 24), 19, 23), ((1, 2, 7, 17), 24, 12),
    ((1, 12, 15, 24), 14, 6), ((8, 15, 19, 24), 21, 23), ((9, 11, 12, 15), 8, 18), ((7, 8, 14, 18), 15, 11),
    ((6, 7, 8, 15), 20, 23), ((6, 7, 9, 17), 16, 20), ((10, 11, 19, 20), 4, 21), ((5, 8, 15, 20), 3, 21),
    ((2, 4, 9, 16), 17, 21), ((5, 9, 11, 22), 18, 10), ((1, 7, 13, 20), 21, 12), ((5, 7, 11, 17), 2, 10),
    ((3, 4, 17, 21), 24, 23), ((2, 9, 19, 23), 21, 17), ((5, 8, 11, 17), 23, 6), ((6, 9, 11, 12), 15, 4),
    ((1, 11, 18, 22), 4, 13), ((2, 10, 18, 20), 6, 12), ((5, 14, 19, 22), 9, 4), ((3, 17, 19, 21), 23, 5),
    ((11, 13, 15, 17), 7, 2),
)  # fmt: skip
CONTROLS = (*MOVES, "sense")
WEIGHTS = (1.0, 1.0, 1.0, 1.0, 0.7)  # of the controls, a priori
SLIP = 0.01
HIT, FALSE_ALARM = 0.9, 0.01
GOLD_PREFERENCE = 6.0  # nats a step
SUCCESS = 100.0  # nats, where success is all that counts: controls' priors are worth a few
PREFERENCES = ("published", "reward")
MAX_STEPS, HORIZON = 16, 8
SITES, WORDS = ("breeze", "stench", "glitter"), ("no", "yes")
TOLD = ("not sensed", *(f"{b}{s}{g}" for b in "-b" for s in "-s" for g in "-g"))  # the contents of the memory

_CELL = np.arange(CELLS)
IS_GOLD = np.array([gold == _CELL for _, _, gold in LAYOUTS])  # (Θ, cells)
IS_HAZARD = np.array([np.isin(_CELL, (*pits, wumpus)) for pits, wumpus, _ in LAYOUTS])
IS_OVER = IS_GOLD | IS_HAZARD


def initial_belief() -> aif.Belief:
    """Any layout, at the start, nothing sensed."""
    state = np.zeros((len(LAYOUTS), CELLS, 2))
    state[:, START, 0] = 1
    return aif.Belief(jnp.full(len(LAYOUTS), 1 / len(LAYOUTS)), jnp.asarray(state.reshape(len(LAYOUTS), -1)))


def moves() -> np.ndarray:
    """p(cell' | θ, cell, u), (Θ, 25, 5, 25): sensing does not move; hazards and the gold are never left."""
    stay = np.eye(CELLS)
    free = np.concatenate([slippery(SIDE, SIDE, SLIP), stay[:, None]], axis=1)
    return np.where(IS_OVER[:, :, None, None], stay[:, None], free)


def signs() -> np.ndarray:
    """p(breeze), p(stench) and p(glitter) given θ, cell and sensed, (Θ, 25, 2, 3)."""
    beside = distances(SIDE, SIDE) == 1
    true = [[beside[list(pits)].any(0), beside[wumpus], gold == _CELL] for pits, wumpus, gold in LAYOUTS]
    sensed = np.where(np.moveaxis(np.array(true), 1, 2), HIT, FALSE_ALARM)  # (Θ, 25, 3)
    return np.stack([np.full_like(sensed, 0.5), sensed], axis=2)


def wumpus(
    belief: aif.Belief, horizon: Any = HORIZON, *, memory: str | None = None, preference: str = "published"
) -> None:
    """The world with a preference for the gold.

    :param memory: "told" if the policy remembers what it sensed last (not where).
    :param preference: the "published" one, for the gold at every step, or the "reward": to have it at the end.

    >>> from numpyro.handlers import seed, trace
    >>> list(trace(seed(wumpus, 0)).get_trace(initial_belief(), horizon=1))[3:]
    ['u_1', 'cell_1', 'sensed_1', 'breeze_1', 'stench_1', 'glitter_1', 'gold_1']
    """
    to, sign, prior = jnp.asarray(moves()), jnp.asarray(signs()), jnp.asarray(WEIGHTS) / sum(WEIGHTS)
    gold, over = jnp.asarray(IS_GOLD), jnp.asarray(IS_OVER, jnp.int32)
    theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
    start = aif.initial_state({"cell": CELLS, "sensed": 2}, belief.state[theta], labels={"sensed": WORDS})

    if preference not in PREFERENCES:
        raise ValueError(f"preference: found {preference!r}, expected one of {PREFERENCES}")
    if memory not in (None, "told"):
        raise ValueError(f"memory: found {memory!r}, expected None or 'told'")
    told = aif.memory("told", 0, len(TOLD), labels=TOLD) if memory else None

    def step(state: tuple[Any, Any, Any], t: Any) -> tuple[Any, Any, Any]:
        before, sensed, told = state
        u = aif.control("u", dist.Categorical(probs=prior), labels=CONTROLS)
        cell = aif.state("cell", dist.Categorical(probs=to[theta, before, u]))
        now = jnp.where(over[theta, before], sensed, jnp.where(u == SENSE, 1, 0))  # nothing changes once it is over
        sensed = aif.state("sensed", aif.DeterministicCategorical(now, 2), labels=WORDS)
        word: Any = 0
        for k, site in enumerate(SITES):
            p = sign[theta, cell, sensed, k]
            y: Any = aif.observation(site, dist.Categorical(probs=jnp.stack([1 - p, p], -1)), labels=WORDS)
            word = 2 * word + y
        aif.observation("seen_cell", aif.DeterministicCategorical(cell, CELLS), plan=False)
        aif.observation("seen_sensed", aif.DeterministicCategorical(sensed, 2), plan=False, labels=WORDS)
        aif.observation("over", aif.DeterministicCategorical(over[theta, cell], 2), plan=False, labels=WORDS)
        worth = GOLD_PREFERENCE if preference == "published" else jnp.where(t == horizon, SUCCESS, 0.0)
        aif.preference("gold", jnp.where(gold[theta, cell], worth, 0.0))
        return cell, sensed, aif.memory("told", jnp.where(sensed, word + 1, told), len(TOLD)) if memory else None

    aif.rollout(step, (start["cell"], start["sensed"], told), horizon)
