"""The loop of a policy that sees every state and remembers nothing."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.numerics import sum_last
from npro_aif.tables.evidence import Evidence
from npro_aif.tables.kernels import Emission, Transition


@jax.tree_util.register_static
@dataclass(frozen=True)
class OpenLoop:
    """The policy sees every state and remembers nothing: rows, classes, arrivals and contexts are the states."""

    closed = False

    def at(self, t: Array | int) -> OpenLoop:
        return self

    def opened(self) -> OpenLoop:
        return self

    def num_rows(self, num_states: int) -> int:
        return num_states

    num_classes = num_rows

    def start(self, initial: Array) -> Array:
        return initial

    begin = start

    def seen(self, mass: Array) -> Array:
        return mass

    def states(self, mass: Array) -> tuple[Array, Array]:
        return mass, mass.sum(keepdims=True)

    def by_state(self, table: Array, axis: int) -> Array:
        return table

    def by_row(self, table: Array) -> Array:
        return table

    prior = by_row

    def move(self, kernel: Transition, before: Array, policy: Array) -> Array:
        return kernel.push(before, policy)

    def pull(self, kernel: Transition, value: Array) -> Array:
        return kernel.pull(value)

    def remember(self, arrived: Array, observation: dict[str, Emission]) -> Array:
        return arrived

    recall = remember

    def arrivals(self, table: Array) -> Array:
        return table

    sights = arrivals
    observed = arrivals
    each_control = arrivals

    def contexts(self, arrived: Array) -> Array:
        return sum_last(arrived)

    def by_arrival(self, table: Array) -> Array:
        return table

    def spread(self, kernel: Transition, before: Array) -> Array:
        return kernel.spread(before)

    def surprise(self, kernel: Transition, before: Array) -> Array:
        return kernel.surprise(before)

    def shown(self, visible: Array) -> Array:
        return visible

    def first_memory(self, x: Array) -> Array:
        return jnp.zeros_like(x)

    def look(self, x: Array, memory: Array) -> Array:
        return x

    sight = look

    def context(self, x: Array, memory: Array, control: Array) -> Array:
        return x

    def next_memory(self, memory: Array, x: Array, control: Array, seen: dict[str, tuple[Array, int]]) -> Array:
        return memory

    def evidence(self, kernel: Emission, arrived: Array) -> Evidence:
        return kernel.evidence(arrived.T)
