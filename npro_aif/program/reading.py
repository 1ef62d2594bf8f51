"""The record of one run of a program: draws, preferences, memories, the rollout's carry."""

from __future__ import annotations

from typing import Any, NamedTuple

from jax import Array

from npro_aif.program.axes import CONTROL
from npro_aif.sites import SLICE

PRESENT = "0"  # the time index of the initial state's sites


class Draw(NamedTuple):
    """One draw: a site, or several sites from a joint table."""

    kind: str
    names: tuple[str, ...]  # the user's site names
    sizes: tuple[int, ...]
    labels: tuple[tuple[str, ...] | None, ...]
    initial: bool  # drawn before the rollout
    log: Any  # (…, product of sizes) log-probabilities, or None
    index: Any  # (…) the certain outcome; or the few outcomes (…, K) whose log-probabilities ``log`` holds; or None
    faults: tuple[Any, Any, Any]  # () the least and the largest row sum, and the least entry (of probabilities)
    batch: tuple[int, ...]  # the batch shape: there is a row for each place
    hidden: bool | None = None  # of a state: what the program declares
    fixed: tuple[int | None, ...] = ()  # by site, the value that a handler fixes; empty where none is fixed

    @property
    def reads_control(self) -> bool:
        """Whether it is an observation that depends on the control, where there are several controls."""
        table, outcomes = (self.index, 0) if self.log is None else (self.log, 1)
        axis = len(table.shape) - outcomes + CONTROL
        return self.kind in ("observation", "sensor") and axis >= 0 and table.shape[axis] > 1

    @property
    def full_names(self) -> tuple[str, ...]:
        """The sites' names in this run of the program."""
        if self.kind == "parameter":
            return self.names
        return tuple(f"{name}_{PRESENT if self.initial else SLICE}" for name in self.names)


class Factor(NamedTuple):
    """One preference."""

    name: str
    log: Array


class Memory(NamedTuple):
    """One content of a memory."""

    name: str
    size: int
    labels: tuple[str, ...] | None
    initial: bool  # set before the rollout
    value: Any  # (…) the content


class Reading(NamedTuple):
    """Everything met in one run of a program."""

    draws: list[Draw]
    factors: list[Factor]
    carries: list[tuple[Any, Any]]  # the rollout's carry before and after the step
    order: list[str]  # the names of draws, memories and factors as they came
    memories: list[Memory]
    steps: list[Any]  # the rollout's number of steps


def empty_reading() -> Reading:
    return Reading([], [], [], [], [], [])
