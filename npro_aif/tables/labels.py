"""The information of certain observations in a large world: mass is summed once by what all sites show together.

At each state the parameters fall into a few classes that show the same at all sites (:func:`~.joint.merge_certain`
labels them). The information of any site, and of all together, follows from the mass of these labels.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.numerics import sum_last
from npro_aif.shards import Laid, largest, summed
from npro_aif.sizes import LABEL_SHARE
from npro_aif.tables import live
from npro_aif.tables.evidence import Evidence
from npro_aif.tables.index import IndexEmission, told_for_certain
from npro_aif.tables.kernels import Emission
from npro_aif.tables.layout import INSIDE, lookup


@functools.partial(jax.tree_util.register_dataclass, data_fields=("label", "shown"), meta_fields=("sizes",))
@dataclass(frozen=True)
class Labels:
    """The outcomes of all certain sites together, and of each of them, at all times."""

    label: Array  # (X, Θ)
    shown: Array  # (X, L, sites · Y) which outcomes a label stands for: zeros, and a one for every site
    sizes: tuple[tuple[str, int], ...]  # the sites, and how many outcomes each has

    def evidence(self, arrived: Array, *, joint: bool) -> dict[str, Evidence]:
        """The information of the sites about θ, together or separately, under the weight q(θ,x), (X, Θ)."""
        total = sum_last(arrived)
        if not joint or len(self.sizes) == 1:
            return {name: told_for_certain(table.T, total) for name, table in self._by_site(arrived).items()}
        mass = live.instead_of(self._plain, self._by_rows)(self.label, None, arrived)
        return {"y": told_for_certain(mass.T, total)}

    def predict(self, arrived: Array) -> dict[str, Array]:
        """Σ_{θ,x} of the weight q(θ,x), (X, Θ), by what each site shows, (Y,)."""
        return {name: table.sum(0) for name, table in self._by_site(arrived).items()}

    def _by_site(self, arrived: Array) -> dict[str, Array]:
        """Σ_θ of the weight q(θ,x), (X, Θ), by what each site shows, (X, Y)."""
        sums = live.instead_of(self._plain, self._by_rows)(self.label, self.shown, arrived)
        tables = jnp.moveaxis(sums.reshape(len(sums), len(self.sizes), -1), 1, 0)
        return {name: table[:, :size] for (name, size), table in zip(self.sizes, tables, strict=True)}

    def _plain(self, label: Array, shown: Array | None, weight: Array) -> Array:
        mass = IndexEmission(label.T, self.shown.shape[1]).outcomes(weight.T).T
        return mass if shown is None else jnp.einsum("xl,xlk->xk", mass, shown, precision=jax.lax.Precision.HIGHEST)

    def _by_rows(self, label: Array, shown: Array | None, weight: Array) -> Array:
        extra: tuple[Laid, ...] = () if shown is None else ((shown, None),)
        num_labels = self.shown.shape[1]
        return summed(lambda *own: live.label_sums(*own, size=num_labels), (label, 1), (weight, 1), *extra, loops=True)


def find_labels(
    certain: IndexEmission | None, kernels: Mapping[str, Emission], num_parameters: int, num_states: int
) -> Labels | None:
    """The labels of all certain sites where they are few, and the same at all times; None elsewhere.

    :param certain: all certain sites as one, (T|1, Θ|1, X).
    """
    sites = {name: kernel for name, kernel in kernels.items() if not kernel.learnable}
    if certain is None or certain.index.shape != (1, num_parameters, num_states):
        return None
    if certain.size * LABEL_SHARE > num_parameters or any(kernel.num_times > 1 for kernel in sites.values()):
        return None
    tables = [kernel.certain_table()[0] for kernel in sites.values()]  # (Θ|1, X|1)

    def shown(label: Array, *tables: Array) -> Array:
        """What each site shows at each label, (sites, L, X); −1 where there is none of a device's own parameters."""
        states = jnp.arange(num_states, dtype=jnp.int32)
        place = label.astype(jnp.int32) * num_states + states
        rows = jnp.broadcast_to(jnp.arange(len(label), dtype=jnp.int32)[:, None], label.shape)
        one = jnp.full(certain.size * num_states, -1, jnp.int32).at[place.ravel()].max(rows.ravel(), mode=INSIDE)
        one = one.reshape(certain.size, num_states)  # one of the θ
        return jnp.stack([jnp.where(one >= 0, lookup(table, one, states).astype(jnp.int32), -1) for table in tables])

    outcome = largest(shown, (certain.index[0], 0), *((table, 0) for table in tables))  # (sites, L, X)
    sizes = tuple((name, kernel.size) for name, kernel in sites.items())
    outcomes = jnp.arange(max(size for _, size in sizes))
    ones = (jnp.moveaxis(outcome, 2, 0)[..., None] == outcomes).astype(jnp.result_type(float))  # (X, sites, L, Y)
    ones = jnp.swapaxes(ones, 1, 2).reshape(num_states, certain.size, -1)
    return Labels(certain.narrowed().index[0].T, ones, sizes)
