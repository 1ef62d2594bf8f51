"""Planning under uncertainty as variational inference in NumPyro.

Write a world as a NumPyro program with the roles of :mod:`npro_aif.language`, choose an objective, a guide and a
solver, and get a :class:`Plan`: an exact posterior over controls, states, observations and parameters.

A name is imported when it is first used, so that a program pays only for what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npro_aif import guides
    from npro_aif.acting.agent import Agent
    from npro_aif.acting.episodes import Episode, Outcomes
    from npro_aif.acting.evaluate import evaluate
    from npro_aif.acting.filter import Filter, update_belief
    from npro_aif.acting.run import run_episodes
    from npro_aif.belief import Belief
    from npro_aif.errors import GuideError, ImpossibleObservation, ModelError, PomdpError
    from npro_aif.inference.augmented import augmented
    from npro_aif.inference.efe import ExpectedFreeEnergy, expected_free_energy
    from npro_aif.inference.objectives import Active, Marginal, Planning
    from npro_aif.language import (
        DeterministicCategorical,
        SparseCategorical,
        control,
        history,
        initial_state,
        memory,
        observation,
        parameter,
        parameters,
        preference,
        rollout,
        state,
    )
    from npro_aif.learning.behaviour import behaviour, decisions
    from npro_aif.learning.choice import Choice
    from npro_aif.learning.counts import Counts
    from npro_aif.learning.draws import discretize, with_draws
    from npro_aif.learning.evidence import log_evidence
    from npro_aif.learning.factors import episodes
    from npro_aif.learning.records import Records
    from npro_aif.learning.simulation import simulate
    from npro_aif.planning.plan import Plan
    from npro_aif.planning.planner import Planner
    from npro_aif.pomdp.program import read_pomdp
    from npro_aif.program.sharded import ShardedBelief
    from npro_aif.solvers import CoordinateSolver, SearchSolver, SVISolver
    from npro_aif.solvers.costs import perfect_information
    from npro_aif.states import SparseStates

__version__ = "0.1.0"

__all__ = [
    "Active",
    "Agent",
    "Belief",
    "Choice",
    "CoordinateSolver",
    "Counts",
    "DeterministicCategorical",
    "Episode",
    "ExpectedFreeEnergy",
    "Filter",
    "GuideError",
    "ImpossibleObservation",
    "Marginal",
    "ModelError",
    "Outcomes",
    "Plan",
    "Planner",
    "Planning",
    "PomdpError",
    "Records",
    "SVISolver",
    "SearchSolver",
    "ShardedBelief",
    "SparseCategorical",
    "SparseStates",
    "augmented",
    "behaviour",
    "control",
    "decisions",
    "discretize",
    "episodes",
    "evaluate",
    "expected_free_energy",
    "guides",
    "history",
    "initial_state",
    "log_evidence",
    "memory",
    "observation",
    "parameter",
    "parameters",
    "perfect_information",
    "preference",
    "read_pomdp",
    "rollout",
    "run_episodes",
    "simulate",
    "state",
    "update_belief",
    "with_draws",
]

# The module of each public name, as above. (tests/test_house.py compares the two.)
_MODULES = {
    "acting.agent": "Agent",
    "acting.episodes": "Episode Outcomes",
    "acting.evaluate": "evaluate",
    "acting.filter": "Filter update_belief",
    "acting.run": "run_episodes",
    "belief": "Belief",
    "errors": "GuideError ImpossibleObservation ModelError PomdpError",
    "inference.augmented": "augmented",
    "inference.efe": "ExpectedFreeEnergy expected_free_energy",
    "inference.objectives": "Active Marginal Planning",
    "language": "DeterministicCategorical SparseCategorical control history initial_state memory observation parameter "
    "parameters preference rollout state",
    "learning.behaviour": "behaviour decisions",
    "learning.choice": "Choice",
    "learning.counts": "Counts",
    "learning.draws": "discretize with_draws",
    "learning.evidence": "log_evidence",
    "learning.factors": "episodes",
    "learning.records": "Records",
    "learning.simulation": "simulate",
    "planning.plan": "Plan",
    "planning.planner": "Planner",
    "pomdp.program": "read_pomdp",
    "program.sharded": "ShardedBelief",
    "solvers": "CoordinateSolver SearchSolver SVISolver",
    "solvers.costs": "perfect_information",
    "states": "SparseStates",
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()} | {"guides": "guides"}


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first used."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"npro_aif.{_PLACES[name]}")
    value = globals()[name] = module if name == _PLACES[name] else getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
