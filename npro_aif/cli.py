"""The command line: thin wrappers around :mod:`npro_aif.experiments`, which each command imports when it is called."""

from __future__ import annotations

import atexit
import enum
import gc
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

try:
    import rich  # noqa: F401
    import typer
except ImportError as error:
    from npro_aif.extras import missing

    raise SystemExit(str(missing(error, "The command npro-aif"))) from error

# When Python looks for garbage. JAX makes millions of small objects while it traces that are almost never garbage: by
# default looking for it takes a tenth of the time of a run whose code was compiled before.
SELDOM = 1_000_000, 50, 100

app = typer.Typer(
    help="Planning under uncertainty as variational inference.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def main(
    cache: Annotated[
        bool, typer.Option(help="Keep what is compiled, in the user's cache folder, for the next time.")
    ] = True,
) -> None:
    """Planning under uncertainty as variational inference."""
    gc.set_threshold(*SELDOM)
    if cache:
        keep_compiled()


def command() -> None:
    """The command line as a program of its own, which ends at once: Python would first take apart all that it holds.

    That takes 0.1 to 0.4 s after a run. Threads, workers and what else is registered for the end have ended before.
    """
    codes: list[int] = []
    atexit.register(_leave, codes)  # the first that is registered is the last that is called
    try:
        app()
    except SystemExit as end:
        if isinstance(end.code, int | None):
            codes.append(end.code or 0)
        raise


def _leave(codes: list[int]) -> None:
    """End the process with its exit code; without one, as after an error, it ends as any other."""
    if codes:
        for stream in filter(None, (sys.stdout, sys.stderr)):  # None where they were closed
            stream.flush()
        os._exit(codes[0])


def keep_compiled() -> None:
    """Keep what JAX compiles, and the numbers of programs, in the user's cache folder, unless others are set already.

    This is set in the environment, so that workers use it too; JAX reads it when it is imported, which comes later. A
    user without a home folder has no cache.
    """
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a number of a user that the machine does not know, as in containers
        return
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(caches / "npro-aif" / "jax"))
    os.environ.setdefault("NPRO_AIF_PROGRAMS", str(caches / "npro-aif" / "programs"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def tell_lost(error: Exception, folder: Path | None) -> NoReturn:
    """Say that the workers are gone and how to go on, then exit."""
    remedy = "Nothing was kept: use --resume." if folder is None else f"The same command goes on from {folder}."
    typer.echo(f"Error: {error}. {remedy}", err=True)
    raise typer.Exit(1) from error


# Spelled out here so that a wrong name is refused, with a list of the right ones, before JAX is imported.
class TaskName(enum.StrEnum):
    tmaze = "tmaze"
    reactivity = "reactivity"
    doorkey = "doorkey"
    frozen_lake = "frozen-lake"
    wumpus = "wumpus"
    rock_sample = "rock-sample"


def task_or_file(value: str) -> str:
    """Check that a value names a task or a ``.POMDP`` file."""
    if value in list(TaskName) or value.endswith(".POMDP"):
        return value
    names = ", ".join(repr(task.value) for task in TaskName)
    raise typer.BadParameter(f"{value!r} is not one of {names}, nor a file that ends in .POMDP.")


class Method(enum.StrEnum):
    vfe = "vfe"
    efe = "efe"
    sophisticated = "sophisticated"


class ObjectiveName(enum.StrEnum):
    active = "active"
    risk = "risk"
    planning = "planning"
    marginal = "marginal"


class SolverName(enum.StrEnum):
    svi = "svi"
    coordinate = "coordinate"
    search = "search"


class Preference(enum.StrEnum):
    terminal = "terminal"
    every_step = "every-step"
    published = "published"
    reward = "reward"


Gradient = enum.StrEnum("Gradient", {"fixed": "fixed", "through": "through"})
ActBy = enum.StrEnum("ActBy", {"probability": "probability", "cost": "cost"})


class Part(enum.StrEnum):
    table1 = "table1"
    table2 = "table2"
    table3 = "table3"
    worlds = "worlds"
    figures = "figures"
    convergence = "convergence"
    all = "all"


WorkersOption = Annotated[int | None, typer.Option(min=1, help="How many processes of this machine play.")]
DaskOption = Annotated[str | None, typer.Option(help="Play on a Dask cluster: tcp://host:port, or a scheduler file.")]


@app.command()
def run(
    task: Annotated[
        str,
        typer.Argument(help=f"One of {', '.join(TaskName)}, or a file that ends in .POMDP.", callback=task_or_file),
    ],
    method: Annotated[Method, typer.Option(help="vfe is ours, the others are baselines.")] = Method.vfe,
    objective: Annotated[
        ObjectiveName | None, typer.Option(help="What is minimised; by default active, and planning for a file.")
    ] = None,
    solver: Annotated[
        SolverName | None, typer.Option(help="By default coordinate; search for DoorKey up to 8, svi with --paper.")
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, help="The number of episodes.")] = 20,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="The seed of the first episode and of the solver; 0, or the paper's with --paper."),
    ] = None,
    horizon: Annotated[int | None, typer.Option(min=1, help="Steps to look ahead.")] = None,
    size: Annotated[int | None, typer.Option(min=5, help="The size of DoorKey's grid, 8 by default.")] = None,
    preference: Annotated[
        Preference | None,
        typer.Option(help="For doorkey terminal or every-step; for wumpus and rock-sample published or reward."),
    ] = None,
    weight: Annotated[float | None, typer.Option(min=0, help="The weight of the epistemic priors.")] = None,
    gradient: Annotated[
        Gradient | None,
        typer.Option(help="F_active as a fixed point (fixed), or as a minimum without learned observations (through)."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="What the policy remembers: told, or (tmaze) count of the cue; for a file, how many steps of its plan."
        ),
    ] = None,
    cue_accuracy: Annotated[
        float | None, typer.Option(min=0, max=1, help="How often the T-maze's cue is right; 1 by default.")
    ] = None,
    act_by: Annotated[
        ActBy | None, typer.Option(help="Do the likeliest first control, or the one with the least expected cost.")
    ] = None,
    paper: Annotated[bool, typer.Option("--paper", help="Use the settings of the paper's numbers.")] = False,
    details: Annotated[
        bool, typer.Option("--details", help="With reactivity --paper: also the details of the paper's code.")
    ] = False,
    c_low_knob: Annotated[
        float | None,
        typer.Option(help="With --paper and a baseline: C with the knob below 4; -0.33 by the paper's text."),
    ] = None,
    num_steps: Annotated[int | None, typer.Option(min=1, help="For svi: gradient steps.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="For svi: Adam's learning rate.")] = None,
    max_nodes: Annotated[int | None, typer.Option(min=1, help="For search: information states per decision.")] = None,
    first_nodes: Annotated[int | None, typer.Option(min=1, help="For search: more, for the first decision.")] = None,
    max_depth: Annotated[int | None, typer.Option(min=1, help="For search: steps to look ahead.")] = None,
    seconds: Annotated[float | None, typer.Option(help="For search: seconds per decision.")] = None,
    max_steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of an episode; by default the task's, or a file's.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the summary here.")] = None,
    table: Annotated[Path | None, typer.Option(help="Write a line for each episode here, as CSV.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Keep decisions in this folder, and go on from them.")] = None,
    workers: WorkersOption = None,
    dask: DaskOption = None,
) -> None:
    """Run an agent in a task and summarise the episodes."""
    from npro_aif.acting.pools import WorkersLost
    from npro_aif.experiments.rows import DOORKEY_PAPER_SEED
    from npro_aif.experiments.run import INTERRUPTED
    from npro_aif.experiments.run import run as run_task
    from npro_aif.experiments.tasks import Settings, SettingsError
    from npro_aif.experiments.workers import workplace

    if objective is not None and method is not Method.vfe:
        raise typer.BadParameter(
            f"objective: found '{objective}' with the method {method}, expected none (a baseline has its own)"
        )
    settings = Settings(
        method=method.value,
        objective=(objective or (ObjectiveName.planning if task.endswith(".POMDP") else ObjectiveName.active)).value,
        solver=solver and solver.value,
        horizon=horizon,
        weight=weight,
        gradient=gradient and gradient.value,
        paper=paper,
        num_steps=num_steps,
        learning_rate=learning_rate,
        max_nodes=max_nodes,
        first_nodes=first_nodes,
        max_depth=max_depth,
        seconds=seconds,
        act_by=act_by and act_by.value,
        seed=(DOORKEY_PAPER_SEED if paper and task == TaskName.doorkey else 0) if seed is None else seed,
        details=details,
        c_low_knob=c_low_knob,
    )
    try:
        with workplace(workers, dask) as executor:
            summary = run_task(
                task,
                settings,
                episodes,
                size=size,
                preference=preference and preference.value,
                memory=memory,
                cue_accuracy=cue_accuracy,
                max_steps=max_steps,
                json_file=json,
                table_file=table,
                folder=resume,
                executor=executor,
            )
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from error
    except WorkersLost as error:
        tell_lost(error, resume)
    if summary["interrupted"]:
        raise typer.Exit(INTERRUPTED)


@app.command()
def view(
    task: Annotated[
        str,
        typer.Argument(help=f"One of {', '.join(TaskName)}, or a file that ends in .POMDP.", callback=task_or_file),
    ],
    seed: Annotated[int, typer.Option(min=0, help="The seed of the episode and of the solver.")] = 0,
    objective: Annotated[
        list[ObjectiveName] | None,
        typer.Option(help="Give it once for each agent to show side by side; active, and in the mazes also planning."),
    ] = None,
    solver: Annotated[
        SolverName | None, typer.Option(help="By default coordinate, for DoorKey up to 8 search.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write; view_<task>.html by default.")] = None,
    horizon: Annotated[int | None, typer.Option(min=1, help="Steps to look ahead.")] = None,
    size: Annotated[int | None, typer.Option(min=5, help="The size of DoorKey's grid, 8 by default.")] = None,
    memory: Annotated[str | None, typer.Option(help="What the policy remembers, as for run.")] = None,
    max_steps: Annotated[int | None, typer.Option(min=1, help="When the episode ends.")] = None,
) -> None:
    """Write a page that shows one episode: what was true, believed and planned at every step."""
    from npro_aif.experiments.tasks import Settings, SettingsError
    from npro_aif.experiments.view import view as write

    settings = Settings(seed=seed, solver=solver and solver.value, horizon=horizon)
    chosen = tuple(name.value for name in objective or ())
    try:
        write(task, settings, out, objectives=chosen, size=size, memory=memory, max_steps=max_steps)
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from error


@app.command()
def reproduce(
    what: Annotated[Part, typer.Argument(help="What to make.")],
    episodes: Annotated[
        int | None,
        typer.Option(min=1, help="Episodes per row; by default 200, 200, 100 and (worlds) 1000, as published."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write; results by default, results/quick with --quick.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A short version of everything.")] = False,
    long: Annotated[bool, typer.Option("--long", help="Also the parts that take hours; it says so first.")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Also rows that the repository keeps in docs/rows with the same settings.")
    ] = False,
    workers: WorkersOption = None,
    dask: DaskOption = None,
) -> None:
    """Make the paper's tables and figures with our numbers; a run that was stopped continues where it was."""
    from npro_aif.acting.pools import WorkersLost
    from npro_aif.experiments.reproduce import reproduce as make
    from npro_aif.experiments.run import INTERRUPTED
    from npro_aif.experiments.tasks import SettingsError
    from npro_aif.experiments.workers import workplace

    out = out or Path("results/quick" if quick else "results")
    try:
        with workplace(workers, dask) as executor:
            make(what.value, out, episodes=episodes, quick=quick, long=long, fresh=fresh, executor=executor)
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from error
    except WorkersLost as error:
        tell_lost(error, out)
    except KeyboardInterrupt:
        typer.echo(f"Stopped. What was finished is in {out}; the same command goes on from there.")
        raise typer.Exit(INTERRUPTED) from None


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to write the figures.")] = Path("outputs"),
    episodes: Annotated[int, typer.Option(min=1, help="Episodes per objective.")] = 20,
) -> None:
    """Plan in the T-maze with each objective, act in a few episodes, and draw what was planned."""
    from npro_aif.experiments.demo import demo as show

    show(out, episodes=episodes)
