"""Conjugate counts: tables with Dirichlet (or Beta) priors, learned while acting by one addition per observation.

Where both the condition of a row and its outcome are seen, the posterior of p(outcome | given) is Dirichlet again:

    α(given, outcome) ← α(given, outcome) + 1,        E[p(k|given)] = α(given, k) / Σ_j α(given, j)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Counts(NamedTuple):
    """A table's posterior: Dirichlet counts, a Beta where there are two outcomes.

    An update costs one addition for each outcome seen; a mean costs as much as the table has entries.

    >>> counts = Counts(jnp.full((3, 2), 0.5))  # p(outcome | given): three rows, Jeffreys' prior
    >>> counts.learn((jnp.array([0, 0, 2]),), jnp.array([1, 1, 0])).mean[2].tolist()
    [0.75, 0.25]
    """

    alpha: Array  # (…, K)

    @property
    def mean(self) -> Array:
        """E[p(k|given)], (…, K): a table for a model."""
        return self.alpha / self.alpha.sum(-1, keepdims=True)

    @property
    def visits(self) -> Array:
        """The total count of each row, its prior included, (…)."""
        return self.alpha.sum(-1)

    def learn(self, given: tuple[Any, ...], outcome: Any, weight: Any = 1.0) -> Counts:
        """The counts after an outcome, or after arrays of them; −1 stands for an outcome that was not seen.

        :param given: the row, one array for each axis.
        :param weight: how much it counts; a probability if it was not seen for certain.
        """
        places = jnp.broadcast_arrays(*(jnp.asarray(index) for index in (*given, outcome)))
        seen = jnp.all(jnp.stack([place >= 0 for place in places]), 0)
        amount = jnp.where(seen, weight, 0.0).astype(self.alpha.dtype)
        return Counts(self.alpha.at[tuple(jnp.maximum(place, 0) for place in places)].add(amount))

    def draw(self, rng_key: Array, num: int) -> Array:
        """Draws of the table, (n, …, K), for :func:`npro_aif.with_draws`."""
        return jax.random.dirichlet(rng_key, self.alpha, (num, *self.alpha.shape[:-1]))
