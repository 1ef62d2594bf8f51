"""Several observation sites as one, because their joint information is not the sum of their separate ones.

Certain sites get labels, at each visible state, by the hypotheses that they tell apart: there are at most as many
labels as hypotheses, however many joint outcomes the sites have. Uncertain sites are multiplied out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.errors import ModelError
from npro_aif.shards import of_all
from npro_aif.sizes import MOST_JOINT_OUTCOMES
from npro_aif.tables.dense import DenseEmission
from npro_aif.tables.evidence import Evidence
from npro_aif.tables.index import IndexEmission
from npro_aif.tables.kernels import Emission
from npro_aif.tables.layout import rank_last


def merge_certain(kernels: Mapping[str, Emission], members: Array, num_controls: int) -> IndexEmission | None:
    """All certain sites as one whose labels tell the same hypotheses (h, θ) apart; None if there is none.

    :param kernels: by site, (T|1, Θ|1, X·U, Y).
    :param members: (V, H) the x of each v: labels are compared between all x of one v.
    """
    certain = [kernel for kernel in kernels.values() if not kernel.learnable]
    if not certain:
        return None
    first, *others = certain
    label, size = first.certain_table(), first.size
    for kernel in others:
        label = _merged(label, kernel.certain_table(), kernel.size, members, num_controls)
        size = min(of_all(label.shape[1]) * members.shape[1], size * kernel.size)
    return IndexEmission(label, size)


def _merged(label: Array, other: Array, size: int, members: Array, num_controls: int) -> Array:
    """Labels (T|1, Θ|1, X·U) of the pairs of two labels, as ranks among the hypotheses at each (v, u)."""
    code = label * size + other
    num_times, num_parameters, num_sights = code.shape
    table = code.reshape(num_times, num_parameters, -1, num_controls)[:, :, members]  # (T, Θ, V, H, U)
    hypotheses = jnp.moveaxis(table, (1, 3), (3, 4))  # (T, V, U, Θ, H)
    rank = rank_last(hypotheses.reshape(*hypotheses.shape[:3], -1)).reshape(hypotheses.shape)
    back = jnp.moveaxis(rank, (3, 4), (1, 3))  # (T, Θ, V, H, U)
    empty = jnp.zeros((num_times, num_parameters, num_sights // num_controls, num_controls), code.dtype)
    return empty.at[:, :, members].set(back).reshape(code.shape)


def joint_emission(certain: Emission | None, kernels: Mapping[str, Emission]) -> Emission | None:
    """One slice of all sites together, the certain ones already merged; None if there is none.

    :param kernels: every site's slice, (Θ|1, X·U, Y).
    """
    others = {name: kernel for name, kernel in kernels.items() if kernel.learnable}
    if not others:
        return certain
    names = list(others)
    joint = others[names[0]].table()
    tables = [others[name].table() for name in names[1:]]
    if certain is not None:
        tables.append(certain.table())
    for table in tables:
        if joint.shape[-1] * table.shape[-1] > MOST_JOINT_OUTCOMES:
            raise ModelError(
                f"observations {', '.join(kernels)}: found more than {MOST_JOINT_OUTCOMES:,} outcomes together, "
                "expected fewer, or Active(evidence='sites')"
            )
        pairs = joint[..., :, None] + table[..., None, :]
        joint = pairs.reshape(*pairs.shape[:-2], -1)
    return DenseEmission(joint)


def each_evidence(kernels: Mapping[str, Emission], evidence: Callable[[Emission], Evidence]) -> dict[str, Evidence]:
    """The information of each site by itself; sites with tables of one shape go together, which compiles once."""
    alike: dict[Any, list[str]] = {}
    for name, kernel in kernels.items():
        leaves, structure = jax.tree.flatten(kernel)
        alike.setdefault((structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)), []).append(name)
    results: dict[str, Evidence] = {}
    for names in alike.values():
        if len(names) == 1:
            results[names[0]] = evidence(kernels[names[0]])
            continue
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(kernels[name] for name in names))
        together = jax.vmap(evidence)(stacked)
        results |= {name: Evidence(*(table[i] for table in together)) for i, name in enumerate(names)}
    return {name: results[name] for name in kernels}
