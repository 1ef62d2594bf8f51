"""A distribution that NumPyro does not have: a categorical that is certain of one outcome."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from npro_aif.errors import ModelError
from npro_aif.numerics import is_concrete


class DeterministicCategorical(dist.Distribution):
    """A categorical that is certain of one outcome: an integer a row instead of a row of probabilities.

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
        if is_concrete(index) and np.size(index):
            low, high = int(np.min(np.asarray(index))), int(np.max(np.asarray(index)))
            if low < 0 or high >= num_categories:
                raise ModelError(
                    f"DeterministicCategorical: index runs over {low}..{high}, "
                    f"expected 0..{num_categories - 1} (num_categories={num_categories})"
                )
        self.index = index
        self.num_categories = int(num_categories)
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
