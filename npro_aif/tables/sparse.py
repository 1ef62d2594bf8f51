"""Transitions with a few outcomes per row: for each condition K next states and their log-probabilities.

Memory and time are proportional to the entries. Where nothing is being traced (:meth:`SparseTransition.prepared`) the
entries are also sorted by next state, so that mass is gathered at its target, which XLA does many times faster than
scattering it from its source. Their probabilities are then also normalised again, since the rounding error of
logarithms (1e-7) adds up over hundreds of steps.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.numerics import is_concrete, less_common, mul_log, neg_entropy, relative_entropy, sum_last
from npro_aif.sizes import MOST_PADDING, SPARSE_FROM, SPARSE_SHARE
from npro_aif.tables.kernels import Kernel, PlainTransition
from npro_aif.tables.layout import INSIDE, lookup, select_parameters, time_slice

TINY = 1e-30  # keeps the division finite in a row without any outcome


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("index", "log", "source", "share", "chance"), meta_fields=("size",)
)
@dataclass(frozen=True)
class SparseTransition(PlainTransition):
    """p(x'|x,u,θ) by its entries; a next state is at most once in a row with a positive probability.

    An axis of size 1 of ``index`` or ``log`` stands for all values, except X, which both have in full.
    """

    index: Array  # (T|1, Θ|1, X, U|1, K) int32, or without T after at(t)
    log: Array  # (T|1, Θ|1, X, U|1, K)
    size: int  # the number of states
    source: Array | None = None  # (T|1, Θ|1, X', D) in a flat (X, U|1) table, where mass at x' comes from
    share: Array | None = None  # (T|1, Θ|1, X', D) with which probability; 0 for padding
    chance: Array | None = None  # (T|1, Θ|1, X, U|1, K) the probabilities, if they were computed in advance

    @property
    def num_times(self) -> int:
        return max(self.index.shape[0], self.log.shape[0])

    @property
    def sees_parameters(self) -> bool:
        return max(self.index.shape[1], self.log.shape[1]) > 1

    @property
    def learnable(self) -> bool:
        return True

    @property
    def possible(self) -> Array:
        return self.table() > -jnp.inf

    def at(self, t: Array | int) -> SparseTransition:
        return jax.tree.map(lambda table: time_slice(table, t), self)

    def select(self, theta: Array) -> SparseTransition:
        return jax.tree.map(lambda table: select_parameters(table, theta), self)

    def prepared(self) -> SparseTransition:
        if self.chance is not None or not is_concrete(self.index, self.log):
            return self
        chance = np.exp(np.asarray(self.log, np.float64))
        chance = (chance / np.maximum(chance.sum(-1, keepdims=True), TINY)).astype(self.log.dtype)
        source, share = _sources(np.asarray(self.index), chance, self.size)
        return replace(self, source=source, share=share, chance=jnp.asarray(chance))

    @property
    def probs(self) -> Array:
        """exp(log), (T|1, Θ|1, X, U|1, K)."""
        return jnp.exp(self.log) if self.chance is None else self.chance

    @property
    def layable(self) -> bool:
        return not self.sees_parameters  # entries of all of them would have to be sorted

    def routed(self, num_parameters: int, num_states: int) -> SparseTransition:
        return self

    def guarded(self) -> SparseTransition:
        return replace(self, index=jnp.clip(self.index, 0, self.size - 1))

    def given(self, control: Array | int) -> SparseTransition:
        def at_control(table: Array) -> Array:
            return table if table.shape[2] == 1 else jax.lax.dynamic_slice_in_dim(table, control, 1, axis=2)

        return SparseTransition(at_control(self.index), at_control(self.log), self.size)

    # --- Flows and values, on a slice ---

    def push(self, before: Array, policy: Array) -> Array:
        if max(self.index.shape[2], self.log.shape[2]) == 1:
            policy = sum_last(policy)[:, None]  # the control does not matter
        weight = before.T[:, :, None] * policy  # (Θ, X, U)
        if self.source is not None and self.share is not None:
            flat = weight.reshape(weight.shape[0], -1)
            moved = _taken(flat, self.source) * self.share  # (Θ, X', D)
            return sum_last(moved).T
        entries = weight[..., None] * self.probs  # (Θ, X, U, K)
        num_parameters = before.shape[1]
        place = self.index * num_parameters + jnp.arange(num_parameters).reshape(-1, 1, 1, 1)
        place = jnp.broadcast_to(place, entries.shape).ravel()
        arrived = jnp.zeros(self.size * num_parameters, entries.dtype).at[place].add(entries.ravel(), mode=INSIDE)
        return arrived.reshape(self.size, num_parameters)

    def pull(self, value: Array) -> Array:
        later = sum_last(self.probs * _taken(value.T, self.index))  # (Θ, X, U|1)
        return jnp.moveaxis(later, 0, 2).swapaxes(0, 1)

    def spread(self, weight: Array) -> Array:
        probs = self.probs
        if not self._mixes:
            return sum_last(weight) * -neg_entropy(probs[0]).sum(-1).T
        entries = weight.T[:, :, None, None] * probs  # (Θ, X, U, K)
        index = jnp.broadcast_to(self.index, entries.shape)
        flow, place = (_parameters_last(table) for table in (entries, index))  # (X, U, Θ·K)
        return neg_entropy(sum_last(weight)) - neg_entropy(_merged(place, flow)).sum(-1).T

    @property
    def _mixes(self) -> bool:
        """Whether a slice differs between parameters."""
        return max(self.index.shape[0], self.log.shape[0]) > 1

    # --- Rows ---

    def table(self) -> Array:
        index, log = jnp.broadcast_arrays(self.index, self.log)
        rows = jnp.full((index[..., 0].size, self.size), -jnp.inf, log.dtype)
        place = jnp.arange(len(rows))[:, None], index.reshape(len(rows), -1)
        return rows.at[place].max(log.reshape(len(rows), -1)).reshape(*index.shape[:-1], self.size)

    def entries(self) -> tuple[Array, Array]:
        return self.index, self.log

    def learned(self, logits: Array) -> SparseTransition:
        return self._tilted(-logits)[0]

    def expect(self, cost: Array) -> Array:
        return mul_log(self.probs, self.at_entries(cost)).sum(-1)

    def tilt(self, cost: Array) -> tuple[SparseTransition, Array]:
        return self._tilted(self.at_entries(cost))

    def _tilted(self, cost: Array) -> tuple[SparseTransition, Array]:
        log, least = less_common(self.log, cost)
        value = jax.nn.logsumexp(log, axis=-1, keepdims=True)
        return SparseTransition(self.index, log - value, self.size), (least - value)[..., 0]

    def divergence(self, other: Kernel) -> Array:
        """KL for each condition; a posterior made from a sparse kernel has its entries in the same places."""
        if isinstance(other, SparseTransition):
            return relative_entropy(self.log, other.log).sum(-1)
        theirs = self.at_entries(other.table())  # the other's rows may have further entries
        return mul_log(jnp.exp(self.log), self.log - jnp.where(self.log > -jnp.inf, theirs, 0.0)).sum(-1)

    def certain(self, *given: Array) -> None:
        return None

    def row(self, *given: Array) -> Array:
        index, probs = lookup(self.index, *given), jnp.exp(lookup(self.log, *given))
        index, probs = jnp.broadcast_arrays(index, probs)
        rows = jnp.zeros((probs[..., 0].size, self.size), probs.dtype)
        place = jnp.arange(len(rows))[:, None], index.reshape(len(rows), -1)
        return rows.at[place].add(probs.reshape(len(rows), -1)).reshape(*probs.shape[:-1], self.size)

    def in_full(self, shape: tuple[int, int, int, int]) -> SparseTransition:
        log = jnp.broadcast_to(self.log, (*shape, self.log.shape[-1]))
        return SparseTransition(self.index, log, self.size)

    def put(self, t: Array, row: Any) -> SparseTransition:
        return replace(self, log=self.log.at[t].set(jnp.broadcast_to(row.log, self.log.shape[1:])))

    def at_entries(self, cost: Array) -> Array:
        if cost.shape[-1] == 1:
            return cost
        shape = jnp.broadcast_shapes(cost.shape[:-1], self.index.shape[:-1])
        index = jnp.broadcast_to(self.index, (*shape, self.index.shape[-1]))
        places = [
            jnp.arange(size).reshape((-1,) + (1,) * (len(shape) - axis)) if cost.shape[axis] > 1 else 0
            for axis, size in enumerate(shape)
        ]
        return cost[(*places, index)]


def few_entries(log: Array) -> SparseTransition | None:
    """Rows (T|1, Θ|1, X|1, U|1, X') of log-probabilities by their entries; None if they are many, or not known yet."""
    size = log.shape[-1]
    if size < SPARSE_FROM or not is_concrete(log):
        return None
    table = np.asarray(log)
    possible = table > -np.inf
    most = int(possible.sum(-1).max())
    if most * SPARSE_SHARE > size:
        return None
    place = np.nonzero(possible.reshape(-1, size))
    row, rank = place[0], np.arange(len(place[0])) - np.searchsorted(place[0], place[0])
    index = np.zeros((possible[..., 0].size, most), np.int32)
    entries = np.full(index.shape, -np.inf, table.dtype)
    index[row, rank], entries[row, rank] = place[1], table.reshape(-1, size)[place]
    shape = *table.shape[:-1], most
    full = *shape[:2], size, *shape[3:]  # as many states before as after
    index, entries = (np.broadcast_to(part.reshape(shape), full) for part in (index, entries))
    return SparseTransition(jnp.asarray(index), jnp.asarray(entries), size)


def merge_entries(index: Array, probs: Array) -> Array:
    """Probabilities (…, K) of merged outcomes: the first occurrence has the whole of it, later ones have zero."""
    same = index[..., :, None] == index[..., None, :]  # (…, K, K)
    first = ~jnp.tril(same, -1).any(-1)
    return jnp.where(first, jnp.where(same, probs[..., None, :], 0.0).sum(-1), 0.0)


def _taken(table: Array, index: Array) -> Array:
    """table[θ, index[θ, …]] for tables (Θ|1, N) and (Θ|1, …)."""
    if index.shape[0] == 1:
        return table.at[:, index[0]].get(mode=INSIDE)
    table = jnp.broadcast_to(table, (index.shape[0], table.shape[1]))
    return jax.vmap(lambda row, place: row.at[place].get(mode=INSIDE))(table, index)


def _parameters_last(table: Array) -> Array:
    """(Θ, X, U, K) → (X, U, Θ·K)."""
    table = jnp.moveaxis(table, 0, 2)
    return table.reshape(*table.shape[:2], -1)


def _merged(index: Array, flow: Array) -> Array:
    """The flow to each different place along the last axis, (…, M): equal places are summed, the rest is zero."""
    order = jnp.argsort(index, axis=-1)
    place, flow = (jnp.take_along_axis(table, order, -1) for table in (index, flow))
    run = jnp.cumsum(jnp.diff(place, axis=-1, prepend=place[..., :1]) != 0, axis=-1)
    rows = flow.reshape(-1, flow.shape[-1])
    at = jnp.arange(len(rows))[:, None], run.reshape(rows.shape)
    return jnp.zeros_like(rows).at[at].add(rows).reshape(flow.shape)


def _sources(index: np.ndarray, probs: np.ndarray, size: int) -> tuple[Array, Array] | tuple[None, None]:
    """For every next state the moves that lead there and their probabilities; none where padding would cost too much.

    :param index: (T|1, Θ|1, X, U|1, K), and ``probs`` likewise.
    """
    index, probs = np.broadcast_arrays(index, probs)
    num_entries = int(np.prod(index.shape[2:]))
    targets, shares = index.reshape(-1, num_entries), probs.reshape(-1, num_entries)
    counts = [np.bincount(row[share > 0], minlength=size) for row, share in zip(targets, shares, strict=True)]
    most = max(int(count.max()) for count in counts)
    if most * size > MOST_PADDING * num_entries:
        return None, None
    source = np.zeros((len(targets), size, most), np.int32)
    share = np.zeros((len(targets), size, most), probs.dtype)
    for i, count in enumerate(counts):
        order = np.argsort(np.where(shares[i] > 0, targets[i], size), kind="stable")[: int(count.sum())]
        first = np.concatenate([[0], np.cumsum(count)[:-1]])
        to = targets[i][order]
        rank = np.arange(len(order)) - first[to]
        source[i, to, rank] = order // index.shape[-1]
        share[i, to, rank] = shares[i][order]
    shape = (*index.shape[:2], size, most)
    return jnp.asarray(source.reshape(shape)), jnp.asarray(share.reshape(shape))
