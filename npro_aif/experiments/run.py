"""The command ``npro-aif run``: one agent in one task over many episodes, and a summary."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from rich.console import Console

import npro_aif
from npro_aif.acting.distributed import Store
from npro_aif.acting.episodes import Acting
from npro_aif.acting.pools import Workers
from npro_aif.acting.solutions import compiling, write, write_text
from npro_aif.experiments.agents import (
    BUDGETS,
    check_settings,
    follows_on,
    learning_rate,
    make_agent,
    make_guide,
    make_objective,
    make_search,
    make_solver,
    solver_name,
)
from npro_aif.experiments.files import check_file, check_folder
from npro_aif.experiments.play import Played
from npro_aif.experiments.progress import EpisodeBar, bars
from npro_aif.experiments.summary import certificates, episode_table, summarize, table
from npro_aif.experiments.tasks import Settings, SettingsError, Task, make_task
from npro_aif.pomdp.program import SUFFIX

INTERRUPTED = 130  # the exit code of a program that Ctrl-C stopped


def run(
    name: str,
    settings: Settings,
    episodes: int,
    *,
    size: int | None = None,
    preference: str | None = None,
    memory: str | None = None,
    cue_accuracy: float | None = None,
    max_steps: int | None = None,
    json_file: Path | None = None,
    table_file: Path | None = None,
    folder: Path | None = None,
    executor: Executor | Workers | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Run the episodes with the seeds ``settings.seed``, ``settings.seed + 1``, … and return the summary.

    Ctrl-C ends the run; the summary then covers the episodes that had ended, and says so.

    :param json_file: where to write the summary.
    :param table_file: where to write a line for each episode, as CSV.
    :param folder: where to keep solved problems (and the finished blocks of workers), so that a run that was stopped
        can continue.
    :param executor: whose workers play the episodes; they share solved problems through the folder.
    """
    console = console or Console()
    if episodes < 1:
        raise SettingsError(f"episodes: found {episodes}, expected at least 1")
    if settings.seed < 0:
        raise SettingsError(f"seed: found {settings.seed}, expected a number that is not negative")
    options = {
        "size": size,
        "preference": preference,
        "memory": memory,
        "cue_accuracy": cue_accuracy,
        "max_steps": max_steps,
        "horizon": settings.horizon,
        "paper": settings.paper,
        "method": settings.method,
        "details": settings.details,
    }
    task = make_task(name, **options)  # type: ignore[arg-type]
    if executor is not None and task.sequential:
        raise SettingsError(
            f"workers: found them for episodes that are one stream of draws ({name} --paper), expected none"
        )
    check_settings(task, settings)
    if executor is not None and follows_on(task, settings):
        raise SettingsError(
            "workers: found them with a search within limits, whose plans hang on what was looked at for earlier ones, "
            "expected none of " + ", ".join(BUDGETS)
        )
    about = describe(task, settings, size, preference)
    _check_files(json_file, table_file, folder)
    store = None if folder is None else Store(folder.absolute(), result_settings(task, settings, size, preference))
    seeds = range(settings.seed, settings.seed + episodes)
    try:
        recipe = functools.partial(make_players, _for_workers(name), options, settings)
        played = Played(recipe, seeds, store, executor)
    except ValueError as error:
        raise SettingsError(f"resume: {error}") from error
    console.print(" ".join(f"[bold]{key}[/] {value}" for key, value in about.items() if value is not None))
    interrupted = False
    with bars(console) as progress:
        bar = EpisodeBar(progress, "episodes", episodes)
        bar.watch(played)
        try:
            for _ in played:
                bar.advance()
        except KeyboardInterrupt:
            interrupted = True
    summary = about | summarize(task, played.ended, played.effort) | certificates(played.certificates)
    summary |= compiling() | {"interrupted": interrupted}
    if table_file is not None:
        write_text(table_file, episode_table(played.ended))
    if json_file is not None:
        write(json_file, summary)
    console.print(table(summary, f"{name}, {settings.method}" + (" (stopped)" if interrupted else "")))
    return summary


def _check_files(json_file: Path | None, table_file: Path | None, folder: Path | None) -> None:
    """Refuse files that could not be written in the end, or that would take the place of others."""
    if folder is not None:
        check_folder("resume", folder)
    files = {option: path for option, path in (("json", json_file), ("table", table_file)) if path is not None}
    for option, path in files.items():
        check_file(option, path)
        if folder is not None and path.resolve() == (folder / "settings.json").resolve():
            raise SettingsError(
                f"{option}: found {str(path)!r}, which --resume keeps for itself, expected another file"
            )
    if len({path.resolve() for path in files.values()}) < len(files):
        raise SettingsError(f"table: found {str(table_file)!r}, as for --json, expected another file")


def _for_workers(name: str) -> str:
    """The name of a task, or of a file such that a worker with another current folder finds it."""
    return str(Path(name).absolute()) if name.endswith(SUFFIX) and Path(name).is_file() else name


def make_players(name: str, options: Mapping[str, Any], settings: Settings) -> tuple[Any, Acting]:
    """The environments and the agent of a run; a worker makes them once."""
    task = make_task(name, **options)
    return task.worlds(), make_agent(task, settings)


def describe(task: Task, settings: Settings, size: int | None, preference: str | None) -> dict[str, Any]:
    """All settings, with defaults spelled out."""
    about: dict[str, Any] = {"task": task.name, "method": settings.method, "seed": settings.seed}
    if task.name == "doorkey":
        about |= {"size": size or 8, "preference": preference or ("terminal" if settings.paper else "every-step")}
    about |= {"horizon": settings.horizon or task.horizon, "max_steps": task.max_steps}
    for name in ("memory", "cue_accuracy"):
        if getattr(task, name) is not None:
            about[name] = getattr(task, name)
    about |= dict(task.notes)
    if settings.method != "vfe":
        if settings.paper:
            about |= {"paper": True, "c_low_knob": settings.c_low_knob}
        return about
    solver = solver_name(task, settings)
    objective, guide = make_objective(task, settings), make_guide(task, settings)
    about |= {"objective": settings.objective, "solver": solver, "paper": settings.paper, "guide": guide.scope}
    if settings.details:
        about["details"] = True
    about["learn"] = ",".join(getattr(guide, "learn", ())) or None
    about["weight"] = getattr(objective, "weight", None)
    if getattr(objective, "entropy", None) not in (None, task.active.entropy):  # search has none
        about["entropy"] = objective.entropy
    about["gradient"] = settings.gradient
    about["max_parameters"] = task.max_parameters
    about["act_by"] = settings.act_by
    if solver == "search":
        about |= {name: getattr(settings, name) for name in ("max_nodes", "max_depth", "seconds")}
        if settings.first_nodes is not None:
            about["first_nodes"] = settings.first_nodes
    if solver == "svi":
        descent = make_solver(task, settings)
        about |= {"num_steps": descent.num_steps, "learning_rate": learning_rate(task, settings)}
    return about


def result_settings(task: Task, settings: Settings, size: int | None, preference: str | None) -> dict[str, Any]:
    """Everything that decisions depend on; decisions of other versions or settings are not reused."""
    about = describe(task, settings, size, preference) | {"version": npro_aif.__version__}
    if settings.method == "vfe":
        about["switches"] = repr(make_objective(task, settings))
        guide = make_guide(task, settings)
        about |= {"support": getattr(guide, "support", None), "start": repr(guide.start)}
        about |= {"tie_tolerance": task.tie_tolerance, "solver_seed": task.solver_seed}
        if solver_name(task, settings) == "coordinate":
            about["solver"] = repr(task.sweeps)
        if solver_name(task, settings) == "search":
            about["solver"] = repr(make_search(task, settings))
    return about
