"""One step of a world as tables over hypotheses h = (θ, x): next hypotheses, observations and costs of each control.

Moves are indices where they are certain and the non-zeros of their rows elsewhere. All certain observations of a step
are one label (a 64-bit hash of their outcomes), those with ``plan=False`` among them: an agent sees them all.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
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


class _Moves(NamedTuple):
    """Where hypotheses go."""

    to: np.ndarray  # (R, X, U, J) the next states
    chance: np.ndarray | None  # (R, X, U, J) their probabilities; None where they are certain
    ahead: np.ndarray  # (H, U, J) the next hypotheses


class _Sights(NamedTuple):
    """What is seen on arrival."""

    label: np.ndarray  # (H, V)
    shown: np.ndarray  # (H, V, S)
    sight: tuple[np.ndarray, ...]  # by uncertain site, (R, X, V, Y)
    tables: dict[str, np.ndarray]  # by site, as :func:`_sight` returns them


def read_steps(world: World, times: Iterable[int], rows: np.ndarray, first: int) -> list[Step]:
    """The steps at some times (from 0 on) for some parameters; what is the same at all times is read once.

    :param world: its tables as NumPy arrays.
    :param rows: (R,) the places of these parameters in the world's tables.
    :param first: the number of hypotheses that come before those of ``rows``, which are (row, x) in C order.
    """
    shape = len(rows), world.initial.shape[1], world.num_controls
    moves = functools.cache(lambda t: _moves(world.state, t, rows, shape, first))
    sights = functools.cache(lambda t: _sights(world, t, rows, shape))
    last_moves = world.state.num_times - 1
    last_sights = max((kernel.num_times for kernel in (world.observation | world.sensor).values()), default=1) - 1
    return [_step(world, t, rows, shape, moves(min(t, last_moves)), sights(min(t, last_sights))) for t in times]


def _step(world: World, t: int, rows: np.ndarray, shape: tuple[int, int, int], moves: _Moves, sights: _Sights) -> Step:
    """The step at a time, with the costs of the controls."""
    effort = np.broadcast_to(-_at(world.control, t)[None], shape)
    cost = effort.copy()
    for table in world.preference.values():
        cost -= _expected(_rows(_at(table, t), rows), moves, shape)
    for name, preferences in world.observation_preference.items():
        for preference in preferences:
            liking = _liking(sights.tables[name], _rows(_at(preference, t), rows), shape)
            cost -= _expected(np.moveaxis(liking, 2, 1)[:, None], moves, shape)
    size, num_controls = shape[0] * shape[1], shape[2]
    noise = None
    if sights.sight:
        noise = _expected(np.moveaxis(_noise(sights.sight), 2, 1)[:, None], moves, shape).reshape(size, num_controls)
    return Step(
        moves.ahead,
        None if moves.chance is None else moves.chance.reshape(size, num_controls, -1),
        sights.label,
        sights.shown,
        tuple(table.reshape(size, *table.shape[2:]) for table in sights.sight),
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


def _moves(kernel: Transition, t: int, rows: np.ndarray, shape: tuple[int, int, int], first: int) -> _Moves:
    to, chance = _next_states(kernel.at(t), rows, shape)
    ahead = first + np.arange(len(rows))[:, None, None, None] * shape[1] + to
    chance = None if chance is None else np.broadcast_to(chance, to.shape)
    return _Moves(to, chance, ahead.reshape(shape[0] * shape[1], shape[2], -1).astype(np.int32))


def _next_states(
    kernel: Transition, rows: np.ndarray, shape: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray | None]:
    """The next states of a slice, (R, X, U, J), and how probable each is; None where they are certain."""
    grid: Any = rows[:, None, None], np.arange(shape[1])[:, None], np.arange(shape[2])
    certain = kernel.certain(*grid)
    if certain is not None:
        return np.broadcast_to(np.asarray(certain), shape)[..., None], None
    index, log = kernel.entries()
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


def _sights(world: World, t: int, rows: np.ndarray, shape: tuple[int, int, int]) -> _Sights:
    kernels = world.observation | world.sensor
    tables = {name: _sight(kernel, t, rows, shape) for name, kernel in kernels.items()}
    breadth = max((table.shape[2] for table in tables.values()), default=1)
    label = np.zeros((shape[0], shape[1], breadth), np.uint64)
    certain = [name for name, kernel in kernels.items() if not kernel.learnable]
    shown = np.zeros((shape[0], shape[1], breadth, len(certain)), np.int32)
    for place, (name, kernel) in enumerate(kernels.items()):
        if not kernel.learnable:
            label += words(place, kernel.size)[tables[name]]
            shown[..., certain.index(name)] = tables[name]
    sight = [
        np.broadcast_to(tables[name], (*shape[:2], breadth, kernel.size))
        for name, kernel in kernels.items()
        if kernel.learnable
    ]
    size = shape[0] * shape[1]
    return _Sights(label.reshape(size, -1), shown.reshape(size, breadth, -1), tuple(sight), tables)


def _liking(table: np.ndarray, preference: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    """E[log p̂(y)] of an observation site on arrival, (R, X, U).

    :param table: its outcomes (R, X, V), or probabilities (R, X, V, Y).
    :param preference: log p̂, (R|1, X|1, Y).
    """
    log = preference[:, :, None]
    if table.ndim == 4:
        liked = (table * log).sum(-1)
    else:
        log = np.broadcast_to(log, (*table.shape, log.shape[-1]))
        liked = np.take_along_axis(log, table[..., None], -1)[..., 0]
    return np.broadcast_to(liked, (*shape[:2], shape[2]))


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


def _expected(table: np.ndarray, moves: _Moves, shape: tuple[int, int, int]) -> np.ndarray:
    """Σ_x' p(x'|x,u,θ) table(θ, x, u, x'), (R, X, U), of a table (R|1, X|1, U|1, X'|1)."""
    if table.shape[-1] == 1:
        return np.broadcast_to(table[..., 0], shape)
    grid = (
        0 if size == 1 else np.arange(size).reshape(-1, *(1,) * (3 - axis)) for axis, size in enumerate(table.shape[:3])
    )
    values = table[(*grid, moves.to)]
    return values[..., 0] if moves.chance is None else (values * moves.chance).sum(-1)
