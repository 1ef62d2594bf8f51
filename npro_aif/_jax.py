"""Everything that is used of JAX beyond its documented interface: tracers, and the equations of a program.

No other module imports such names (``tests/test_house.py``), so that a new version of JAX needs changes only here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.extend
import jaxlib.version

VERSIONS = jax.__version__, jaxlib.version.__version__
Tracer = jax.core.Tracer
Var = jax.extend.core.Var
Literal = jax.extend.core.Literal
ClosedJaxpr = jax.extend.core.ClosedJaxpr
eval_context = jax.core.eval_context  # inside it numbers are computed at once, even while something is being traced
eval_jaxpr = jax.core.eval_jaxpr


def bind(equation: Any, inputs: Sequence[Any], **changed: Any) -> list[Any]:
    """The outputs of one equation.

    :param changed: new values for parameters of the equation; names that the equation does not have are ignored.
    """
    bound = equation.primitive.get_bind_params(equation.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # JAX up to 0.7 had a pair
    params = params | {name: value for name, value in changed.items() if name in params}
    outputs = equation.primitive.bind(*functions, *inputs, **params)
    return list(outputs) if equation.primitive.multiple_results else [outputs]


def traceback_of(source_info: Any) -> Any:
    """The Python traceback of the line that made an equation; None where it is not known."""
    frames = source_info.traceback
    return None if frames is None else frames.as_python_traceback()


def called_back(equation: Any) -> Any:
    """The Python function that an equation calls for its outputs, and how it takes its arguments; None if none."""
    callback = equation.params.get("callback") if equation.outvars else None
    return None if callback is None else (getattr(callback, "callback_func", callback), getattr(callback, "in_tree", 0))
