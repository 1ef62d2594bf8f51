"""Which parameters a plan considers: those that its belief holds possible, padded to a handful of sizes.

Parameters without belief cost as much as those with, and every size compiles once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

PRUNE_FROM = 8  # with fewer parameters there is nothing to gain from leaving some out
SMALLEST = 4  # a smaller size would save less than compiling it costs


class Support(NamedTuple):
    """The parameters that a plan considers; a batch of them has a leading axis."""

    theta: Array  # (K,) flat indices
    valid: Array  # (K,) False for padding

    @property
    def size(self) -> int:
        return self.theta.shape[-1]


class Sizes:
    """The sizes that supports are padded to: powers of two from 4 on, and one for more than half of all.

    The last one is the largest support that came so far (the prior's, as a rule; the others are parts of it), and all
    parameters if a larger one comes later.

    :param num_parameters: the number of all parameters.

    >>> sizes = Sizes(480)
    >>> [sizes.of(count) for count in (5, 300, 260, 256, 301)]
    [8, 300, 300, 256, 480]
    """

    def __init__(self, num_parameters: int):
        self.num_parameters = num_parameters
        self._last = 0

    def of(self, count: int) -> int:
        """The size for a support of ``count`` parameters."""
        size = max(SMALLEST, power_of_two(count))
        if size < self.num_parameters:
            return size
        if count > self._last:
            self._last = self.num_parameters if self._last else count
        return self._last

    def support(self, parameter: np.ndarray) -> Support | None:
        """The support of a belief's p(θ), (Θ,); None where nothing is left out."""
        possible = np.flatnonzero(parameter > 0)
        if self.num_parameters < PRUNE_FROM or not len(possible):
            return None
        size = self.of(len(possible))
        if size >= self.num_parameters:
            return None
        theta = np.append(possible, np.full(size - len(possible), possible[0])).astype(np.int32)
        return Support(jnp.asarray(theta), jnp.asarray(np.arange(size) < len(possible)))


def power_of_two(count: int) -> int:
    """The least power of two that is not smaller."""
    return 1 << (count - 1).bit_length()


def parameter_axis(name: str) -> int | None:
    """Which axis of a temporal guide's table of logits runs over the parameters."""
    return {"parameter_logits": 0, "control_logits": None}.get(name, 1)


def realign(tables: dict[str, Array], before: Support, after: Support) -> dict[str, Array]:
    """A temporal guide's logits over some parameters as logits over others; zero (the model) where one is new."""
    order = np.argsort(np.asarray(before.theta), kind="stable")  # the valid one of equals comes first
    known = np.asarray(before.theta)[order]
    place = np.minimum(np.searchsorted(known, np.asarray(after.theta)), len(known) - 1)
    found = known[place] == np.asarray(after.theta)

    def rows(name: str, table: Array) -> Array:
        axis = parameter_axis(name)
        if axis is None:
            return table
        kept = found.reshape((-1,) + (1,) * (table.ndim - axis - 1))
        return jnp.asarray(np.where(kept, np.take(np.asarray(table), order[place], axis), 0.0))

    return {name: rows(name, table) for name, table in tables.items()}
