"""Frozen Lake with hidden holes: a slippery way over ice, on which the agent may stop and scan.

The world of Nuijten, Lukashchuk, van de Laar and de Vries (UAI 2026): θ is one of 15 layouts of two holes. Every
cell looks like a hole or not, at first hardly better than a coin, after a scan nearly for sure.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif
from npro_aif.models.grids import MOVES, distances, slippery

SIDE, START, GOAL, SCAN = 4, 0, 15, 4
CELLS = SIDE * SIDE
HOLES = (
    (3, 7), (9, 12), (4, 5), (1, 14), (10, 11), (6, 13), (2, 8), (7, 9), (9, 10), (8, 14), (1, 11), (3, 12), (1, 12),
    (2, 5), (6, 14),
)  # fmt: skip
CONTROLS = (*MOVES, "scan")
WEIGHTS = (1.0, 1.0, 1.0, 1.0, 0.9)  # of the controls, a priori
SLIP = 0.1
NEAR, FAR, FARTHEST = 0.4, 0.1, 6  # before a scan the noise is NEAR and, at the farthest cell, FAR more
SCANNED_NOISE = 0.001
MAX_STEPS = 15
LOOKS, SCANNED = ("ice", "hole"), ("no", "yes")
SITES = tuple(f"hole_{cell}" for cell in range(CELLS))
IS_HOLE = np.array([np.isin(np.arange(CELLS), holes) for holes in HOLES])  # (Θ, cells)
IS_OVER = IS_HOLE | (np.arange(CELLS) == GOAL)
TELLING = (1, 2, 5, 6, 7, 9, 12, 14)  # the fewest cells that tell all layouts apart
TOLD = ("not scanned", *map(str, HOLES))  # the contents of the memory


def initial_belief() -> aif.Belief:
    """Any layout, at the start, nothing scanned."""
    state = np.zeros((len(HOLES), CELLS, 2))
    state[:, START, 0] = 1
    return aif.Belief(jnp.full(len(HOLES), 1 / len(HOLES)), jnp.asarray(state.reshape(len(HOLES), -1)))


def moves() -> np.ndarray:
    """p(cell' | θ, cell, u), (Θ, 16, 5, 16): a scan does not move; holes and the goal are never left."""
    stay = np.eye(CELLS)
    free = np.concatenate([slippery(SIDE, SIDE, SLIP), stay[:, None]], axis=1)
    return np.where(IS_OVER[:, :, None, None], stay[:, None], free)


def looks() -> np.ndarray:
    """p(cell c looks like a hole | θ, cell, scanned), (Θ, 16, 2, 16)."""
    noise = np.stack([NEAR + FAR * distances(SIDE, SIDE) / FARTHEST, np.full((CELLS, CELLS), SCANNED_NOISE)], axis=1)
    return np.where(IS_HOLE[:, None, None], 1 - noise, noise)


def pointed_at() -> np.ndarray:
    """The layout that a scan of the telling cells points to, (2⁸,), by their looks, the first cell slowest."""
    bits = np.indices((2,) * len(TELLING)).reshape(len(TELLING), -1)  # (8, 2⁸)
    return (IS_HOLE[:, TELLING, None] != bits).sum(1).argmin(0)


def frozen_lake(belief: aif.Belief, horizon: Any = MAX_STEPS, *, memory: str | None = None) -> None:
    """The Lake with a preference of 1 nat for the goal at every step.

    :param memory: "told" if the policy remembers the layout that the last scan points to.

    >>> from numpyro.handlers import seed, trace
    >>> list(trace(seed(frozen_lake, 0)).get_trace(initial_belief(), horizon=1))[:6]
    ['theta', 'cell_0', 'scanned_0', 'u_1', 'cell_1', 'scanned_1']
    """
    to, hole, prior = jnp.asarray(moves()), jnp.asarray(looks()), jnp.asarray(WEIGHTS) / sum(WEIGHTS)
    over, points = jnp.asarray(IS_OVER), jnp.asarray(pointed_at())
    theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter), labels=[str(h) for h in HOLES])
    start = aif.initial_state({"cell": CELLS, "scanned": 2}, belief.state[theta], labels={"scanned": SCANNED})

    if memory not in (None, "told"):
        raise ValueError(f"memory: found {memory!r}, expected None or 'told'")
    told = aif.memory("told", 0, len(TOLD), labels=TOLD) if memory else None

    def step(state: tuple[Any, Any, Any], t: Any) -> tuple[Any, Any, Any]:
        before, scanned, told = state
        u = aif.control("u", dist.Categorical(probs=prior), labels=CONTROLS)
        cell = aif.state("cell", dist.Categorical(probs=to[theta, before, u]))
        scans = (u == SCAN) & ~over[theta, before]  # nothing changes once the episode is over
        scanned = aif.state("scanned", aif.DeterministicCategorical(jnp.where(scans, 1, scanned), 2), labels=SCANNED)
        word: Any = 0
        for c, site in enumerate(SITES):
            p = hole[theta, cell, scanned, c]
            y: Any = aif.observation(site, dist.Categorical(probs=jnp.stack([1 - p, p], -1)), labels=LOOKS)
            word = 2 * word + y if c in TELLING else word
        aif.observation("seen_cell", aif.DeterministicCategorical(cell, CELLS), plan=False)
        aif.observation("seen_scanned", aif.DeterministicCategorical(scanned, 2), plan=False, labels=SCANNED)
        aif.preference("goal", jnp.where(cell == GOAL, 1.0, 0.0))
        told = aif.memory("told", jnp.where(scanned, points[word] + 1, told), len(TOLD)) if memory else None
        return cell, scanned, told

    aif.rollout(step, (start["cell"], start["scanned"], told), horizon)
