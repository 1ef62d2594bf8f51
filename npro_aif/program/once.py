"""Functions that run once: compiled with little optimisation, as compiling takes longer than running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

# A reading of the README's example compiles in 0.2 s with these options and in 1.1 s without them; DoorKey's in 2.3 and
# 7.6 s, after which it runs for 0.7 s instead of 0.4 s (one core).
LEAST_EFFORT: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}


def run_once(function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(*arguments)``, compiled."""
    lowered = jax.jit(function).lower(*arguments)
    try:
        compiled = lowered.compile(compiler_options=LEAST_EFFORT)
    except Exception as error:  # of several kinds: an XLA that does not know one of these options
        if "option" not in str(error):
            raise
        compiled = lowered.compile()
    return compiled(*arguments)
