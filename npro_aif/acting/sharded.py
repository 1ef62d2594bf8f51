"""Bayes on many parameters: part after part, and for a belief laid over devices on each device by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.belief import Belief
from npro_aif.program.program import Fixed, Program
from npro_aif.program.sharded import (
    PARAMETERS,
    Rows,
    ShardedBelief,
    bind_rows,
    lay,
    num_possible,
    possible_rows,
    rounded,
)
from npro_aif.shards import Shards
from npro_aif.tables.world import World


class Part(NamedTuple):
    """The update of some parameters."""

    parameter: Array  # (K,) p(θ) among them
    state: Array  # (K, X) p(x|θ)
    log_mass: Array  # (sites + 1,) log of their joint probability with what was seen: before, and after each site


def one_by_one(part: Callable[[Any], Part], groups: Any, counts: Callable[[Any], Array]) -> Part:
    """Update groups of parameters one after the other; returns one part for all of them.

    :param groups: a tree of arrays with a leading axis, a row for each group.
    :param counts: whether a group holds anything; groups of padding are skipped.
    """
    shapes = jax.eval_shape(part, jax.tree.map(lambda table: table[0], groups))
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    nothing = nothing._replace(log_mass=jnp.full_like(nothing.log_mass, -jnp.inf))

    def some(group: Any) -> Part:
        return jax.lax.cond(counts(group), part, lambda _: nothing, group)

    parts = jax.lax.map(some, groups)
    most = parts.log_mass.max(0)
    weight = parts.parameter * share(parts.log_mass, most)[:, None]
    return Part(weight.ravel(), parts.state.reshape(-1, parts.state.shape[-1]), most)


def share(log_mass: Array, most: Array) -> Array:
    """The mass of parts (…, sites + 1) relative to that of the largest."""
    return jnp.exp(log_mass[..., -1] - jnp.where(most[-1] > -jnp.inf, most[-1], 0.0))


class ShardedBayes:
    """Belief updates on devices, each with its own parameters; they exchange only a few numbers.

    :param at_once: how many parameters a device updates together, so that memory stays small.
    :param seen_in: Bayes on the parameters of a world, given a control and what was seen.
    """

    def __init__(self, program: Program, shards: Shards, at_once: int, seen_in: Callable[[World, Array, Array], Part]):
        self.program, self.shards, self.at_once, self.seen_in = program, shards, at_once, seen_in
        self._compiled: dict[int, Any] = {}

    def __call__(
        self, fixed: Fixed, belief: Belief | ShardedBelief, _: None, control: np.ndarray, seen: np.ndarray
    ) -> tuple[ShardedBelief, np.ndarray]:
        """The belief, and whether what was seen is possible, by site."""
        laid = lay(belief, self.shards, self.program.signature)
        per_device = len(laid.parameter) // self.shards.count
        count = rounded(int(num_possible(laid).max()), per_device)
        if count > self.at_once:
            count = -(-count // self.at_once) * self.at_once
        if count not in self._compiled:
            self._compiled[count] = self._compile(count)
        arguments = self.shards.everywhere((fixed, control, seen))
        (parameter, state), possible = self._compiled[count](*arguments, laid.tables)
        return ShardedBelief(parameter, state, laid.num_parameters, self.shards), np.asarray(possible)

    def _compile(self, count: int) -> Any:
        shards, program = self.shards, self.program
        program.check_unchanged()

        def update(fixed: Fixed, control: Array, seen: Array, belief: Belief) -> tuple[Belief, Array]:
            rows = possible_rows(belief, count, shards, program.signature.num_parameters)

            def part(rows: Rows) -> Part:
                return self.seen_in(bind_rows(program, fixed, 1, rows, jnp.maximum(control, 0)), control, seen)

            if count <= self.at_once:
                parameter, state, log_mass = part(rows)
            else:
                groups = jax.tree.map(lambda table: table.reshape(-1, self.at_once, *table.shape[1:]), rows)
                parameter, state, log_mass = one_by_one(part, groups, lambda rows: rows.valid[0])
            most = jax.lax.pmax(log_mass, shards.axes)
            parameter = jnp.where(rows.valid, parameter, 0.0) * share(log_mass, most)
            parameter = parameter / jax.lax.psum(parameter.sum(), shards.axes)
            return (
                Belief(
                    jnp.zeros_like(belief.parameter).at[rows.place].set(parameter, mode="drop"),
                    jnp.full_like(belief.state, 1 / state.shape[1]).at[rows.place].set(state, mode="drop"),
                ),
                most[1:] > -jnp.inf,
            )

        everywhere, laid = shards.spec(None), shards.spec(PARAMETERS)
        return jax.jit(shards.run(update, (everywhere, everywhere, everywhere, laid), (laid, everywhere)))
