"""What is used of JAX beyond its documented interface, in one place: tracers, and the equations of a program.

No other module imports such names (``tests/test_house.py``), so that a new version of JAX is met here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.extend

Tracer = jax.core.Tracer
Var = jax.extend.core.Var
Literal = jax.extend.core.Literal
ClosedJaxpr = jax.extend.core.ClosedJaxpr
eval_context = jax.core.eval_context  # inside of it numbers are computed at once, even where something is being traced
eval_jaxpr = jax.core.eval_jaxpr


def bind(equation: Any, inputs: Sequence[Any], **changed: Any) -> list[Any]:
    """The outputs of one equation.

    :param changed: parameters of the equation that have another value here; those that it does not have are left out.
    """
    bound = equation.primitive.get_bind_params(equation.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # JAX up to 0.7 had a pair
    params = params | {name: value for name, value in changed.items() if name in params}
    outputs = equation.primitive.bind(*functions, *inputs, **params)
    return list(outputs) if equation.primitive.multiple_results else [outputs]


def traceback_of(source_info: Any) -> Any:
    """Where an equation is written, as a Python traceback; None where that is not known."""
    frames = source_info.traceback
    return None if frames is None else frames.as_python_traceback()
