"""Conditional tables p(outcome | given): dense log-tables and integer index tables with one interface.

See :mod:`npro_aif.tables.layout` for the order of their axes. ``at(t)`` removes the time axis, and everything below works on
one time slice. An :class:`Index` kernel has no outcome axis: it stores the one outcome that is certain. Transition
kernels move flows (X, Θ); observation kernels sum them up over θ, which is faster laid out as their tables are, (Θ, X).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.tables.layout import INSIDE, Evidence, contract, select_parameters, time_slice
from npro_aif.tables.numerics import divide, mul_log, neg_entropy, safe_log, sum_last, sum_leading
from npro_aif.tables.routing import Routes, Rows, find_routes, find_rows


@functools.partial(jax.tree_util.register_dataclass, data_fields=("log", "onward", "back", "entropy"), meta_fields=())
@dataclass(frozen=True)
class Dense:
    """A kernel as log-probabilities; the last axis is the outcome.

    The other tables are a transition's, if they were worked out before (:meth:`prepared`): its probabilities in the
    orders in which they are multiplied (with another order XLA would copy them first), and where θ has no say the
    entropy.
    """

    log: Array  # (T|1, Θ|1, …, K), or without T after at(t)
    onward: Array | None = None  # (T|1, Θ|1, U|1, X|1, X')
    back: Array | None = None  # (T|1, Θ|1, X', U|1, X|1)
    entropy: Array | None = None  # (T|1, 1, U|1, X|1)

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
        return jax.tree.map(lambda table: time_slice(table, t), self)

    def prepared(self) -> Dense:
        """The same kernel, ready for a loop over time and sweeps; it stays so when θ are selected."""
        if self.log.ndim < 5 or self.onward is not None:
            return self
        onward = self._onward()
        entropy = -neg_entropy(onward).sum(-1) if onward.shape[1] == 1 else None
        return Dense(self.log, onward, jnp.moveaxis(onward, -1, -3), entropy)

    def select(self, theta: Array) -> Dense:
        return jax.tree.map(lambda table: select_parameters(table, theta), self)

    def routed(self, num_parameters: int, num_states: int) -> Dense:
        """The same kernel: it is ready (see :meth:`Index.routed`)."""
        return self

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

    def push(self, before: Array, policy: Array) -> Array:
        """Σ_{x,u} before(x,θ) policy(x,u) p(x'|x,u,θ), (X', Θ)."""
        weight = policy.T[:, :, None] * before
        product = contract("ik", (weight, "uxi"), (self._onward(), "iuxk"))
        return jax.lax.optimization_barrier(product).T  # XLA would turn it round, and copy the table for that

    def pull(self, value: Array) -> Array:
        """Σ_x' p(x'|x,u,θ) value(x',θ), (U|1, X|1, Θ)."""
        back = jnp.moveaxis(self._onward(), -1, -3) if self.back is None else self.back
        return jnp.moveaxis(contract("iux", (value, "ki"), (back, "ikux")), 0, -1)

    def _onward(self) -> Array:
        """p(x'|x,u,θ) with the axes in the order of moves."""
        return jnp.swapaxes(self.probs, -2, -3) if self.onward is None else self.onward

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
        """q(x) H[q(x'|x,u)] with θ summed out under the weight q(θ,x), (X, Θ): (U|1, X)."""
        if self.entropy is not None:
            return sum_last(weight) * self.entropy[0]
        flow = contract("uxk", (weight, "xi"), (self._onward(), "iuxk"))
        return neg_entropy(sum_last(weight)) - neg_entropy(flow).sum(-1)

    def evidence(self, weight: Array) -> Evidence:
        """What an observation kernel (Θ|1, X, Y) tells about θ under the weight q(θ,x), (Θ, X)."""
        belief = divide(weight, sum_leading(weight))  # q(θ|x)
        probs = jnp.broadcast_to(self.probs, (weight.shape[0], *self.log.shape[1:]))
        predicted = sum_leading(belief[..., None] * probs)
        ratio = divide(probs, predicted)
        novelty = sum_leading(belief[..., None] * neg_entropy(ratio))
        ambiguity = -sum_leading(belief * neg_entropy(probs).sum(-1))
        return Evidence(predicted, novelty, ambiguity)


@functools.partial(jax.tree_util.register_dataclass, data_fields=("index", "routing"), meta_fields=("size",))
@dataclass(frozen=True)
class Index:
    """A deterministic kernel: the outcome itself, one integer for each given."""

    index: Array  # (T|1, Θ|1, …) int32, or without T after at(t)
    size: int  # the number of outcomes
    routing: Rows | Routes | None = None  # of a transition, if it was worked out before (:meth:`routed`)

    @property
    def support(self) -> Array:
        return self.index[..., None] == jnp.arange(self.size)

    def at(self, t: Array | int) -> Index:
        routing = None if self.routing is None else self.routing.at(t)
        return Index(time_slice(self.index, t), self.size, routing)

    def prepared(self) -> Index:
        """The same kernel with groups of parameters, where they can be had; these stay when θ are selected."""
        if self.index.ndim < 4 or self.routing is not None:
            return self
        return Index(self.index, self.size, find_rows(self.index))

    def routed(self, num_parameters: int, num_states: int) -> Index:
        """The same kernel, ready for a loop over time and sweeps with so many parameters."""
        if self.index.ndim < 4 or self.routing is not None:
            return self
        return Index(self.index, self.size, find_routes(self.index, self.size, num_parameters, num_states))

    def select(self, theta: Array) -> Index:
        routing = self.routing.select(theta) if isinstance(self.routing, Rows) else None
        return Index(select_parameters(self.index, theta), self.size, routing)

    def given(self, control: Array | int) -> Index:
        if self.index.shape[2] == 1:
            return self
        return Index(jax.lax.dynamic_slice_in_dim(self.index, control, 1, axis=2), self.size)

    def table(self) -> Array:
        """The dense log-table: for callers that must have it."""
        return jnp.where(self.support, 0.0, -jnp.inf)

    def likelihood(self, outcome: Array | int) -> Array:
        return jnp.where(self.index == outcome, 1.0, 0.0)

    def predict(self, weight: Array) -> Array:
        return self._outcomes(weight).sum(-1)

    def push(self, before: Array, policy: Array) -> Array:
        return self._routing(*before.shape).push(before, policy, self.size)

    def pull(self, value: Array) -> Array:
        return self._routing(self.index.shape[1], value.shape[1]).pull(value)

    def spread(self, weight: Array) -> Array:
        return self._routing(*weight.shape).spread(weight)

    def _routing(self, num_states: int, num_parameters: int) -> Rows | Routes:
        """The routing of a slice, worked out now if it was not before."""
        if self.routing is not None:
            return self.routing
        whole = Index(self.index[None], self.size).prepared().routed(num_parameters, num_states)
        return whole.routing.at(0)  # type: ignore[union-attr]

    def expect(self, cost: Array) -> Array:
        if cost.shape[-1] == 1:
            return cost[..., 0]
        return jnp.take_along_axis(cost, self.index[..., None], axis=-1)[..., 0]

    def tilt(self, cost: Array) -> tuple[Index, Array]:
        return self, self.expect(cost)

    def divergence(self, other: Dense | Index) -> Array:
        """Zero: a posterior with an index kernel has its model's, as there is no other on its support."""
        return jnp.zeros((1,) * self.index.ndim)

    def evidence(self, weight: Array) -> Evidence:
        """A certain observation has no ambiguity, and its novelty is −log q(y|x)."""
        predicted = divide(self._outcomes(weight), sum_leading(weight))
        novelty = jnp.where(predicted > 0, -safe_log(jnp.where(predicted > 0, predicted, 1.0)), 0.0)
        return Evidence(predicted.T, novelty.T, jnp.zeros(weight.shape[1], weight.dtype))

    def _outcomes(self, weight: Array) -> Array:
        """Σ_θ of the weight q(θ,x) by what is observed at x, (Y, X)."""
        num_states = weight.shape[1]
        place = self.index * num_states + jnp.arange(num_states, dtype=self.index.dtype)  # in a flat (Y, X) table
        place = jnp.broadcast_to(place, weight.shape).ravel()
        flow = jnp.zeros(num_states * self.size, weight.dtype).at[place].add(weight.ravel(), mode=INSIDE)
        return flow.reshape(self.size, num_states)


Kernel = Dense | Index
