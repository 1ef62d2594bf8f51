"""What is used of NumPyro beyond its documented interface, in one place: messages of our own, and the handlers' stack.

No other module imports such names (``tests/test_house.py``), so that a new version of NumPyro is met here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpyro.primitives import _PYRO_STACK, Messenger, apply_stack

__all__ = ["Messenger", "is_innermost", "is_intervention", "plate_names", "send"]


def send(kind: str, default: Callable[..., Any], *args: Any) -> Any:
    """What the handlers around make of a message of our own, and ``default(*args)`` where none of them answers."""
    message = {"type": kind, "fn": default, "args": args, "kwargs": {}, "value": None}
    return apply_stack(message)["value"]


def is_innermost(handler: Messenger) -> bool:
    """Whether no other handler stands between a handler and the program that is running."""
    return _PYRO_STACK[-1] is handler


def is_intervention(message: Mapping[str, Any]) -> bool:
    """Whether ``handlers.do`` has been at a site."""
    return message.get("_intervener_id") is not None


def plate_names(message: Mapping[str, Any]) -> list[str]:
    """The plates around a site."""
    return [frame.name for frame in message["cond_indep_stack"]]
