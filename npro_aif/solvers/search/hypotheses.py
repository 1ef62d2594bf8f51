"""One step of a world as tables over hypotheses h = (θ, x): next hypotheses, observations and costs of each control.

Moves are indices where they are certain and the non-zeros of their rows elsewhere. All certain observations of a step
are one label (a 64-bit hash of their outcomes), those with ``plan=False`` among them: an agent sees them all.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from npro_aif.errors import ModelError
from npro_aif.sizes import MOST_JOINT_OUTCOMES
from npro_aif.tables.kernels import Emission, Transition
from npro_aif.tables.world import World


class Step(NamedTuple):
    """The effect of controls at one time, by hypothesis; V is U where observations read the control, otherwise 1."""

    to: np.ndarray  # (H, U, J) the next hypotheses
    chance: np.ndarray | None  # (H, U, J) their probabilities; None if moves are certain, and J is 1
    label: np.ndarray  # (H, V) uint64: the certain observations on arrival
    shown: np.ndarray  # (H, V, S) the outcome of each certain site, of which the label is made
    sight: tuple[np.ndarray, ...]  # by uncertain site, (H, V, Y) p(y|h,u)
    cost: np.ndarray  # (H, U) −log p(u|x) − E[log p̂]
    effort: np.ndarray  # (H, U) −log p(u|x), which is in the cost
    ambiguity: np.ndarray | None = None  # (H, U) E[H[y|h',u]] on arrival; None if observations are certain

    def charged(self, weight: float) -> Step:
        """The same with ambiguity among the costs, at this weight."""
        if weight == 0 or self.ambiguity is None:
            return self
        return self._replace(cost=self.cost + weight * self.ambiguity)


def check_sights(world: World) -> None:
    """Refuse observations with too many joint outcomes to enumerate."""
    uncertain = {name: k.size for name, k in (world.observation | world.sensor).items() if k.learnable}
    if math.prod(uncertain.values()) > MOST_JOINT_OUTCOMES:
        raise ModelError(
            f"observations {', '.join(uncertain)}: found more than {MOST_JOINT_OUTCOMES:,} outcomes together, expected "
            "fewer with SearchSolver (it looks at every one of them)"
        )


def read_step(world: World, t: int, rows: np.ndarray, first: int) -> Step:
    """The step at time t (from 0 on) for some parameters.

    :param world: its tables as NumPy arrays.
    :param rows: (R,) the places of these parameters in the world's tables.
    :param first: the number of hypotheses that come before those of ``rows``, which are (row, x) in C order.
    """
    num_states, num_controls = world.initial.shape[1], world.num_controls
    shape = len(rows), num_states, num_controls
    to, chance = _moves(world.state, t, rows, shape)
    label, shown, sight, liking = _sights(world, t, rows, shape)
    effort = np.broadcast_to(-_at(world.control, t)[None], shape)
    cost = effort.copy()
    for table in world.preference.values():
        cost -= _expected(_rows(_at(table, t), rows), to, chance, shape)
    if liking is not None:
        cost -= _expected(np.moveaxis(liking, 2, 1)[:, None], to, chance, shape)
    size = len(rows) * num_states
    noise = None
    if sight:
        noise = _expected(np.moveaxis(_noise(sight), 2, 1)[:, None], to, chance, shape).reshape(size, num_controls)
    ahead = first + np.arange(len(rows))[:, None, None, None] * num_states + to
    return Step(
        ahead.reshape(size, num_controls, -1).astype(np.int32),
        None if chance is None else np.broadcast_to(chance, to.shape).reshape(size, num_controls, -1),
        label.reshape(size, -1),
        shown.reshape(size, *shown.shape[2:]),
        tuple(table.reshape(size, *table.shape[2:]) for table in sight),
        cost.reshape(size, num_controls),
        effort.reshape(size, num_controls),
        noise,
    )


def _at(table: Any, t: int) -> np.ndarray:
    """Row t of a table (T|1, …), in float64 where it has numbers."""
    table = np.asarray(table)
    row = table[0 if len(table) == 1 else t]
    return row if np.issubdtype(row.dtype, np.integer) else row.astype(np.float64)


def _rows(table: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Some parameters' rows of a table (Θ|1, …)."""
    return table if len(table) == 1 else table[rows]


def _moves(
    kernel: Transition, t: int, rows: np.ndarray, shape: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray | None]:
    """The next states (R, X, U, J), and how probable each is; None where they are certain."""
    now = kernel.at(t)
    grid: Any = rows[:, None, None], np.arange(shape[1])[:, None], np.arange(shape[2])
    certain = now.certain(*grid)
    if certain is not None:
        return np.broadcast_to(np.asarray(certain), shape)[..., None], None
    index, log = now.entries()
    probs = _normalized(_rows(np.asarray(log, np.float64), rows))
    count = int((probs > 0).sum(-1).max())
    order = np.argsort(~(probs > 0), axis=-1, kind="stable")[..., :count]
    chance = np.broadcast_to(np.take_along_axis(probs, order, -1), (*shape, count))
    order = np.broadcast_to(order, (*shape, count))
    if index is None:
        return order, chance
    places = np.broadcast_to(_rows(np.asarray(index), rows), (*shape, index.shape[-1]))
    return np.take_along_axis(places, order, -1), chance


def _normalized(log: np.ndarray) -> np.ndarray:
    """Probabilities whose rows sum to one in float64, from logarithms that may have been rounded to float32."""
    probs = np.exp(log)
    return probs / probs.sum(-1, keepdims=True)


def _sights(
    world: World, t: int, rows: np.ndarray, shape: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...], np.ndarray | None]:
    """Labels (R, X, V), what they are made of (R, X, V, S), p(y|x,u,θ) by uncertain site, and E[log p̂(y)] or None."""
    kernels = world.observation | world.sensor
    tables = {name: _sight(kernel, t, rows, shape) for name, kernel in kernels.items()}
    breadth = max((table.shape[2] for table in tables.values()), default=1)
    label = np.zeros((shape[0], shape[1], breadth), np.uint64)
    shown: list[np.ndarray] = []
    sight: list[np.ndarray] = []
    liking: np.ndarray | None = None
    for place, (name, kernel) in enumerate(kernels.items()):
        table = tables[name]
        if kernel.learnable:
            sight.append(np.broadcast_to(table, (*shape[:2], breadth, kernel.size)))
        else:
            label = label + words(place, kernel.size)[table]
            shown.append(np.broadcast_to(table, (*shape[:2], breadth)).astype(np.int32))
        for preference in world.observation_preference.get(name, ()):
            log = _rows(_at(preference, t), rows)[:, :, None]  # (R|1, X|1, 1, Y)
            if kernel.learnable:
                liked = (table * log).sum(-1)
            else:
                log = np.broadcast_to(log, (*table.shape, log.shape[-1]))
                liked = np.take_along_axis(log, table[..., None], -1)[..., 0]
            liked = np.broadcast_to(liked, (*shape[:2], shape[2]))
            liking = liked if liking is None else liking + liked
    seen = np.stack(shown, -1) if shown else np.zeros((*shape[:2], breadth, 0), np.int32)
    return label, seen, tuple(sight), liking


def _noise(sight: tuple[np.ndarray, ...]) -> np.ndarray:
    """H[y|h,u] of tables (…, V, Y) of observations that are independent given h and u, (…, V)."""
    return sum(-(table * np.log(np.where(table > 0, table, 1.0))).sum(-1) for table in sight)


def _sight(kernel: Emission, t: int, rows: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    """Outcomes (R, X, V) of a certain site, or probabilities (R, X, V, Y)."""
    if kernel.learnable:
        table = _normalized(_rows(_at(kernel.table(), t), rows))
        return np.broadcast_to(
            table.reshape(len(table), shape[1], -1, table.shape[-1]),
            (shape[0], shape[1], table.shape[1] // shape[1], table.shape[-1]),
        )
    outcome = _rows(_at(kernel.certain_table(), t), rows)
    breadth = max(1, outcome.shape[1] // shape[1])
    outcome = outcome.reshape(len(outcome), -1, breadth)
    return np.broadcast_to(outcome, (shape[0], shape[1], breadth))


def words(*seed: int) -> np.ndarray:
    """Random 64-bit numbers; the last of the seed says how many."""
    return np.random.default_rng(seed).integers(0, 2**64, size=seed[-1], dtype=np.uint64, endpoint=False)


def _expected(table: np.ndarray, to: np.ndarray, chance: np.ndarray | None, shape: tuple[int, int, int]) -> np.ndarray:
    """Σ_x' p(x'|x,u,θ) table(θ, x, u, x'), (R, X, U), of a table (R|1, X|1, U|1, X'|1)."""
    if table.shape[-1] == 1:
        return np.broadcast_to(table[..., 0], shape)
    values = np.take_along_axis(np.broadcast_to(table, (*shape, table.shape[-1])), to, -1)
    return values[..., 0] if chance is None else (values * chance).sum(-1)
