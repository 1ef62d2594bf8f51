"""The paper's three tasks: model, environment, initial belief, guide, horizon and what counts as an outcome.

:func:`make_task` builds one of them, :func:`make_agent` an agent for it from a few :class:`Settings`; whatever runs
episodes (the command line, the reproduction of the tables, the baselines) goes through these two.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym

from npro_aif.acting.episodes import Episode
from npro_aif.belief import Belief
from npro_aif.envs import DoorKey, ReactivityMaze, TMaze
from npro_aif.experiments.paper import paper_baselines, paper_doorkey, paper_reactivity, paper_tmaze
from npro_aif.experiments.shortest import optimum, shortest_path
from npro_aif.guides import Start
from npro_aif.guides.base import FACTORS, START
from npro_aif.inference.objectives import Active
from npro_aif.models import doorkey, reactivity_maze, tmaze
from npro_aif.planning.choose import TIE_TOLERANCE
from npro_aif.solvers import CoordinateSolver

TASKS = ("tmaze", "reactivity", "doorkey")
METHODS = ("vfe", "efe", "sophisticated")
OBJECTIVES = ("active", "planning", "marginal")
SOLVERS = ("svi", "coordinate")
PREFERENCES = doorkey.PREFERENCES
MEMORIES = {"tmaze": ("told", "count"), "reactivity": ("told",)}


class Task(NamedTuple):
    """One of the paper's tasks."""

    name: str
    model: Callable[..., Any]
    environment: Callable[[], gym.Env]  # makes one
    belief: Belief  # before the first observation
    horizon: int
    max_steps: int  # of an episode
    learn: tuple[str, ...]  # the factors that the temporal guide learns
    active: Active  # F_active
    num_steps: int  # of SVI
    learning_rate: float
    sweeps: CoordinateSolver
    outcome: Callable[[Episode], dict[str, float]]  # by name: success, cue, safe, shortest; what the task has of them
    memory: str | None = None  # what the policy remembers
    max_parameters: int | None = None  # with how many to plan at most, in a large world
    start: Start = START  # of the guide's logits, with SVI
    support: str = "model"  # of the sequence guide
    tie_tolerance: float = TIE_TOLERANCE
    solver_seed: int | None = None  # where the solver's keys come from; by default the seed of the first episode
    first_seed: int = 0  # of the episodes
    sequential: bool = False  # whether the episodes are one stream of draws, and so must follow each other
    optimum: Callable[[int, int], float | None] | None = None  # the fewest steps, by first seed and number of episodes
    product: bool = False  # whether beliefs are kept as a product of marginals

    def worlds(self) -> Any:
        """What :func:`npro_aif.run_episodes` takes: a function that makes environments, or the one of a stream."""
        return self.environment() if self.sequential else self.environment


class Settings(NamedTuple):
    """What can be chosen; None stands for the task's own default."""

    method: str = "vfe"
    objective: str = "active"
    solver: str | None = None  # coordinate, or with the paper's switches svi
    horizon: int | None = None
    weight: float | None = None
    paper: bool = False  # the switches of the paper's code in place of ours
    num_steps: int | None = None  # of SVI
    learning_rate: float | None = None
    seed: int = 0  # of the first episode, and of the solvers' initial values
    c_low_knob: float | None = None  # with ``paper``, the baselines' C where the knob is below 4, if not that of "none"
    details: bool = False  # with ``paper``, the details of the code too (Reactivity Maze)


DEFAULTS = Settings()


class SettingsError(ValueError):
    """A setting that there is not, or that does not go with the task."""


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse what is not one of the choices, naming them."""
    if value not in choices:
        raise SettingsError(f"{name}: found {value!r}, expected one of {', '.join(choices)}")


# --- The tasks ---------------------------------------------------------------------------------------------


def make_task(
    name: str,
    *,
    method: str = "vfe",
    size: int | None = None,
    preference: str | None = None,
    memory: str | None = None,
    paper: bool = False,
    details: bool = False,
) -> Task:
    """The task of that name.

    :param method: with ``paper``, whose episodes: the baselines look before their first control.
    :param size: of DoorKey's grid, 8 by default.
    :param preference: DoorKey's, "every-step" by default, "terminal" as in the paper.
    :param memory: what the policy remembers of the mazes' cue, "told" or (in the T-maze) "count"; nothing by default.
    :param paper: everything as the paper's published numbers need it: :mod:`npro_aif.experiments.paper`.
    :param details: in the paper's Reactivity Maze, also the details of its code that its text does not have.

    >>> task = make_task("tmaze")
    >>> task.horizon, task.max_steps
    (4, 4)
    """
    check_choice("task", name, TASKS)
    if memory is not None:
        if paper:
            raise SettingsError(
                f"memory: found {memory!r} with --paper, expected none (the paper's plans remember nothing)"
            )
        return _with_memory(make_task(name, size=size, preference=preference), memory)
    if details and not (paper and name == "reactivity"):
        raise SettingsError(f"details: found it for the task {name}, expected it with reactivity --paper only")
    if name == "doorkey":
        return _paper_doorkey(size, preference) if paper else _doorkey(size or 8, preference or "every-step")
    for option, value in (("size", size), ("preference", preference)):
        if value is not None:
            raise SettingsError(f"{option}: found {value!r} for the task {name}, expected it with doorkey only")
    task = _tmaze() if name == "tmaze" else _reactivity()
    if not paper:
        return task
    if method != "vfe" and name == "reactivity":
        return task._replace(environment=paper_baselines, sequential=True)
    return task._replace(**(paper_tmaze() if name == "tmaze" else paper_reactivity(details))._asdict())


def _paper_doorkey(size: int | None, preference: str | None) -> Task:
    if preference not in (None, "terminal"):
        raise SettingsError(f"preference: found {preference!r} with --paper, expected 'terminal' (the paper's)")
    task = _doorkey(size or 8, "terminal")
    settings = paper_doorkey(size or 8)._asdict()
    return task._replace(sweeps=CoordinateSolver(), max_parameters=None, product=True, **settings)


def _with_memory(task: Task, memory: str) -> Task:
    """The task whose policy remembers what the cue said; the policy alone is learned."""
    check_choice("memory", memory, MEMORIES.get(task.name, ()))
    return task._replace(model=_remembering(task.model, memory), memory=memory, learn=("control",))


@functools.lru_cache  # one model for one memory: what is compiled for it is kept
def _remembering(model: Callable[..., Any], memory: str) -> Callable[..., Any]:
    return functools.partial(model, memory=memory)


def _tmaze() -> Task:
    def outcome(episode: Episode) -> dict[str, float]:
        places = [info["state"] for info in episode.infos]
        return {"success": episode.reward > 0, "cue": tmaze.CUE in places}

    return Task(
        name="tmaze",
        model=tmaze.tmaze,
        environment=TMaze,
        belief=tmaze.initial_belief(),
        horizon=4,
        max_steps=4,
        learn=FACTORS,
        active=Active(),
        num_steps=1500,
        learning_rate=0.05,
        sweeps=CoordinateSolver(restarts=4),  # θ are symmetric, so that one start may end on a saddle
        outcome=outcome,
    )


def _reactivity() -> Task:
    def outcome(episode: Episode) -> dict[str, float]:
        locations = [info["state"] // reactivity_maze.KNOBS for info in episode.infos]
        return {
            "success": episode.reward == 1.0,
            "cue": reactivity_maze.CUE in locations,
            "safe": locations[-1] == reactivity_maze.SINK,
        }

    return Task(
        name="reactivity",
        model=reactivity_maze.reactivity_maze,
        environment=ReactivityMaze,
        belief=reactivity_maze.initial_belief(),
        horizon=3,
        max_steps=5,
        learn=reactivity_maze.LEARN,
        active=Active(weight=reactivity_maze.WEIGHT),
        num_steps=1000,
        # With logits N(0,1) and a rate of 0.05 single descents of F_active often end in worse plans: docs/paper.md.
        learning_rate=0.01,
        start=Start({"control": 0.01}),
        sweeps=CoordinateSolver(),
        outcome=outcome,
    )


@functools.lru_cache  # one model for one size: what is compiled for it is kept
def _doorkey_model(size: int, preference: str) -> Callable[..., Any]:
    return functools.partial(doorkey.doorkey, size=size, preference=preference)


def _doorkey(size: int, preference: str) -> Task:
    check_choice("preference", preference, PREFERENCES)
    if size < 5:
        raise SettingsError(f"size: found {size}, expected at least 5")

    def outcome(episode: Episode) -> dict[str, float]:
        start = episode.infos[0]
        return {"success": episode.reward > 0, "shortest": shortest_path(start["theta"], start["state"], size)}

    return Task(
        name="doorkey",
        model=_doorkey_model(size, preference),
        environment=functools.partial(DoorKey, size=size),
        belief=doorkey.initial_belief(size),
        horizon=35,
        max_steps=35,
        learn=doorkey.LEARN,
        active=Active(weight=doorkey.WEIGHT, evidence="sites"),  # the weight and the lead were chosen for it
        num_steps=3000,
        learning_rate=0.01,
        sweeps=CoordinateSolver(max_sweeps=doorkey.SWEEPS, lead=doorkey.LEAD, unvisited=doorkey.UNVISITED),
        outcome=outcome,
        max_parameters=doorkey.max_layouts(size),
        optimum=functools.partial(optimum, size),
    )
