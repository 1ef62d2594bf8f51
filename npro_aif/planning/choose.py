"""The control to do, given how probable (or how good) each is: one rule for plans, agents and baselines.

Controls whose scores differ by at most a tolerance are tied. A key draws between them; without a key, or with
``ties="first"``, the first of them is taken. A tolerance of 0 is a bare argmax.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.numerics import is_concrete

TIE_TOLERANCE = 1e-5  # equal probabilities may differ by this much in float32 after some sweeps
TIES = ("draw", "first")

Words = Sequence[int]  # a key as plain numbers


@dataclass(frozen=True)
class Rule:
    """The rule by which ties are broken.

    :param ties: "draw" between them where there is a key, or take the "first".
    :param tolerance: scores that differ by at most this are tied; 0 is a bare argmax, which takes the first of equals.

    >>> probs = np.array([0.25, 0.25, 0.5])
    >>> Rule().best(probs), Rule(tolerance=0.3).best(probs), Rule(ties="first", tolerance=0.3).best(probs, (0, 1))
    (2, 0, 0)
    """

    ties: Literal["draw", "first"] = "draw"
    tolerance: float = TIE_TOLERANCE

    def __post_init__(self) -> None:
        if self.ties not in TIES:
            raise ValueError(f"ties: found {self.ties!r}, expected one of {', '.join(TIES)}")
        if not self.tolerance >= 0:
            raise ValueError(f"tie_tolerance: found {self.tolerance!r}, expected a number that is not negative")

    def tied(self, scores: np.ndarray) -> np.ndarray:
        """Which controls are (nearly) the best, by row."""
        return scores >= scores.max(-1, keepdims=True) - self.tolerance

    def best(self, scores: np.ndarray, words: Words | None = None, step: int = 0) -> int:
        """The control to do, of scores (U,).

        :param words: of the key that draws between ties.
        :param step: the step of the episode; every step draws anew.
        """
        return int(self.best_rows(np.asarray(scores)[None], words, step)[0])

    def best_rows(self, scores: np.ndarray, words: Words | None = None, step: int = 0) -> np.ndarray:
        """The same for each row of scores (N, U)."""
        tied = self.tied(scores)
        first = tied.argmax(-1)
        if self.tolerance == 0:
            return scores.argmax(-1)
        if self.ties == "first" or words is None:
            return first
        # Python's generator: with those of JAX and NumPy one draw takes longer than a plan.
        draw = random.Random(f"{tuple(int(word) for word in words)} {step}")
        choices = [np.flatnonzero(row) for row in tied]
        return np.array([row[0] if len(row) == 1 else draw.choice(row) for row in choices])

    def best_of(self, probs: Array, key: Array | None = None) -> Array:
        """The same for an array of any shape (…, U), also while JAX is tracing."""
        shape = probs.shape[:-1]

        def choose(probs: np.ndarray, words: np.ndarray | None) -> np.ndarray:
            rows = np.asarray(probs).reshape(-1, probs.shape[-1])
            chosen = self.best_rows(rows, None if words is None else words.tolist())
            return chosen.reshape(shape).astype(np.int32)

        if key is not None:
            check_key(key, "key")
        words = None if key is None else jax.random.key_data(key)
        if is_concrete(probs, words):
            return jnp.asarray(choose(np.asarray(probs), None if words is None else np.asarray(words)))
        result = jax.ShapeDtypeStruct(shape, jnp.int32)
        return jax.pure_callback(choose, result, probs, words, vmap_method="sequential")


def check_key(key: object, name: str = "rng_key") -> None:
    """Refuse anything but a random key."""
    dtype = getattr(key, "dtype", None)
    if dtype is None or not (jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == jnp.uint32):
        raise ValueError(f"{name}: found {key!r}, expected a random key, such as jax.random.key(0)")


def key_words(key: Array) -> tuple[int, ...]:
    """A key as plain numbers."""
    check_key(key, "key")
    return tuple(np.asarray(jax.random.key_data(key)).tolist())
