"""What a program computes, as JAX sees it: on what outputs depend, some outputs alone, and a name for all.

Two readings with the same name compute the same numbers, whatever function or object they come from. A Python function
that a program calls back has a name in this process only.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from npro_aif._jax import Literal, Var, bind, called_back

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_called_back: dict[Any, int] = {}  # the Python functions that programs called back so far, and their numbers


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


def lasting_name(closed: Any) -> str | None:
    """The same name, if it means the same in every process; None if Python is called back, or something printed."""
    namer = _Namer()
    name = namer.name(closed.jaxpr, closed.consts)
    return None if namer.calls_back or closed.effects else name


class _Namer:
    """Names jaxprs; an inner jaxpr that occurs many times as one object is named once."""

    def __init__(self) -> None:
        self._inner: dict[int, str] = {}
        self._shapes: dict[Any, str] = {}
        self.calls_back = False  # whether some equation calls Python

    def name(self, jaxpr: Any, consts: Iterable[Any]) -> str:
        digest = hashlib.blake2b(digest_size=16)
        numbers: dict[Any, int] = {}
        words: list[str] = []

        def add(variable: Any) -> None:
            if isinstance(variable, Literal):
                add_array(digest, variable.val)
            elif variable in numbers:
                words.append(f"v{numbers[variable]}")
            else:
                numbers[variable] = len(numbers)
                words.append(self._shape(variable.aval))

        for const in consts:
            add_array(digest, const)
        for variable in (*jaxpr.constvars, *jaxpr.invars):
            add(variable)
        for equation in jaxpr.eqns:
            words.append(equation.primitive.name)
            for variable in (*equation.invars, *equation.outvars):
                add(variable)
            for key, value in equation.params.items():
                words.append(key)
                self._add_param(digest, value)
            function = called_back(equation)
            if function is not None:
                self.calls_back = True
                words.append(f"f{_called_back.setdefault(_same_function(function), len(_called_back))}")
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
            add_array(digest, value)
        elif not callable(value):  # the functions belong to derivatives, which are not taken
            digest.update(ADDRESS.sub("", repr(value)).encode())

    def _add_jaxpr(self, digest: Any, key: Any, jaxpr: Any, consts: Iterable[Any]) -> None:
        if id(key) not in self._inner:  # inner jaxprs live as long as the outer one, so ids stay valid
            self._inner[id(key)] = self.name(jaxpr, consts)
        digest.update(self._inner[id(key)].encode())


def _same_function(function: Any) -> Any:
    """A value that is equal for the same function, and for another one of the same lines with the same closure."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is None:
        return function
    inside = [cell.cell_contents for cell in cells or ()] + list(function.__defaults__ or ())
    same = [value if isinstance(value, Hashable) else _Same(value) for value in inside]
    return code, id(function.__globals__), tuple((type(value), value) for value in same)


class _Same:
    """An object that equals itself alone; while it is kept no other one gets its place in memory."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def add_array(digest: Any, value: Any) -> None:
    """Add an array's type, shape and bytes to a digest."""
    is_key = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    array = np.asarray(jax.random.key_data(value) if is_key else value)
    digest.update(f"{array.dtype}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
