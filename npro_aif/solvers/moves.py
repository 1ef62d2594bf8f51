"""The costs of moves, Q_t(x,u,θ) without the costs of controls: as a table, or looked up row by row.

The table (U, S, Θ) is the largest of a sweep. If certain moves shift whole rows of parameters, it is not made.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax.numpy as jnp
from jax import Array

from npro_aif.numerics import sum_last
from npro_aif.tables.kernels import Shifts


class Moves(Protocol):
    """The cost of each move (u, s, θ)."""

    def average(self, weight: Array) -> Array:
        """Σ_θ weight(s,θ) cost(u,s,θ), (S, U), the weight (S, Θ) or of one entry."""
        ...

    def under(self, policy: Array) -> Array:
        """Σ_u policy(s,u) cost(u,s,θ), (S, Θ)."""
        ...

    def table(self) -> Array:
        """The costs themselves, (U, S, Θ)."""
        ...


class TableMoves(NamedTuple):
    """Costs as a table."""

    cost: Array  # (U, S, Θ)

    def average(self, weight: Array) -> Array:
        return sum_last(weight * self.cost).T

    def under(self, policy: Array) -> Array:
        return sum(probs[:, None] * cost for probs, cost in zip(policy.T, self.cost, strict=True))

    def table(self) -> Array:
        return self.cost


class RowMoves(NamedTuple):
    """Costs of certain moves, which are the costs of their next states."""

    shifts: Shifts
    arrival: Array  # (X', Θ)

    def average(self, weight: Array) -> Array:
        return self.shifts.expect(self.arrival, jnp.broadcast_to(weight, self.arrival.shape))

    def under(self, policy: Array) -> Array:
        return self.shifts.follow(self.arrival, policy)

    def table(self) -> Array:
        return self.shifts.pull(self.arrival)
