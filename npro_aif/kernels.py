"""Conditional tables p(outcome | given): dense log-tables and integer index tables with one interface.

A transition kernel is laid out (T|1, Θ|1, X|1, U|1, X') and an observation kernel (T|1, Θ|1, X, Y); an axis on
which the table does not depend has size 1. ``at(t)`` removes the time axis, and everything below works on
one time slice. An :class:`Index` kernel has no outcome axis: it stores the one outcome that is certain.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.numerics import divide, is_concrete, mul_log, neg_entropy, safe_log


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


class Evidence(NamedTuple):
    """What one observation site tells about θ at each state, given a weight q(θ,x)."""

    observation: Array  # (X, Y) q(y|x)
    novelty: Array  # (X, Y) KL[q(θ|y,x) ‖ q(θ|x)], zero where q(y,x) = 0
    ambiguity: Array  # (X,) E_q(θ|x) H[q(y|x,θ)]


@functools.partial(jax.tree_util.register_dataclass, data_fields=("log",), meta_fields=())
@dataclass(frozen=True)
class Dense:
    """A kernel as log-probabilities; the last axis is the outcome."""

    log: Array  # (T|1, Θ|1, …, K), or without T after at(t)

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
        return Dense(time_slice(self.log, t))

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
        """Σ_{x,u} weight(θ,x,u) p(x'|x,u,θ), (Θ, X')."""
        return contract("ik", (weight, "ixu"), (self.probs, "ixuk"))

    def pull(self, value: Array) -> Array:
        """Σ_x' p(x'|x,u,θ) value(θ,x'), (Θ, X|1, U|1)."""
        return contract("ixu", (self.probs, "ixuk"), (value, "ik"))

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

    def flow_entropy(self, weight: Array) -> Array:
        """Σ_x q(x,u) H[q(x'|x,u)] with θ summed out, for each u: weight (Θ, X, U) → (U,)."""
        flow = contract("xuk", (weight, "ixu"), (self.probs, "ixuk"))
        mass = weight.sum(0)
        return (neg_entropy(mass) - neg_entropy(flow).sum(-1)).sum(0)

    def evidence(self, weight: Array) -> Evidence:
        """What an observation kernel (Θ|1, X, Y) tells about θ under the weight q(θ,x), (Θ, X)."""
        belief = divide(weight, weight.sum(0))  # q(θ|x)
        probs = jnp.broadcast_to(self.probs, (weight.shape[0], *self.log.shape[1:]))
        predicted = contract("xk", (belief, "ix"), (probs, "ixk"))
        ratio = divide(probs, predicted)
        novelty = (belief[..., None] * neg_entropy(ratio)).sum(0)
        ambiguity = -(belief * neg_entropy(probs).sum(-1)).sum(0)
        return Evidence(predicted, novelty, ambiguity)


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("index", "group"), meta_fields=("size", "num_groups")
)
@dataclass(frozen=True)
class Index:
    """A deterministic kernel: the outcome itself, one integer for each given.

    ``group`` numbers the different outcomes that the θ have among themselves at the same (x,u), so that sums
    over outcomes run over a handful of groups instead of all X' states.
    """

    index: Array  # (T|1, Θ|1, …) int32, or without T after at(t)
    size: int  # the number of outcomes
    group: Array | None = None  # as index
    num_groups: int = 0

    @property
    def support(self) -> Array:
        return self.index[..., None] == jnp.arange(self.size)

    def at(self, t: Array | int) -> Index:
        group = None if self.group is None else time_slice(self.group, t)
        return Index(time_slice(self.index, t), self.size, group, self.num_groups)

    def select(self, theta: Array) -> Index:
        group = None if self.group is None else select_parameters(self.group, theta)
        return Index(select_parameters(self.index, theta), self.size, group, self.num_groups)

    def given(self, control: Array | int) -> Index:
        if self.index.shape[2] == 1:
            return self
        return Index(jax.lax.dynamic_slice_in_dim(self.index, control, 1, axis=2), self.size)

    def grouped(self) -> Index:
        """The same kernel with its groups worked out, where the values are known and θ matters."""
        if not is_concrete(self.index) or self.index.shape[1] == 1:
            return self
        group = _rank_along(np.asarray(self.index), axis=1)
        return Index(self.index, self.size, jnp.asarray(group), int(group.max()) + 1)

    def table(self) -> Array:
        """The dense log-table: for callers that must have it."""
        return jnp.where(self.support, 0.0, -jnp.inf)

    def likelihood(self, outcome: Array | int) -> Array:
        return jnp.where(self.index == outcome, 1.0, 0.0)

    def predict(self, weight: Array) -> Array:
        index = jnp.broadcast_to(self.index, weight.shape)
        return jnp.zeros(self.size, weight.dtype).at[index].add(weight)

    def push(self, weight: Array) -> Array:
        num_parameters, num_states, num_controls = weight.shape
        index = jnp.broadcast_to(self.index, (self.index.shape[0], num_states, num_controls))
        result = jnp.zeros((num_parameters, self.size), weight.dtype)
        rows = jnp.arange(num_parameters)[:, None]
        for u in range(num_controls):  # one scatter for each control: much faster than one big one
            if index.shape[0] == 1:
                result = result.at[:, index[0, :, u]].add(weight[:, :, u])
            else:
                result = result.at[rows, index[:, :, u]].add(weight[:, :, u])
        return result

    def pull(self, value: Array) -> Array:
        if self.index.shape[0] == 1:
            return jnp.take(value, self.index[0], axis=1)
        rows = jnp.arange(self.index.shape[0]).reshape((-1,) + (1,) * (self.index.ndim - 1))
        return jnp.broadcast_to(value, (self.index.shape[0], self.size))[rows, self.index]

    def expect(self, cost: Array) -> Array:
        if all(size == 1 for size in cost.shape[1:-1]):
            return self.pull(cost.reshape(cost.shape[0], cost.shape[-1]))
        if cost.shape[-1] == 1:
            return cost[..., 0]
        return jnp.take_along_axis(cost, self.index[..., None], axis=-1)[..., 0]

    def tilt(self, cost: Array) -> tuple[Index, Array]:
        return self, self.expect(cost)

    def divergence(self, other: Dense | Index) -> Array:
        """Zero: a posterior with an index kernel has its model's, as there is no other on its support."""
        return jnp.zeros((1,) * self.index.ndim)

    def flow_entropy(self, weight: Array) -> Array:
        if self.index.shape[0] == 1:  # all θ agree on the next state: there is nothing to be uncertain of
            return jnp.zeros(weight.shape[-1], weight.dtype)
        mass = weight.sum(0)
        if self.group is not None:
            flow = jnp.stack([jnp.where(self.group == g, weight, 0.0).sum(0) for g in range(self.num_groups)])
            spread = neg_entropy(flow).sum(0)
        else:
            states, controls = jnp.indices(weight.shape[1:])
            flow = jnp.zeros((*weight.shape[1:], self.size), weight.dtype)
            index = jnp.broadcast_to(self.index, weight.shape)
            spread = neg_entropy(flow.at[states, controls, index].add(weight)).sum(-1)
        return (neg_entropy(mass) - spread).sum(0)

    def evidence(self, weight: Array) -> Evidence:
        """A certain observation has no ambiguity, and its novelty is −log q(y|x)."""
        belief = divide(weight, weight.sum(0))
        index = jnp.broadcast_to(self.index, weight.shape)
        columns = [jnp.where(index == k, belief, 0.0).sum(0) for k in range(self.size)]
        predicted = jnp.stack(columns, -1)
        novelty = jnp.where(predicted > 0, -safe_log(jnp.where(predicted > 0, predicted, 1.0)), 0.0)
        return Evidence(predicted, novelty, jnp.zeros(weight.shape[1], weight.dtype))


Kernel = Dense | Index


def _rank_along(index: np.ndarray, axis: int) -> np.ndarray:
    """For each entry, the rank of its value among the different values along ``axis`` (0, 1, …)."""
    order = np.argsort(index, axis=axis, kind="stable")
    ordered = np.take_along_axis(index, order, axis)
    fresh = np.diff(ordered, axis=axis) != 0
    rank = np.concatenate(
        [np.zeros_like(np.take(ordered, [0], axis)), np.cumsum(fresh, axis=axis)], axis=axis
    )
    result = np.empty_like(rank)
    np.put_along_axis(result, order, rank, axis)
    return result.astype(np.int32)
