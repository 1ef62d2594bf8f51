"""What a program computes, as JAX sees it: on what outputs depend, some outputs alone, and a name for all.

Two readings with the same name compute the same numbers, whatever function or object they come from. A Python function
that a program calls back has a name in this process only.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from npro_aif._jax import Literal, Tracer, Var, bind, called_back

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
DERIVATIVES = "custom_jvp", "custom_vjp"  # how primitives begin whose functions are rules for derivatives
OPAQUE = "pallas_call"  # a primitive with parameters that are functions inside of other objects
END = "\0"  # between the words of a name; no word has it
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
    """A name for a closed jaxpr: equal for equal equations, constants and derivatives."""
    return _Namer(derivatives=True).name(closed.jaxpr, closed.consts)


def lasting_name(closed: Any) -> str | None:
    """A name for equations and constants, if it means the same in every process.

    None if Python is called back, if something is printed, or if an equation has a parameter that cannot be told.
    """
    namer = _Namer()
    name = namer.name(closed.jaxpr, closed.consts)
    return name if namer.lasts and not closed.effects else None


class _Namer:
    """Names jaxprs by a list of words; an inner jaxpr that occurs many times as one object is named once.

    :param derivatives: whether rules for derivatives count (those of first derivatives).
    """

    def __init__(self, *, derivatives: bool = False) -> None:
        self.derivatives = derivatives
        self._inner: dict[int, str] = {}
        self._shapes: dict[Any, str] = {}
        self.lasts = True  # whether the name means the same in every process

    def name(self, jaxpr: Any, consts: Iterable[Any]) -> str:
        numbers: dict[Any, int] = {}
        words = [f"{len(jaxpr.constvars)} {len(jaxpr.invars)} {len(jaxpr.eqns)}", *map(array_word, consts)]

        def add(variable: Any) -> None:
            if isinstance(variable, Literal):
                words.append(array_word(variable.val))
            elif variable in numbers:
                words.append(f"v{numbers[variable]}")
            else:
                numbers[variable] = len(numbers)
                words.append(self._shape(variable.aval))

        for variable in (*jaxpr.constvars, *jaxpr.invars):
            add(variable)
        for equation in jaxpr.eqns:
            words.append(f"{equation.primitive.name} {len(equation.invars)} {len(equation.outvars)}")
            for variable in (*equation.invars, *equation.outvars):
                add(variable)
            derived = equation.primitive.name.startswith(DERIVATIVES)
            for key, value in equation.params.items():
                words.append(key)
                self._add_param(words, value, derived)
            if derived and self.derivatives:
                words.append(self._derivative(equation))
            called = called_back(equation)
            if called is not None:
                self.lasts = False
                function = _same_function(called[0]), called[1]
                words.append(f"f{_called_back.setdefault(function, len(_called_back))}")
            self.lasts &= equation.primitive.name != OPAQUE
        for variable in jaxpr.outvars:
            add(variable)
        return digest(END.join(words).encode())

    def _derivative(self, equation: Any) -> str:
        """A name for the derivative of an equation that has a rule of its own."""
        shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
        weights = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.outvars]
        moving = {str(i): shape for i, shape in enumerate(shapes) if jnp.issubdtype(shape.dtype, jnp.inexact)}

        def weighted(moving: dict[str, Any], inputs: list[Any], weights: list[Any]) -> Any:
            outputs = bind(equation, [moving.get(str(i), value) for i, value in enumerate(inputs)])
            pairs = zip(outputs, weights, strict=True)
            return sum((o * w).sum().real for o, w in pairs if jnp.issubdtype(o.dtype, jnp.inexact))

        try:
            closed = jax.make_jaxpr(jax.grad(weighted))(moving, shapes, weights)
        except Exception:  # of any kind: it has no derivative, or none for numbers
            return "none"
        return _Namer().name(closed.jaxpr, closed.consts)  # by another one: what is inside of it does not live on

    def _shape(self, aval: Any) -> str:
        key = aval.dtype, aval.shape
        if key not in self._shapes:
            self._shapes[key] = f"{aval.dtype}{aval.shape}"
        return self._shapes[key]

    def _add_param(self, words: list[str], value: Any, derived: bool) -> None:
        """Add a parameter of an equation.

        :param derived: whether functions among them are rules for derivatives.
        """
        if hasattr(value, "consts") and hasattr(value, "jaxpr"):
            words.append(self._inner_name(value, value.jaxpr, value.consts))
        elif hasattr(value, "eqns"):
            words.append(self._inner_name(value, value, ()))
        elif isinstance(value, tuple | list):
            words.append(f"({len(value)}")
            for part in value:
                self._add_param(words, part, derived)
        elif isinstance(value, Mapping):
            self._add_param(words, tuple(value.items()), derived)
        elif isinstance(value, np.ndarray | jax.Array):
            words.append(array_word(value))
        else:
            text = repr(value)
            self.lasts &= derived or not ADDRESS.search(text)
            if not callable(value):
                words.append(ADDRESS.sub("", text))

    def _inner_name(self, key: Any, jaxpr: Any, consts: Iterable[Any]) -> str:
        if id(key) not in self._inner:  # inner jaxprs live as long as the outer one, so ids stay valid
            self._inner[id(key)] = self.name(jaxpr, consts)
        return self._inner[id(key)]


def _same_function(function: Any, outer: tuple[Any, ...] = ()) -> Any:
    """A value that is equal for the same function, and for another one of the same lines with the same closure.

    :param outer: the functions in whose closures it stands.
    """
    for place, other in enumerate(outer):
        if other is function:
            return "outer", place
    outer = (*outer, function)
    if isinstance(function, MethodType):
        return _same_function(function.__func__, outer), _Same(function.__self__)
    if isinstance(function, functools.partial):
        inside = function.args, sorted(function.keywords.items())
        return functools.partial, _same_function(function.func, outer), _same_value(inside, outer)
    if not isinstance(function, FunctionType):
        return _Same(function)
    keywords = sorted((function.__kwdefaults__ or {}).items())
    inside = *map(_content, function.__closure__ or ()), function.__defaults__, keywords
    return function.__code__, _Same(function.__globals__), _same_value(inside, outer)


def _content(cell: Any) -> Any:
    """The content of a closure's cell; nothing if it is still empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _same_value(value: Any, outer: tuple[Any, ...]) -> Any:
    """A value that is equal for the same numbers and words, also in other arrays and lists, and for the same object."""
    if isinstance(value, FunctionType | MethodType | functools.partial):
        return _same_function(value, outer)
    if type(value) in (tuple, list):
        return type(value), tuple(_same_value(part, outer) for part in value)
    if type(value) is dict:
        return dict, _same_value(list(value.items()), outer)
    if type(value) in (type(None), bool, int, float, complex, str, bytes):
        return type(value), repr(value)
    numbers = (
        isinstance(value, np.ndarray | jax.Array) and not isinstance(value, Tracer) and value.dtype.kind in "biufc"
    )
    return (type(value), array_word(value)) if numbers else _Same(value)


class _Same:
    """An object that equals itself alone; while it is kept no other one gets its place in memory."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def array_word(value: Any) -> str:
    """A word for an array: its type, its shape and a name for its bytes."""
    is_key = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    array = np.asarray(jax.random.key_data(value) if is_key else value)
    return f"{value.dtype if is_key else array.dtype}{array.shape} {digest(array.tobytes())}"


def digest(content: bytes) -> str:
    """A name for bytes."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()
