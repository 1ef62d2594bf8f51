"""What a solver takes and gives."""

from __future__ import annotations

from typing import Any, NamedTuple

from jax import Array

from npro_aif.guides import TableGuide
from npro_aif.inference.objectives import Objective
from npro_aif.program.program import World


class Problem(NamedTuple):
    """A planning problem whose tables are at hand."""

    world: World
    guide: TableGuide
    objective: Objective
    num_steps: int  # the length of the time axis


class SolverInfo(NamedTuple):
    """How a solution came about."""

    iterations: Array  # () gradient steps or sweeps that were made
    converged: Array  # () whether the tolerance was reached
    cycle: Array  # () the length of a cycle that was met (0: none)


class Solution(NamedTuple):
    """A posterior and its history."""

    posterior: Any  # as the guide's own, with the world's tables where a factor is not learned
    free_energy: Array  # (iterations + 1,) F before every iteration, and of the returned posterior
    terms: dict[str, Array]  # by name, () what the last of them is made of
    info: SolverInfo
    params: Any  # what a warm start takes
