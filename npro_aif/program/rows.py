"""A site's distribution as rows: its number of outcomes, their log-probabilities or the certain one, its faults."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from npro_aif.distributions import DeterministicCategorical, SparseCategorical
from npro_aif.errors import ModelError
from npro_aif.numerics import is_concrete, safe_log
from npro_aif.tables.sparse import merge_entries

# A correct float32 row sums to one up to this tolerance. Rows are divided by their sum, as the error would otherwise
# grow with every step.
ROUNDING = 2e-6
SOUND = np.float32(1), np.float32(1), np.float32(0)  # the faults of rows that have none


class Rows(NamedTuple):
    """A batch of distributions over the same outcomes."""

    log: Array | None  # (…, K) log-probabilities, or None
    certain: Array | None  # (…) the certain outcome; with log-probabilities the outcomes that these are of; or None
    faults: tuple[Any, Any, Any]  # () the least and the largest row sum, and the least entry (of probabilities)


def check_distribution(name: str, fn: dist.Distribution) -> None:
    """Refuse anything but a distribution over the outcomes 0, 1, 2, … that is what its class says."""
    if isinstance(fn, dist.MaskedDistribution):
        raise ModelError(
            f"site '{name}': found a masked {type(fn.base_dist).__name__}, whose probabilities NumPyro does not count, "
            "expected a distribution without a mask (weigh a preference by jnp.where instead)"
        )
    if fn.event_shape != ():
        raise ModelError(
            f"site '{name}': found {type(fn).__name__} with outcomes of shape {fn.event_shape}, expected single whole "
            "numbers (write several sites instead)"
        )
    if isinstance(fn, dist.CategoricalProbs) and not hasattr(fn.probs, "shape"):
        raise ModelError(f"site '{name}': found probs={fn.probs!r}, expected an array (NumPyro takes no lists)")
    if not fn.support.is_discrete:
        raise ModelError(
            f"site '{name}': found {type(fn).__name__}, a continuous distribution, expected a discrete one "
            "(Categorical, DeterministicCategorical, SparseCategorical)"
        )


def num_categories(name: str, fn: dist.Distribution) -> int:
    """How many outcomes a discrete distribution has; they must be 0, 1, …"""
    if isinstance(fn, DeterministicCategorical | SparseCategorical):
        return fn.num_categories
    if isinstance(fn, dist.CategoricalProbs):
        return int(jnp.shape(fn.probs)[-1])
    if isinstance(fn, dist.CategoricalLogits):
        return int(jnp.shape(fn.logits)[-1])
    if not fn.has_enumerate_support:
        raise ModelError(f"site '{name}': found {type(fn).__name__}, expected a distribution with finite support")
    first = getattr(fn.support, "lower_bound", 0)
    if is_concrete(first) and np.any(np.asarray(first) != 0):
        raise ModelError(
            f"site '{name}': found {type(fn).__name__}, whose outcomes start at {np.ravel(first)[0]}, expected "
            "outcomes 0, 1, 2, …"
        )
    try:
        return int(fn.enumerate_support(expand=False).shape[0])
    except Exception as error:  # each distribution has its own way to fail
        raise ModelError(
            f"site '{name}': found {type(fn).__name__} whose number of outcomes is not known before the program runs, "
            "expected dist.Categorical(probs=…)"
        ) from error


def rows(fn: dist.Distribution) -> Rows:
    """A discrete distribution as rows; those that miss one by no more than the tolerance are divided by their sum.

    A derived class may have another ``log_prob``: that is what counts, as in NumPyro.
    """
    kind = type(fn)
    if kind is DeterministicCategorical:
        return Rows(None, jnp.asarray(fn.index, jnp.int32), SOUND)
    if kind is dist.CategoricalProbs:
        return probability_rows(fn.probs)
    if kind is dist.CategoricalLogits:
        log = jax.nn.log_softmax(fn.logits, axis=-1)
        return Rows(log, None, _faults(jnp.exp(log)))  # a row of −∞ alone has no softmax
    table = probability_rows(jnp.exp(jnp.moveaxis(fn.log_prob(fn.enumerate_support(expand=False)), 0, -1)))
    if kind is not SparseCategorical:
        return table
    (low, high, least), entries = table.faults, _faults(_floating(fn.probs))  # a table hides negative entries
    return table._replace(
        faults=(jnp.minimum(low, entries[0]), jnp.maximum(high, entries[1]), jnp.minimum(least, entries[2]))
    )


def sparse_rows(fn: SparseCategorical) -> Rows:
    """Log-probabilities (…, K) and the outcomes (…, K) that they are of, each there once."""
    probs, index = _floating(fn.probs), jnp.asarray(fn.index, jnp.int32)
    return Rows(safe_log(merge_entries(index, _scaled(probs))), index, _faults(probs))


def probability_rows(probs: Any) -> Rows:
    """Rows (…, K) of probabilities."""
    probs = _floating(probs)
    return Rows(safe_log(_scaled(probs)), None, _faults(probs))


def _floating(probs: Any) -> Array:
    """Probabilities that were whole numbers or of half precision, in the usual one."""
    probs = jnp.asarray(probs)
    return probs.astype(jnp.promote_types(probs.dtype, jnp.result_type(float)))


def _scaled(probs: Array) -> Array:
    """Rows (…, K) divided by their sum, where it misses one by more than rounding."""
    total = probs.sum(-1, keepdims=True)
    return probs / jnp.where(jnp.abs(total - 1) > ROUNDING, total, 1)


def _faults(probs: Array) -> tuple[Array, Array, Array]:
    """The least and the largest sum of rows (…, K), and the least entry."""
    total = probs.sum(-1)
    return total.min(), total.max(), probs.min()


def fix_outcome(table: Rows, size: int, values: tuple[int | None, ...], sizes: tuple[int, ...]) -> Rows:
    """The rows restricted to the outcomes that agree with the fixed values.

    :param size: the number of outcomes, flat over the sites.
    :param values: by site, the fixed value.
    """
    log = table.log
    if log is None:
        log = jnp.where(jnp.arange(size) == jnp.asarray(table.certain)[..., None], 0.0, -jnp.inf)
    outcome = np.unravel_index(np.arange(size), sizes)
    agrees = np.ones(size, bool)
    for own, value in zip(outcome, values, strict=True):
        agrees &= (own == value) if value is not None else True
    return Rows(jnp.where(agrees, log, -jnp.inf), None, table.faults)
