"""Appendix B of the paper: how F falls in the two mazes, and how many steps, and of which size, a plan needs.

Everything is in the paper's own setting (:mod:`npro_aif.experiments.paper`). Each objective in each maze is one JSON
file, made once of descents that are kept one by one until then, so that a run that was stopped goes on; the figures,
the table of claims and the page are drawn from them. DoorKey's studies are in
:mod:`npro_aif.experiments.doorkey_convergence`.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from rich.console import Console

import npro_aif
from npro_aif.acting.solutions import write_text
from npro_aif.belief import Belief
from npro_aif.envs import PublishedReactivityMaze, PublishedTMaze
from npro_aif.experiments import claims, convergence_figures, doorkey_convergence
from npro_aif.experiments.anytime import Anytime, Curve
from npro_aif.experiments.doorkey_claims import appendix_c
from npro_aif.experiments.figures import agent_of, row_named
from npro_aif.experiments.files import prepare, save_figure
from npro_aif.experiments.kept import kept_study, rounded, run_study
from npro_aif.experiments.maze_claims import appendix_b
from npro_aif.experiments.rows import LABELS, OBJECTIVES
from npro_aif.models import reactivity_maze, tmaze

EVERY = 10  # steps between two looks
TAKES = "some twelve minutes on one core"


class Size(NamedTuple):
    """How much is done."""

    budgets: tuple[int, ...]  # steps a plan
    rates: dict[str, tuple[float, ...]]  # by maze
    episodes: int
    streams: tuple[int, ...]  # seeds of the environments' draws, for the mean reward


FULL = Size(
    (10, 50, 100, 200, 300, 500, 750, 1000, 1250, 1500, 2000),
    {"tmaze": (0.001, 0.005, 0.01, 0.02, 0.05, 0.1), "reactivity": (0.005, 0.01, 0.02, 0.05, 0.1)},
    20,
    (42, 43, 44, 45, 46),
)
QUICK = Size((10, 50, 100), {"tmaze": (0.05,), "reactivity": (0.01,)}, 3, (42,))


class Maze(NamedTuple):
    """What is studied in a maze."""

    table: str  # whose row "paper" it is
    environment: Callable[[int], Any]  # by the seed of its draws
    rate: float
    steps: int  # of the descents whose rate is studied
    cue: int  # the control that leads to the cue


MAZES = {
    "tmaze": Maze("table1", lambda seed: PublishedTMaze(stream=seed), 0.05, 1500, tmaze.SOUTH),
    "reactivity": Maze(
        "table2", lambda seed: PublishedReactivityMaze(stream=seed), 0.01, 2000, reactivity_maze.VISIT_CUE
    ),
}
KNOWN = (0.95, 0.05)  # θ where it counts as known


def study_maze(maze: str, kind: str, size: Size, folder: Path | None = None) -> dict[str, Any]:
    """All that is studied of one objective in one maze, as plain lists.

    :param folder: where descents are kept while the study goes on.
    """
    about = MAZES[maze]
    row = row_named(about.table, "paper", kind)
    task, _ = prepare(row.task, row.settings, row.preference)
    agent, most = agent_of(row), max(size.budgets)
    anytime = Anytime(task, agent, most, EVERY, folder)
    chosen, stream = min(about.steps, most), size.streams[0]

    def rates_of(steps: int, rate: float, seed: int = stream) -> dict[str, float]:
        played = [episode for episode, _ in anytime.play(about.environment(seed), size.episodes, steps, rate)]
        outcomes = [task.outcome(episode) for episode in played]
        return {name: float(np.mean([one[name] for one in outcomes])) for name in outcomes[0]} | {
            "reward": float(np.mean([episode.reward for episode in played]))
        }

    first = agent.filter(agent.initial_belief, None, about.environment(stream).reset(seed=0)[0], step=0)
    plan = anytime.curve(first, 0, about.rate)
    content: dict[str, Any] = {
        "budget": {str(steps): rates_of(steps, about.rate) for steps in size.budgets},
        "cue": {str(steps): float(plan.control[steps // EVERY - 1, about.cue]) for steps in size.budgets},
        "rates": {str(rate): rates_of(chosen, rate) for rate in size.rates[maze]},
        "rewards": [rates_of(chosen, about.rate, seed)["reward"] for seed in size.streams],
        "unknown": rounded(plan.free_energy),
    }
    played = list(anytime.play(about.environment(stream), size.episodes, chosen, about.rate))
    content["curves"] = quartiles([curve for _, curves in played for curve in curves])
    if maze == "tmaze":
        known = Belief(jnp.asarray(KNOWN), agent.initial_belief.state)
        content["known"] = rounded(anytime.curve(known, 0, about.rate).free_energy)
    return content | {"descents": len(anytime.curves), "seconds": sum(curve.seconds for curve in anytime.curves)}


def quartiles(curves: list[Curve]) -> dict[str, list[float]]:
    """Median and quartiles of F over plans, every few steps."""
    low, middle, high = np.quantile(np.stack([curve.free_energy[::EVERY] for curve in curves]), (0.25, 0.5, 0.75), 0)
    return {"low": rounded(low), "median": rounded(middle), "high": rounded(high), "plans": [len(curves)]}


def make_convergence(
    out: Path, *, quick: bool = False, long: bool = False, fresh: bool = False, console: Console | None = None
) -> list[Path]:
    """Run the studies that are not there yet, draw them, and write what becomes of the paper's claims.

    :param long: also appendix C by gradient descent, which takes hours.
    :param fresh: run the studies that the repository keeps, too.
    """
    console = console or Console()
    size = QUICK if quick else FULL
    about = {"size": list(size), "every": EVERY, "version": npro_aif.__version__}

    def say(text: str) -> None:
        console.print(f"convergence | {text}", highlight=False)

    if fresh and not quick:
        say(f"appendix B takes {TAKES}; a run that was stopped goes on")
    command = "npro-aif reproduce convergence" + (" --quick" if quick else "") + (" --long" if long else "")
    studies: dict[str, dict[str, Any]] = {}
    for maze in MAZES:
        studies[maze] = {}
        for kind in OBJECTIVES:
            path, unfinished = out / f"{maze}-{kind}.json", out / "unfinished" / f"{maze}-{kind}"
            study = functools.partial(study_maze, maze, kind, size, unfinished)
            content = kept_study(path, about, say, fresh=fresh) or run_study(path, about, study, say)
            studies[maze][LABELS[kind]] = content
        write_report(out, studies, command, doorkey_convergence.NOTHING)
    shutil.rmtree(out / "unfinished", ignore_errors=True)
    doorkey = doorkey_convergence.make(out, long=long, fresh=fresh, say=say)
    table, files = write_report(out, studies, command, doorkey)
    console.print(claims.rich_table(table))
    return files


def write_report(
    out: Path, studies: dict[str, dict[str, Any]], command: str, doorkey: doorkey_convergence.Made
) -> tuple[list[claims.Claim], list[Path]]:
    """Draw the studies that there are, and write the page with what becomes of the claims."""
    figures = {
        "curves": convergence_figures.curves(studies, EVERY),
        "two_phases": convergence_figures.two_phases(studies["tmaze"]),
        "budget": convergence_figures.budget(studies),
        "learning_rate": convergence_figures.learning_rates(studies),
        "seeds": convergence_figures.rewards(studies),
    }
    files = [file for name, figure in figures.items() for file in save_figure(figure, out / name)] + doorkey.files
    table = appendix_b(studies) + appendix_c(doorkey.studies)
    seconds = sum(study["seconds"] for of_maze in studies.values() for study in of_maze.values())
    pictures = [f"{out.name}/{file.name}" for file in files if file.suffix == ".png"]
    page = out.with_suffix(".md")  # beside the folder, as in docs
    write_text(page, claims.page(table, pictures, command, seconds, doorkey.note))
    write_text(out / "convergence.csv", convergence_figures.csv_text(studies))
    return table, [*files, page, out / "convergence.csv"]
