"""The memory layout of conditional tables, and the few operations that all of them share.

A transition table is laid out (T|1, Θ|1, X|1, U|1, X') and an observation table (T|1, Θ|1, X, Y); an axis on which
the table does not depend has size 1. Flows q(θ, x) are laid out (X, Θ), and weights and values over moves (U, X, Θ): a
state's parameters are one stretch of memory, and a move that they agree on shifts it as a whole.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.shards import are_laid, are_own, least_of_all

INSIDE = "promise_in_bounds"  # indices are checked when a program is read


def contract(output: str, *operands: tuple[Array, str]) -> Array:
    """Einsum in which an operand's axis of size 1 broadcasts, and an output axis that no operand has gets size 1."""
    arrays, names = [], []
    for array, axes in operands:
        dead = tuple(i for i, size in enumerate(array.shape) if size == 1)
        arrays.append(array.squeeze(dead))
        names.append("".join(axis for i, axis in enumerate(axes) if i not in dead))
    live = "".join(axis for axis in output if any(axis in name for name in names))
    result = jnp.einsum(f"{','.join(names)}->{live}", *arrays)
    return jnp.expand_dims(result, tuple(i for i, axis in enumerate(output) if axis not in live))


def time_slice(table: Array, t: Array | int) -> Array:
    """Row t of a table (T|1, …)."""
    if table.shape[0] == 1:
        return table[0]
    return jax.lax.dynamic_index_in_dim(table, t, 0, keepdims=False)


def select_parameters(table: Array, theta: Array) -> Array:
    """The rows of ``theta`` in a table (T|1, Θ|1, …)."""
    return table if table.shape[1] == 1 else jnp.take(table, theta, axis=1)


def control_first(table: Array) -> Array:
    """([T|1,] Θ|1, X|1, U|1) → ([T|1,] U|1, X|1, Θ|1): from a table's layout to that of moves."""
    return jnp.swapaxes(table, -1, -3)


def grouped(table: Array, members: Array, num_controls: int, num_parameters: int) -> Array:
    """A table (Θ|1, X·U, …) by what is seen, (H·Θ, V·U, …), or (1, V·U, …) where nothing unseen matters."""
    num_visible, num_hidden = members.shape
    rest = table.shape[2:]
    if num_hidden > 1:
        table = jnp.broadcast_to(table, (num_parameters, *table.shape[1:]))
    table = table.reshape(table.shape[0], -1, num_controls, *rest)[:, members]  # (Θ|1, V, H, U, …)
    return jnp.moveaxis(table, 2, 0).reshape(num_hidden * table.shape[0], num_visible * num_controls, *rest)


def lookup(table: Array, *index: Any) -> Array:
    """table[index], where an axis of size 1 stands for all values."""
    return table[tuple(0 if size == 1 else i for size, i in zip(table.shape, index, strict=False))]


def rank_last(index: Array) -> Array:
    """For each entry, the rank of its value among the different values along the last axis (0, 1, …)."""
    if are_own() or are_laid():
        return rank_by_minima(index)
    order = jnp.argsort(index, axis=-1, stable=True)
    ordered = jnp.take_along_axis(index, order, -1)
    fresh = jnp.diff(ordered, axis=-1, prepend=ordered[..., :1]) != 0
    rank = jnp.cumsum(fresh, axis=-1, dtype=index.dtype)
    return jnp.put_along_axis(jnp.zeros_like(rank), order, rank, -1, inplace=False)


def rank_by_minima(index: Array, most: int | None = None) -> Array:
    """The same ranks, counted from the least value on: one pass for every different value.

    That is quicker than sorting where few are asked for. Where each device has a part of the last axis it takes one
    minimum over devices a pass, while a sort would need all entries.

    :param most: higher ranks than this are not told apart.
    """
    none = jnp.iinfo(index.dtype).max

    def higher(least: Array) -> Array:
        return index > least[..., None]

    def further(met: tuple[Array, Array]) -> tuple[Array, Array]:
        least, rank = met
        rank = rank + higher(least)
        return least_of_all(jnp.where(higher(least), index, none)), rank

    first = least_of_all(index), jnp.zeros_like(index)
    if most is not None:
        return jax.lax.fori_loop(0, most, lambda _, met: further(met), first)[1]
    return jax.lax.while_loop(lambda met: (met[0] < none).any(), further, first)[1]
