"""Rows p(x|θ) by their entries: only the few states that are possible under each parameter, without a whole table."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.errors import ModelError
from npro_aif.sizes import MOST_FROZEN


@functools.partial(jax.tree_util.register_dataclass, data_fields=("index", "probs"), meta_fields=("num_states",))
@dataclass(frozen=True)
class SparseStates:
    """p(x|θ) by at most K states for each parameter, in place of a table (Θ, X): ``aif.Belief(parameter, states)``.

    A program reads it as it reads the table: ``belief.state[theta]`` makes just these rows. Code that needs the whole
    table gets it, unless the table would be too large, which is refused.

    :param index: (Θ, K) the states; the probabilities of a state that occurs twice add up.
    :param probs: (Θ, K) the probability of each; 0 for padding.
    :param num_states: X.

    >>> states = SparseStates(np.array([[2], [0]]), np.ones((2, 1)), 4)
    >>> states.shape, states[1].tolist()
    ((2, 4), [1.0, 0.0, 0.0, 0.0])
    """

    index: Any
    probs: Any
    num_states: int

    @classmethod
    def of(cls, table: Any) -> SparseStates:
        """The entries of a table p(x|θ), (Θ, X)."""
        table = np.asarray(table)
        theta, x = np.nonzero(table)
        return sparse_states(theta, x, table[theta, x], table.shape)

    def of_arrays(self) -> SparseStates:
        """The same entries, as arrays where they are lists."""
        index, probs = (t if hasattr(t, "shape") else np.asarray(t) for t in (self.index, self.probs))
        return replace(self, index=index, probs=probs)

    @property
    def shape(self) -> tuple[int, ...]:
        return *self.probs.shape[:-1], self.num_states

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        return self.probs.dtype

    @property
    def nbytes(self) -> int:
        """The bytes of the entries."""
        return self.index.nbytes + self.probs.nbytes

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Array:
        if isinstance(key, tuple):
            first, *others = key
            return self[first][
                (slice(None),) * (jnp.ndim(first) if not isinstance(first, slice) else 1) + tuple(others)
            ]
        if isinstance(key, slice):
            key = np.arange(len(self))[key]
        index, probs = jnp.asarray(self.index)[key], jnp.asarray(self.probs)[key]
        rows = jnp.zeros((probs[..., 0].size, self.num_states), probs.dtype)
        place = jnp.arange(len(rows))[:, None], index.reshape(len(rows), -1)
        return rows.at[place].add(probs.reshape(len(rows), -1)).reshape(*probs.shape[:-1], self.num_states)

    def dense(self) -> Array:
        """The whole table, (Θ, X)."""
        if math.prod(self.shape) > MOST_FROZEN:
            raise ModelError(
                f"belief.state: found {self.shape[-2]:,} parameters and {self.num_states:,} states by entries where a "
                f"table of all of them is needed, expected at most {MOST_FROZEN:,} entries of it; belief updates, "
                "SearchSolver and plans that consider some of the parameters (max_parameters) need none"
            )
        return self[:]

    __array_ufunc__ = None  # so that NumPy leaves ``p @ states`` to this class, and refuses the rest

    def __matmul__(self, value: Any) -> np.ndarray:
        """Σ_x p(x|θ) value(x), (Θ,)."""
        return (np.asarray(self.probs) * np.asarray(value)[np.asarray(self.index)]).sum(-1)

    def __rmatmul__(self, weight: Any) -> np.ndarray:
        """Σ_θ weight(θ) p(x|θ), (X,)."""
        joint = np.asarray(weight)[:, None] * np.asarray(self.probs)
        return np.bincount(np.asarray(self.index).ravel(), joint.ravel(), self.num_states)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.dense(), dtype)

    def __jax_array__(self) -> Array:
        return self.dense()

    def astype(self, dtype: Any) -> SparseStates:
        """The same entries in another precision."""
        return replace(self, index=np.asarray(self.index, np.int32), probs=np.asarray(self.probs, dtype))

    def padded(self) -> SparseStates:
        """The same with 1, 4, 16, … entries a row, so that code is compiled once for each of these sizes only."""
        width = 1
        while width < self.probs.shape[-1]:
            width *= 4
        extra = [(0, 0)] * (self.probs.ndim - 1) + [(0, width - self.probs.shape[-1])]
        return replace(self, index=jnp.pad(self.index, extra), probs=jnp.pad(self.probs, extra))

    def entries(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The possible states of some parameters (R,): for each its place in ``theta``, the state, the probability."""
        index, probs = np.asarray(self.index)[theta], np.asarray(self.probs)[theta]
        place = np.flatnonzero(probs)
        return place // probs.shape[1], index.ravel()[place], probs.ravel()[place]


def sparse_states(theta: np.ndarray, x: np.ndarray, probs: np.ndarray, shape: tuple[int, int]) -> SparseStates:
    """Rows from entries that are sorted by their parameter; a parameter without entries gets state 0.

    :param probs: they sum to one for each parameter.
    :param shape: the numbers of parameters and states.
    """
    counts = np.bincount(theta, minlength=shape[0])
    column = np.arange(len(theta)) - np.repeat(np.cumsum(counts) - counts, counts)
    width = max(1, int(counts.max(initial=0)))
    index, table = np.zeros((shape[0], width), np.int32), np.zeros((shape[0], width), probs.dtype)
    index[theta, column], table[theta, column] = x, probs
    table[counts == 0, 0] = 1
    return SparseStates(index, table, shape[1])
