"""Everything that is used of NumPyro beyond its documented interface: messages of our own, and the handlers' stack.

No other module imports such names (``tests/test_house.py``), so that a new version of NumPyro needs changes only here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpyro.primitives import _PYRO_STACK, Messenger, apply_stack

__all__ = ["Messenger", "is_innermost", "is_intervention", "plate_names", "send"]


def send(kind: str, default: Callable[..., Any], *args: Any) -> Any:
    """The answer of the handlers to a message of our own, or ``default(*args)`` where none of them answers."""
    message = {"type": kind, "fn": default, "args": args, "kwargs": {}, "value": None}
    return apply_stack(message)["value"]


def is_innermost(handler: Messenger) -> bool:
    """Whether no other handler stands between a handler and the program that is running."""
    return _PYRO_STACK[-1] is handler


def is_intervention(message: Mapping[str, Any]) -> bool:
    """Whether ``handlers.do`` has replaced a site."""
    return message.get("_intervener_id") is not None


def plate_names(message: Mapping[str, Any]) -> list[str]:
    """The plates around a site."""
    return [frame.name for frame in message["cond_indep_stack"]]
