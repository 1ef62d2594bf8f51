"""Planning under uncertainty as variational inference in NumPyro.

Write a world as a NumPyro program with the roles of :mod:`npro_aif.language`, choose an objective, a guide and a
solver, and get a :class:`Plan`: an exact posterior over controls, states, observations and parameters.
"""

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
