"""Solved planning problems: the decisions, how long they took, and (with a folder) a way to continue after a stop.

A problem is named by the bytes of its belief, its horizon and its initial values; its solution is q(u_1). Every
solution is one small JSON file, written at once or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from npro_aif.belief import Belief, is_sparse
from npro_aif.program.sharded import ShardedBelief

NAME = re.compile("[0-9a-f]{32}")  # what fingerprint returns: other files in a folder of solutions are none
BACKEND = "/jax/core/compile/backend_compile_duration"  # XLA, or reading what it had compiled before
COMPILING = (  # the events by which JAX reports how long it traced, lowered and compiled
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    BACKEND,
)
_compile_seconds = [0.0]  # seconds of compiling so far in this process,
_backend = [0.0]  # and those of XLA among them


def _listen(event: str, duration_secs: float, **_: Any) -> None:
    if event in COMPILING:
        _compile_seconds[0] += duration_secs
    if event == BACKEND:
        _backend[0] += duration_secs


jax.monitoring.register_event_duration_secs_listener(_listen)


def compiling() -> dict[str, float]:
    """The seconds so far of tracing and lowering, and of XLA (or of reading its cache), in this process."""
    return {"tracing_seconds": _compile_seconds[0] - _backend[0], "xla_seconds": _backend[0]}


def fingerprint(belief: Belief | ShardedBelief, *details: object) -> str:
    """A name for a planning problem: equal for equal bytes, different otherwise.

    Only the possible entries count, which are few in a large belief.
    """
    digest = _digest(belief) if isinstance(belief, Belief) else hashlib.blake2b(digest_size=16)
    if isinstance(belief, ShardedBelief):  # the same name on every process, though none has all rows
        words = belief.each_device(lambda own: np.frombuffer(_digest(own).digest(), np.int32))
        digest.update(words.tobytes())
    digest.update(repr(details).encode())
    return digest.hexdigest()


def _digest(belief: Belief) -> Any:
    """A digest of the possible entries of a belief, or of some of its rows."""
    parameter = np.ascontiguousarray(belief.parameter)
    possible = np.flatnonzero(parameter)
    if is_sparse(belief):
        row, x, probs = belief.state.entries(possible)
        places = row * belief.state.num_states + x
    else:
        rows = np.ascontiguousarray(np.asarray(belief.state)[possible]).ravel()
        places = np.flatnonzero(rows)
        probs = rows[places]
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{probs.dtype}{np.shape(belief.state)}".encode())
    for array in (parameter, places, probs):
        digest.update(array.data)
    return digest


class OtherSettings(ValueError):
    """A folder of solutions was begun with other settings."""


class Solved(NamedTuple):
    """A decision, and the solver's report on it."""

    control: np.ndarray  # (U,) q(u_1), or minus the cost of each control
    iterations: int
    settled: bool


class Solutions:
    """Solutions by the name of their problem, with counts and times.

    :param folder: where to keep them; solutions that are there already are read, with their times.
    :param settings: what the solutions depend on beside the problem (the model, the objective, the solver …). A folder
        that was begun with other settings is refused.
    """

    def __init__(self, folder: Path | None = None, settings: Mapping[str, Any] | None = None):
        self.folder = folder
        self.decisions = 0
        self.problems = 0
        self.seconds = 0.0
        self.compile_seconds = 0.0
        self.warm_problems = 0  # problems during which nothing was compiled
        self.warm_seconds = 0.0
        self.told, self.iterations, self.settled = 0, 0, 0  # problems whose solver reported the other two; their sums
        self._answers: dict[str, np.ndarray] = {}
        if folder is not None:
            self._open(folder, dict(settings or {}))

    def __contains__(self, name: str) -> bool:
        """Whether a problem is solved, here or meanwhile in the folder by another process."""
        return name in self._answers or (self.folder is not None and self._read(self.folder / f"{name}.json"))

    def __getitem__(self, name: str) -> np.ndarray:
        return self._answers[name]

    def add(self, solved: Mapping[str, Solved], seconds: float) -> None:
        """Keep the problems that were solved in the stretch that the clock measured last.

        :param seconds: of all problems added up; more than the stretch if they were solved side by side.
        """
        self._answers.update({name: one.control for name, one in solved.items()})
        self.count_last(len(solved), seconds)
        self.note((one.iterations, one.settled) for one in solved.values())
        if self.folder is not None:
            seconds, compiling = seconds / len(solved), self._last[1] / len(solved)
            times = {"seconds": seconds, "compile_seconds": compiling}
            for name, one in solved.items():
                row = {"control": [float(p) for p in one.control]}
                info = {"iterations": one.iterations, "settled": one.settled}
                write(self.folder / f"{name}.json", row | times | info)

    def note(self, reports: Iterable[tuple[int, bool]]) -> None:
        """Count the iterations of some problems, and how many of them settled.

        :param reports: for each problem its iterations and whether it settled.
        """
        for iterations, settled in reports:
            self.told += 1
            self.iterations += iterations
            self.settled += settled

    def count(self, problems: int, seconds: float, compiling: float) -> None:
        """Count problems that were solved in a stretch, and the time they took."""
        self.problems += problems
        self.seconds += seconds
        self.compile_seconds += compiling
        if compiling == 0:
            self.warm_problems += problems
            self.warm_seconds += seconds

    @contextmanager
    def clock(self) -> Iterator[None]:
        """Measure a stretch of planning."""
        start, compiling = time.perf_counter(), _compile_seconds[0]
        yield
        self._last = time.perf_counter() - start, _compile_seconds[0] - compiling

    def count_last(self, problems: int = 1, seconds: float | None = None) -> None:
        """Count problems that were solved in the stretch that the clock measured last.

        :param seconds: of all problems added up; the stretch itself by default.
        """
        took, compiling = self._last
        self.count(problems, took if seconds is None else seconds, compiling)

    def _open(self, folder: Path, settings: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        about = folder / "settings.json"
        if about.exists():
            earlier = _earlier(about)
            differing = [name for name in {**earlier, **settings} if earlier.get(name) != settings.get(name)]
            if differing:
                raise OtherSettings(
                    f"{folder}: found a run with other settings ({', '.join(sorted(differing))}), expected the "
                    "same ones or an empty folder"
                )
        write(about, settings)
        for path in sorted(folder.glob("*.json")):
            if NAME.fullmatch(path.stem):
                self._read(path)

    def _read(self, path: Path) -> bool:
        """Read a solution with its times; False if it is not there, or damaged, which is told."""
        if not path.exists():
            return False
        try:
            content = json.loads(path.read_text())
            control = np.asarray(content["control"], np.float32)
            took = float(content["seconds"]), float(content["compile_seconds"])
            reports = [(int(content["iterations"]), bool(content["settled"]))] if "iterations" in content else []
        except (ValueError, KeyError, TypeError) as error:
            what = f"found no solution that can be read ({type(error).__name__}: {error}); its problem is solved again"
            warnings.warn(f"{path}: {what}", stacklevel=3)
            return False
        self._answers[path.stem] = control
        self.count(1, *took)
        self.note(reports)
        return True


def _earlier(path: Path) -> dict[str, Any]:
    """The settings that a folder was begun with."""
    try:
        settings = json.loads(path.read_text())
    except ValueError as error:
        settings = error
    if not isinstance(settings, dict):
        raise ValueError(
            f"{path}: found no settings that can be read ({settings}), expected those that the folder was begun with; "
            "without them nothing in it can be used: name another folder, or remove this one"
        )
    return settings


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file in one go."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file in one go: a reader sees either all of it or the file before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{uuid.uuid4().hex}.partial")  # processes, threads and machines may write the same
    try:
        partial.write_text(text)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
