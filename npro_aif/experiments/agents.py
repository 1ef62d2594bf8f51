"""Agents for the tasks, from a few settings: ours, and the baselines with the settings of their rows.

The baselines' settings are the most favourable of those that were tried, partly on reported episodes (docs/baselines.md
has the others, and how they were chosen): Standard EFE with the model's own preferences and information, Sophisticated
Inference with pymdp's own thresholds and, as these look one step ahead, with the preference at every step.
"""

from __future__ import annotations

import dataclasses
import math

import optax

from npro_aif.acting.agent import Agent
from npro_aif.acting.episodes import Acting
from npro_aif.baselines.adapter import Translation
from npro_aif.baselines.published_reactivity import published_agent
from npro_aif.baselines.pymdp_agents import PymdpAgent, Sophisticated, StandardEFE
from npro_aif.baselines.tables import TooLarge
from npro_aif.errors import ModelError
from npro_aif.experiments.product import ProductAgent, ProductPlanner
from npro_aif.experiments.tasks import (
    ACT_BY,
    DEFAULTS,
    GRADIENTS,
    METHODS,
    OBJECTIVES,
    SOLVERS,
    Settings,
    SettingsError,
    Task,
    check_choice,
)
from npro_aif.guides import RecallGuide, SequenceGuide, TableGuide, TemporalGuide
from npro_aif.guides.base import START
from npro_aif.inference.objectives import Marginal, Objective, Planning
from npro_aif.planning.planner import Planner
from npro_aif.solvers import CoordinateSolver, SearchSolver, SVISolver

SEARCHED = ("active", "planning")  # the objectives that search can minimise
BUDGETS = ("max_nodes", "first_nodes", "seconds")  # of a search: within them its plans hang on what it looked at before
LIMITS = (*BUDGETS, "max_depth")
OWN = ("solver", "weight", "gradient", "num_steps", "learning_rate", *LIMITS, "act_by")  # settings without a baseline's
EFE_GAMMA = 16.0
SOPHISTICATED_GAMMA = 4.0
SOPHISTICATED_TRANSLATION = Translation(timing="every")


def check_settings(task: Task, settings: Settings) -> None:
    """Refuse unknown names, and settings that would have no effect."""
    check_choice("method", settings.method, METHODS)
    check_choice("objective", settings.objective, OBJECTIVES)
    solver = solver_name(task, settings)
    if settings.act_by is not None:
        check_choice("act_by", settings.act_by, ACT_BY)
        if settings.act_by == "cost" and make_guide(task, settings).scope == "sequence":
            raise SettingsError("act_by: found 'cost' with a guide over sequences, expected it with plans over time")
        if settings.paper:
            raise SettingsError(
                f"act_by: found {settings.act_by!r} with --paper, expected none (it acts by probability)"
            )
    if settings.seed != task.first_seed and task.sequential:
        raise SettingsError(
            f"seed: found {settings.seed} with --paper, expected {task.first_seed}: the episodes are one stream"
        )
    if settings.c_low_knob is not None and (settings.method == "vfe" or not settings.paper):
        raise SettingsError(
            f"c_low_knob: found {settings.c_low_knob} with the method {settings.method}, expected it with --paper and "
            "a baseline only"
        )
    if settings.details and settings.method != "vfe":
        raise SettingsError(f"details: found it with the method {settings.method}, which has them in any case")
    if settings.method != "vfe":
        for name in OWN:
            if getattr(settings, name) is not None:
                value, method = getattr(settings, name), settings.method
                raise SettingsError(f"{name}: found {value!r} with the method {method}, expected it with vfe only")
        if task.memory is not None:
            raise SettingsError(
                f"memory: found {task.memory!r} with the method {settings.method}, expected none (pymdp has none)"
            )
        return
    for name in ("weight", "gradient"):
        value = getattr(settings, name)
        if value is not None and settings.objective not in ("active", "risk"):
            raise SettingsError(
                f"{name}: found {value} with the objective {settings.objective}, expected it with active and risk only"
            )
    if settings.objective == "risk" and not task.active.weights.entropy:
        raise SettingsError(
            f"objective: found 'risk' for the task {task.name}, expected another (it counts the entropy of moves "
            "alone, which has no weight here)"
        )
    objective = make_objective(task, settings)
    if solver == "coordinate" and getattr(objective, "gradient", None) == "through" and not objective.descends:
        raise SettingsError(
            f"solver: found 'coordinate' with {objective}, expected svi (updates descend raw priors with the planning "
            "correction only)"
        )
    if settings.learning_rate is not None and not 0 < settings.learning_rate < math.inf:
        raise SettingsError(f"learning_rate: found {settings.learning_rate}, expected a number above 0")
    if settings.gradient is not None:
        check_choice("gradient", settings.gradient, GRADIENTS)
        if settings.paper:
            raise SettingsError(f"gradient: found {settings.gradient!r} with --paper, which has its own")
    for name in ("num_steps", "learning_rate"):
        if getattr(settings, name) is not None and solver != "svi":
            raise SettingsError(
                f"{name}: found {getattr(settings, name)} with the solver {solver}, expected it with svi only"
            )
    for name in LIMITS:
        if getattr(settings, name) is not None and solver != "search":
            whose = "" if settings.solver else ", the default of these settings"
            raise SettingsError(
                f"{name}: found {getattr(settings, name)} with the solver {solver}{whose}; expected it with search only"
            )
    if solver == "search":
        check_choice("objective (of the solver search)", settings.objective, SEARCHED)
        if settings.gradient is not None:
            raise SettingsError(
                f"gradient: found {settings.gradient!r} with the solver search, expected none (it takes no derivatives)"
            )
        if settings.paper:
            raise SettingsError("paper: found it with the solver search, expected svi or coordinate")
        if settings.max_depth is not None and settings.objective == "active":
            raise SettingsError(
                f"max_depth: found {settings.max_depth} with the objective active, expected it with planning only "
                "(beyond a look-ahead all that is unknown would count as told already)"
            )
        if task.memory is not None:
            raise SettingsError(
                f"memory: found {task.memory!r} with the solver search, expected none (its plans remember everything)"
            )


def follows_on(task: Task, settings: Settings) -> bool:
    """Whether decisions hang on the decisions before, so that the episodes have to be played one after the other."""
    return task.sequential or any(getattr(settings, name) is not None for name in BUDGETS)


def make_agent(task: Task, settings: Settings = DEFAULTS) -> Acting:
    """An agent for a task: anything with ``reset(key)`` and ``act(observation)``.

    The method "vfe" is ours; the others are the baselines that the paper compares with.
    """
    check_choice("method", settings.method, METHODS)
    if settings.method == "vfe":
        return vfe_agent(task, settings)
    return published_baseline(task, settings) if settings.paper else pymdp_agent(task, settings)


def published_baseline(task: Task, settings: Settings) -> Acting:
    """The baseline as the paper's authors ran it: pymdp 0.0.7.1's semantics with their mapping of the maze."""
    if task.name != "reactivity":
        raise SettingsError(
            f"paper: found it with the method {settings.method} for the task {task.name}, expected reactivity (the "
            "baselines of the other tasks are pymdp 1.x, without --paper)"
        )
    return published_agent(
        settings.method,  # type: ignore[arg-type]
        settings.horizon or task.horizon,
        task.max_steps,
        c_low_knob=settings.c_low_knob,
    )


def vfe_agent(task: Task, settings: Settings = DEFAULTS) -> Agent:
    """The agent that minimises a free energy."""
    return (ProductAgent if task.product else Agent)(
        make_planner(task, settings),
        task.belief,
        horizon=settings.horizon or task.horizon,
        max_steps=task.max_steps,
        seed=settings.seed if task.solver_seed is None else task.solver_seed,
        record=False,
        tie_tolerance=task.tie_tolerance,
        act_by="probability" if settings.paper else settings.act_by,  # type: ignore[arg-type]
        ignore_impossible=task.product,
    )


def make_planner(task: Task, settings: Settings = DEFAULTS) -> Planner:
    """The planner of :func:`vfe_agent`."""
    return (ProductPlanner if task.product else Planner)(
        task.model,
        guide=make_guide(task, settings),
        objective=make_objective(task, settings),
        solver=choose_solver(task, settings),
        max_horizon=settings.horizon or task.horizon,
        max_parameters=task.max_parameters,
    )


def solver_name(task: Task, settings: Settings) -> str:
    """The solver that was chosen; by default the paper's, or the task's own where that can do what is asked for."""
    if settings.solver is not None:
        check_choice("solver", settings.solver, SOLVERS)
        return settings.solver
    if settings.paper:
        return "svi"
    by_updates = settings.objective not in SEARCHED or settings.gradient is not None
    return "coordinate" if by_updates else task.solver


def make_guide(task: Task, settings: Settings) -> TableGuide:
    """The temporal guide; search remembers everything, the T-maze by SVI has the paper's guide over whole sequences."""
    if solver_name(task, settings) == "search":
        return RecallGuide(task.model)
    start = task.start if solver_name(task, settings) == "svi" else START
    if task.name == "tmaze" and solver_name(task, settings) == "svi" and task.memory is None:
        return SequenceGuide(task.model, support=task.support, start=start)  # type: ignore[arg-type]
    learn = task.learn
    if settings.gradient == "through":  # under which nobody should learn observations (docs/modelling.md)
        learn = tuple(factor for factor in learn if factor != "observation")
    return TemporalGuide(task.model, learn=learn, start=start)


def make_objective(task: Task, settings: Settings) -> Objective:
    """The objective, with the weight and the reading that were asked for."""
    check_choice("objective", settings.objective, OBJECTIVES)
    if settings.objective == "marginal":
        return Marginal()
    if settings.objective == "planning":
        return Planning()
    chosen = {name: getattr(settings, name) for name in ("weight", "gradient")}
    chosen |= {"ambiguity": 0.0, "novelty": 0.0} if settings.objective == "risk" else {}
    chosen |= {"entropy": 0.0} if solver_name(task, settings) == "search" else {}  # the only one that search can have
    return dataclasses.replace(task.active, **{name: value for name, value in chosen.items() if value is not None})


def choose_solver(task: Task, settings: Settings) -> CoordinateSolver | SearchSolver | SVISolver:
    """The solver that the settings name."""
    name = solver_name(task, settings)
    if name == "coordinate":
        return task.sweeps
    return make_solver(task, settings) if name == "svi" else make_search(task, settings)


def make_search(task: Task, settings: Settings) -> SearchSolver:
    """Search with the limits that were chosen, or none."""
    limits = {name: getattr(settings, name) for name in LIMITS}
    try:
        return SearchSolver(**limits)
    except ValueError as error:
        raise SettingsError(str(error)) from error


def learning_rate(task: Task, settings: Settings) -> float:
    """Adam's, for SVI."""
    return task.learning_rate if settings.learning_rate is None else settings.learning_rate


def make_solver(task: Task, settings: Settings) -> SVISolver:
    """SVI with Adam."""
    return SVISolver(
        optax.adam(learning_rate(task, settings)), task.num_steps if settings.num_steps is None else settings.num_steps
    )


def pymdp_agent(task: Task, settings: Settings, *, jit: bool = True) -> PymdpAgent:
    """The agent for a task by the method "efe" or "sophisticated".

    Worlds that pymdp cannot express, and a missing pymdp, are reported as mistakes in the settings.

    :param jit: as in :class:`PymdpAgent`.
    """
    horizon = settings.horizon or task.horizon
    try:
        if settings.method == "efe":
            return StandardEFE(
                task.model,
                task.belief,
                horizon,
                task.max_steps,
                gamma=EFE_GAMMA,
                remember=False,
                jit=jit,
            )
        return Sophisticated(
            task.model,
            task.belief,
            horizon,
            task.max_steps,
            gamma=SOPHISTICATED_GAMMA,
            translation=SOPHISTICATED_TRANSLATION,
            jit=jit,
        )
    except (TooLarge, ImportError) as error:
        raise SettingsError(str(error)) from error
    except ModelError as error:
        raise SettingsError(f"method: found {settings.method!r} for {task.name}, expected vfe: {error}") from error
