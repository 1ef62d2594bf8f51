"""How mass moves in a deterministic world: where each (u, x, θ) leads, in the form that is fastest to follow.

Where the parameters have only a few different outcomes among themselves at each (u, x), :class:`Rows` shifts whole
rows of parameters, once for each of these groups; otherwise :class:`Routes` looks every entry up. Both push
weights forward, pull values back, and tell how uncertain the next state is while θ is unknown.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.layout import INSIDE, control_first, time_slice
from npro_aif.numerics import is_concrete, neg_entropy, sum_last

MOST_GROUPS = 4  # with more, looking every entry up is as fast


@functools.partial(jax.tree_util.register_dataclass, data_fields=("target", "group"), meta_fields=())
@dataclass(frozen=True)
class Rows:
    """Groups of parameters with one outcome each, at every (u, x)."""

    target: Array  # (T|1, G, U|1, X|1) where each group leads, or without T after at(t)
    group: Array | None  # (T|1, U|1, X|1, Θ) the group of each θ; None if there is but one

    def at(self, t: Array | int) -> Rows:
        return Rows(time_slice(self.target, t), None if self.group is None else time_slice(self.group, t))

    def select(self, theta: Array) -> Rows:
        return Rows(self.target, None if self.group is None else jnp.take(self.group, theta, axis=-1))

    def push(self, weight: Array, size: int) -> Array:
        """Σ_{u,x} weight(u,x,θ) [x' = where it leads], (X', Θ)."""
        result = jnp.zeros((size, weight.shape[-1]), weight.dtype)
        for g, target in enumerate(self.target):
            part = weight if self.group is None else jnp.where(self.group == g, weight, 0.0)
            place = jnp.broadcast_to(target, weight.shape[:2]).ravel()
            result = result.at[place].add(part.reshape(-1, weight.shape[-1]), mode=INSIDE)
        return result

    def pull(self, value: Array) -> Array:
        """value(x', θ) at where each (u, x, θ) leads, (U|1, X|1, Θ)."""
        first, *others = (value.at[target].get(mode=INSIDE) for target in self.target)
        for g, part in enumerate(others, start=1):
            first = jnp.where(self.group == g, part, first)
        return first

    def spread(self, weight: Array) -> Array:
        """q(x) H[q(x'|x,u)] with θ summed out under the weight q(θ,x), (X, Θ): (U|1, X)."""
        if self.group is None:  # all θ agree on the next state: there is nothing to be uncertain of
            return jnp.zeros((1, len(weight)), weight.dtype)
        parts = (sum_last(jnp.where(self.group == g, weight, 0.0)) for g in range(len(self.target)))
        return neg_entropy(sum_last(weight)) - sum(neg_entropy(part) for part in parts)


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("place", "group"), meta_fields=("num_groups",)
)
@dataclass(frozen=True)
class Routes:
    """Every (u, x, θ) by itself."""

    place: Array  # (T|1, U|1, X, Θ) where it leads in a flat (X', Θ) table, or without T after at(t)
    group: Array  # (T|1, U|1, X, Θ) where it counts in a flat (group, X) table
    num_groups: int  # of outcomes that the θ have among themselves at one (u, x), at most

    def at(self, t: Array | int) -> Routes:
        return Routes(time_slice(self.place, t), time_slice(self.group, t), self.num_groups)

    def push(self, weight: Array, size: int) -> Array:
        """As in :class:`Rows`."""
        result = jnp.zeros(size * weight.shape[-1], weight.dtype)
        for place, part in zip(jnp.broadcast_to(self.place, weight.shape), weight, strict=True):
            result = result.at[place.ravel()].add(part.ravel(), mode=INSIDE)  # one by one is faster than at once
        return result.reshape(size, weight.shape[-1])

    def pull(self, value: Array) -> Array:
        """As in :class:`Rows`."""
        return value.ravel().at[self.place].get(mode=INSIDE)

    def spread(self, weight: Array) -> Array:
        """As in :class:`Rows`."""
        empty = jnp.zeros(self.num_groups * len(weight), weight.dtype)
        flow = jnp.stack([empty.at[place.ravel()].add(weight.ravel(), mode=INSIDE) for place in self.group])
        return neg_entropy(sum_last(weight)) - neg_entropy(flow).reshape(-1, self.num_groups, len(weight)).sum(1)


def find_rows(index: Array) -> Rows | None:
    """The groups of a transition's index table (T|1, Θ|1, X|1, U|1); None if they are many, or not known yet."""
    moves = control_first(index)
    if index.shape[1] == 1:
        return Rows(moves[..., 0][:, None], None)
    if not is_concrete(index):
        return None
    rank = _rank_last(moves)
    count = int(rank.max()) + 1
    if count > MOST_GROUPS:
        return None
    target = [jnp.where(rank == g, moves, 0).max(-1) for g in range(count)]
    return Rows(jnp.stack(target, axis=1), rank.astype(jnp.int8))


def find_routes(index: Array, size: int, num_parameters: int, num_states: int) -> Routes:
    """The routes of any index table (T|1, Θ|1, X|1, U|1)."""
    moves = control_first(index)
    moves = jnp.broadcast_to(moves, (*moves.shape[:2], num_states, num_parameters))
    place = moves * num_parameters + jnp.arange(num_parameters, dtype=index.dtype)
    group = _rank_last(moves) * num_states + jnp.arange(num_states, dtype=index.dtype)[:, None]
    return Routes(place, group, min(num_parameters, size))


def _rank_last(index: Array) -> Array:
    """For each entry, the rank of its value among the different values along the last axis (0, 1, …)."""
    order = jnp.argsort(index, axis=-1, stable=True)
    ordered = jnp.take_along_axis(index, order, -1)
    fresh = jnp.diff(ordered, axis=-1, prepend=ordered[..., :1]) != 0
    rank = jnp.cumsum(fresh, axis=-1, dtype=index.dtype)
    return jnp.put_along_axis(jnp.zeros_like(rank), order, rank, -1, inplace=False)
