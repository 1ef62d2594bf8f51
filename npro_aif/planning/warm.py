"""Where a solver starts: at the guide's first values, or at the plan that was made one step earlier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.guides import Table
from npro_aif.planning.support import Support


class WarmStart(NamedTuple):
    """A guide's parameters to start from, and whether to do so."""

    params: dict[str, Array]
    use: Array  # ()

    def over(self, first: Mapping[str, Array], tables: Mapping[str, Table]) -> dict[str, Array]:
        """These parameters, one step later, in place of the first values ``first``."""
        return {
            name: jnp.where(self.use, later(self.params[name], tables[name]), value) if name in self.params else value
            for name, value in first.items()
        }


def later(values: Array, table: Table) -> Array:
    """A guide's parameter one step later; the last step starts at the model."""
    axis = table.axis("time")
    if axis is None:
        return values
    return jnp.moveaxis(jnp.roll(jnp.moveaxis(values, axis, 0), -1, axis=0).at[-1].set(0.0), 0, axis)


def realign(
    params: Mapping[str, Array], tables: Mapping[str, Table], before: Support, after: Support
) -> dict[str, Array]:
    """Logits over some parameters as logits over others; zero (the model) for a new parameter."""
    order = np.argsort(np.asarray(before.theta), kind="stable")  # of equal indices the valid one comes first
    ordered = np.asarray(before.theta)[order]
    place = np.minimum(np.searchsorted(ordered, np.asarray(after.theta)), len(ordered) - 1)
    same = ordered[place] == np.asarray(after.theta)

    def rows(values: Array, axis: int | None) -> Array:
        if axis is None:
            return values
        mask = same.reshape((-1,) + (1,) * (values.ndim - axis - 1))
        return jnp.asarray(np.where(mask, np.take(np.asarray(values), order[place], axis), 0.0))

    return {name: rows(values, tables[name].axis("parameter")) for name, values in params.items()}
