"""Solvers find the posterior that minimises an objective: closed-form sweeps, gradient steps, or search."""

from npro_aif.solvers.base import Problem, Solution, Solver, SolverInfo
from npro_aif.solvers.coordinate import CoordinateSolver
from npro_aif.solvers.search import SearchInfo, SearchSolver
from npro_aif.solvers.svi import SVISolver

__all__ = [
    "CoordinateSolver",
    "Problem",
    "SVISolver",
    "SearchInfo",
    "SearchSolver",
    "Solution",
    "Solver",
    "SolverInfo",
]
