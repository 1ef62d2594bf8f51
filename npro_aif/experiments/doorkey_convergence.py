"""Appendix C of the paper: descents on DoorKey by what is known beforehand, how far ahead is planned, and optimizer.

In the authors' setting with all 360 layouts, 3000 steps at 0.01: hours, so that it runs only when it is asked for.
Every descent is one file; a run that was stopped goes on, and what there is of them is drawn and judged.
"""

from __future__ import annotations

import functools
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
from npro_aif.experiments.doorkey_claims import BLANK, LAYOUT, NEAR, POSITION
from npro_aif.experiments.files import save_figure
from npro_aif.experiments.kept import kept_study, rounded, run_study
from npro_aif.experiments.rows import LABELS, OBJECTIVES
from npro_aif.experiments.tasks import Settings, make_task
from npro_aif.models import doorkey_published
from npro_aif.planning.planner import Planner
from npro_aif.solvers import SVISolver

SIZE, SEED = 8, 42  # the first of the paper's episodes has the layout that is known where one is
HORIZON, DOUBLE, NEAR_HORIZON = 20, 40, 3
NUM_STEPS, RATE = 3000, 0.01
EVERY = 10  # steps between two values of F that are kept
LAYOUT_LOGIT = 5.0  # of the layout that is known: 29 % of the mass
OPTIMIZERS = {"Adam": optax.adam, "Adafactor": optax.adafactor}
TAKES = "some one and a half hours on one core"
SKIPPED = f"Appendix C was not run: it takes {TAKES}; `npro-aif reproduce convergence --long` runs it."


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


class Case(NamedTuple):
    """One descent."""

    kind: str  # the objective
    condition: str
    optimizer: str
    horizon: int

    @property
    def name(self) -> str:
        """Of its file."""
        return f"doorkey-{self.kind}-{self.condition.replace(' ', '-')}-{self.optimizer.lower()}-{self.horizon}"

    @property
    def study(self) -> str:
        """Of its place in the figures: near the goal the horizon is short, and there is but one."""
        return f"{self.kind}, {self.condition}, {self.optimizer}, {max(self.horizon, HORIZON)}"


def cases() -> list[Case]:
    """All descents; first those with Adam, as the paper's claims are of these."""
    conditions = ((NEAR, NEAR_HORIZON), (BLANK, HORIZON), (BLANK, DOUBLE), (LAYOUT, HORIZON), (POSITION, HORIZON),
                  (POSITION, DOUBLE))  # fmt: skip
    kinds = ("active", "planning", "marginal")
    return [Case(kind, name, opt, T) for opt in OPTIMIZERS for kind in kinds for name, T in conditions]


def study(case: Case, num_steps: int = NUM_STEPS) -> dict[str, Any]:
    """F along one descent, every few steps and at its end, and the seconds that it took (compiling included)."""
    task = make_task("doorkey", size=SIZE, paper=True)
    settings = Settings(objective=case.kind, solver="svi", paper=True)
    solver = SVISolver(OPTIMIZERS[case.optimizer](RATE), num_steps)
    planner = Planner(task.model, make_guide(task, settings), make_objective(task, settings), solver, case.horizon)
    start = time.process_time()
    plan = planner(jax.random.key(SEED), conditions()[case.condition], case.horizon)
    energy = np.asarray(plan.free_energy)
    steps = np.unique(np.append(np.arange(0, num_steps, EVERY), num_steps))
    return {"steps": steps.tolist(), "free_energy": rounded(energy[steps]), "seconds": time.process_time() - start}


def make(out: Path, *, long: bool, say: Callable[[str], None], fresh: bool = False) -> Made:
    """Draw the descents that there are.

    :param long: run those that are not there yet.
    :param fresh: run those that the repository keeps, too.
    """
    if long:
        say(f"appendix C takes {TAKES}; a run that was stopped goes on")
    settings = {"num_steps": NUM_STEPS, "rate": RATE, "seed": SEED, "version": npro_aif.__version__}
    studies: dict[str, Any] = {}
    for case in cases():
        path = out / f"{case.name}.json"
        content = kept_study(path, settings, say, fresh=fresh and long)
        if content is None and long:
            content = run_study(path, settings, functools.partial(study, case), say)
        if content is not None:
            studies[case.study] = content
    if not studies:
        say(SKIPPED)
        return NOTHING
    knowledge = {name: (name, HORIZON) for name in (BLANK, POSITION, LAYOUT, NEAR)}
    ahead = {f"{name}, $T={T}$": (name, T) for name in (BLANK, POSITION) for T in (HORIZON, DOUBLE)}
    files = save_figure(draw(studies, knowledge), out / "doorkey_knowledge")
    files += save_figure(draw(studies, ahead), out / "doorkey_horizon")
    hours = sum(one["seconds"] for one in studies.values()) / 3600
    note = f"The {len(studies)} descents of appendix C took {hours:.1f} hours of one core."
    if len(studies) < len(cases()):
        note += f" {len(cases()) - len(studies)} were not run; `npro-aif reproduce convergence --long` runs them."
    return Made(studies, files, note)


def draw(studies: dict[str, Any], columns: dict[str, tuple[str, int]]) -> Figure:
    """A column for each case, a row for each objective, a line for each optimizer that was run."""
    figure = Figure(figsize=(3.0 * len(columns) + 0.6, 2.3 * len(OBJECTIVES)), layout="constrained")
    grid = figure.subplots(len(OBJECTIVES), len(columns), squeeze=False)
    for column, (title, (condition, horizon)) in enumerate(columns.items()):
        grid[0, column].set_title(title, fontsize=10)
        grid[-1, column].set_xlabel("gradient step", fontsize=9)
        for axes, kind in zip(grid[:, column], OBJECTIVES, strict=True):
            for colour, style, optimizer in zip(PALETTE, ("-", "--"), OPTIMIZERS, strict=False):
                descent = studies.get(f"{kind}, {condition}, {optimizer}, {horizon}")
                if descent is not None:
                    axes.plot(
                        descent["steps"], descent["free_energy"], style, color=colour, label=optimizer, linewidth=1.4
                    )
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8)
            if not axes.lines:
                axes.set(xticks=[], yticks=[])
                axes.text(0.5, 0.5, "not run", ha="center", va="center", transform=axes.transAxes, fontsize=9)
    for axes, kind in zip(grid[:, 0], OBJECTIVES, strict=True):
        axes.set_ylabel(f"{LABELS[kind]} (nats)", fontsize=9)
    drawn = next((axes for axes in grid.flat if axes.lines), None)
    if drawn is not None:
        drawn.legend(frameon=False, fontsize=8)
    return figure
