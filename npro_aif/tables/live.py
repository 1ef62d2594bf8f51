"""Large tables (X, Θ) row by row: only rows with mass are visited, each of them one stretch of memory.

A policy uses few of the controls and a distribution lies on few of the states, so a loop over the rows that count does
less work than a pass over the whole table, which would not fit into the cache either. Every function here has a plain
version in :mod:`npro_aif.tables.routing` or :mod:`npro_aif.tables.index`, which derivatives use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import sequential_vmap

from npro_aif.numerics import sum_last
from npro_aif.sizes import ROW_BY_ROW
from npro_aif.tables.layout import INSIDE


def is_large(table: Array, num_controls: int) -> bool:
    """Whether a loop over the rows of a table (X, Θ) pays."""
    return table.size * num_controls >= ROW_BY_ROW


def instead_of(plain: Callable[..., Any], quick: Callable[..., Any]) -> Callable[..., Any]:
    """A quick function in place of a plain one with the same values; derivatives use the plain one, batches a loop."""
    function = jax.custom_jvp(sequential_vmap(quick))

    def derivative(primals: Any, tangents: Any) -> Any:
        return function(*primals), jax.jvp(plain, primals, tangents)[1]

    function.defjvp(derivative)
    return function


class Moves(NamedTuple):
    """The next states of moves: u·X + x is the number of a move, and the θ that lead to one state form a group."""

    target: Array  # (G, U·X) where each group leads
    group: Array | None = None  # (U·X, Θ) the group of each θ; None if there is only one
    mixed: Array | None = None  # (U·X,) whether there are several

    def where(self, move: Array, group: int, row: Array, other: Array | float) -> Array:
        """A row (Θ,) where θ is of a group of a move."""
        return row if self.group is None else jnp.where(_row(self.group, move) == group, row, other)

    def pulled(self, move: Array, value: Array) -> Array:
        """value(x', θ) at where a move leads, (Θ,)."""
        first, *others = (_row(value, target[move]) for target in self.target)
        for g, other in enumerate(others, start=1):
            first = self.where(move, g, other, first)
        return first


def push(moves: Moves, before: Array, policy: Array, size: int) -> Array:
    """Σ_{u,x} before(x,θ) policy(x,u) [x' = where it leads], (X', Θ)."""
    num_states, num_parameters = before.shape
    chosen = policy.T.ravel()
    counts = (chosen != 0) & jnp.tile(sum_last(before) != 0, policy.shape[1])
    result = jnp.zeros((size, num_parameters), before.dtype)
    for g, target in enumerate(moves.target):

        def add(move: Array, result: Array, g: int = g, target: Array = target) -> Array:
            row = moves.where(move, g, chosen[move] * _row(before, move % num_states), 0.0)
            return _put(result, target[move], _row(result, target[move]) + row)

        result = _over(counts if moves.mixed is None or g == 0 else counts & moves.mixed, add, result)
    return result


def follow(moves: Moves, value: Array, policy: Array) -> Array:
    """Σ_u policy(x,u) value(x', θ) at where it leads, (X, Θ)."""
    num_states = len(policy)
    chosen = policy.T.ravel()

    def add(move: Array, result: Array) -> Array:
        x = move % num_states
        return _put(result, x, _row(result, x) + chosen[move] * moves.pulled(move, value))

    return _over(chosen != 0, add, jnp.zeros((num_states, value.shape[1]), value.dtype))


def expect(moves: Moves, value: Array, weight: Array) -> Array:
    """Σ_θ weight(x,θ) value(x', θ) at where each control leads, (X, U)."""
    num_states = len(weight)
    num_controls = moves.target.shape[1] // num_states

    def add(x: Array, result: Array) -> Array:
        rows = jnp.stack([moves.pulled(u * num_states + x, value) for u in range(num_controls)])
        return _put(result, x, jnp.matmul(rows, _row(weight, x), precision=jax.lax.Precision.HIGHEST))

    return jax.lax.fori_loop(0, num_states, add, jnp.zeros((num_states, num_controls), value.dtype))


def group_sums(moves: Moves, weight: Array) -> Array:
    """Σ_θ of weight(x,θ) over each group of the moves that have several groups, (G, U·X)."""
    num_states = len(weight)
    num_controls = moves.target.shape[1] // num_states
    assert moves.mixed is not None
    counts = moves.mixed & jnp.tile(sum_last(weight) != 0, num_controls)

    def add(move: Array, result: Array) -> Array:
        row = _row(weight, move % num_states)
        parts = jnp.stack([moves.where(move, g, row, 0.0) for g in range(len(moves.target))])
        return _put(result, move, sum_last(parts))

    return _over(counts, add, jnp.zeros(moves.target.shape[::-1], weight.dtype)).T


def label_sums(label: Array, weight: Array, shown: Array | None = None, *, size: int) -> Array:
    """Σ_θ of weight(x,θ) by label(x,θ), (X, L), or by what labels stand for, (X, K).

    :param shown: (X, L, K) with zeros and ones.
    :param size: L.
    """

    def add(x: Array, result: Array) -> Array:
        places = _row(label, x).astype(jnp.int32)
        sums = jnp.zeros(size, weight.dtype).at[places].add(_row(weight, x), mode=INSIDE)
        if shown is not None:
            sums = jnp.matmul(sums, _row(shown, x), precision=jax.lax.Precision.HIGHEST)
        return _put(result, x, sums)

    width = size if shown is None else shown.shape[2]
    return _over(sum_last(weight) != 0, add, jnp.zeros((len(weight), width), weight.dtype))


def _over(counts: Array, add: Callable[[Array, Array], Array], result: Array) -> Array:
    """A loop over the places that count."""
    places = jnp.nonzero(counts, size=counts.size, fill_value=0)[0].astype(jnp.int32)
    return jax.lax.fori_loop(0, counts.sum(), lambda i, result: add(places[i], result), result)


def _row(table: Array, place: Array) -> Array:
    return jax.lax.dynamic_index_in_dim(table, place, 0, keepdims=False)


def _put(table: Array, place: Array, row: Array) -> Array:
    return jax.lax.dynamic_update_index_in_dim(table, row, place, 0)
