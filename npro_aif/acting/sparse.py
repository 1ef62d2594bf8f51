"""Bayes on a belief that keeps p(x|θ) by its entries: only possible states are moved and weighed.

Where moves are certain the program is evaluated at the entries (θ, x) themselves; elsewhere at rows p(x|θ), of a few
parameters at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif._jax import eval_context
from npro_aif.acting.sharded import Part
from npro_aif.belief import Belief
from npro_aif.errors import ModelError
from npro_aif.numerics import safe_log
from npro_aif.program.axes import THETA, TIME, on_axis
from npro_aif.program.blank import blank_belief
from npro_aif.program.program import Fixed, Program
from npro_aif.program.reading import Draw, Reading
from npro_aif.program.sharded import Rows, bind_rows
from npro_aif.program.signature import Site, join, split
from npro_aif.sizes import ENTRIES_AT_ONCE, FEWEST_ENTRIES
from npro_aif.states import sparse_states
from npro_aif.tables.world import World

UNSEEN = -1  # stands for an observation site that was not observed
UNMOVED = -1  # stands for no control: the observation before the first move


class Entries(NamedTuple):
    """Some pairs (θ, x) with their weights."""

    theta: np.ndarray  # (N,)
    x: np.ndarray  # (N,)
    weight: np.ndarray  # (N,)


class SparseBayes:
    """Belief updates by entries.

    :param at_once: how many parameters are updated together where rows are needed.
    :param seen_in: Bayes on the parameters of a world, given a control and what was seen.
    """

    def __init__(
        self,
        program: Program,
        sites: tuple[Site, ...],
        at_once: int,
        seen_in: Callable[[World, Array, Array], Part],
    ):
        self.program, self.sites, self.at_once, self.seen_in = program, sites, at_once, seen_in
        self._by_entries = jax.jit(self._looked_at)
        self._by_rows = jax.jit(self._part)

    @functools.cached_property
    def certain(self) -> bool:
        """Whether every control leads to one state."""

        def state(fixed: Fixed) -> Any:
            theta = jnp.zeros(2, jnp.int32)
            return self.program.bind(fixed, None, 1, theta, None, jnp.zeros((), jnp.int32)).state

        with eval_context():
            return not jax.eval_shape(state, self.program.fixed).learnable

    def __call__(
        self, fixed: Fixed, belief: Belief, _: Any, control: np.ndarray, seen: np.ndarray
    ) -> tuple[Belief, np.ndarray]:
        """The belief, and whether what was seen is possible, by site."""
        self.program.check_sparse()
        parameter = np.asarray(belief.parameter, np.float64)
        possible = np.flatnonzero(parameter > 0)
        row, x, probs = belief.state.entries(possible)
        before = Entries(possible[row].astype(np.int32), x, parameter[possible][row] * probs)
        if not before.weight.sum() > 0:
            raise ModelError("belief: found no state and parameter of positive probability, expected some")
        update = self._certainly if self.certain else self._in_rows
        after, reached = update(fixed, before, control, seen)
        if reached < len(self.sites):
            return belief, np.arange(len(self.sites)) < reached
        return _belief(after, belief), np.ones(len(self.sites), bool)

    # --- Where moves are certain ---

    def _certainly(self, fixed: Fixed, before: Entries, control: np.ndarray, seen: np.ndarray) -> tuple[Entries, int]:
        """The possible entries afterwards, and how many sites, in their order, show something possible."""
        reached, parts = 0, []
        for theta, x, weight in _chunks(before):
            size = _room(len(theta))
            padded = np.resize(theta, size), np.resize(x, size)
            x, first, log = (np.asarray(a)[: len(theta)] for a in self._by_entries(fixed, *padded, control, seen))
            reached = max(reached, int(first.max()))
            possible = first == len(self.sites)
            parts.append((theta[possible], x[possible], np.log(weight[possible]) + log[possible]))
        theta, x, log = map(np.concatenate, zip(*parts, strict=True))
        return Entries(theta, x, np.exp(log - log.max(initial=-np.inf))), reached

    def _looked_at(
        self, fixed: Fixed, theta: Array, x: Array, control: Array, seen: Array
    ) -> tuple[Array, Array, Array]:
        """By entry (N,): the next state, the first site that shows something impossible, and log p(y) of all."""
        signature = self.program.signature
        self.program.check_unchanged()
        move = jnp.maximum(control, 0)
        moved, reading = x, None
        for _ in signature.state:  # a site may read sites that are drawn before it in the same slice
            reading = self._read(fixed, theta, x, move, moved)
            moved = self._next(reading, len(x))
        moved = jnp.where(control == UNMOVED, x, moved)
        reading = self._read(fixed, theta, x, move, moved)
        draws = {draw.names[0]: draw for draw in reading.draws if draw.kind in ("observation", "sensor")}
        first, log = jnp.full(len(x), len(self.sites)), jnp.zeros(len(x))
        for i, site in reversed(list(enumerate(self.sites))):
            likelihood = _likelihood(draws[site.name], seen[i], len(x))
            left_out = seen[i] == UNSEEN
            if site.name in self.program.reads_control:  # before the first move there is no control to observe
                left_out |= control == UNMOVED
            likelihood = jnp.where(left_out, 1.0, jnp.where(seen[i] < site.size, likelihood, 0.0))
            first = jnp.where(likelihood > 0, first, i)
            log = log + safe_log(likelihood)
        return moved, first, log

    def _read(self, fixed: Fixed, theta: Array, x: Array, move: Array, moved: Array) -> Reading:
        """The program read at entries: the values of each lie at its place on the axis of the parameters."""
        signature, values = self.program.signature, dict(fixed.values)
        for sites, suffix, flat in (
            (signature.parameter, "", theta),
            (signature.state, "_0", x),
            (signature.state, "_t", moved),
            (signature.control, "_t", move[None]),
        ):
            values |= {name + suffix: on_axis(value, THETA) for name, value in split(flat, sites).items()}
        t = on_axis(jnp.ones(1, jnp.int32), TIME)
        return self.program.read(blank_belief(signature), jnp.asarray(1), fixed.elapsed, values, t)

    def _next(self, reading: Reading, count: int) -> Array:
        signature = self.program.signature
        values = {
            draw.names[0]: jnp.clip(_flat(draw.index, count), 0, draw.sizes[0] - 1)
            for draw in reading.draws
            if draw.kind == "state" and not draw.initial
        }
        return join(values, signature.state).astype(jnp.int32)

    # --- Elsewhere ---

    def _in_rows(self, fixed: Fixed, before: Entries, control: np.ndarray, seen: np.ndarray) -> tuple[Entries, int]:
        """The same by rows of some parameters at once."""
        num_states = self.program.signature.num_states
        possible, row = np.unique(before.theta, return_inverse=True)
        size = min(self.at_once, _room(len(possible), least=2))
        masses, parts = [], []
        for start in range(0, len(possible), size):
            theta = possible[start : start + size]
            table = np.zeros((size, num_states))
            mine = (row >= start) & (row < start + size)
            np.add.at(table, (row[mine] - start, before.x[mine]), before.weight[mine])
            valid = np.arange(size) < len(theta)
            weight = table.sum(1)
            state = np.where(valid[:, None], table / np.where(valid, weight, 1)[:, None], 1 / num_states)
            padded = jnp.asarray(np.resize(theta, size).astype(np.int32))
            probs = jnp.asarray(weight, float), jnp.asarray(state, float)
            rows = Rows(padded, jnp.asarray(valid), *probs, jnp.arange(size))
            parameter, states, log_mass = map(np.asarray, self._by_rows(fixed, rows, control, seen))
            masses.append(log_mass)
            joint = parameter[: len(theta), None].astype(np.float64) * states[: len(theta)]
            place, x = np.nonzero(joint)
            parts.append((theta[place], x, np.log(joint[place, x]) + log_mass[-1]))
        reached = int((np.max(masses, 0)[1:] > -np.inf).sum())
        theta, x, log = map(np.concatenate, zip(*parts, strict=True))
        return Entries(theta, x, np.exp(log - log.max(initial=-np.inf))), reached

    def _part(self, fixed: Fixed, rows: Rows, control: Array, seen: Array) -> Part:
        return self.seen_in(bind_rows(self.program, fixed, 1, rows, jnp.maximum(control, 0)), control, seen)


def _chunks(entries: Entries) -> Iterator[Entries]:
    for start in range(0, len(entries.theta), ENTRIES_AT_ONCE):
        yield Entries(*(column[start : start + ENTRIES_AT_ONCE] for column in entries))


def _room(count: int, least: int = FEWEST_ENTRIES) -> int:
    """The size that ``count`` entries are padded to; every size compiles once."""
    while least < count:
        least *= 8
    return least


def _flat(table: Array, count: int) -> Array:
    """A table whose only axis is that of the parameters, or that has none, as (N,)."""
    return jnp.broadcast_to(table.reshape(-1), (count,))


def _likelihood(draw: Draw, seen: Array, count: int) -> Array:
    """p(seen) at each entry, (N,)."""
    if draw.log is None:
        return jnp.where(_flat(draw.index, count) == seen, 1.0, 0.0)
    return jnp.exp(_flat(jnp.take(draw.log, jnp.clip(seen, 0, draw.sizes[0] - 1), axis=-1), count))


def _belief(after: Entries, before: Belief) -> Belief:
    """The belief of these entries, in the precision of the one before."""
    shape = before.state.shape
    after = Entries(*(column[after.weight > 0] for column in after))
    place = after.theta.astype(np.int64) * shape[1] + after.x
    order = np.argsort(place, kind="stable")
    place, weight = place[order], after.weight[order]
    first = np.flatnonzero(np.append(True, place[1:] != place[:-1]))
    weight = np.add.reduceat(weight, first)
    theta, x = np.divmod(place[first], shape[1])
    mass = np.bincount(theta, weight, shape[0])
    probs = (weight / mass[theta]).astype(before.state.dtype)
    parameter = jnp.asarray(mass / mass.sum(), np.asarray(before.parameter).dtype)
    return Belief(parameter, sparse_states(theta, x, probs, shape))
