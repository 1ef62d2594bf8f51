"""Numbers of programs in a folder, so that another process which reads the same program need not compute them again.

A file is named by the equations, their constants and arguments, and by whatever else decides what they give: versions,
the device and JAX's precision. It is written after all checks; those of rows and against plain NumPyro are made again
on the numbers that are read.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import platform
import time
import uuid
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif._jax import VERSIONS
from npro_aif.program.jaxprs import array_word, digest, lasting_name
from npro_aif.program.traced import Trace
from npro_aif.sizes import MOST_KEPT_BYTES

# What of JAX's configuration decides which numbers equations give.
SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_threefry_partitionable", "jax_default_device")
ABANDONED = 86_400  # the seconds after which nobody writes a file any more
DEBUGGING = ("jax_debug_nans", "jax_debug_infs")  # what looks for these has to see numbers computed
FOLDER = "NPRO_AIF_PROGRAMS"  # the environment variable that names the folder; the command line sets it


def place_of(trace: Trace) -> Path | None:
    """The file of a program's numbers; None where none are kept, or where its equations have no lasting name."""
    folder = os.environ.get(FOLDER)
    if not folder or any(getattr(jax.config, setting) for setting in DEBUGGING):
        return None
    names = [lasting_name(trace.slice), lasting_name(trace.plain.equations)]
    if None in names:
        return None
    context = [getattr(jax.config, setting) for setting in SETTINGS]
    context += [VERSIONS, jax.devices()[0].device_kind, platform.machine(), os.environ.get("XLA_FLAGS"), _code()]
    arguments = [array_word(array) for array in jax.tree.leaves((trace.arguments[1:], trace.assignment))]
    words = repr((names, context, arguments))
    return Path(folder) / f"{digest(words.encode())}.npz"


def read(place: Path | None, shapes: Sequence[Any]) -> list[Array] | None:
    """The arrays of a file; None if it is not there or out of reach, or damaged, which is told.

    :param shapes: the shapes and types that they must have.
    """
    if place is None:
        return None
    try:
        with place.open("rb") as stream, np.load(stream) as file:
            tables = _parted(file["bytes"], file["types"], shapes)
    except OSError:
        return None
    except Exception as error:  # of any kind: there are many ways to be damaged
        warnings.warn(f"{place}: found no numbers that can be read ({error}); they are computed again", stacklevel=4)
        return None
    with contextlib.suppress(OSError):  # a folder of somebody else
        place.touch()  # those that were used last are kept longest
    return jax.device_put([table.astype(shape.dtype) for table, shape in zip(tables, shapes, strict=True)])


def _parted(joined: np.ndarray, types: np.ndarray, shapes: Sequence[Any]) -> list[np.ndarray]:
    """The tables of a file, of which all bytes are in one array."""
    tables, end = [], 0
    for name, shape in zip(types.tolist(), shapes, strict=True):
        start, end = end, end + np.dtype(name).itemsize * math.prod(shape.shape)
        tables.append(joined[start:end].view(name).reshape(shape.shape))
    if end != len(joined):
        raise ValueError(f"{len(joined)} bytes, expected {end}")
    return tables


def write(place: Path | None, arrays: Sequence[Array]) -> None:
    """Keep arrays in a file, written at once or not at all; without room or permission they are not kept."""
    if place is None or any(jnp.issubdtype(array.dtype, jax.dtypes.extended) for array in arrays):
        return
    tables = [_narrow(np.asarray(array)) for array in arrays]
    if any(table.dtype.kind == "V" for table in tables):  # as bfloat16 is for NumPy
        return
    types = np.array([table.dtype.str for table in tables])
    joined = np.frombuffer(b"".join(table.tobytes() for table in tables), np.uint8)  # many arrays take long to read
    partial = place.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            np.savez(file, types=types, bytes=joined)
        os.replace(partial, place)
        _forget(place.parent)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()


def _narrow(table: np.ndarray) -> np.ndarray:
    """Whole numbers in as few bytes as they need."""
    if table.dtype.kind not in "iu" or table.size == 0:
        return table
    small = np.promote_types(np.min_scalar_type(table.min()), np.min_scalar_type(table.max()))
    return table.astype(small) if small.kind in "iu" and small.itemsize < table.dtype.itemsize else table


def _forget(folder: Path) -> None:
    """Remove the files that were not used for longest, where all together are too large, and those left unfinished."""
    for path in folder.glob(".*.partial"):
        if path.stat().st_mtime < time.time() - ABANDONED:
            path.unlink(missing_ok=True)
    files = [(path.stat(), path) for path in folder.glob("*.npz")]
    room = MOST_KEPT_BYTES
    for stat, path in sorted(files, key=lambda file: file[0].st_mtime, reverse=True):
        room -= stat.st_size
        if room < 0:
            path.unlink(missing_ok=True)


@functools.cache
def _code() -> str:
    """A name for the code of this room, as it decides what is computed from equations and how they are watched."""
    return digest(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))
