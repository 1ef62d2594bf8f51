"""What a program computes, as JAX sees it: on what outputs depend, some outputs alone, and a name for all.

Two readings with the same name compute the same numbers, whatever function or object they come from.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from npro_aif._jax import Literal, Var, bind

ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def depends_on_first(jaxpr: Any, count: int, constants: Iterable[int] = ()) -> list[bool]:
    """For each output of a jaxpr, whether it depends on any of the first ``count`` inputs, or on these constants."""
    varying = {*jaxpr.invars[:count], *(jaxpr.constvars[i] for i in constants)}
    for equation in jaxpr.eqns:
        if any(isinstance(v, Var) and v in varying for v in equation.invars):
            varying.update(equation.outvars)
    return [isinstance(v, Var) and v in varying for v in jaxpr.outvars]


class Part:
    """Some outputs of a closed jaxpr, computed by just the equations that they need.

    :param wanted: the numbers of the outputs.
    """

    def __init__(self, closed: Any, wanted: Iterable[int]):
        jaxpr = closed.jaxpr
        self.inputs, self.constants = jaxpr.invars, dict(zip(jaxpr.constvars, closed.consts, strict=True))
        self.outputs = [jaxpr.outvars[number] for number in wanted]
        needed, equations = {v for v in self.outputs if isinstance(v, Var)}, []
        for equation in reversed(jaxpr.eqns):
            if needed.intersection(equation.outvars):
                equations.append(equation)
                needed.update(v for v in equation.invars if isinstance(v, Var))
        self.equations = equations[::-1]

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """The outputs; arguments of another type (a belief of whole numbers) are cast to the traced type."""
        values = dict(self.constants)
        for v, argument in zip(self.inputs, arguments, strict=True):
            values[v] = jnp.asarray(argument, v.aval.dtype)

        def value(v: Any) -> Any:
            return v.val if isinstance(v, Literal) else values[v]

        for equation in self.equations:
            values |= zip(equation.outvars, bind(equation, list(map(value, equation.invars))), strict=True)
        return [value(v) for v in self.outputs]


def content_name(closed: Any) -> str:
    """A name for a closed jaxpr: equal for equal equations and constants."""
    return _Namer().name(closed.jaxpr, closed.consts)


class _Namer:
    """Names jaxprs; an inner jaxpr that occurs many times as one object is named once."""

    def __init__(self) -> None:
        self._inner: dict[int, str] = {}
        self._shapes: dict[Any, str] = {}

    def name(self, jaxpr: Any, consts: Iterable[Any]) -> str:
        digest = hashlib.blake2b(digest_size=16)
        numbers: dict[Any, int] = {}
        words: list[str] = []

        def add(variable: Any) -> None:
            if isinstance(variable, Literal):
                _add_array(digest, variable.val)
            elif variable in numbers:
                words.append(f"v{numbers[variable]}")
            else:
                numbers[variable] = len(numbers)
                words.append(self._shape(variable.aval))

        for const in consts:
            _add_array(digest, const)
        for variable in (*jaxpr.constvars, *jaxpr.invars):
            add(variable)
        for equation in jaxpr.eqns:
            words.append(equation.primitive.name)
            for variable in (*equation.invars, *equation.outvars):
                add(variable)
            for key, value in equation.params.items():
                words.append(key)
                self._add_param(digest, value)
        for variable in jaxpr.outvars:
            add(variable)
        digest.update(" ".join(words).encode())
        return digest.hexdigest()

    def _shape(self, aval: Any) -> str:
        key = aval.dtype, aval.shape
        if key not in self._shapes:
            self._shapes[key] = f"{aval.dtype}{aval.shape}"
        return self._shapes[key]

    def _add_param(self, digest: Any, value: Any) -> None:
        if hasattr(value, "consts") and hasattr(value, "jaxpr"):
            self._add_jaxpr(digest, value, value.jaxpr, value.consts)
        elif hasattr(value, "eqns"):
            self._add_jaxpr(digest, value, value, ())
        elif isinstance(value, tuple | list):
            for part in value:
                self._add_param(digest, part)
        elif isinstance(value, np.ndarray | jax.Array):
            _add_array(digest, value)
        elif not callable(value):  # the functions belong to derivatives, which are not taken
            digest.update(ADDRESS.sub("", repr(value)).encode())

    def _add_jaxpr(self, digest: Any, key: Any, jaxpr: Any, consts: Iterable[Any]) -> None:
        if id(key) not in self._inner:  # inner jaxprs live as long as the outer one, so ids stay valid
            self._inner[id(key)] = self.name(jaxpr, consts)
        digest.update(self._inner[id(key)].encode())


def _add_array(digest: Any, value: Any) -> None:
    is_key = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    array = np.asarray(jax.random.key_data(value) if is_key else value)
    digest.update(f"{array.dtype}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
