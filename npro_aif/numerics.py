"""Arithmetic of probability tables with exact zeros: values and gradients stay finite.

The rule of the whole package is ``0 log 0 = 0``; every function here keeps structural zeros at exactly
zero and passes no NaN into a gradient.
"""

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif._jax import Tracer
from npro_aif.errors import ModelError
from npro_aif.shards import are_laid, summed
from npro_aif.sizes import BLOCK, FEW_TERMS

NEVER = -1e9  # log 0 as a finite number: its exponential is exactly 0, and so is 0 · NEVER


def finite(log: Array) -> Array:
    """The same logarithms with :data:`NEVER` for -inf, so that a zero weight may simply be multiplied."""
    return jnp.maximum(log, NEVER)


def safe_log(p: Array) -> Array:
    """log p, with log 0 = -inf and a zero (not infinite) gradient there."""
    positive = p > 0
    return jnp.where(positive, jnp.log(jnp.where(positive, p, 1.0)), -jnp.inf)


def mul_log(weight: Array, log: Array) -> Array:
    """weight * log, with 0 * (-inf) = 0."""
    live = weight > 0
    return jnp.where(live, weight * jnp.where(live, log, 0.0), 0.0)


def neg_entropy(p: Array) -> Array:
    """p log p, elementwise, with 0 log 0 = 0."""
    positive = p > 0
    return jnp.where(positive, p * jnp.log(jnp.where(positive, p, 1.0)), 0.0)


def relative_entropy(q: Array, p: Array) -> Array:
    """q log(q/p) − q + p of log-probabilities, elementwise: rows that sum to one sum to KL[q ‖ p].

    It is p (δ e^δ − (e^δ − 1)) with δ = log q − log p, which is never negative: near δ = 0, where it is the difference
    of larger terms whose rounding would add up over many steps, its series stands for it.

    >>> import jax.numpy as jnp
    >>> p, q = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([0.5005, 0.4995]))
    >>> round(float(relative_entropy(q, p).sum()) * 1e7, 2)
    5.0
    >>> relative_entropy(jnp.array([0.0, -jnp.inf]), jnp.array([-jnp.inf, -jnp.inf])).tolist()
    [inf, 0.0]
    """
    believed, possible = q > -jnp.inf, p > -jnp.inf
    both = believed & possible
    gap = jnp.where(both, q, 0.0) - jnp.where(both, p, 0.0)
    mine, theirs = jnp.exp(q), jnp.exp(p)
    reach = float(jnp.finfo(gap.dtype).eps) ** (1 / 7)  # below it the first term left out, δ⁷/840, is lost in rounding
    near = jnp.clip(gap, -reach, reach)
    series = theirs * near**2 * (1 / 2 + near * (1 / 3 + near * (1 / 8 + near * (1 / 30 + near / 144))))
    inside = jnp.where(jnp.abs(gap) < reach, series, mine * gap - (mine - theirs))
    inside = jnp.where(both, inside, theirs)
    return jnp.where(believed & ~possible, jnp.inf, inside)


def less_common(log: Array, cost: Array) -> tuple[Array, Array]:
    """log p − (cost − least), and the least cost that is possible in each row.

    A large cost that all entries of a row share would otherwise swamp their differences.
    """
    least = jnp.where(log > -jnp.inf, cost, jnp.inf).min(-1, keepdims=True)
    least = jnp.where(jnp.isfinite(least), least, 0.0)
    return log - (cost - least), least


@jax.custom_jvp
def without_gradient(x: Array) -> Array:
    """The same numbers, but differentiating through them is refused: the gradient would be wrong."""
    return x


@without_gradient.defjvp
def _without_gradient_jvp(primals: Any, tangents: Any) -> Any:
    raise ValueError(
        "gradient: found a derivative with respect to the belief, through a free energy whose epistemic "
        "costs are held fixed, which would be wrong; expected none: compare plans at two beliefs, or use "
        'Active(gradient="through") as a loss'
    )


@jax.custom_jvp
def divide(a: Array, b: Array) -> Array:
    """a / b, with a / 0 = 0."""
    live = b > 0
    return jnp.where(live, a / jnp.where(live, b, 1.0), 0.0)


@divide.defjvp
def _divide_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """(da − (a/b) db) / b: without b², which underflows long before b does; zero where b has no finite inverse."""
    (a, b), (da, db) = primals, tangents
    quotient = divide(a, b)
    live = b >= jnp.finfo(b.dtype).tiny
    inverse = jnp.where(live, 1 / jnp.where(live, b, 1.0), 0.0)
    return quotient, (da - quotient * db) * inverse


def sum_leading(table: Array) -> Array:
    """Σ over the first axis, as a product with ones: XLA's CPU reductions over a leading axis are ten times slower."""
    if len(table) <= FEW_TERMS and not are_laid():
        return functools.reduce(jnp.add, list(table))
    ones = jnp.ones(table.shape[0], table.dtype)
    return jnp.tensordot(ones, table, axes=1, precision=jax.lax.Precision.HIGHEST)


def sum_last(table: Array) -> Array:
    """Σ over the last axis, likewise: XLA does not vectorise reductions."""
    if table.shape[-1] <= FEW_TERMS and not are_laid():  # over devices each term would be sent by itself
        return functools.reduce(jnp.add, [table[..., i] for i in range(table.shape[-1])])
    return jnp.matmul(table, jnp.ones(table.shape[-1], table.dtype), precision=jax.lax.Precision.HIGHEST)


def near_sum(table: Array) -> Array:
    """Σ over all entries, in blocks of blocks, so that the rounding of many terms does not add up.

    >>> import jax.numpy as jnp
    >>> float(near_sum(jnp.full((1000, 1000), 1e-6, jnp.float32)))
    1.0
    """
    terms = table.ravel()
    while terms.size > BLOCK:
        terms = jnp.pad(terms, (0, -terms.size % BLOCK)).reshape(-1, BLOCK)
        terms = sum_last(terms)
    return terms.sum()


def sum_mass(mass: Array) -> Array:
    """:func:`near_sum` of q(θ, s), (S, Θ): of each device's own parameters where they are laid over several."""
    return summed(near_sum, (mass, 1))


def normalize(weight: Array, axis: int = -1) -> Array:
    """weight over its sum along ``axis``; uniform where the sum is zero."""
    total = weight.sum(axis, keepdims=True)
    return jnp.where(total > 0, divide(weight, total), 1.0 / weight.shape[axis])


def masked_log_softmax(logits: Array, mask: Array, axis: int = -1) -> Array:
    """log softmax over the entries where ``mask`` holds, -inf elsewhere; a row with no entry is uniform.

    >>> import jax.numpy as jnp
    >>> jnp.exp(masked_log_softmax(jnp.zeros(3), jnp.array([True, True, False]))).tolist()
    [0.5, 0.5, 0.0]
    """
    mask = jnp.broadcast_to(mask, jnp.broadcast_shapes(mask.shape, logits.shape))
    mask = mask | ~mask.any(axis, keepdims=True)
    return jax.nn.log_softmax(jnp.where(mask, logits, -jnp.inf), axis=axis)


def log_normalizer(a: Array, defined: Array) -> Array:
    """log Σ exp(a) over the entries that are defined (zero where there is none)."""
    defined = jnp.broadcast_to(defined, a.shape)
    a = jnp.where(defined, a, -jnp.inf)
    empty = ~defined.any()
    return jnp.where(empty, 0.0, jax.nn.logsumexp(jnp.where(empty, 0.0, a)))


def is_concrete(*trees: object) -> bool:
    """Whether every leaf has a value now (nothing is being traced)."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trees))


def whole_number(value: Any, what: str, least: int) -> int:
    """A whole number of at least so many; anything else is refused by name, also a float without a fraction.

    >>> whole_number(3, "memory", 0)
    3
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise ModelError(f"{what}: found {value!r}, expected a whole number of at least {least}")
    return number
