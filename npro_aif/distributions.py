"""Two distributions that NumPyro lacks: a categorical with one certain outcome, and one with few possible outcomes."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from npro_aif.errors import ModelError
from npro_aif.numerics import is_concrete, safe_log, whole_number


class DeterministicCategorical(dist.Distribution):
    """A categorical whose outcome is certain: one integer instead of a row of probabilities.

    :param index: the outcome, an integer array of any batch shape.
    :param num_categories: the number of categories.

    >>> import jax.numpy as jnp
    >>> DeterministicCategorical(jnp.array([2, 0]), 3).log_prob(jnp.array([2, 1])).tolist()
    [0.0, -inf]
    """

    arg_constraints: ClassVar = {"index": constraints.nonnegative_integer}
    has_enumerate_support = True
    pytree_data_fields = ("index",)
    pytree_aux_fields = ("num_categories",)

    def __init__(self, index: ArrayLike, num_categories: int, *, validate_args: bool | None = None):
        if not jnp.issubdtype(jnp.result_type(index), jnp.integer):
            raise ModelError(f"DeterministicCategorical: index must be integers, found {jnp.result_type(index)}")
        self.num_categories = whole_number(num_categories, "DeterministicCategorical: num_categories", 1)
        if is_concrete(index) and np.size(index):
            low, high = int(np.min(np.asarray(index))), int(np.max(np.asarray(index)))
            if low < 0 or high >= num_categories:
                raise ModelError(
                    f"DeterministicCategorical: index runs over {low}..{high}, "
                    f"expected 0..{num_categories - 1} (num_categories={num_categories})"
                )
        self.index = index
        super().__init__(batch_shape=jnp.shape(index), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self.num_categories - 1)

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Array:
        return jnp.broadcast_to(jnp.asarray(self.index), sample_shape + self.batch_shape)

    def log_prob(self, value: ArrayLike) -> Array:
        return jnp.where(jnp.asarray(value) == self.index, 0.0, -jnp.inf)

    def enumerate_support(self, expand: bool = True) -> Array:
        values = jnp.arange(self.num_categories).reshape((-1,) + (1,) * len(self.batch_shape))
        return jnp.broadcast_to(values, values.shape[:1] + self.batch_shape) if expand else values


class SparseCategorical(dist.Distribution):
    """A categorical with a few possible outcomes, listed with their probabilities: for large stochastic worlds.

    :param index: the outcomes, an integer array (…, K); the probabilities of one that occurs twice add up.
    :param probs: their probabilities, (…, K).
    :param num_categories: the number of categories.

    >>> import jax.numpy as jnp
    >>> fn = SparseCategorical(jnp.array([7, 2, 7]), jnp.array([0.5, 0.25, 0.25]), 10_000)
    >>> jnp.exp(fn.log_prob(jnp.array([7, 2, 0]))).tolist()
    [0.75, 0.25, 0.0]
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    has_enumerate_support = True
    pytree_data_fields = ("index", "probs")
    pytree_aux_fields = ("num_categories",)

    def __init__(self, index: ArrayLike, probs: ArrayLike, num_categories: int, *, validate_args: bool | None = None):
        if not jnp.issubdtype(jnp.result_type(index), jnp.integer):
            raise ModelError(f"SparseCategorical: index must be integers, found {jnp.result_type(index)}")
        widths = jnp.shape(index)[-1:], jnp.shape(probs)[-1:]
        if widths[0] != widths[1] or widths[0] in ((), (0,)):
            raise ModelError(
                f"SparseCategorical: found {jnp.shape(index)} outcomes and {jnp.shape(probs)} probabilities, expected "
                "as many of the one as of the other along the last axis, and at least one"
            )
        shape = jnp.broadcast_shapes(jnp.shape(index), jnp.shape(probs))
        self.index = jnp.broadcast_to(jnp.asarray(index), shape)
        self.probs = jnp.broadcast_to(jnp.asarray(probs), shape)
        self.num_categories = whole_number(num_categories, "SparseCategorical: num_categories", 1)
        super().__init__(batch_shape=shape[:-1], validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self.num_categories - 1)

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Array:
        entry = dist.CategoricalProbs(self.probs).sample(key, sample_shape)
        index = jnp.broadcast_to(self.index, sample_shape + self.index.shape)
        return jnp.take_along_axis(index, entry[..., None], axis=-1)[..., 0]

    def log_prob(self, value: ArrayLike) -> Array:
        return safe_log(jnp.where(jnp.asarray(value)[..., None] == self.index, self.probs, 0.0).sum(-1))

    def enumerate_support(self, expand: bool = True) -> Array:
        values = jnp.arange(self.num_categories).reshape((-1,) + (1,) * len(self.batch_shape))
        return jnp.broadcast_to(values, values.shape[:1] + self.batch_shape) if expand else values
