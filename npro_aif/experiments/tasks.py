"""The tasks (the paper's, other grid worlds, `.POMDP` files): model, environment, belief, guide, horizon, outcome.

:func:`make_task` builds one of them, :func:`make_agent` an agent for it from a few :class:`Settings`; whatever runs
episodes (the command line, the reproduction of the tables, the baselines) goes through these two.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from npro_aif.acting.episodes import Episode
from npro_aif.belief import Belief
from npro_aif.envs import DoorKey, FrozenLake, PomdpFile, ReactivityMaze, RockSample, TMaze, Wumpus
from npro_aif.experiments.paper import paper_baselines, paper_doorkey, paper_reactivity, paper_tmaze
from npro_aif.experiments.shortest import optimum, shortest_path
from npro_aif.guides import Start
from npro_aif.guides.base import FACTORS, START
from npro_aif.inference.objectives import Active
from npro_aif.models import doorkey, frozen_lake, reactivity_maze, rock_sample, tmaze, wumpus
from npro_aif.planning.choose import TIE_TOLERANCE
from npro_aif.pomdp.program import SUFFIX, default_horizon, find_file, read_pomdp, read_problem
from npro_aif.solvers import CoordinateSolver

WORLDS = ("frozen-lake", "wumpus", "rock-sample")
TASKS = ("tmaze", "reactivity", "doorkey", *WORLDS)
METHODS = ("vfe", "efe", "sophisticated")
OBJECTIVES = ("active", "risk", "planning", "marginal")
SOLVERS = ("svi", "coordinate", "search")
PREFERENCES = doorkey.PREFERENCES
ACT_BY = ("probability", "cost")
GRADIENTS = ("fixed", "through")
REWARDED = {"wumpus": wumpus.MAX_STEPS, "rock-sample": rock_sample.MAX_STEPS}  # how far plans for rewards reach
PREFERENCES_OF_WORLDS = wumpus.PREFERENCES
MEMORIES = {"tmaze": ("told", "count"), **dict.fromkeys(("reactivity", *WORLDS), ("told",))}


class Task(NamedTuple):
    """One task."""

    name: str
    model: Callable[..., Any]
    environment: Callable[..., Any]  # makes one
    belief: Belief  # before the first observation
    horizon: int
    max_steps: int  # of an episode
    learn: tuple[str, ...]  # the factors that the temporal guide learns
    active: Active  # F_active
    num_steps: int  # of SVI
    learning_rate: float
    sweeps: CoordinateSolver
    outcome: Callable[[Episode], dict[str, float]]  # by name: success, cue, safe, shortest; what the task has of them
    solver: str = "coordinate"  # where nothing is said: coordinate or search
    memory: str | None = None  # what the policy remembers
    cue_accuracy: float | None = None  # how often the cue is right, where that was chosen
    max_parameters: int | None = None  # with how many to plan at most, in a large world
    start: Start = START  # of the guide's logits, with SVI
    support: str = "model"  # of the sequence guide
    tie_tolerance: float = TIE_TOLERANCE
    solver_seed: int | None = None  # where the solver's keys come from; by default the seed of the first episode
    first_seed: int = 0  # of the episodes
    sequential: bool = False  # whether the episodes are one stream of draws, and so must follow each other
    optimum: Callable[[int, int], float | None] | None = None  # the fewest steps, by first seed and number of episodes
    product: bool = False  # whether beliefs are kept as a product of marginals
    notes: tuple[tuple[str, Any], ...] = ()  # what else a run of it should report

    def worlds(self) -> Any:
        """The environments for :func:`npro_aif.run_episodes`: a function that makes them, or the one of a stream."""
        return self.environment() if self.sequential else self.environment


class Settings(NamedTuple):
    """The settings of a run; None stands for the task's own default."""

    method: str = "vfe"
    objective: str = "active"
    solver: str | None = None  # the task's own, or with the paper's switches svi
    horizon: int | None = None
    weight: float | None = None
    gradient: str | None = None  # the reading of F_active
    paper: bool = False  # the switches of the paper's code in place of ours
    num_steps: int | None = None  # of SVI
    learning_rate: float | None = None
    max_nodes: int | None = None  # of the search, for each decision
    first_nodes: int | None = None  # and for the first one
    max_depth: int | None = None
    seconds: float | None = None
    act_by: str | None = None  # the agent's own default
    seed: int = 0  # of the first episode, and of the solvers' initial values
    c_low_knob: float | None = None  # with ``paper``, the baselines' C where the knob is below 4, if not that of "none"
    details: bool = False  # with ``paper``, the details of the code too (Reactivity Maze)


DEFAULTS = Settings()


class SettingsError(ValueError):
    """An unknown setting, or one that does not go with the task."""


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
    cue_accuracy: float | None = None,
    max_steps: int | None = None,
    horizon: int | None = None,
    paper: bool = False,
    details: bool = False,
) -> Task:
    """The task of that name, or of a `.POMDP` file.

    :param method: with ``paper``, whose episodes: the baselines look before their first control.
    :param size: of DoorKey's grid, 8 by default.
    :param preference: DoorKey's, "every-step" by default, "terminal" as in the paper; Wumpus' and RockSample's, the
        "published" one by default, or their own "reward".
    :param memory: what the policy remembers of the mazes' cue, "told" or (in the T-maze) "count"; of a file, how many
        steps; nothing by default.
    :param cue_accuracy: how often the T-maze's cue is right, in the model and in the environment; always by default.
    :param max_steps: after how many steps an episode ends, the task's own number by default; the T-maze's plans reach
        to the end of the episode, and the episodes of a file end with its first plan.
    :param horizon: of plans, the task's own number of steps by default; of a file, as many as its discount leaves above
        a hundredth.
    :param paper: everything as the paper's published numbers need it: :mod:`npro_aif.experiments.paper`.
    :param details: in the paper's Reactivity Maze, also the details of its code that its text does not have.

    >>> task = make_task("tmaze")
    >>> task.horizon, task.max_steps
    (4, 4)
    """
    if name.endswith(SUFFIX):
        others = {"size": size, "preference": preference, "cue_accuracy": cue_accuracy}
        others |= {"paper": paper or None, "details": details or None}
        return _file(name, memory, max_steps, horizon, others)
    check_choice("task", name, TASKS)
    if horizon is not None:
        task = make_task(
            name,
            method=method,
            size=size,
            preference=preference,
            memory=memory,
            cue_accuracy=cue_accuracy,
            max_steps=max_steps,
            paper=paper,
            details=details,
        )
        return task._replace(horizon=_at_least_one("horizon", horizon))
    for option, value in (("memory", memory), ("cue_accuracy", cue_accuracy), ("max_steps", max_steps)):
        if paper and value is not None:
            raise SettingsError(f"{option}: found {value!r} with --paper, expected none (the paper has no such thing)")
    if details and not (paper and name == "reactivity"):
        raise SettingsError(f"details: found it for the task {name}, expected it with reactivity --paper only")
    if memory is not None:
        rest: dict[str, Any] = {"cue_accuracy": cue_accuracy, "max_steps": max_steps}
        return _with_memory(make_task(name, size=size, preference=preference, **rest), memory)
    if max_steps is not None:
        return _with_deadline(make_task(name, size=size, preference=preference, cue_accuracy=cue_accuracy), max_steps)
    if cue_accuracy is not None:
        return _with_accuracy(make_task(name, size=size, preference=preference), cue_accuracy)
    if name == "doorkey":
        return _paper_doorkey(size, preference) if paper else _doorkey(size or 8, preference or "every-step")
    if size is not None:
        raise SettingsError(f"size: found {size!r} for the task {name}, expected it with doorkey only")
    if name in WORLDS:
        if paper:
            raise SettingsError(f"paper: found it for the task {name}, expected it with the paper's three tasks only")
        return _world(name, preference)
    if preference is not None:
        tasks = ", ".join(("doorkey", *REWARDED))
        raise SettingsError(f"preference: found {preference!r} for the task {name}, expected it with {tasks} only")
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
    # F_active hardly ever settles in this setting (its costs are held): without a bound it takes 200 sweeps a plan.
    sweeps = CoordinateSolver(max_sweeps=doorkey.SWEEPS)
    return task._replace(sweeps=sweeps, max_parameters=None, product=True, **settings)


def _with_deadline(task: Task, max_steps: int) -> Task:
    """The task whose episodes end after this many steps."""
    _at_least_one("max_steps", max_steps)
    return task._replace(
        environment=functools.partial(task.environment, max_steps=max_steps),
        max_steps=max_steps,
        horizon=max_steps if task.horizon == task.max_steps else min(task.horizon, max_steps),
    )


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise SettingsError(f"{name}: found {value}, expected at least 1")
    return value


def _with_memory(task: Task, memory: str) -> Task:
    """The task whose policy remembers what the cue said; the policy alone is learned."""
    check_choice("memory", memory, MEMORIES.get(task.name, ()))
    return task._replace(model=_variant(task.model, memory=memory), memory=memory, learn=("control",))


def _with_accuracy(task: Task, cue_accuracy: float) -> Task:
    """The task whose cue may be wrong, in the model and in the environment."""
    if task.name != "tmaze":
        raise SettingsError(f"cue_accuracy: found {cue_accuracy} for the task {task.name}, expected it with tmaze only")
    if not 0 <= cue_accuracy <= 1:
        raise SettingsError(f"cue_accuracy: found {cue_accuracy}, expected a probability")
    environment = functools.partial(task.environment, cue_accuracy=cue_accuracy)
    model = _variant(task.model, cue_accuracy=cue_accuracy)
    return task._replace(environment=environment, model=model, cue_accuracy=cue_accuracy)


@functools.lru_cache  # one model for one setting: what is compiled for it is kept
def _variant(model: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
    return functools.partial(model, **settings)


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
        sweeps=CoordinateSolver(restarts=1),
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
        active=Active(weight=doorkey.WEIGHT, entropy=doorkey.ENTROPY),
        num_steps=3000,
        learning_rate=0.01,
        sweeps=CoordinateSolver(max_sweeps=doorkey.SWEEPS, lead=doorkey.LEAD, unvisited=doorkey.UNVISITED),
        outcome=outcome,
        solver="search" if size <= doorkey.SEARCHED_UP_TO else "coordinate",
        max_parameters=doorkey.max_layouts(size),
        optimum=functools.partial(optimum, size),
    )


def _world(name: str, preference: str | None) -> Task:
    """One of the three worlds of Nuijten, Lukashchuk, van de Laar and de Vries (UAI 2026)."""
    model, environment, module, horizon, evidence = {
        # 16 noisy cells have 65,536 outcomes together
        "frozen-lake": (frozen_lake.frozen_lake, FrozenLake, frozen_lake, frozen_lake.MAX_STEPS, "sites"),
        "wumpus": (wumpus.wumpus, Wumpus, wumpus, wumpus.HORIZON, "joint"),
        "rock-sample": (rock_sample.rock_sample, RockSample, rock_sample, rock_sample.HORIZON, "joint"),
    }[name]

    notes: tuple[tuple[str, Any], ...] = ()
    if preference is not None:
        check_choice(f"preference (of {name})", preference, PREFERENCES_OF_WORLDS if name in REWARDED else ())
        model, notes = _variant(model, preference=preference), (("preference", preference),)
        horizon = REWARDED[name] if preference == "reward" else horizon

    def outcome(episode: Episode) -> dict[str, float]:
        return {} if name == "rock-sample" else {"success": episode.reward > 0}

    return Task(
        name=name,
        model=model,
        environment=environment,
        belief=module.initial_belief(),
        horizon=horizon,
        max_steps=module.MAX_STEPS,
        learn=("control",),
        active=Active(gradient="through", evidence=evidence),  # type: ignore[arg-type]
        num_steps=1500,
        learning_rate=0.05,
        sweeps=CoordinateSolver(),
        outcome=outcome,
        notes=notes,
    )


def _file(
    name: str, memory: str | None, max_steps: int | None, horizon: int | None, others: Mapping[str, object]
) -> Task:
    """The problem of a `.POMDP` file; its rewards count as discounted, and plans reach as far as the discount does."""
    for option, value in others.items():
        if value is not None:
            raise SettingsError(f"{option}: found {value!r} for the file {name}, expected it with other tasks only")
    if memory is not None and not (memory.isascii() and memory.isdigit()):
        raise SettingsError(f"memory: found {memory!r} for the file {name}, expected how many steps are remembered")
    for option, steps in (("max_steps", max_steps), ("horizon", horizon)):
        if steps is not None:
            _at_least_one(option, steps)
    try:
        path = find_file(name)
        problem = read_problem(path)
        if problem.discount == 1:
            max_steps = max_steps or horizon
        if max_steps is None or (horizon is None and problem.discount < 1):
            ends = default_horizon(problem)  # where little is left of rewards
            horizon, max_steps = horizon or ends, max_steps or ends
        horizon = min(horizon or max_steps, max_steps)
        if memory is not None:
            memory = str(min(int(memory), horizon - 1))  # all that there is in a plan
        model, belief = read_pomdp(path, horizon=horizon, memory=int(memory or 0))
    except (OSError, ValueError) as error:
        raise SettingsError(str(error)) from error
    return Task(
        name=path.name,
        model=model,
        environment=functools.partial(PomdpFile, path, max_steps=max_steps),
        belief=belief,
        horizon=horizon,
        max_steps=max_steps,
        learn=("control",),
        active=Active(),
        num_steps=1500,
        learning_rate=0.05,
        sweeps=CoordinateSolver(),
        outcome=lambda episode: {},
        memory=memory,
        notes=(("discount", problem.discount), ("file", hashlib.sha256(path.read_bytes()).hexdigest()[:12])),
    )
