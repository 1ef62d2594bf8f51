"""The interface of solvers: the problem that they take, and the solution that they return."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from jax import Array

from npro_aif.guides import TableGuide
from npro_aif.inference.objectives import Objective
from npro_aif.inference.posterior import Posterior, Terms
from npro_aif.program.program import Program
from npro_aif.tables.world import World


class Problem(NamedTuple):
    """A planning problem with its tables."""

    world: World
    guide: TableGuide
    objective: Objective
    num_steps: int  # the length of the time axis
    measured: bool = True  # whether F and its terms are asked for; a first control needs neither


class SolverInfo(NamedTuple):
    """A solver's report on its solution."""

    iterations: Array  # () gradient steps or sweeps that were made
    converged: Array  # () whether the tolerance was reached
    cycle: Array  # () the length of the cycle in which the sweeps ended (0: none)
    change: Array | float = math.nan  # () the largest change at the last iteration, measured as for the tolerance
    starts: Array | int = 1  # () the number of starts
    agreed: Array | int = 1  # () the number of starts that ended at the returned F

    def explain(self) -> str:
        """The report in words.

        >>> SolverInfo(12, True, 0, 2e-7, 8, 6).explain()  # type: ignore[arg-type]
        'Settled after 12 iterations (last change 2e-07). 6 of 8 starts ended at this F.'
        >>> SolverInfo(50, False, 0).explain()  # type: ignore[arg-type]
        'Not settled after 50 iterations: make more of them, or more starts.'
        """
        count, change = int(self.iterations), float(self.change)
        suffix = "" if math.isnan(change) else f" (last change {change:.0e})"
        if bool(self.converged):
            words = f"Settled after {count} iterations{suffix}."
        elif int(self.cycle) > 0:
            words = (
                f"Not settled after {count} iterations{suffix}: they came back to the same posteriors every "
                f"{int(self.cycle)}, and the one with the lowest F was kept."
            )
        else:
            words = f"Not settled after {count} iterations{suffix}: make more of them, or more starts."
        if int(self.starts) > 1:
            words += f" {int(self.agreed)} of {int(self.starts)} starts ended at this F."
        return words


class Solution(NamedTuple):
    """A posterior and its history."""

    posterior: Posterior  # as the guide has it, with the world's tables for factors that are not learned
    free_energy: Array  # (iterations + 1,) F before every iteration, and of the returned posterior
    terms: Terms  # by name, () the terms of the last F
    info: SolverInfo
    params: Any  # the guide's parameters that stand for the posterior; a warm start begins with them
    mass: Array | None = None  # (T+1, S, Θ) q(θ, s_t) of a temporal posterior, if the solver has it already


class Solver(Protocol):
    """Finds the posterior that minimises an objective. Equal settings make equal solvers, as frozen dataclasses do."""

    @property
    def quick(self) -> bool:
        """Whether it solves a small problem in less time than a thread takes to start."""
        ...

    def check(self, problem: Problem) -> None:
        """Refuse a problem that it cannot solve; called once, with the tables, before anything is compiled."""
        ...

    def num_flows(self, objective: Objective) -> int:
        """How many tables of the size of q(θ, s_t) at all times, (T+1, S, Θ), it holds at once.

        The memory of a plan is estimated with it. A solver that does not say is taken to hold one.
        """
        return 1

    def solve(self, problem: Problem, key: Array, params: Any) -> Solution:
        """Solve the problem, starting from the guide's parameters ``params``; traced by JAX."""
        ...


class HostSolver(Protocol):
    """A solver that runs outside JAX because its next step depends on the numbers: a search."""

    def check(self, problem: Problem) -> None:
        """As for a :class:`Solver`."""
        ...

    def begin(self, program: Program, objective: Objective) -> Callable[..., Any]:
        """A function from a belief and a horizon to an outcome; it holds what all plans of a program share."""
        ...
