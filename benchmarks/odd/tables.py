"""Tables made by all kinds of code: jitted, stacked, guarded, of odd types, with what is not a number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif
from benchmarks.odd.parts import LIKED, MOVES, NUM_X, SENSOR, Program, liked, moves, odd, plain


def rows_of_all_kinds() -> Iterator[tuple[str, Program]]:
    table = jax.jit(lambda x, u: MOVES[x, u])
    yield "a jitted row", moves(lambda x, u, t: table(x, u))
    yield "a checkpointed row", moves(lambda x, u, t: jax.checkpoint(lambda i, j: MOVES[i, j])(x, u))
    yield "a softmax", moves(lambda x, u, t: jax.nn.softmax(jnp.log(MOVES[x, u]) * 2, -1))
    yield "a softmax over the wrong axis", moves(lambda x, u, t: jax.nn.softmax(jnp.log(MOVES[x, u]) * 2, 0))
    yield "T[x][u]", moves(lambda x, u, t: MOVES[x][u])
    yield "T[x][..., u, :]", moves(lambda x, u, t: MOVES[x][..., u, :])
    yield "rows stacked by control", moves(lambda x, u, t: jnp.stack([MOVES[x, 0], MOVES[x, 1]])[u])
    yield "where by control", moves(lambda x, u, t: jnp.where((u == 0)[..., None], MOVES[x, 0], MOVES[x, 1]))
    yield "where by control, one axis short", moves(lambda x, u, t: jnp.where(u == 0, MOVES[x, 0], MOVES[x, 1]))
    yield "a product with a one-hot", moves(lambda x, u, t: jax.nn.one_hot(x, NUM_X) @ MOVES[:, 0])
    yield "an einsum", moves(lambda x, u, t: jnp.einsum("i,ij->j", jax.nn.one_hot(x, NUM_X), MOVES[:, 0]))
    yield "roll", moves(lambda x, u, t: jnp.roll(jnp.asarray([0.2, 0.3, 0.5]), x))
    yield "a loop", moves(lambda x, u, t: jax.lax.fori_loop(0, 3, lambda i, p: (p + MOVES[x, u]) / 2, MOVES[x, u]))
    yield "a random table of a fixed key", moves(lambda x, u, t: _random_rows()[x, u])
    yield "a random number of a key that moves", _moving_key()
    yield "a row that is not reached has NaN", _unreached(jnp.asarray([[0.5, 0.5, 0.0]] * 2 + [[jnp.nan] * 3]))
    yield "a row that is not reached has zeros", _unreached(jnp.asarray([[0.5, 0.5, 0.0]] * 2 + [[0.0] * 3]))
    yield "logits with -inf", logits(jnp.where(jnp.eye(3) > 0, -jnp.inf, jnp.log(MOVES[:, 0])))
    yield "logits of -inf only", logits(jnp.asarray([[0.0, 1.0, 2.0]] * 2 + [[-jnp.inf] * 3]))
    yield "logits with +inf", logits(jnp.asarray([[0.0, 1.0, 2.0]] * 2 + [[jnp.inf, 0.0, 0.0]]))
    yield "integers that sum to two", moves(lambda x, u, t: jnp.asarray([1, 1, 0]))
    yield "a NumPy table in float64", moves(lambda x, u, t: jnp.asarray(np.asarray(MOVES, float))[x, u])
    yield "uint8 below zero", liked(lambda th, x, u, new, t, h: LIKED[_small(new) - 1, th])
    yield (
        "uint8 below zero, guarded",
        liked(lambda th, x, u, new, t, h: jnp.where(new > 0, LIKED[_small(new) - 1, th], 0.0)),
    )
    yield "int8 that overflows", liked(lambda th, x, u, new, t, h: (100 * new.astype(jnp.int8)).astype(float))
    yield "a bool as an index", liked(lambda th, x, u, new, t, h: LIKED[new > 0, th])
    yield "a bool as a number", liked(lambda th, x, u, new, t, h: LIKED[(new > 0).astype(int), th])
    yield "a bool preference", liked(lambda th, x, u, new, t, h: new == 2)
    yield "log of a guarded zero", liked(lambda th, x, u, new, t, h: jnp.where(new > 0, jnp.log(new), -3.0))
    yield "entropy of the belief", odd(begin=lambda s, b: setattr(s, "belief", b), preference=_by_entropy)
    yield "searchsorted", liked(lambda th, x, u, new, t, h: LIKED[jnp.searchsorted(jnp.asarray([0, 1]), new), th])
    yield (
        "take_along_axis",
        liked(lambda th, x, u, new, t, h: jnp.take_along_axis(LIKED[:, 0], jnp.atleast_1d(new), 0)[0]),
    )
    yield "expand(())", seen(lambda row: aif.observation("y", dist.Categorical(probs=row).expand(())))
    yield "labels of a list", seen(lambda row: aif.observation("y", dist.Categorical(probs=row), labels=["a", "b"]))
    yield (
        "labels of an array",
        seen(lambda row: aif.observation("y", dist.Categorical(probs=row), labels=np.array(["a", "b"]))),
    )


def logits(table: Any) -> Program:
    return plain(state=lambda th, x, u, t: aif.state("x", dist.Categorical(logits=table[x])))


def seen(observe: Callable[[Any], Any]) -> Program:
    return plain(observation=lambda th, x, u, new, t: observe(SENSOR[th, new]))


def _small(x: Any) -> Any:
    return x.astype(jnp.uint8)


def _random_rows() -> Any:
    return jax.random.dirichlet(jax.random.key(0), jnp.ones(3), (3, 2))


def _unreached(table: Any) -> Program:
    return plain(
        start=lambda b, th: aif.state("x", dist.Categorical(probs=jnp.asarray([0.5, 0.5, 0.0]))),
        state=lambda th, x, u, t: aif.state("x", dist.Categorical(probs=table[x])),
    )


def _by_entropy(self: Any, th: Any, x: Any, u: Any, new: Any, y: Any, t: Any, h: Any) -> None:
    p = self.belief.parameter
    aif.preference("goal", -jnp.sum(p * jnp.log(p)) * LIKED[new, th])


def _moving_key() -> Program:
    keys = {"key": jax.random.key(0)}

    def noise(th: Any, x: Any, u: Any, new: Any, y: Any, t: Any, h: Any) -> None:
        keys["key"], own = jax.random.split(keys["key"])
        aif.preference("goal", LIKED[new, th] * jax.random.uniform(own))

    return plain(preference=noise)
