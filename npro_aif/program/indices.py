"""Indices that leave their table: JAX clamps or wraps them silently.

A program's equations are run while every look-up is watched. A look-up outside its table is harmless where a
``jnp.where`` drops its result. To find out, another value is put in place of the result: if no table of the program
changes, nothing depends on it. Look-ups with a ``mode=`` of their own are taken as meant.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import GatherScatterMode

from npro_aif._jax import Literal, bind, traceback_of
from npro_aif.program.lines import user_line
from npro_aif.program.once import run_once

# Equations that move entries without changing them: the mark of an index moves with it.
MOVING = {"broadcast_in_dim", "reshape", "concatenate", "convert_element_type", "squeeze", "transpose", "slice", "copy"}
CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")  # parameters in which equations keep the equations that they call


class Lookup(NamedTuple):
    """One look-up in a table."""

    shape: tuple[int, ...]  # of the table
    source: Any  # where it is written


class Watch:
    """Runs equations and marks look-ups that leave their table.

    :param replaced: the number of the look-up whose results outside the table get another value.
    """

    def __init__(self, replaced: int | None = None):
        self.replaced = replaced
        self.lookups: list[Lookup] = []
        self.strays: list[Array] = []  # for each look-up, () whether it leaves its table

    def __call__(self, closed: Any, arguments: Sequence[Any]) -> list[Any]:
        return self._run(closed.jaxpr, closed.consts, arguments, [None] * len(arguments))[0]

    def _run(
        self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any], marks: Sequence[Array | None]
    ) -> tuple[list[Any], list[Array | None]]:
        """The outputs, and for outputs that are indices a mark where they were negative."""
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        values |= zip(jaxpr.invars, arguments, strict=True)
        marked = {v: mark for v, mark in zip(jaxpr.invars, marks, strict=True) if mark is not None}
        sources: dict[Any, Any] = {}  # by variable, the equation that it comes from

        def value(v: Any) -> Any:
            return v.val if isinstance(v, Literal) else values[v]

        def mark(v: Any) -> Array | None:
            return None if isinstance(v, Literal) else marked.get(v)

        for eqn in jaxpr.eqns:
            inputs = [value(v) for v in eqn.invars]
            new_marks: list[Array | None] = [None] * len(eqn.outvars)
            inner = next((eqn.params[key] for key in CALLS if key in eqn.params), None)
            if inner is not None and hasattr(inner, "consts") and len(inner.jaxpr.invars) == len(inputs):
                outputs, new_marks = self._run(inner.jaxpr, inner.consts, inputs, [mark(v) for v in eqn.invars])
            else:
                outputs = bind(eqn, inputs)
                if eqn.primitive.name == "gather":
                    outputs = [self._gather(eqn, inputs, outputs[0], mark(eqn.invars[1]))]
                elif _wraps(eqn, sources):
                    new_marks = [inputs[0]]
                elif eqn.primitive.name in MOVING and any(mark(v) is not None for v in eqn.invars):
                    marks_in = [_marks(mark(v), x) for v, x in zip(eqn.invars, inputs, strict=True)]
                    new_marks = bind(eqn, marks_in, new_dtype=jnp.dtype(bool))
            for v, output, m in zip(eqn.outvars, outputs, new_marks, strict=True):
                values[v], sources[v] = output, eqn
                if m is not None:
                    marked[v] = m
        return [value(v) for v in jaxpr.outvars], [mark(v) for v in jaxpr.outvars]

    def _gather(self, eqn: Any, inputs: Sequence[Any], output: Array, negative: Array | None) -> Array:
        if eqn.params["mode"] != GatherScatterMode.PROMISE_IN_BOUNDS:
            return output
        table, index = inputs
        numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
        last = jnp.asarray([table.shape[d] - sizes[d] for d in numbers.start_index_map], index.dtype)
        stray = (index < 0) | (index > last)
        if negative is not None:
            stray = stray | negative
        stray = stray.any(-1)  # over the table's axes
        number = len(self.lookups)
        self.lookups.append(Lookup(table.shape, eqn.source_info))
        self.strays.append(stray.any())
        if number != self.replaced:
            return output
        for axis in numbers.offset_dims:
            stray = jnp.expand_dims(stray, axis)
        return jnp.where(stray, _other(output), output)


def _wraps(eqn: Any, sources: dict[Any, Any]) -> bool:
    """Whether an equation is JAX's way to count negative indices from the end: select(i < 0, i, i + n)."""
    if eqn.primitive.name != "select_n" or len(eqn.invars) != 3:
        return False
    test, _, shifted = (None if isinstance(v, Literal) else sources.get(v) for v in eqn.invars)
    index = eqn.invars[1]
    return (
        test is not None
        and test.primitive.name == "lt"
        and test.invars[0] is index
        and shifted is not None
        and shifted.primitive.name == "add"
        and shifted.invars[0] is index
        and jnp.issubdtype(index.aval.dtype, jnp.integer)
    )


def _marks(mark: Array | None, value: Any) -> Array:
    return jnp.zeros(jnp.shape(value), bool) if mark is None else mark


def _other(value: Array) -> Array:
    """Something else in place of a value, so that whatever uses it changes."""
    if value.dtype == bool:
        return ~value
    return jnp.full_like(value, jnp.nan) if jnp.issubdtype(value.dtype, jnp.inexact) else value + 1


def where_written(lookup: Lookup) -> str:
    """The line of a look-up, in words."""
    frames = traceback_of(lookup.source)
    return "" if frames is None else user_line(frames)


def find_stray(
    closed: Any, arguments: Sequence[Any], outputs: Sequence[Any], strays: Sequence[Any], watch: Watch
) -> tuple[Lookup, int] | None:
    """The first look-up that leaves its table and on which an output depends, and the number of that output.

    :param outputs: of the program as it is.
    :param strays: for each look-up of ``watch``, whether it leaves its table.
    """
    for number, (lookup, stray) in enumerate(zip(watch.lookups, strays, strict=True)):
        if not bool(stray):
            continue
        changed = run_once(functools.partial(Watch(number), closed), arguments)
        for i, (own, other) in enumerate(zip(outputs, changed, strict=True)):
            if not np.array_equal(
                np.asarray(own), np.asarray(other), equal_nan=jnp.issubdtype(other.dtype, jnp.inexact)
            ):
                return lookup, i
    return None
