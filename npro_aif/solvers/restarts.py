"""Further starts for a solver: F has saddles and local minima, so the lowest of several results is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.solvers.base import Problem

Result = TypeVar("Result")

# Control logits of further starts are 4 N(0,1): nearly deterministic policies. Starts from N(0,1), which is near the
# uniform policy, often end in the same few minima.
SPREAD = 4.0
AGREEMENT = 1e-4  # starts agree if their F differs by less than this, relative to max(1, |F|)
EQUAL = 1e-6  # and count as equally low if it differs by less than this, the precision of a settled start


def check_restarts(restarts: int) -> None:
    """Refuse fewer than one start."""
    if restarts < 1:
        raise ValueError(f"restarts: found {restarts}, expected at least 1")


def every_start(
    restarts: int, problem: Problem, key: Array, params: Any, solve: Callable[[Any], Result], spread: float = SPREAD
) -> Result:
    """The results of ``solve`` from each start, with a leading axis: from ``params``, and from key-seeded others.

    :param spread: the scale of the other starts' control logits, relative to the guide's.
    """
    tables = problem.guide.tables(problem.world, problem.num_steps)

    def start(i: Array) -> Result:
        fresh = jax.random.fold_in(key, i)
        other = problem.guide.first_params(fresh, problem.world, problem.num_steps)
        for name, table in tables.items():
            if table.role == "control":
                other[name] = spread * other[name]
            elif table.role == "parameter":  # the guide's start, p(θ), is a saddle if parameters are symmetric
                other[name] = jax.random.normal(jax.random.fold_in(fresh, 1), table.shape)
        return solve(jax.tree.map(lambda a, b: jnp.where(i == 0, a, b), params, other))

    return jax.vmap(start)(jnp.arange(restarts))


def lowest(values: Array, settled: Array) -> tuple[Array, Array]:
    """The start that is kept, and how many agree with it.

    It is the first of those that ended lowest, up to ``EQUAL``; a start that settled is preferred to one that did not.
    """
    values = jnp.where(jnp.isnan(values), jnp.inf, values)
    least = values.min()
    scale = jnp.maximum(1.0, jnp.abs(least))
    equal, agree = (values <= least + tolerance * scale for tolerance in (EQUAL, AGREEMENT))
    return jnp.argmax(equal.astype(int) + (equal & settled)), agree.sum()
