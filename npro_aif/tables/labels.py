"""What certain observations tell in a large world: mass is summed once by what all sites show together.

At each state the parameters fall into few classes that show the same at all sites (:func:`~.joint.merge_certain`
labels them). What a site tells by itself, or all together, follows from the mass of these labels, however many sites.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.shards import alike, largest, summed
from npro_aif.sizes import LABEL_SHARE
from npro_aif.tables import live
from npro_aif.tables.evidence import Evidence
from npro_aif.tables.index import IndexEmission
from npro_aif.tables.joint import each_evidence
from npro_aif.tables.kernels import Emission
from npro_aif.tables.layout import INSIDE, lookup


@functools.partial(jax.tree_util.register_dataclass, data_fields=("label", "sites"), meta_fields=("size",))
@dataclass(frozen=True)
class Labels:
    """What all certain sites show together, and each of them, at all times."""

    label: Array  # (X, Θ)
    sites: dict[str, IndexEmission]  # by site, (L, X): what it shows where all show a label
    size: int  # L

    def evidence(self, arrived: Array, *, joint: bool) -> dict[str, Evidence]:
        """What the sites tell about θ, together or each by itself, under the weight q(θ,x), (X, Θ)."""
        mass, kernels = self.mass(arrived), self.sites
        if joint and len(kernels) > 1:
            kernels = {"y": IndexEmission(jnp.arange(self.size, dtype=jnp.int32)[:, None], self.size)}
        with alike():
            return each_evidence(kernels, lambda kernel: kernel.evidence(mass))

    def predict(self, arrived: Array) -> dict[str, Array]:
        """Σ_{θ,x} of the weight q(θ,x), (X, Θ), by what each site shows, (Y,)."""
        mass = self.mass(arrived)
        with alike():
            return {name: kernel.predict(mass) for name, kernel in self.sites.items()}

    def mass(self, arrived: Array) -> Array:
        """Σ_θ of the weight q(θ,x), (X, Θ), by what all sites show together, (L, X)."""
        return live.instead_of(self._plain, self._by_rows)(self.label, arrived)

    def _plain(self, label: Array, weight: Array) -> Array:
        return IndexEmission(label.T, self.size).outcomes(weight.T)

    def _by_rows(self, label: Array, weight: Array) -> Array:
        return summed(lambda *own: live.label_sums(*own, self.size), (label, 1), (weight, 1), loops=True)


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

    outcome = jnp.maximum(largest(shown, (certain.index[0], 0), *((table, 0) for table in tables)), 0)
    each = {name: IndexEmission(row, kernel.size) for (name, kernel), row in zip(sites.items(), outcome, strict=True)}
    return Labels(certain.narrowed().index[0].T, each, certain.size)
