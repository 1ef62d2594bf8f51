"""How mass moves in a deterministic world: the next state of each (u, x, θ), in the form that is fastest to use.

If the parameters have only a few different outcomes at each (u, x), :class:`Rows` shifts whole rows of parameters, once
for each group with one outcome; otherwise :class:`Routes` looks every entry up. Both push weights forward, pull values
back, and compute how uncertain the next state is while θ is unknown.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.numerics import is_concrete, neg_entropy, sum_last
from npro_aif.shards import Laid, Shards, each, laid_devices, summed
from npro_aif.sizes import MOST_BLOCKS, MOST_GROUPS
from npro_aif.tables import live
from npro_aif.tables.layout import INSIDE, control_first, rank_by_minima, rank_last, time_slice
from npro_aif.tables.surprise import log_share


class Routing(Protocol):
    """The next state of each (u, x, θ), at all times or (after ``at``) at one."""

    def at(self, t: Array | int) -> Self:
        """One time slice."""
        ...

    def select(self, theta: Array) -> Self | None:
        """The same for some of the parameters; None where it must be computed anew."""
        ...

    def push(self, before: Array, policy: Array, size: int) -> Array:
        """Σ_{u,x} before(x,θ) policy(x,u) [x' = where it leads], (X', Θ)."""
        ...

    def pull(self, value: Array) -> Array:
        """value(x', θ) at the next state of each (u, x, θ), (U|1, X|1, Θ)."""
        ...

    def spread(self, weight: Array) -> Array:
        """q(x) H[q(x'|x,u)] with θ summed out under the weight q(θ,x), (X, Θ): (U|1, X)."""
        ...

    def surprise(self, weight: Array) -> Array:
        """−log m(x'|x,u) at the next state of each (u, x, θ), m with θ summed out under the weight: (U|1, X, Θ|1)."""
        ...


class Mixed(NamedTuple):
    """The moves whose next state depends on the parameters: in a large world far fewer than all."""

    place: Array  # (R,) in a flat (U|1, X) table; those of all times
    group: Array  # (T|1, R, Θ) the group of each θ there, or without T after at(t)


@functools.partial(jax.tree_util.register_dataclass, data_fields=("target", "group", "mixed"), meta_fields=())
@dataclass(frozen=True)
class Rows:
    """Groups of parameters with one outcome each, at every (u, x); for most (u, x) there is only one group."""

    target: Array  # (T|1, G, U|1, X|1) where each group leads, or without T after at(t)
    group: Array | None  # (T|1, U|1, X, Θ) the group of each θ; None if there is only one
    mixed: Mixed | None  # the moves with several groups

    def at(self, t: Array | int) -> Rows:
        if self.group is None or self.mixed is None:
            return Rows(time_slice(self.target, t), None, None)
        mixed = Mixed(self.mixed.place, time_slice(self.mixed.group, t))
        return Rows(time_slice(self.target, t), time_slice(self.group, t), mixed)

    def select(self, theta: Array) -> Rows:
        if self.group is None or self.mixed is None:
            return self
        mixed = Mixed(self.mixed.place, jnp.take(self.mixed.group, theta, axis=-1))
        return Rows(self.target, jnp.take(self.group, theta, axis=-1), mixed)

    def push(self, before: Array, policy: Array, size: int) -> Array:
        plain, quick = (functools.partial(way, size=size) for way in (Rows._push, Rows._push_by_rows))
        return self._way(before, plain, quick)(self, before, policy)

    def follow(self, value: Array, policy: Array) -> Array:
        """Σ_u policy(x,u) value(x', θ) at where it leads, (X, Θ)."""
        return self._way(value, Rows._follow, Rows._follow_by_rows)(self, value, policy)

    def expect(self, value: Array, weight: Array) -> Array:
        """Σ_θ weight(x,θ) value(x', θ) at where each control leads, (X, U)."""
        return self._way(value, Rows._expect, Rows._expect_by_rows)(self, value, weight)

    def goes_by_rows(self, table: Array) -> bool:
        """Whether a loop over the rows of a table (X, Θ) is quicker than all of them at once."""
        return self.target.shape[1] > 1 and live.is_large(table, self.target.shape[1])

    def _way(self, table: Array, plain: Callable[..., Array], quick: Callable[..., Array]) -> Callable[..., Array]:
        return live.instead_of(plain, quick) if self.goes_by_rows(table) else plain

    def _moves(self, num_states: int) -> tuple[Laid, ...]:
        """What :class:`npro_aif.tables.live.Moves` is made of, of one slice."""
        target = jnp.broadcast_to(self.target, (*self.target.shape[:2], num_states)).reshape(len(self.target), -1)
        if self.group is None or self.mixed is None:
            return ((target, None),)
        mixed = jnp.zeros(target.shape[1], bool).at[self.mixed.place].set(True, mode=INSIDE)
        return (target, None), (self.group.reshape(target.shape[1], -1), 1), (mixed, None)

    def _push_by_rows(self, before: Array, policy: Array, size: int) -> Array:
        laid = *self._moves(len(before)), (before, 1), (policy, None)
        return each(lambda *own: live.push(live.Moves(*own[:-2]), own[-2], own[-1], size), 1, *laid)

    def _follow_by_rows(self, value: Array, policy: Array) -> Array:
        laid = *self._moves(len(policy)), (value, 1), (policy, None)
        return each(lambda *own: live.follow(live.Moves(*own[:-2]), *own[-2:]), 1, *laid)

    def _expect_by_rows(self, value: Array, weight: Array) -> Array:
        laid = *self._moves(len(weight)), (value, 1), (weight, 1)
        return summed(lambda *own: live.expect(live.Moves(*own[:-2]), *own[-2:]), *laid, loops=True)

    def _follow(self, value: Array, policy: Array) -> Array:
        return sum(probs[:, None] * row for probs, row in zip(policy.T, self.pull(value), strict=True))

    def _expect(self, value: Array, weight: Array) -> Array:
        return sum_last(weight * self.pull(value)).T

    def _push(self, before: Array, policy: Array, size: int) -> Array:
        """Controls go block by block, so that what is computed for one, and for its gradient, stays in the cache."""
        num_states, num_parameters = before.shape
        if self.target.shape[1] == 1:  # the next state does not depend on the control
            policy = policy.sum(1, keepdims=True)
        targets = jnp.broadcast_to(self.target, (*self.target.shape[:2], num_states))
        first, *others = targets.reshape(len(targets), -1)
        chosen = policy.T.ravel()
        result = jnp.zeros((size, num_parameters), before.dtype)
        for controls in blocks(policy.shape[1]):
            rows = slice(controls.start * num_states, controls.stop * num_states)
            part = chosen[rows, None] * jnp.concatenate([before] * (controls.stop - controls.start))
            if self.group is not None:
                part = jnp.where(self.group.reshape(-1, num_parameters)[rows] == 0, part, 0.0)
            result = result.at[first[rows]].add(part, mode=INSIDE)
        if self.mixed is not None:
            place, group = self.mixed
            part = chosen[place, None] * before[place % num_states]
            for g, target in enumerate(others, start=1):
                result = result.at[target[place]].add(jnp.where(group == g, part, 0.0), mode=INSIDE)
        return result

    def pull(self, value: Array) -> Array:
        first, *others = self.target
        values = value.at[first.ravel()].get(mode=INSIDE)
        if self.mixed is not None:
            place, group = self.mixed
            part = values[place]
            for g, target in enumerate(others, start=1):
                part = jnp.where(group == g, value.at[target.ravel()[place]].get(mode=INSIDE), part)
            values = values.at[place].set(part, mode=INSIDE)
        return values.reshape(*first.shape, -1)

    def spread(self, weight: Array) -> Array:
        if self.mixed is None:  # all θ agree on the next state, so that it is certain
            return jnp.zeros((1, len(weight)), weight.dtype)
        return self._way(weight, Rows._spread, Rows._spread_by_rows)(self, weight)

    def _spread_by_rows(self, weight: Array) -> Array:
        laid = *self._moves(len(weight)), (weight, 1)
        parts = summed(lambda *own: live.group_sums(live.Moves(*own[:-1]), own[-1]), *laid, loops=True)
        parts = parts.reshape(len(parts), -1, len(weight))  # (G, U, X), zero where there is only one
        return neg_entropy(parts.sum(0)) - neg_entropy(parts).sum(0)

    def _spread(self, weight: Array) -> Array:
        assert self.mixed is not None
        place, group = self.mixed
        here = weight[place % len(weight)]
        parts = (sum_last(jnp.where(group == g, here, 0.0)) for g in range(len(self.target)))
        entropy = jnp.zeros(self.target.shape[1] * len(weight), weight.dtype)
        entropy = entropy.at[place].set(neg_entropy(sum_last(here)) - sum(map(neg_entropy, parts)), mode=INSIDE)
        return entropy.reshape(-1, len(weight))

    def surprise(self, weight: Array) -> Array:
        if self.mixed is None:
            return jnp.zeros((1, len(weight), 1), weight.dtype)
        place, group = self.mixed
        here = weight[place % len(weight)]
        parts = [sum_last(jnp.where(group == g, here, 0.0)) for g in range(len(self.target))]
        log = [log_share(part, sum_last(here)) for part in parts]
        shares = sum(jnp.where(group == g, log[g][:, None], 0.0) for g in range(len(self.target)))
        surprises = jnp.zeros((self.target.shape[1] * len(weight), weight.shape[1]), weight.dtype)
        return -surprises.at[place].set(shares, mode=INSIDE).reshape(-1, *weight.shape)


def blocks(num_controls: int) -> list[slice]:
    """The controls in at most :data:`MOST_BLOCKS` parts, all of the same size except the last.

    >>> blocks(2), blocks(20)[-1]
    ([slice(0, 1, None), slice(1, 2, None)], slice(18, 20, None))
    """
    size = -(-num_controls // MOST_BLOCKS)
    return [slice(start, min(start + size, num_controls)) for start in range(0, num_controls, size)]


@functools.partial(jax.tree_util.register_dataclass, data_fields=("place", "group"), meta_fields=("num_groups",))
@dataclass(frozen=True)
class Routes:
    """Every (u, x, θ) by itself."""

    place: Array  # (T|1, U|1, X, Θ) the place of its next state in a flat (X', Θ) table, or without T after at(t)
    group: Array  # (T|1, U|1, X, Θ) its place in a flat (group, X) table
    num_groups: int  # the most groups at one (u, x)

    def at(self, t: Array | int) -> Routes:
        return Routes(time_slice(self.place, t), time_slice(self.group, t), self.num_groups)

    def select(self, theta: Array) -> None:
        return None

    def push(self, before: Array, policy: Array, size: int) -> Array:
        return _push_to(self.place, before, policy, size)

    def pull(self, value: Array) -> Array:
        return each(lambda place, value: value.ravel().at[place].get(mode=INSIDE), 2, (self.place, 2), (value, 1))

    def spread(self, weight: Array) -> Array:
        flow = self._flow(weight)
        return neg_entropy(sum_last(weight)) - neg_entropy(flow).reshape(-1, self.num_groups, len(weight)).sum(1)

    def surprise(self, weight: Array) -> Array:
        flow, total = self._flow(weight), sum_last(weight)[:, None]
        return jnp.stack(
            [-log_share(own.at[g].get(mode=INSIDE), total) for own, g in zip(flow, self.group, strict=True)]
        )

    def _flow(self, weight: Array) -> Array:
        """Σ_θ of the weight by group, (U|1, group·X)."""
        size = self.num_groups * len(weight)

        def flow(group: Array, weight: Array) -> Array:
            empty = jnp.zeros(size, weight.dtype)
            return jnp.stack([empty.at[place.ravel()].add(weight.ravel(), mode=INSIDE) for place in group])

        return summed(flow, (self.group, 2), (weight, 1))


def find_rows(index: Array, *, rounded: bool = False) -> Rows | None:
    """The groups of a transition's index table (T|1, Θ|1, X|1, U|1); None if they are many, or not known yet.

    :param rounded: treat some further moves as if parameters differed at them, so that tables for slightly different
        beliefs have one shape, and plans from them are compiled once.
    """
    moves = control_first(index)
    if index.shape[1] == 1:
        return Rows(moves[..., 0][:, None], None, None)
    if not is_concrete(index) or moves.shape[2] == 1:
        return None
    group, last, differ = _groups(moves, laid_devices())
    count = int(last) + 1
    if count > MOST_GROUPS:
        return None
    place = np.flatnonzero(differ)
    if rounded:  # those that differ, and some more
        size = min(1 << (max(1, len(place)) - 1).bit_length(), differ.size)
        place = np.sort(np.argsort(~np.asarray(differ), kind="stable")[:size])
    place = place.astype(np.int32)
    target, mixed = _of_groups(moves, group, place, count, laid_devices())
    return Rows(target, group, Mixed(jnp.asarray(place), mixed))


@functools.partial(jax.jit, static_argnums=1)
def _groups(moves: Array, shards: Shards | None) -> tuple[Array, Array, Array]:
    """The group of each θ at every move, the last of all groups, and at which moves (U·X,) there are several.

    Groups beyond ``MOST_GROUPS`` are not told apart, as they will not be used.
    """
    rank = rank_by_minima(moves, MOST_GROUPS)
    group, last, differ = rank.astype(jnp.int8), rank.max(), (rank > 0).any((0, 3)).ravel()
    if shards is not None:
        group, last, differ = shards.placed(group, 3), shards.placed(last), shards.placed(differ)
    return group, last, differ


@functools.partial(jax.jit, static_argnums=(3, 4))
def _of_groups(moves: Array, group: Array, place: np.ndarray, count: int, shards: Shards | None) -> tuple[Array, Array]:
    """Where each group leads, (T|1, G, U, X), and the groups at some of the moves, (T|1, R, Θ)."""
    target = jnp.stack([jnp.where(group == g, moves, 0).max(-1) for g in range(count)], axis=1)
    some = group.reshape(len(group), -1, group.shape[-1])[:, place]
    return (target, some) if shards is None else (shards.placed(target), shards.placed(some, 2))


def find_routes(index: Array, size: int, num_parameters: int, num_states: int) -> Routes:
    """The routes of any index table (T|1, Θ|1, X|1, U|1)."""
    moves = _in_full(index, num_parameters, num_states)
    group = rank_last(moves) * num_states + jnp.arange(num_states, dtype=moves.dtype)[:, None]
    return Routes(_places(moves), group, min(num_parameters, size))


def push_along(index: Array, before: Array, policy: Array, size: int) -> Array:
    """:meth:`Routing.push` by the index table of one slice, (Θ|1, X|1, U|1), of which nothing else is needed."""
    return _push_to(_places(_in_full(index[None], before.shape[1], before.shape[0]))[0], before, policy, size)


def _in_full(index: Array, num_parameters: int, num_states: int) -> Array:
    """The next states, controls first, with all states and parameters: (T|1, U|1, X, Θ)."""
    moves = control_first(index).astype(jnp.int32)
    return jnp.broadcast_to(moves, (*moves.shape[:2], num_states, num_parameters))


def _places(moves: Array) -> Array:
    """The place of each next state in a flat (X', Θ) table."""
    return each(lambda own: own * own.shape[3] + jnp.arange(own.shape[3], dtype=own.dtype), 3, (moves, 3))


def _push_to(place: Array, before: Array, policy: Array, size: int) -> Array:
    """Σ_{u,x} before(x,θ) policy(x,u) by the places (U|1, X, Θ) where it goes in a flat (X', Θ) table, as (X', Θ)."""

    def own(place: Array, before: Array, policy: Array) -> Array:
        result = jnp.zeros(size * before.shape[1], before.dtype)
        places = jnp.broadcast_to(place, (policy.shape[1], *before.shape))
        for place, probs in zip(places, policy.T, strict=True):  # one by one is faster than at once
            result = result.at[place.ravel()].add((probs[:, None] * before).ravel(), mode=INSIDE)
        return result.reshape(size, before.shape[1])

    return each(own, 1, (place, 2), (before, 1), (policy, None))
