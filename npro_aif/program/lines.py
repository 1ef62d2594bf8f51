"""The line of a user's code where something is written, for messages."""

from __future__ import annotations

import traceback
from typing import Any

OUTSIDE = ("/jax/", "/numpyro/", "/npro_aif/", "/numpy/")


def user_line(frames: Any) -> str:
    """The innermost line outside JAX, NumPyro and this package, in words.

    :param frames: a traceback.
    """
    for frame in reversed(traceback.extract_tb(frames)):
        if not any(part in frame.filename for part in OUTSIDE):
            return f" at line {frame.lineno} of {frame.filename}: {frame.line}"
    return ""
