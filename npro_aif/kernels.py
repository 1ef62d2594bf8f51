"""Conditional tables p(outcome | given): dense log-tables and integer index tables with one interface.

A transition kernel is laid out (T|1, Θ|1, X|1, U|1, X') and an observation kernel (T|1, Θ|1, X, Y); an axis on
which the table does not depend has size 1. ``at(t)`` removes the time axis, and everything below works on
one time slice. An :class:`Index` kernel has no outcome axis: it stores the one outcome that is certain. Weights and
values over (θ, x, u) come with the control first, (U, Θ, X): each control's part is then one stretch of memory.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.numerics import divide, is_concrete, mul_log, neg_entropy, safe_log, sum_leading


def contract(output: str, *operands: tuple[Array, str]) -> Array:
    """Einsum in which an operand's axis of size 1 broadcasts, and an output axis nobody has gets size 1."""
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


INSIDE = "promise_in_bounds"  # indices are checked when a program is compiled


class Evidence(NamedTuple):
    """What one observation site tells about θ at each state, given a weight q(θ,x)."""

    observation: Array  # (X, Y) q(y|x)
    novelty: Array  # (X, Y) KL[q(θ|y,x) ‖ q(θ|x)], zero where q(y,x) = 0
    ambiguity: Array  # (X,) E_q(θ|x) H[q(y|x,θ)]


@functools.partial(jax.tree_util.register_dataclass, data_fields=("log", "entropy"), meta_fields=())
@dataclass(frozen=True)
class Dense:
    """A kernel as log-probabilities; the last axis is the outcome."""

    log: Array  # (T|1, Θ|1, …, K), or without T after at(t)
    entropy: Array | None = None  # (T|1, U|1, X|1) of a transition on which θ has no say, if it was prepared

    @property
    def size(self) -> int:
        return self.log.shape[-1]

    @property
    def probs(self) -> Array:
        return jnp.exp(self.log)

    @property
    def support(self) -> Array:
        return self.log > -jnp.inf

    def at(self, t: Array | int) -> Dense:
        return Dense(time_slice(self.log, t), None if self.entropy is None else time_slice(self.entropy, t))

    def prepared(self, num_parameters: int, num_states: int) -> Dense:
        """The same kernel, ready for a loop over time and sweeps."""
        if self.log.ndim < 5 or self.log.shape[1] > 1:
            return self
        return replace(self, entropy=jnp.swapaxes(-neg_entropy(self.probs).sum(-1)[:, 0], 1, 2))

    def select(self, theta: Array) -> Dense:
        return Dense(select_parameters(self.log, theta))

    def given(self, control: Array | int) -> Dense:
        """A transition's slice (Θ|1, X|1, U|1, X') at one control, its axis kept with size 1."""
        if self.log.shape[2] == 1:
            return self
        return Dense(jax.lax.dynamic_slice_in_dim(self.log, control, 1, axis=2))

    def table(self) -> Array:
        """The log-table with its outcome axis."""
        return self.log

    def likelihood(self, outcome: Array | int) -> Array:
        """p(outcome | given), of the givens' shape."""
        return jnp.exp(jnp.take(self.log, outcome, axis=-1))

    def predict(self, weight: Array) -> Array:
        """Σ_{θ,x} weight(θ,x) p(y|x,θ), (Y,)."""
        return contract("k", (weight, "ix"), (self.probs, "ixk"))

    def push(self, weight: Array) -> Array:
        """Σ_{x,u} weight(u,θ,x) p(x'|x,u,θ), (Θ, X')."""
        return contract("ik", (weight, "uix"), (self.probs, "ixuk"))

    def pull(self, value: Array) -> Array:
        """Σ_x' p(x'|x,u,θ) value(θ,x'), (U|1, Θ, X|1)."""
        return contract("uix", (self.probs, "ixuk"), (value, "ik"))

    def expect(self, cost: Array) -> Array:
        """Σ_k p(k|given) cost(given, k), where cost broadcasts; of the givens' shape."""
        return mul_log(self.probs, cost).sum(-1)

    def tilt(self, cost: Array) -> tuple[Dense, Array]:
        """q ∝ p exp(−cost), and the cost it attains: −log Σ p exp(−cost) = KL[q‖p] + E_q[cost]."""
        log = self.log - cost
        value = jax.nn.logsumexp(log, axis=-1, keepdims=True)
        return Dense(log - value), -value[..., 0]

    def divergence(self, other: Dense | Index) -> Array:
        """KL[self ‖ other] for each given."""
        return mul_log(self.probs, self.log - jnp.where(self.log > -jnp.inf, other.table(), 0.0)).sum(-1)

    def spread(self, weight: Array) -> Array:
        """q(x) H[q(x'|x,u)] with θ summed out under the weight q(θ,x), (Θ, X): (U|1, X)."""
        if self.entropy is not None:
            return sum_leading(weight) * self.entropy
        flow = contract("uxk", (weight, "ix"), (self.probs, "ixuk"))
        return neg_entropy(sum_leading(weight)) - neg_entropy(flow).sum(-1)

    def evidence(self, weight: Array) -> Evidence:
        """What an observation kernel (Θ|1, X, Y) tells about θ under the weight q(θ,x), (Θ, X)."""
        belief = divide(weight, sum_leading(weight))  # q(θ|x)
        probs = jnp.broadcast_to(self.probs, (weight.shape[0], *self.log.shape[1:]))
        predicted = contract("xk", (belief, "ix"), (probs, "ixk"))
        ratio = divide(probs, predicted)
        novelty = sum_leading(belief[..., None] * neg_entropy(ratio))
        ambiguity = -sum_leading(belief * neg_entropy(probs).sum(-1))
        return Evidence(predicted, novelty, ambiguity)


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("index", "group", "route", "place"),
    meta_fields=("size", "num_groups"),
)
@dataclass(frozen=True)
class Index:
    """A deterministic kernel: the outcome itself, one integer for each given.

    ``group`` numbers the different outcomes that the θ have among themselves at the same (x,u), so that sums
    over outcomes run over a handful of groups instead of all X' states. ``route`` and ``place`` are what a loop
    over time looks up, if it was worked out before (:meth:`prepared`).
    """

    index: Array  # (T|1, Θ|1, …) int32, or without T after at(t)
    size: int  # the number of outcomes
    group: Array | None = None  # as index
    num_groups: int = 0
    route: Array | None = None  # (T|1, U|1, Θ, X) where each (u, θ, x) leads in a flat (Θ, X') table
    place: Array | None = None  # (T|1, …, Θ, X) where it counts in a flat (group, X) or (outcome, X) table

    @property
    def support(self) -> Array:
        return self.index[..., None] == jnp.arange(self.size)

    def at(self, t: Array | int) -> Index:
        now = (None if table is None else time_slice(table, t) for table in (self.group, self.route, self.place))
        group, route, place = now
        return Index(time_slice(self.index, t), self.size, group, self.num_groups, route, place)

    def prepared(self, num_parameters: int, num_states: int) -> Index:
        """The same kernel, ready for a loop over time and sweeps."""
        if self.index.ndim == 3:  # of an observation: (T|1, Θ|1, X|1)
            place = self._place(num_states)
            return replace(self, place=jnp.broadcast_to(place, (len(place), num_parameters, num_states)))
        kernel = self.grouped()
        route = kernel._route(num_parameters)
        route = jnp.broadcast_to(route, (*route.shape[:2], num_parameters, num_states))
        return replace(kernel, route=route, place=None if kernel.group is None else kernel._group_place(num_states))

    def select(self, theta: Array) -> Index:
        group = None if self.group is None else select_parameters(self.group, theta)
        return Index(select_parameters(self.index, theta), self.size, group, self.num_groups)

    def given(self, control: Array | int) -> Index:
        if self.index.shape[2] == 1:
            return self
        return Index(jax.lax.dynamic_slice_in_dim(self.index, control, 1, axis=2), self.size)

    def grouped(self) -> Index:
        """The same kernel with its groups worked out, where θ matters; at most as many as there are θ or outcomes."""
        if self.group is not None or self.index.shape[1] == 1:
            return self
        group = _rank_along(self.index, axis=1)
        bound = min(self.index.shape[1], self.size)
        return Index(self.index, self.size, group, int(group.max()) + 1 if is_concrete(group) else bound)

    def table(self) -> Array:
        """The dense log-table: for callers that must have it."""
        return jnp.where(self.support, 0.0, -jnp.inf)

    def likelihood(self, outcome: Array | int) -> Array:
        return jnp.where(self.index == outcome, 1.0, 0.0)

    def predict(self, weight: Array) -> Array:
        return self._outcomes(weight).sum(-1)

    def push(self, weight: Array) -> Array:
        num_controls, num_parameters, _ = weight.shape
        route = self._route(num_parameters) if self.route is None else self.route
        route = jnp.broadcast_to(route, weight.shape)
        result = jnp.zeros(num_parameters * self.size, weight.dtype)
        for u in range(num_controls):  # one scatter for each control: faster than one big one
            result = result.at[route[u].ravel()].add(weight[u].ravel(), mode=INSIDE)
        return result.reshape(num_parameters, self.size)

    def pull(self, value: Array) -> Array:
        route = self._route(max(len(value), len(self.index))) if self.route is None else self.route
        value = jnp.broadcast_to(value, (route.shape[1], self.size))
        return value.ravel().at[route.ravel()].get(mode=INSIDE).reshape(route.shape)

    def _route(self, num_parameters: int) -> Array:
        """Where each (u, θ, x) leads in a flat (Θ, X') table, ([T|1,] U|1, Θ, X|1)."""
        rows = jnp.arange(num_parameters, dtype=self.index.dtype)[:, None]
        return jnp.moveaxis(self.index, -1, -3) + rows * self.size

    def expect(self, cost: Array) -> Array:
        if cost.shape[-1] == 1:
            return cost[..., 0]
        return jnp.take_along_axis(cost, self.index[..., None], axis=-1)[..., 0]

    def tilt(self, cost: Array) -> tuple[Index, Array]:
        return self, self.expect(cost)

    def divergence(self, other: Dense | Index) -> Array:
        """Zero: a posterior with an index kernel has its model's, as there is no other on its support."""
        return jnp.zeros((1,) * self.index.ndim)

    def spread(self, weight: Array) -> Array:
        num_states = weight.shape[1]
        if self.index.shape[0] == 1:  # all θ agree on the next state: there is nothing to be uncertain of
            return jnp.zeros((1, num_states), weight.dtype)
        kernel = self if self.group is not None else Index(self.index[None], self.size).grouped().at(0)
        place = kernel._group_place(num_states) if kernel.place is None else kernel.place  # (U|1, Θ, X)
        flow = jnp.stack([_gather_sum(kernel.num_groups * num_states, p, weight) for p in place])
        spread = neg_entropy(flow).reshape(-1, kernel.num_groups, num_states).sum(1)
        return neg_entropy(sum_leading(weight)) - spread

    def evidence(self, weight: Array) -> Evidence:
        """A certain observation has no ambiguity, and its novelty is −log q(y|x)."""
        predicted = divide(self._outcomes(weight), sum_leading(weight))
        novelty = jnp.where(predicted > 0, -safe_log(jnp.where(predicted > 0, predicted, 1.0)), 0.0)
        return Evidence(predicted.T, novelty.T, jnp.zeros(weight.shape[1], weight.dtype))

    def _outcomes(self, weight: Array) -> Array:
        """Σ_θ of the weight q(θ,x) by what is observed at x, (Y, X)."""
        num_states = weight.shape[1]
        place = self._place(num_states) if self.place is None else self.place
        flow = _gather_sum(num_states * self.size, jnp.broadcast_to(place, weight.shape), weight)
        return flow.reshape(self.size, num_states)

    def _place(self, num_states: int) -> Array:
        """Where each (θ, x) counts in a flat (Y, X) table, ([T|1,] Θ|1, X)."""
        return self.index * num_states + jnp.arange(num_states, dtype=self.index.dtype)

    def _group_place(self, num_states: int) -> Array:
        """Where each (u, θ, x) counts in a flat (group, X) table, ([T|1,] U|1, Θ, X)."""
        group = jnp.moveaxis(jnp.asarray(self.group), -1, -3)
        return group * num_states + jnp.arange(num_states, dtype=group.dtype)


Kernel = Dense | Index


def _gather_sum(size: int, place: Array, weight: Array) -> Array:
    """Σ of the weights that fall on each of ``size`` places."""
    return jnp.zeros(size, weight.dtype).at[place.ravel()].add(weight.ravel(), mode=INSIDE)


def _rank_along(index: Array, axis: int) -> Array:
    """For each entry, the rank of its value among the different values along ``axis`` (0, 1, …)."""
    order = jnp.argsort(index, axis=axis, stable=True)
    ordered = jnp.take_along_axis(index, order, axis)
    fresh = jnp.diff(ordered, axis=axis, prepend=jnp.take(ordered, jnp.array([0]), axis)) != 0
    rank = jnp.cumsum(fresh, axis=axis, dtype=index.dtype)
    return jnp.put_along_axis(jnp.zeros_like(rank), order, rank, axis, inplace=False)
