"""What a program computes, as JAX sees it: which inputs its outputs depend on, and a name for all of it.

Two readings with the same name compute the same numbers, whatever function or object they come from.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np

ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def depends_on_first(jaxpr: Any, count: int, constants: Iterable[int] = ()) -> list[bool]:
    """For each output of a jaxpr, whether it depends on any of the first ``count`` inputs, or on these constants."""
    varying = {*jaxpr.invars[:count], *(jaxpr.constvars[i] for i in constants)}
    for equation in jaxpr.eqns:
        if any(isinstance(v, jax.extend.core.Var) and v in varying for v in equation.invars):
            varying.update(equation.outvars)
    return [isinstance(v, jax.extend.core.Var) and v in varying for v in jaxpr.outvars]


def content_name(programs: Iterable[Any]) -> str:
    """A name for closed jaxprs: equal for equal equations and constants."""
    digest = hashlib.blake2b(digest_size=16)
    for closed in programs:
        _add(digest, closed.jaxpr, closed.consts)
    return digest.hexdigest()


def _add(digest: Any, jaxpr: Any, consts: Iterable[Any]) -> None:
    numbers: dict[Any, int] = {}
    words: list[str] = []

    def name(variable: Any) -> None:
        if isinstance(variable, jax.extend.core.Literal):
            _add_array(digest, variable.val)
        elif variable in numbers:
            words.append(f"v{numbers[variable]}")
        else:
            numbers[variable] = len(numbers)
            words.append(f"{variable.aval.dtype}{variable.aval.shape}")

    for const in consts:
        _add_array(digest, const)
    for variable in (*jaxpr.constvars, *jaxpr.invars):
        name(variable)
    for equation in jaxpr.eqns:
        words.append(equation.primitive.name)
        for variable in (*equation.invars, *equation.outvars):
            name(variable)
        for key, value in equation.params.items():
            words.append(key)
            _add_param(digest, value)
    for variable in jaxpr.outvars:
        name(variable)
    digest.update(" ".join(words).encode())


def _add_param(digest: Any, value: Any) -> None:
    if hasattr(value, "consts") and hasattr(value, "jaxpr"):
        _add(digest, value.jaxpr, value.consts)
    elif hasattr(value, "eqns"):
        _add(digest, value, ())
    elif isinstance(value, tuple | list):
        for part in value:
            _add_param(digest, part)
    elif isinstance(value, np.ndarray | jax.Array):
        _add_array(digest, value)
    elif not callable(value):  # functions are of derivatives, which are not taken
        digest.update(ADDRESS.sub("", repr(value)).encode())


def _add_array(digest: Any, value: Any) -> None:
    is_key = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    array = np.asarray(jax.random.key_data(value) if is_key else value)
    digest.update(f"{array.dtype}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
