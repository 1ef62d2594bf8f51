"""Numbers of a program that JAX is tracing: stand-ins replace them while it is read; then they are its arguments."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from npro_aif._jax import ClosedJaxpr, Tracer
from npro_aif.errors import ModelError
from npro_aif.program.jaxprs import content_name


class Numbers(NamedTuple):
    """The constants of a program that JAX is tracing, as inside ``jit``, ``grad`` or a NumPyro program."""

    slots: tuple[int, ...]  # their places among the constants of the equations
    values: tuple[Any, ...]  # the traced numbers
    stand_ins: tuple[Any, ...]  # numbers of the same shapes, at which the program is checked


class StandIns:
    """Numbers in place of those that JAX is tracing; the same tracer always gets the same stand-in.

    Probabilities can stand in for any number, because the check only compares two ways to compute the same thing.
    """

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}

    def take_out(self, closed: Any) -> tuple[Any, Numbers]:
        """Equations without such numbers, and the numbers."""
        slots = tuple(i for i, const in enumerate(closed.consts) if isinstance(const, Tracer))
        if not slots:
            return closed, Numbers((), (), ())
        replaced = ClosedJaxpr(closed.jaxpr, [self._of(const) for const in closed.consts])
        values = tuple(closed.consts[i] for i in slots)
        return replaced, Numbers(slots, values, tuple(replaced.consts[i] for i in slots))

    def _of(self, const: Any) -> Any:
        if not isinstance(const, Tracer):
            return const
        if id(const) not in self._known:
            rng = np.random.default_rng(len(self._known))
            if jnp.issubdtype(const.dtype, jax.dtypes.prng_key):
                raise ModelError(
                    "model: found a random key that JAX is tracing (one that was kept from an earlier run, as a rule), "
                    "expected chance in its sites only"
                )
            is_float = jnp.issubdtype(const.dtype, jnp.floating)
            drawn = rng.uniform(0.05, 0.95, const.shape) if is_float else np.zeros(const.shape)
            self._known[id(const)] = drawn.astype(const.dtype)
        return self._known[id(const)]


def name_of(closed: Any) -> str:
    """A name for equations: equal for equal equations and constants; constants that JAX is tracing are not compared."""
    equations, numbers = StandIns().take_out(closed)
    return f"{content_name(equations)} {numbers.slots}"
