"""Conditional tables with certain outcomes: one integer for each condition, and no outcome axis."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.numerics import divide, is_concrete, safe_log, sum_leading
from npro_aif.shards import summed
from npro_aif.tables.evidence import Evidence
from npro_aif.tables.kernels import Kernel
from npro_aif.tables.layout import INSIDE, grouped, lookup, select_parameters, time_slice
from npro_aif.tables.routing import Routing, Rows, find_routes, find_rows, push_along


@dataclass(frozen=True)
class _Index:
    """What certain transitions and emissions share."""

    index: Array  # (T|1, Θ|1, …) int32, or without T after at(t)
    size: int  # the number of outcomes

    @property
    def num_times(self) -> int:
        return self.index.shape[0]

    @property
    def sees_parameters(self) -> bool:
        return self.index.shape[1] > 1

    @property
    def learnable(self) -> bool:
        return False

    @property
    def possible(self) -> Array:
        return self.index[..., None] == jnp.arange(self.size)

    def at(self, t: Array | int) -> Self:
        return replace(self, index=time_slice(self.index, t))

    def select(self, theta: Array) -> Self:
        return replace(self, index=select_parameters(self.index, theta))

    def guarded(self) -> Self:
        return replace(self, index=jnp.clip(self.index, 0, self.size - 1))

    def narrowed(self) -> Self:
        """The same outcomes in as few bytes as they need, as a large world has many of these tables."""
        dtype = next(dtype for dtype in (jnp.int8, jnp.int16, jnp.int32) if self.size <= jnp.iinfo(dtype).max)
        return replace(self, index=self.index.astype(dtype))

    def table(self) -> Array:
        return jnp.where(self.possible, 0.0, -jnp.inf)

    def learned(self, logits: Array) -> Self:
        return self

    def expect(self, cost: Array) -> Array:
        if cost.shape[-1] == 1:
            return cost[..., 0]
        return jnp.take_along_axis(cost, self.index[..., None], axis=-1)[..., 0]

    def tilt(self, cost: Array) -> tuple[Self, Array]:
        return self, self.expect(cost)

    def divergence(self, other: Kernel) -> Array:
        """Zero: a posterior with an index kernel has the model's, the only one with this support."""
        return jnp.zeros((1,) * self.index.ndim)

    def certain(self, *given: Array) -> Array:
        return lookup(self.index, *given)

    def row(self, *given: Array) -> Array:
        return jax.nn.one_hot(lookup(self.index, *given), self.size)


@functools.partial(jax.tree_util.register_dataclass, data_fields=("index", "routing"), meta_fields=("size",))
@dataclass(frozen=True)
class IndexTransition(_Index):
    """The next state, (T|1, Θ|1, X|1, U|1)."""

    routing: Routing | None = None  # how mass moves, if it was computed in advance

    def at(self, t: Array | int) -> IndexTransition:
        routing = None if self.routing is None else self.routing.at(t)
        return IndexTransition(time_slice(self.index, t), self.size, routing)

    def select(self, theta: Array) -> IndexTransition:
        routing = None if self.routing is None else self.routing.select(theta)
        return IndexTransition(select_parameters(self.index, theta), self.size, routing)

    def prepared(self) -> IndexTransition:
        """The same kernel with groups of parameters, where there are such groups."""
        return self if self.routing is not None else replace(self, routing=find_rows(self.index))

    def routed(self, num_parameters: int, num_states: int) -> IndexTransition:
        if self.routing is not None:
            return self
        return replace(self, routing=find_routes(self.index, self.size, num_parameters, num_states))

    layable = True

    def laid(self) -> IndexTransition:
        """The kernel, whose table is laid over devices, with its groups of parameters."""
        return self if self.routing is not None else replace(self, routing=find_rows(self.index, rounded=True))

    def given(self, control: Array | int) -> IndexTransition:
        if self.index.shape[2] == 1:
            return self
        return IndexTransition(jax.lax.dynamic_slice_in_dim(self.index, control, 1, axis=2), self.size)

    def entries(self) -> tuple[Array, Array]:
        return self.index[..., None], jnp.zeros((*self.index.shape, 1))

    def at_entries(self, cost: Array) -> Array:
        return self.expect(cost)[..., None]

    def push(self, before: Array, policy: Array) -> Array:
        if self.routing is None and self.index.shape[0] > 1:  # where θ does not matter, rows shift as a whole
            return push_along(self.index, before, policy, self.size)
        return self._routing(*before.shape).push(before, policy, self.size)

    def pull(self, value: Array) -> Array:
        return self._routing(self.index.shape[1], value.shape[1]).pull(value)

    def shifts(self, value: Array) -> Rows | None:
        """The routing by whole rows of values (X', Θ) of a slice, if a loop over these large rows is quicker."""
        rows = self.routing if isinstance(self.routing, Rows) else None
        return rows if rows is not None and rows.goes_by_rows(value) else None

    def spread(self, weight: Array) -> Array:
        return self._routing(*weight.shape).spread(weight)

    def surprise(self, weight: Array) -> Array:
        """−log m(x'|x,u) at the next state of each (u, x, θ) (:mod:`npro_aif.tables.surprise`)."""
        return self._routing(*weight.shape).surprise(weight)

    def _routing(self, num_states: int, num_parameters: int) -> Routing:
        """The routing of a slice, computed now if it was not before."""
        if self.routing is not None:
            return self.routing
        whole = IndexTransition(self.index[None], self.size).prepared().routed(num_parameters, num_states)
        return whole.routing.at(0)  # type: ignore[union-attr]

    def in_full(self, shape: tuple[int, int, int, int]) -> IndexTransition:
        return self

    def put(self, t: Array, row: Kernel) -> IndexTransition:
        return self


@functools.partial(jax.tree_util.register_dataclass, data_fields=("index",), meta_fields=("size",))
@dataclass(frozen=True)
class IndexEmission(_Index):
    """The observation, (T|1, Θ|1, X|1)."""

    def prepared(self) -> IndexEmission:
        return self

    def counted(self) -> IndexEmission:
        """The same with ``size`` reduced to the outcomes that occur, where these are known."""
        return replace(self, size=int(np.asarray(self.index).max()) + 1) if is_concrete(self.index) else self

    def certain_table(self) -> Array:
        """The observation for each given, (T|1, Θ|1, X|1)."""
        return self.index

    def grouped(self, members: Array, num_controls: int, num_parameters: int) -> IndexEmission:
        return IndexEmission(grouped(self.index, members, num_controls, num_parameters), self.size)

    def likelihood(self, outcome: Array | int) -> Array:
        return jnp.where(self.index == outcome, 1.0, 0.0)

    def predict(self, weight: Array) -> Array:
        return self.outcomes(weight).sum(-1)

    def evidence(self, weight: Array) -> Evidence:
        return told_for_certain(self.outcomes(weight), sum_leading(weight))

    def outcomes(self, weight: Array) -> Array:
        """Σ_θ of the weight q(θ,x) by what is observed at x, (Y, X)."""
        num_states = weight.shape[1]

        def outcomes(index: Array, weight: Array) -> Array:
            states = jnp.arange(num_states, dtype=jnp.int32)
            place = index.astype(jnp.int32) * num_states + states  # in a flat (Y, X) table
            place = jnp.broadcast_to(place, weight.shape).ravel()
            flow = jnp.zeros(num_states * self.size, weight.dtype).at[place].add(weight.ravel(), mode=INSIDE)
            return flow.reshape(self.size, num_states)

        return summed(outcomes, (self.index, 0), (weight, 0))


def told_for_certain(outcomes: Array, total: Array) -> Evidence:
    """The information of a certain observation: it has no ambiguity, and its gain is −log q(y|x).

    :param outcomes: Σ_θ of the weight q(θ,x) over the θ that show y at x, (Y, X).
    :param total: Σ_θ of the weight over all θ, (X,).
    """
    predicted = divide(outcomes, total)
    gain = jnp.where(predicted > 0, -safe_log(jnp.where(predicted > 0, predicted, 1.0)), 0.0)
    return Evidence(predicted.T, gain.T, jnp.zeros_like(total))
