"""Search for exact contingent plans: information states, bounds, AND/OR search, and the resulting plan."""

from npro_aif.solvers.search.solver import Certificate, SearchInfo, SearchSolver

__all__ = ["Certificate", "SearchInfo", "SearchSolver"]
