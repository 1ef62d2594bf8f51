"""Indices, in and out of range."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif
from benchmarks.odd.parts import (
    LIKED,
    MOVES,
    SENSOR,
    Program,
    plain,
    rows,
)


def indices() -> Iterator[tuple[str, Program]]:
    def liked(table: Callable[[Any, Any, Any], Any]) -> Program:
        return plain(preference=lambda th, x, u, new, y, t, h: aif.preference("goal", table(new, u, th)))

    line = jnp.asarray([0.5, -1.0, 2.0])
    yield "R[x + 1]", liked(lambda x, u, th: line[x + 1])
    yield "R[x - 1]", liked(lambda x, u, th: line[x - 1])
    yield "R[(x + 1) % n]", liked(lambda x, u, th: line[(x + 1) % 3])
    yield "R[x + 1], guarded", liked(lambda x, u, th: jnp.where(x < 2, line[x + 1], 0.0))
    yield "R[x - 1], guarded", liked(lambda x, u, th: jnp.where(x > 0, line[x - 1], 0.0))
    yield "R[x + 1], guarded wrongly", liked(lambda x, u, th: jnp.where(x > 0, line[x + 1], 0.0))
    yield "R[x + 1], clipped", liked(lambda x, u, th: line.at[x + 1].get(mode="clip"))
    yield "R[x + 1], filled", liked(lambda x, u, th: line.at[x + 1].get(mode="fill", fill_value=0.0))
    yield "jnp.take(R, x + 1)", liked(lambda x, u, th: jnp.take(line, x + 1))
    yield "jnp.take(R, x + 1, mode=clip)", liked(lambda x, u, th: jnp.take(line, x + 1, mode="clip"))
    yield "jnp.take(R, x - 1, mode=wrap)", liked(lambda x, u, th: jnp.take(line, x - 1, mode="wrap"))
    yield "R[-1 - x]", liked(lambda x, u, th: line[-1 - x])
    yield "R[2 - x]", liked(lambda x, u, th: line[2 - x])
    yield "R[x][:2]", liked(lambda x, u, th: jnp.stack([line[x], line[2 - x]]).sum(0))
    yield "R[x, θ] of swapped axes", liked(lambda x, u, th: LIKED.T[x, th])
    yield "R[x, u] too short", liked(lambda x, u, th: jnp.ones((3, 1))[x, u] * line[x])
    yield "R[-1]", liked(lambda x, u, th: line[-1] * x)
    yield "R[x.astype(int8)]", liked(lambda x, u, th: line[x.astype(jnp.int8)])
    yield "R[x] with x of float", liked(lambda x, u, th: line[x * 1.0])
    yield "R[:, x]", liked(lambda x, u, th: LIKED.T[:, x].sum(0))
    yield "R[x == 1]", liked(lambda x, u, th: jnp.where(x == 1, line[1], line[0]))
    yield "R @ onehot", liked(lambda x, u, th: jax.nn.one_hot(x, 3) @ line)
    yield "lax.dynamic_slice", liked(lambda x, u, th: jax.lax.dynamic_slice(line, (x + 1,), (1,))[0])
    yield "lax.switch", liked(lambda x, u, th: jax.lax.switch(x, [lambda: 0.0, lambda: 1.0, lambda: 2.0]))
    yield "lax.cond", liked(lambda x, u, th: jax.lax.cond(x > 0, lambda: 1.0, lambda: 0.0))
    yield "jnp.select", liked(lambda x, u, th: jnp.select([x == 0, x == 1], [1.0, 2.0], 3.0))
    yield "numpy table", liked(lambda x, u, th: np.asarray(line)[x])
    yield "a list", liked(lambda x, u, th: [0.0, 1.0, 2.0][x])
    yield "an if", liked(lambda x, u, th: 1.0 if x == 0 else 0.0)
    yield "vmap inside", liked(lambda x, u, th: jax.vmap(lambda r: r * x)(line).sum(0))
    yield "jit inside", liked(lambda x, u, th: jax.jit(lambda i: line[i])(x))
    yield "jit inside, x + 1", liked(lambda x, u, th: jax.jit(lambda i: line[i])(x + 1))
    moves = {
        "T[x - 1, u]": lambda th, x, u, t: MOVES[x - 1, u],
        "T[x + 1, u]": lambda th, x, u, t: MOVES[x + 1, u],
        "T[u, x]": lambda th, x, u, t: MOVES[u, x],
        "T[x]": lambda th, x, u, t: MOVES[x],
        "T[x, u, 0]": lambda th, x, u, t: MOVES[x, u, 0],
        "T[t]": lambda th, x, u, t: rows(2, 3, 2, 3)[t, x, u],
        "T[t - 1]": lambda th, x, u, t: rows(2, 3, 2, 3)[t - 1, x, u],
        "T[:, x]": lambda th, x, u, t: rows(3, 3).T[:, x],
        "two dimensions too many": lambda th, x, u, t: MOVES[x, u, 0, 0],
    }
    for name, row in moves.items():
        yield name, plain(state=lambda th, x, u, t, row=row: aif.state("x", dist.Categorical(probs=row(th, x, u, t))))
    yield (
        "θ on a short table",
        plain(observation=lambda th, x, u, new, t: aif.observation("y", dist.Categorical(probs=SENSOR[:1][th, new]))),
    )
    yield (
        "certain moves from a short table",
        plain(
            state=lambda th, x, u, t: aif.state(
                "x", aif.DeterministicCategorical(jnp.asarray([[1, 2], [0, 2]])[x, u], 3)
            )
        ),
    )
    yield (
        "certain moves by x - 1, guarded",
        plain(
            state=lambda th, x, u, t: aif.state(
                "x", aif.DeterministicCategorical(jnp.where(x > 0, jnp.arange(3)[x - 1], 0), 3)
            )
        ),
    )
