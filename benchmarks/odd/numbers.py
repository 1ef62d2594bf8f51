"""Numbers and their types."""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif
from benchmarks.odd.parts import (
    LIKED,
    MOVES,
    Program,
    odd,
    plain,
)


def numbers() -> Iterator[tuple[str, Program]]:
    for factor in (1.0, 1.0005, 0.9995, 1.005, 0.0, float("nan"), -1.0):
        yield (
            f"rows that sum to {factor}",
            plain(state=lambda th, x, u, t, f=factor: aif.state("x", dist.Categorical(probs=f * MOVES[x, u]))),
        )
    for value in (float("nan"), float("inf"), -float("inf"), -1e9, 1e30, 3, True):
        yield (
            f"a preference of {value}",
            plain(preference=lambda th, x, u, new, y, t, h, v=value: aif.preference("goal", jnp.where(new == 1, v, 0))),
        )
    yield "a preference of a Python number", plain(preference=lambda *a: aif.preference("goal", 2.0))
    yield "a preference of a row", plain(preference=lambda th, x, u, new, y, t, h: aif.preference("goal", LIKED[new]))
    yield "a preference of None", plain(preference=lambda *a: aif.preference("goal", None))  # type: ignore[arg-type]
    yield (
        "1 / (h - t)",
        plain(preference=lambda th, x, u, new, y, t, h: aif.preference("goal", LIKED[new, th] / (h - t))),
    )
    yield (
        "float16 tables",
        plain(state=lambda th, x, u, t: aif.state("x", dist.Categorical(probs=MOVES.astype(jnp.float16)[x, u]))),
    )
    yield (
        "bfloat16 preferences",
        plain(preference=lambda th, x, u, new, y, t, h: aif.preference("goal", LIKED.astype(jnp.bfloat16)[new, th])),
    )
    yield (
        "integer probabilities",
        plain(state=lambda th, x, u, t: aif.state("x", dist.Categorical(probs=jnp.eye(3, dtype=int)[(x + u) % 3]))),
    )
    yield (
        "float64 NumPy rows",
        plain(control=lambda th, x, t: aif.control("u", dist.Categorical(probs=np.asarray([0.25, 0.75])))),
    )
    yield (
        "rows of a Python list",
        plain(control=lambda th, x, t: aif.control("u", dist.Categorical(probs=[0.25, 0.75]))),
    )
    yield "complex numbers", plain(preference=lambda th, x, u, new, y, t, h: aif.preference("goal", 1j * new))
    yield (
        "a random table",
        odd(
            state=lambda s, th, x, u, t: aif.state(
                "x",
                dist.Categorical(
                    probs=jnp.asarray(np.random.default_rng().dirichlet(np.ones(3), (3, 2)), jnp.float32)[x, u]
                ),
            )
        ),
    )
    yield (
        "log of the belief",
        odd(
            begin=lambda s, b: setattr(s, "belief", b),
            preference=lambda s, th, x, u, new, y, t, h: aif.preference("goal", jnp.log(s.belief.parameter[th])),
        ),
    )
