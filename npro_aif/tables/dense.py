"""Conditional tables as log-probabilities, with a row for each condition."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Self

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.numerics import (
    divide,
    less_common,
    masked_log_softmax,
    mul_log,
    neg_entropy,
    relative_entropy,
    sum_last,
    sum_leading,
)
from npro_aif.tables.evidence import Evidence
from npro_aif.tables.kernels import Kernel, PlainTransition, Transition
from npro_aif.tables.layout import contract, grouped, lookup, select_parameters, time_slice
from npro_aif.tables.sparse import few_entries
from npro_aif.tables.surprise import log_share


@dataclass(frozen=True)
class _Dense:
    """What dense transitions and emissions share; the last axis is the outcome."""

    log: Array  # (T|1, Θ|1, …, K), or without T after at(t)

    @property
    def size(self) -> int:
        return self.log.shape[-1]

    @property
    def num_times(self) -> int:
        return self.log.shape[0]

    @property
    def sees_parameters(self) -> bool:
        return self.log.shape[1] > 1

    @property
    def learnable(self) -> bool:
        return True

    def narrowed(self) -> Self:
        return self

    @property
    def probs(self) -> Array:
        return jnp.exp(self.log)

    @property
    def possible(self) -> Array:
        return self.log > -jnp.inf

    def at(self, t: Array | int) -> Self:
        return jax.tree.map(lambda table: time_slice(table, t), self)

    def select(self, theta: Array) -> Self:
        return jax.tree.map(lambda table: select_parameters(table, theta), self)

    def guarded(self) -> Self:
        return self

    def table(self) -> Array:
        return self.log

    def learned(self, logits: Array) -> Self:
        return type(self)(masked_log_softmax(self.log + logits, self.possible))

    def expect(self, cost: Array) -> Array:
        return mul_log(self.probs, cost).sum(-1)

    def tilt(self, cost: Array) -> tuple[Self, Array]:
        log, least = less_common(self.log, cost)
        value = jax.nn.logsumexp(log, axis=-1, keepdims=True)
        return type(self)(log - value), (least - value)[..., 0]

    def divergence(self, other: Kernel) -> Array:
        return relative_entropy(self.log, other.table()).sum(-1)

    def certain(self, *given: Array) -> None:
        return None

    def row(self, *given: Array) -> Array:
        return jnp.exp(lookup(self.log, *given))


@functools.partial(jax.tree_util.register_dataclass, data_fields=("log", "onward", "back", "entropy"), meta_fields=())
@dataclass(frozen=True)
class DenseTransition(_Dense, PlainTransition):
    """p(x'|x,u,θ) as log-probabilities, (T|1, Θ|1, X|1, U|1, X').

    The other tables are derived from it in advance (:meth:`prepared`): the probabilities in the orders in which they
    are multiplied (XLA would copy them from any other order first), and the entropy where θ does not matter.
    """

    onward: Array | None = None  # (T|1, Θ|1, U|1, X|1, X')
    back: Array | None = None  # (T|1, Θ|1, X', U|1, X|1)
    entropy: Array | None = None  # (T|1, 1, U|1, X|1)

    def prepared(self) -> Transition:
        if self.onward is not None:
            return self
        few = few_entries(self.log)
        if few is not None:
            return few.prepared()
        onward = self._onward()
        entropy = -neg_entropy(onward).sum(-1) if onward.shape[1] == 1 else None
        return DenseTransition(self.log, onward, jnp.moveaxis(onward, -1, -3), entropy)

    layable = True  # its parameters can be laid over devices

    def routed(self, num_parameters: int, num_states: int) -> DenseTransition:
        return self

    def given(self, control: Array | int) -> DenseTransition:
        if self.log.shape[2] == 1:
            return self
        return DenseTransition(jax.lax.dynamic_slice_in_dim(self.log, control, 1, axis=2))

    def push(self, before: Array, policy: Array) -> Array:
        weight = policy.T[:, :, None] * before
        product = contract("ik", (weight, "uxi"), (self._onward(), "iuxk"))
        return jax.lax.optimization_barrier(product).T  # otherwise XLA would transpose, and thus copy, the table

    def pull(self, value: Array) -> Array:
        back = jnp.moveaxis(self._onward(), -1, -3) if self.back is None else self.back
        return jnp.moveaxis(contract("iux", (value, "ki"), (back, "ikux")), 0, -1)

    def _onward(self) -> Array:
        """p(x'|x,u,θ) with the axes in the order of moves."""
        return jnp.swapaxes(self.probs, -2, -3) if self.onward is None else self.onward

    def spread(self, weight: Array) -> Array:
        if self.entropy is not None:
            return sum_last(weight) * self.entropy[0]
        flow = contract("uxk", (weight, "xi"), (self._onward(), "iuxk"))
        return neg_entropy(sum_last(weight)) - neg_entropy(flow).sum(-1)

    def surprise(self, weight: Array) -> Array:
        """E[−log m(x'|x,u)] for each θ (:mod:`npro_aif.tables.surprise`)."""
        if self.entropy is not None:
            return jnp.broadcast_to(self.entropy[0], (self.entropy.shape[1], len(weight)))[..., None]
        flow = contract("uxk", (weight, "xi"), (self._onward(), "iuxk"))
        share = log_share(flow, sum_last(weight)[:, None])
        return -jnp.moveaxis(contract("iux", (share, "uxk"), (self._onward(), "iuxk")), 0, -1)

    def in_full(self, shape: tuple[int, int, int, int]) -> DenseTransition:
        return DenseTransition(jnp.broadcast_to(self.log, (*shape, self.size)))

    def put(self, t: Array, row: Kernel) -> DenseTransition:
        return DenseTransition(self.log.at[t].set(jnp.broadcast_to(row.table(), self.log.shape[1:])))


@functools.partial(jax.tree_util.register_dataclass, data_fields=("log",), meta_fields=())
@dataclass(frozen=True)
class DenseEmission(_Dense):
    """p(y|x,θ) as log-probabilities, (T|1, Θ|1, X|1, Y)."""

    def prepared(self) -> DenseEmission:
        return self

    def certain_table(self) -> Array:
        raise TypeError("found a table of probabilities, expected one of certain outcomes")

    def grouped(self, members: Array, num_controls: int, num_parameters: int) -> DenseEmission:
        return DenseEmission(grouped(self.log, members, num_controls, num_parameters))

    def likelihood(self, outcome: Array | int) -> Array:
        return jnp.exp(jnp.take(self.log, outcome, axis=-1))

    def predict(self, weight: Array) -> Array:
        return contract("k", (weight, "ix"), (self.probs, "ixk"))

    def evidence(self, weight: Array) -> Evidence:
        belief = divide(weight, sum_leading(weight))  # q(θ|x)
        probs = jnp.broadcast_to(self.probs, (weight.shape[0], *self.log.shape[1:]))
        predicted = sum_leading(belief[..., None] * probs)
        ratio = divide(probs, predicted)
        gain = sum_leading(belief[..., None] * neg_entropy(ratio))
        ambiguity = -sum_leading(belief * neg_entropy(probs).sum(-1))
        return Evidence(predicted, gain, ambiguity)
