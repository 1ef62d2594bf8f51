"""Batches of trees: some rows of one, several stacked, and plans with supports of different sizes as one plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.guides import Table
from npro_aif.planning.plan import Plan


def rows(tree: Any, index: int | Sequence[int] | np.ndarray) -> Any:
    """Some rows of every array, in this order; keys stay keys."""
    index = np.asarray(index)

    def take(leaf: Any) -> Any:
        is_key = isinstance(leaf, Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return leaf[index] if is_key else np.asarray(leaf)[index]

    return jax.tree.map(take, tree)


def stack(trees: Sequence[Any]) -> Any:
    """Trees of equal structure as one tree, with a row for each."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)


def join(parts: Sequence[tuple[np.ndarray, Plan]], tables: Mapping[str, Table]) -> Plan:
    """One batched plan from several, each given with the places of its rows; supports are padded to the largest.

    :param tables: the guide's.
    """
    size = max(plan.theta.shape[-1] for _, plan in parts)
    order = np.argsort(np.concatenate([place for place, _ in parts]))
    wide = [widen(plan, size, tables) for _, plan in parts]
    return jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)[order]), *wide)


def widen(plan: Plan, size: int, tables: Mapping[str, Table]) -> Plan:
    """A batched plan with its parameters padded to ``size``; the padding has no mass, and its logits do not count."""
    extra = size - plan.theta.shape[-1]
    plan = jax.tree.map(np.asarray, plan)
    if extra == 0:
        return plan

    def pad(table: Any, axis: int | None, mode: Any = "constant") -> Any:
        if axis is None:
            return table
        return np.pad(table, [(0, extra if i == axis + 1 else 0) for i in range(table.ndim)], mode=mode)

    return plan._replace(
        theta=pad(plan.theta, 0, "edge"),
        valid=pad(plan.valid, 0),
        params={name: pad(values, tables[name].axis("parameter")) for name, values in plan.params.items()},
    )
