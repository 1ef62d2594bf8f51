"""Names that tell the steps of a plan apart, counted from the end, so that a plan can use the results of earlier ones.

In most worlds all steps but the last are the same. A plan that is one step shorter, which an agent makes one step
later, then has the same steps left, and earlier results for these hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.belief import Belief
from npro_aif.program.program import Fixed, Program
from npro_aif.tables.kernels import Emission, Transition
from npro_aif.tables.world import World


class Marks:
    """The marks of a program's steps; in a large world they are taken at the parameters that were checked."""

    def __init__(self, program: Program):
        self.program = program
        self._tables: Callable[..., list[Array]] = jax.jit(self._varying)
        self._known: dict[
            tuple[int, int], list[bytes]
        ] = {}  # where beliefs do not matter: by horizon and elapsed steps

    def __call__(self, belief: Belief, horizon: int, elapsed: Any = 0) -> list[bytes]:
        """A mark for each step, the last one first: equal marks, equal steps."""
        if self.program.looks_at_numbers:
            return self._marks(belief, horizon, elapsed)
        key = horizon, int(elapsed)
        if key not in self._known:
            self._known[key] = self._marks(belief, horizon, elapsed)
        return self._known[key]

    def _marks(self, belief: Belief, horizon: int, elapsed: Any) -> list[bytes]:
        given_belief = belief if self.program.looks_at_numbers else None
        tables = self._tables(self.program.at(elapsed), given_belief, jnp.asarray(horizon), self.program.sample)
        numbers = [np.asarray(table) for table in tables]
        same = hashlib.blake2b(digest_size=16)  # of the tables that are the same at all times, which may be large
        for table in numbers:
            if len(table) == 1:
                same.update(np.ascontiguousarray(table).data)
        changing = [table for table in numbers if len(table) > 1]
        return [self._mark(same.copy(), changing, horizon - left) for left in range(1, horizon + 1)]

    @staticmethod
    def _mark(digest: Any, changing: list[np.ndarray], t: int) -> bytes:
        for table in changing:
            digest.update(np.ascontiguousarray(table[t]).data)
        return digest.digest()

    def _varying(self, fixed: Fixed, belief: Belief | None, horizon: Array, theta: Array | None) -> list[Array]:
        """Every table (T|1, …) that is evaluated anew or changes over time."""
        world = self.program.bind(fixed, belief, horizon, theta)
        frozen = fixed.tables
        tables = [world.control] if _varies(frozen.control, world.control) else []
        if frozen.state is None or world.state.num_times > 1:
            tables += _moves(world.state, world)
        for field in ("observation", "sensor"):
            for name, kernel in getattr(world, field).items():
                if getattr(frozen, field)[name] is None or kernel.num_times > 1:
                    tables.append(_sights(kernel))
        for name, table in world.preference.items():
            if _varies(frozen.preference[name], table):
                tables.append(table)
        for name, several in world.observation_preference.items():
            pairs = zip(frozen.observation_preference[name], several, strict=True)
            tables += [table for own, table in pairs if _varies(own, table)]
        return tables


def _varies(frozen: Array | None, table: Array) -> bool:
    return frozen is None or len(table) > 1


def _sights(kernel: Emission) -> Array:
    return kernel.table() if kernel.learnable else kernel.certain_table()


def _moves(kernel: Transition, world: World) -> list[Array]:
    num_parameters, num_states = world.initial.shape
    grid = jnp.ix_(jnp.arange(num_parameters), jnp.arange(num_states), jnp.arange(world.num_controls))
    times = jnp.arange(kernel.num_times)
    if kernel.at(0).certain(*grid) is None:
        return [table for table in kernel.entries() if table is not None]
    return [jax.vmap(lambda t: jnp.asarray(kernel.at(t).certain(*grid)))(times)]
