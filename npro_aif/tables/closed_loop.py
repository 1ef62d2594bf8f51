"""The loop of a policy that sees visible states and memories: moves, observations and memories in their order.

:mod:`npro_aif.tables.loop` defines rows, classes, arrivals and contexts.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.numerics import neg_entropy
from npro_aif.tables.evidence import Evidence
from npro_aif.tables.kernels import Emission, Transition
from npro_aif.tables.layout import INSIDE, contract, lookup, time_slice
from npro_aif.tables.loop import Loop
from npro_aif.tables.open_loop import OpenLoop
from npro_aif.tables.surprise import log_share


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("visible", "members", "first", "update"),
    meta_fields=("num_memories", "num_controls", "read"),
)
@dataclass(frozen=True)
class ClosedLoop:
    """Visible states, hidden ones, and a memory m' = f(m, v', u, y)."""

    visible: Array  # (X,) v of each x
    members: Array  # (V, H) the x of each v
    first: Array  # (X,) the memory's first content
    update: Array  # (T|1, M, X'|1, U*|1, Y) f, Y over the sites that it reads; without T after at(t)
    num_memories: int
    num_controls: int  # U*: how many controls are distinguished after the move; 1 where nothing reads them
    read: tuple[str, ...]  # the observation sites that the memory reads

    closed = True

    @property
    def num_states(self) -> int:
        return self.visible.shape[0]

    @property
    def num_visible(self) -> int:
        return self.members.shape[0]

    @property
    def has_hidden(self) -> bool:
        return self.members.shape[1] > 1

    def at(self, t: Array | int) -> ClosedLoop:
        return ClosedLoop(
            self.visible,
            self.members,
            self.first,
            time_slice(self.update, t),
            self.num_memories,
            self.num_controls,
            self.read,
        )

    def opened(self) -> Loop:
        if self.num_controls == 1:
            return OpenLoop()
        states = jnp.arange(self.num_states, dtype=jnp.int32)
        nothing = jnp.zeros((1,) * 5, jnp.int32)
        return ClosedLoop(states, states[:, None], jnp.zeros_like(states), nothing, 1, self.num_controls, ())

    def num_rows(self, num_states: int) -> int:
        return num_states * self.num_memories

    def num_classes(self, num_states: int) -> int:
        return self.num_visible * self.num_memories

    def start(self, initial: Array) -> Array:
        rows = jnp.arange(self.num_states) * self.num_memories + self.first
        empty = jnp.zeros((self.num_states * self.num_memories, initial.shape[1]), initial.dtype)
        return empty.at[rows].set(initial, mode=INSIDE)

    def begin(self, value: Array) -> Array:
        return value[jnp.arange(self.num_states) * self.num_memories + self.first]

    def states(self, mass: Array) -> tuple[Array, Array]:
        table = mass.reshape(self.num_states, self.num_memories)
        return table.sum(1), table.sum(0)

    def by_state(self, table: Array, axis: int) -> Array:
        return table if table.shape[axis] == 1 else jnp.repeat(table, self.num_memories, axis=axis)

    def _class(self) -> Array:
        """The class of each row, (S,)."""
        return (self.visible[:, None] * self.num_memories + jnp.arange(self.num_memories)).reshape(-1)

    def seen(self, mass: Array) -> Array:
        if not self.has_hidden:
            return mass[self._rows_of_classes()]
        empty = jnp.zeros((self.num_visible * self.num_memories, *mass.shape[1:]), mass.dtype)
        return empty.at[self._class()].add(mass, mode=INSIDE)

    def _rows_of_classes(self) -> Array:
        """A row of each class, (P,)."""
        first = self.members[:, :1] * self.num_memories
        return (first + jnp.arange(self.num_memories)).reshape(-1)

    def by_row(self, table: Array) -> Array:
        return table.at[self._class()].get(mode=INSIDE)

    def prior(self, table: Array) -> Array:
        if table.shape[0] == 1:
            return table
        return jnp.repeat(table[self.members[:, 0]], self.num_memories, axis=0)

    def _by_memory(self, rows: Array) -> Array:
        """(S, …) → (M, X, …)."""
        return jnp.moveaxis(rows.reshape(self.num_states, self.num_memories, *rows.shape[1:]), 1, 0)

    def move(self, kernel: Transition, before: Array, policy: Array) -> Array:
        mass, probs = self._by_memory(before), self._by_memory(self.by_row(policy))  # (M, X, Θ), (M, X, U)
        if self.num_controls == 1:
            return self._flat(jax.vmap(kernel.push)(mass, probs)[:, :, None])
        sure = jnp.ones((self.num_states, 1), before.dtype)

        def moved(u: int) -> Array:
            rows = kernel.given(u)
            return jax.vmap(lambda weight: rows.push(weight, sure))(mass * probs[:, :, u, None])

        return self._flat(jnp.stack([moved(u) for u in range(self.num_controls)], axis=2))

    def _flat(self, table: Array) -> Array:
        """(M, X', U*, …) → (A, …)."""
        return jnp.moveaxis(table, 0, 1).reshape(-1, *table.shape[3:])

    def _unflat(self, table: Array) -> Array:
        """(A, …) → (M, X', U*, …)."""
        table = table.reshape(self.num_states, self.num_memories, self.num_controls, *table.shape[1:])
        return jnp.moveaxis(table, 1, 0)

    def pull(self, kernel: Transition, value: Array) -> Array:
        values = self._unflat(value)  # (M, X', U*, Θ)
        if self.num_controls == 1:
            moved = jax.vmap(kernel.pull)(values[:, :, 0])  # (M, U|1, X|1, Θ)
        else:
            parts = [jax.vmap(kernel.given(u).pull)(values[:, :, u]) for u in range(self.num_controls)]
            moved = jnp.concatenate(parts, axis=1)
        moved = jnp.broadcast_to(moved, (*moved.shape[:2], self.num_states, moved.shape[-1]))
        moved = jnp.moveaxis(moved, 0, 2)  # (U|1, X, M, Θ)
        return moved.reshape(moved.shape[0], -1, moved.shape[-1])

    def _observed(self, observation: dict[str, Emission]) -> tuple[Array, Array]:
        """p(y|x',u,θ) over the uncertain sites that are read, (X', 1, U*, Y, Θ|1), and the row to which each of these
        outcomes leads, (X', M, U*, Y, Θ|1); a certain site has no axis, only its outcome.
        """
        num_sights = self.num_states * self.num_controls
        probs, outcome = jnp.ones((1, 1, 1)), jnp.zeros((1, 1, 1), jnp.int32)  # (Θ|1, X'·U*|1, Y)
        for name in self.read:
            kernel = observation[name]
            if not kernel.learnable:
                outcome = outcome * kernel.size + kernel.certain_table()[..., None]
                continue
            table = jnp.exp(kernel.table())[:, :, None, :]
            probs = probs[..., None] * table
            probs = probs.reshape(*probs.shape[:2], -1)
            outcome = outcome[..., None] * kernel.size + jnp.arange(kernel.size, dtype=jnp.int32)
            outcome = outcome.reshape(*outcome.shape[:2], -1)

        def by_arrival(table: Array) -> Array:
            """(Θ|1, X'·U*|1, Y) → (X', 1, U*, Y, Θ|1)."""
            table = jnp.broadcast_to(table, (table.shape[0], num_sights, table.shape[2]))
            table = table.reshape(-1, self.num_states, 1, self.num_controls, table.shape[2])
            return jnp.moveaxis(table, 0, -1)

        x, m, u = jnp.ix_(*map(jnp.arange, (self.num_states, self.num_memories, self.num_controls)))
        outcome = by_arrival(outcome)
        to = lookup(self.update, m[..., None, None], x[..., None, None], u[..., None, None], outcome)
        shape = (self.num_states, self.num_memories, self.num_controls, *outcome.shape[3:])
        rows = x[..., None, None] * self.num_memories + jnp.broadcast_to(to, shape)
        return by_arrival(probs), rows

    def remember(self, arrived: Array, observation: dict[str, Emission]) -> Array:
        probs, rows = self._observed(observation)
        mass = arrived.reshape(self.num_states, self.num_memories, self.num_controls, 1, -1) * probs
        empty = jnp.zeros((self.num_states * self.num_memories, arrived.shape[-1]), arrived.dtype)
        place = empty.at[_places(rows.reshape(-1, rows.shape[-1]))]
        return place.add(mass.reshape(-1, arrived.shape[-1]), mode=INSIDE)

    def recall(self, value: Array, observation: dict[str, Emission]) -> Array:
        probs, rows = self._observed(observation)
        expected = (value.at[_places(rows)].get(mode=INSIDE) * probs).sum(3)  # (X', M, U*, Θ)
        return expected.reshape(-1, value.shape[-1])

    def arrivals(self, table: Array) -> Array:
        return table if table.shape[-1] == 1 else jnp.repeat(table, self.num_memories * self.num_controls, axis=-1)

    def sights(self, table: Array) -> Array:
        by_control = table.reshape(*table.shape[:-1], self.num_states, 1, self.num_controls)
        shape = (*table.shape[:-1], self.num_states, self.num_memories, self.num_controls)
        return jnp.broadcast_to(by_control, shape).reshape(*table.shape[:-1], -1)

    def observed(self, arrived: Array) -> Array:
        mass = arrived.reshape(self.num_states, self.num_memories, self.num_controls, -1).sum(1)
        return mass.reshape(self.num_states * self.num_controls, -1)

    def each_control(self, table: Array) -> Array:
        return table if table.shape[1] == 1 else jnp.repeat(table, self.num_controls, axis=1)

    def contexts(self, arrived: Array) -> Array:
        return self._hypotheses(arrived).sum((-2, -1)).reshape(-1)

    def _hypotheses(self, arrived: Array) -> Array:
        """Mass (A, Θ) with what is not seen last, (V', M, U*, H, Θ)."""
        mass = arrived.reshape(self.num_states, self.num_memories, self.num_controls, -1)
        return jnp.moveaxis(mass[self.members], 1, 3)

    def by_arrival(self, table: Array) -> Array:
        by_visible = table.reshape(self.num_visible, -1)
        return by_visible[self.visible].reshape(-1)

    def spread(self, kernel: Transition, before: Array) -> Array:
        mass = self._by_memory(before)  # (M, X, Θ)
        if not self.has_hidden:
            spread = jnp.moveaxis(jax.vmap(kernel.spread)(mass), 0, 2)  # (U|1, X, M)
            return spread.reshape(spread.shape[0], -1)[:, self._rows_of_classes()]
        flow = self._to_visible(mass, _moves(kernel))
        spread = neg_entropy(flow.sum(0)) - neg_entropy(flow).sum(0)  # (V, M, U)
        return jnp.moveaxis(spread, -1, 0).reshape(spread.shape[-1], -1)

    def _to_visible(self, mass: Array, moves: Array) -> Array:
        """Mass (M, X, Θ) by what is seen before and after each move (Θ|1, U|1, X|1, X'), (V', V, M, U)."""
        flow = contract("mxuk", (mass, "mxi"), (moves, "iuxk"))
        by_class = jnp.zeros((self.num_visible, *(flow.shape[i] for i in (0, 2, 3))), flow.dtype)
        by_class = by_class.at[self.visible].add(jnp.moveaxis(flow, 1, 0), mode=INSIDE)  # (V, M, U, X')
        to_visible = jnp.zeros((self.num_visible, *by_class.shape[:3]), flow.dtype)
        return to_visible.at[self.visible].add(jnp.moveaxis(by_class, -1, 0), mode=INSIDE)

    def surprise(self, kernel: Transition, before: Array) -> Array:
        mass = self._by_memory(before)  # (M, X, Θ)
        if not self.has_hidden:
            surprises = jnp.moveaxis(jax.vmap(kernel.surprise)(mass), 0, 2)  # (U|1, X, M, Θ|1)
            return surprises.reshape(surprises.shape[0], -1, surprises.shape[-1])
        moves = _moves(kernel)
        flow = self._to_visible(mass, moves)
        share = log_share(flow, flow.sum(0))[self.visible][:, self.visible]  # (X', X, M, U|1)
        surprises = -contract("uxmi", (share, "kxmu"), (moves, "iuxk"))
        return surprises.reshape(surprises.shape[0], -1, surprises.shape[-1])

    def shown(self, visible: Array) -> Array:
        return self.members[visible, 0]

    def first_memory(self, x: Array) -> Array:
        return self.first[x]

    def look(self, x: Array, memory: Array) -> Array:
        return self.visible[x] * self.num_memories + memory

    def context(self, x: Array, memory: Array, control: Array) -> Array:
        return self.look(x, memory) if self.num_controls == 1 else self.look(x, memory) * self.num_controls + control

    def sight(self, x: Array, control: Array) -> Array:
        return x if self.num_controls == 1 else x * self.num_controls + control

    def next_memory(self, memory: Array, x: Array, control: Array, seen: dict[str, tuple[Array, int]]) -> Array:
        outcome: Array = jnp.zeros((), jnp.int32)
        for name in self.read:
            value, size = seen[name]
            outcome = outcome * size + value
        return lookup(self.update, memory, x, control, outcome)

    def evidence(self, kernel: Emission, arrived: Array) -> Evidence:
        mass = self._hypotheses(arrived)  # (V', M, U*, H, Θ)
        weight = jnp.moveaxis(mass, (1, 3, 4), (0, 1, 2))  # (M, H, Θ, V', U*)
        weight = weight.reshape(self.num_memories, -1, self.num_visible * self.num_controls)
        grouped = kernel.grouped(self.members, self.num_controls, arrived.shape[-1])  # (H·Θ|1, V'·U*, Y)
        evidence = jax.vmap(grouped.evidence)(weight)

        def by_context(table: Array) -> Array:
            """(M, V'·U*, …) → (V'·M·U*, …)."""
            table = table.reshape(self.num_memories, self.num_visible, self.num_controls, *table.shape[2:])
            return jnp.moveaxis(table, 0, 1).reshape(-1, *table.shape[3:])

        return jax.tree.map(by_context, evidence)


def _places(rows: Array) -> Array | tuple[Array, Array]:
    """The index into a table (S, Θ) of entries in these rows (…, Θ|1); of whole rows if they do not depend on θ."""
    return rows[..., 0] if rows.shape[-1] == 1 else (rows, jnp.arange(rows.shape[-1]))


def _moves(kernel: Transition) -> Array:
    """p(x'|x,u,θ) of a slice in the order of moves, (Θ|1, U|1, X|1, X')."""
    return jnp.swapaxes(jnp.exp(kernel.table()), 1, 2)
