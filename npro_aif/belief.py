"""The belief, a joint distribution over the parameters and the present state, and its checks."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.errors import ModelError
from npro_aif.numerics import is_concrete, whole_number
from npro_aif.states import SparseStates

# A row whose sum differs from one by more than this is a mistake, not rounding (float32, a few thousand entries).
ROW_SUM_TOLERANCE = 1e-3


class _Tables(NamedTuple):
    parameter: Array  # (Θ,)
    state: Any  # (Θ, X), an array or SparseStates


class Belief(_Tables):
    """A joint belief p(θ) p(x|θ) over parameters and the present state; without parameters, the state alone.

    Where a table of all states would be large and mostly zero, :class:`npro_aif.SparseStates` takes its place; belief
    updates keep that form.

    >>> import jax.numpy as jnp
    >>> Belief(parameter=jnp.array([0.5, 0.5]), state=jnp.array([[1.0, 0.0], [0.0, 1.0]])).state.shape
    (2, 2)
    >>> belief = Belief(state=jnp.array([0.2, 0.8]))
    >>> belief.parameter.shape, belief.state.shape
    ((1,), (1, 2))
    """

    __slots__ = ()

    def __new__(cls, parameter: Any = ..., state: Any = None) -> Belief:
        if parameter is ...:  # not None: JAX builds beliefs whose leaves are None, and these must stay
            table = state.of_arrays() if isinstance(state, SparseStates) else jnp.atleast_2d(jnp.asarray(state))
            return super().__new__(cls, jnp.ones(1), table)
        return super().__new__(cls, parameter, state)


def is_sparse(belief: Any) -> bool:
    """Whether a belief keeps p(x|θ) by its entries."""
    return isinstance(belief.state, SparseStates)


def check_type(belief: Any, name: str = "belief") -> None:
    """Refuse anything but a belief made of arrays."""
    if not isinstance(belief, Belief):
        raise ModelError(f"{name}: found {type(belief).__name__}, expected aif.Belief(parameter, state)")
    fields: dict[str, Any] = belief._asdict()
    if is_sparse(belief):
        fields = {"parameter": belief.parameter, "state.index": belief.state.index, "state.probs": belief.state.probs}
        whole_number(belief.state.num_states, f"{name}.state.num_states", 1)
    for field, table in fields.items():
        if not hasattr(table, "shape"):
            raise ModelError(f"{name}.{field}: found {type(table).__name__}, expected an array")


def check_shape(belief: Belief, name: str = "belief") -> None:
    """Refuse anything but a belief whose two tables fit each other."""
    check_type(belief, name)
    shapes = tuple(map(np.shape, belief))
    if len(shapes[0]) != 1 or len(shapes[1]) != 2 or shapes[0][0] != shapes[1][0]:
        raise ModelError(
            f"{name}: found parameter of shape {shapes[0]} and state of shape {shapes[1]}, expected (Θ,) and (Θ, X)"
        )


def check_numbers(belief: Belief, name: str = "belief") -> None:
    """Refuse a belief that does not sum to one or has negative entries (where its numbers are known)."""
    if not is_concrete(belief):
        return
    parameter = np.asarray(belief.parameter)
    state = np.asarray(belief.state.probs if is_sparse(belief) else belief.state)
    if is_sparse(belief):
        _check_entries(belief.state, name)
    if not abs(parameter.sum() - 1) <= ROW_SUM_TOLERANCE:
        raise ModelError(f"{name}.parameter: found a row that sums to {parameter.sum():.6g}, expected 1")
    check_sums(state, name)
    for field, table in (("parameter", parameter), ("state", state)):
        if (table < 0).any():
            raise ModelError(f"{name}.{field}: found a negative probability {table.min():.6g}, expected at least 0")


def check_sums(state: np.ndarray, name: str = "belief", first: int = 0) -> None:
    """Refuse p(x|θ), (K, X), with a row that does not sum to one, or is not a number.

    :param first: the parameter of the first row.
    """
    totals = state.sum(-1)
    wrong = ~(np.abs(totals - 1) <= ROW_SUM_TOLERANCE)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ModelError(f"{name}.state: found that row {first + row} sums to {totals[row]:.6g}, expected 1")


def _check_entries(states: SparseStates, name: str) -> None:
    """Refuse entries whose shapes do not fit, or whose states do not exist."""
    index = np.asarray(states.index)
    if not np.shape(states.probs)[-1]:
        raise ModelError(
            f"{name}.state: found no states at all, probabilities of shape {np.shape(states.probs)}, expected one or "
            "more for each parameter"
        )
    if index.shape != np.shape(states.probs) or not np.issubdtype(index.dtype, np.integer):
        raise ModelError(
            f"{name}.state: found an index of shape {index.shape} ({index.dtype}) and probabilities of shape "
            f"{np.shape(states.probs)}, expected whole numbers (Θ, K) and as many probabilities"
        )
    if index.size and (index.min() < 0 or index.max() >= states.num_states):
        raise ModelError(
            f"{name}.state: found states {index.min()}..{index.max()}, expected 0..{states.num_states - 1}"
        )
