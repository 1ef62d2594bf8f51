"""Appendix C of the paper: descents on DoorKey by what is known beforehand, how far ahead is planned, and optimizer.

In the authors' setting with all 360 layouts, 3000 steps at 0.01: hours, so that it runs only when it is asked for.
Every descent is one file; a run that was stopped goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

import npro_aif
from npro_aif.analysis.style import PALETTE
from npro_aif.belief import Belief
from npro_aif.envs import DoorKey
from npro_aif.experiments.agents import make_guide, make_objective
from npro_aif.experiments.files import save_figure
from npro_aif.experiments.rows import LABELS, OBJECTIVES
from npro_aif.experiments.tasks import Settings, make_task
from npro_aif.models import doorkey_published
from npro_aif.planning.planner import Planner
from npro_aif.solvers import SVISolver

SIZE, SEED = 8, 42  # the first of the paper's episodes has the layout that is known where one is
HORIZON, DOUBLE, NEAR_HORIZON = 20, 40, 3
NUM_STEPS, RATE = 3000, 0.01
LAYOUT_LOGIT = 5.0  # of the layout that is known: 29 % of the mass
OPTIMIZERS = {"Adam": optax.adam, "Adafactor": optax.adafactor}
BLANK, POSITION, LAYOUT, NEAR = "tabula rasa", "known position", "known layout", "near goal"
TAKES = "some three hours on one core"
SKIPPED = f"Appendix C was not run: it takes {TAKES}; `npro-aif reproduce convergence --long` runs it."

Keep = Callable[[Path, dict[str, Any], Callable[[], dict[str, Any]], Callable[[str], None]], dict[str, Any]]


class Made(NamedTuple):
    """The studies that were made, and the files of their figures."""

    studies: dict[str, Any] | None  # by "objective, condition, optimizer, T"
    files: list[Path]
    note: str


NOTHING = Made(None, [], SKIPPED)


def conditions() -> dict[str, Belief]:
    """What is known beforehand: nothing, the position, (some of) the layout, or being one cell away from the goal."""
    blank = doorkey_published.initial_belief(SIZE)
    parameter, state = np.asarray(blank.parameter), np.asarray(blank.state)
    env = DoorKey(size=SIZE)
    _, info = env.reset(seed=SEED)
    column, row = (int(place) - 1 for place in env.minigrid.agent_pos)
    n = SIZE - 2

    def at(column: int, row: int, direction: int, status: int) -> np.ndarray:
        table = np.zeros_like(state)
        table[:, ((row * n + column) * 4 + direction) * len(doorkey_published.STATUSES) + status] = 1
        return table

    theta = info["key"] * doorkey_published.site_sizes(SIZE)[0]["door"] + info["door"]  # doors are counted alike
    logits = np.where(parameter > 0, 0.0, -np.inf)
    logits[theta] = LAYOUT_LOGIT
    known = np.exp(logits - logits.max())
    known /= known.sum()
    here = at(column, row, int(env.minigrid.agent_dir), 0)
    near = at(n - 1, n - 2, 1, doorkey_published.STATUSES.index("open"))  # above the goal, looking down
    return {
        BLANK: blank,
        POSITION: Belief(blank.parameter, jnp.asarray(here)),
        LAYOUT: Belief(jnp.asarray(known, parameter.dtype), blank.state),
        NEAR: Belief(blank.parameter, jnp.asarray(near)),
    }


def cases() -> list[tuple[str, int]]:
    """The conditions with their horizons."""
    return [(BLANK, HORIZON), (POSITION, HORIZON), (LAYOUT, HORIZON), (NEAR, NEAR_HORIZON), (BLANK, DOUBLE),
            (POSITION, DOUBLE)]  # fmt: skip


def study(kind: str, condition: str, optimizer: str, horizon: int, num_steps: int = NUM_STEPS) -> dict[str, Any]:
    """F along one descent, and the seconds that it took (compiling included)."""
    task = make_task("doorkey", size=SIZE, paper=True)
    settings = Settings(objective=kind, solver="svi", paper=True)
    solver = SVISolver(OPTIMIZERS[optimizer](RATE), num_steps)
    planner = Planner(task.model, make_guide(task, settings), make_objective(task, settings), solver, horizon)
    start = time.perf_counter()
    plan = planner(jax.random.key(SEED), conditions()[condition], horizon)
    energy = np.asarray(plan.free_energy)
    return {"free_energy": energy.tolist(), "seconds": time.perf_counter() - start}


def make(out: Path, *, long: bool, say: Callable[[str], None], keep: Keep) -> Made:
    """Run and draw both studies, if they were asked for."""
    if not long:
        say(SKIPPED)
        return NOTHING
    say(f"appendix C takes {TAKES}; a run that was stopped goes on")
    studies: dict[str, Any] = {}
    for condition, horizon in cases():
        for kind in OBJECTIVES:
            for optimizer in OPTIMIZERS:
                name = f"doorkey-{kind}-{condition.replace(' ', '-')}-{optimizer.lower()}-{horizon}"
                settings = {"num_steps": NUM_STEPS, "rate": RATE, "seed": SEED, "version": npro_aif.__version__}
                studies[f"{kind}, {condition}, {optimizer}, {HORIZON if condition == NEAR else horizon}"] = keep(
                    out / f"{name}.json",
                    settings,
                    lambda kind=kind, condition=condition, optimizer=optimizer, horizon=horizon: study(  # type: ignore[misc]
                        kind, condition, optimizer, horizon
                    ),
                    say,
                )
    knowledge = {name: (name, HORIZON) for name in (BLANK, POSITION, LAYOUT, NEAR)}
    ahead = {f"{name}, $T={T}$": (name, T) for name in (BLANK, POSITION) for T in (HORIZON, DOUBLE)}
    files = save_figure(draw(studies, knowledge), out / "doorkey_knowledge")
    files += save_figure(draw(studies, ahead), out / "doorkey_horizon")
    hours = sum(one["seconds"] for one in studies.values()) / 3600
    return Made(studies, files, f"Appendix C took {hours:.1f} hours.")


def draw(studies: dict[str, Any], columns: dict[str, tuple[str, int]]) -> Figure:
    """A column for each case, a row for each objective, a line for each optimizer."""
    figure = Figure(figsize=(3.0 * len(columns) + 0.6, 2.3 * len(OBJECTIVES)), layout="constrained")
    grid = figure.subplots(len(OBJECTIVES), len(columns), squeeze=False)
    for column, (title, (condition, horizon)) in enumerate(columns.items()):
        grid[0, column].set_title(title, fontsize=10)
        grid[-1, column].set_xlabel("gradient step", fontsize=9)
        for axes, kind in zip(grid[:, column], OBJECTIVES, strict=True):
            for colour, style, optimizer in zip(PALETTE, ("-", "--"), OPTIMIZERS, strict=False):
                values = studies[f"{kind}, {condition}, {optimizer}, {horizon}"]["free_energy"]
                axes.plot(values, style, color=colour, label=optimizer, linewidth=1.4)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8)
    for axes, kind in zip(grid[:, 0], OBJECTIVES, strict=True):
        axes.set_ylabel(f"{LABELS[kind]} (nats)", fontsize=9)
    grid[0, 0].legend(frameon=False, fontsize=8)
    return figure
