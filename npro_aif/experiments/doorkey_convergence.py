"""The paper's convergence studies on DoorKey: what is known beforehand, and how far ahead is planned.

The closed-form sweeps against a limited number of steps of Adam and Adafactor on the same problem: the paper's setting,
a preference at the end only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

import npro_aif
from npro_aif.analysis.style import PALETTE
from npro_aif.belief import Belief
from npro_aif.envs import DoorKey
from npro_aif.experiments.figures import agent_of, row_named
from npro_aif.experiments.files import save_figure
from npro_aif.experiments.rows import LABELS, OBJECTIVES
from npro_aif.models import doorkey
from npro_aif.planning.planner import Planner
from npro_aif.solvers import SVISolver

SIZE = 8
SEED = 0  # of the layout that is known where one is; none of those that are reported
HORIZONS = (20, 40)
NUM_STEPS = 100  # of the optimizers; the paper makes 3000 at a learning rate of 0.01
RATE = 0.05
OPTIMIZERS = {"Adam": optax.adam, "Adafactor": optax.adafactor}
COORDINATE = "coordinate"
BLANK, POSITION, LAYOUT, NEAR = "tabula rasa", "known position", "known layout", "near goal"
QUICK_CONDITIONS = (LAYOUT, NEAR)  # one layout each: cheap

Keep = Callable[[Path, dict[str, Any], Callable[[], dict[str, Any]], Callable[[str], None]], dict[str, Any]]


def conditions() -> dict[str, Belief]:
    """What is known beforehand, from nothing to almost everything."""
    prior = doorkey.initial_belief(SIZE)
    parameter, state = np.asarray(prior.parameter), np.asarray(prior.state)
    _, info = DoorKey(size=SIZE).reset(seed=SEED)
    there = np.zeros_like(state)
    there[:, info["state"]] = 1
    given = parameter * state[:, info["state"]]
    layout = np.eye(len(parameter), dtype=parameter.dtype)[info["theta"]]
    end = SIZE - 3  # the goal is in the last interior column and row; two cells above it, looking down
    near = np.zeros_like(state)
    near[:, doorkey.state_index(end, end - 2, doorkey.DIRECTIONS.index("south"), doorkey.OPEN, SIZE)] = 1
    return {
        BLANK: prior,
        POSITION: Belief(jnp.asarray(given / given.sum()), jnp.asarray(there)),
        LAYOUT: Belief(jnp.asarray(layout), jnp.asarray(state)),
        NEAR: Belief(jnp.asarray(layout), jnp.asarray(near)),
    }


def planners(kind: str, horizon: int, solvers: tuple[str, ...]) -> dict[str, Planner]:
    """The planners that are compared, of one objective."""
    agent = agent_of(row_named("table3", "terminal", kind))
    own = agent.planner
    made = {}
    for name in solvers:
        if name == COORDINATE and horizon == agent.horizon:
            made[name] = own
            continue
        solver = own.solver if name == COORDINATE else SVISolver(OPTIMIZERS[name](RATE), NUM_STEPS)
        made[name] = Planner(own.model, own.guide, own.objective, solver, max_horizon=horizon)
    return made


def study(kind: str, horizon: int, solvers: tuple[str, ...], beliefs: dict[str, Belief]) -> dict[str, Any]:
    """F by condition and solver, with the seconds that the plan took (compiling included)."""
    found: dict[str, Any] = {name: {} for name in beliefs}
    for solver, planner in planners(kind, horizon, solvers).items():
        for name, belief in beliefs.items():
            start = time.perf_counter()
            plan = planner(jax.random.key(0), belief, horizon)
            made = np.asarray(plan.free_energy)[: int(plan.info.iterations)].tolist()
            seconds = time.perf_counter() - start
            found[name][solver] = {"free_energy": [*made, float(plan.free_energy[-1])], "seconds": seconds}
    return {"conditions": found}


def make(out: Path, *, quick: bool, say: Callable[[str], None], keep: Keep) -> list[Path]:
    """Run and draw both studies; the quick ones know the layout, and only sweep."""
    solvers = (COORDINATE,) if quick else (COORDINATE, *OPTIMIZERS)
    beliefs = {name: belief for name, belief in conditions().items() if not quick or name in QUICK_CONDITIONS}
    found: dict[int, dict[str, Any]] = {}
    for horizon in HORIZONS[:1] if quick else HORIZONS:
        shown = beliefs if horizon == HORIZONS[0] else {BLANK: beliefs[BLANK]}
        found[horizon] = {}
        for kind in OBJECTIVES:
            settings = {"horizon": horizon, "objective": kind, "solvers": list(solvers), "conditions": list(shown)}
            settings |= {"num_steps": NUM_STEPS, "rate": RATE, "seed": SEED, "version": npro_aif.__version__}
            found[horizon][kind] = keep(
                out / f"doorkey-{kind}-{horizon}.json",
                settings,
                lambda kind=kind, horizon=horizon, shown=shown: study(kind, horizon, solvers, shown),  # type: ignore[misc]
                say,
            )["conditions"]
    first = found[HORIZONS[0]]
    columns = {name: {kind: first[kind][name] for kind in OBJECTIVES} for name in beliefs}
    made = save_figure(draw(columns), out / "doorkey_knowledge")
    if len(found) > 1:
        columns = {f"$T={T}$": {kind: by_kind[kind][BLANK] for kind in OBJECTIVES} for T, by_kind in found.items()}
        made += save_figure(draw(columns), out / "doorkey_horizon")
    for name in beliefs:
        for kind in OBJECTIVES:
            ends = ", ".join(
                f"{solver} F = {one['free_energy'][-1]:.2f} after {len(one['free_energy']) - 1} iterations"
                for solver, one in first[kind][name].items()
            )
            say(f"DoorKey, {name}, {LABELS[kind]}: {ends}")
    return made


def draw(columns: dict[str, dict[str, dict[str, Any]]]) -> Figure:
    """A column for each case, a row for each objective, a line for each solver."""
    figure = Figure(figsize=(3.0 * len(columns) + 0.6, 2.3 * len(OBJECTIVES)), layout="constrained")
    grid = figure.subplots(len(OBJECTIVES), len(columns), squeeze=False)
    for column, (name, by_kind) in enumerate(columns.items()):
        grid[0, column].set_title(name, fontsize=10)
        grid[-1, column].set_xlabel("gradient step or sweep", fontsize=9)
        for axes, kind in zip(grid[:, column], OBJECTIVES, strict=True):
            for colour, (solver, one) in zip(PALETTE, by_kind[kind].items(), strict=False):
                style = {"Adam": "-", "Adafactor": "--"}.get(solver, "o-")
                axes.plot(one["free_energy"], style, color=colour, label=solver, markersize=3, linewidth=1.4)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes, kind in zip(grid[:, 0], OBJECTIVES, strict=True):
        axes.set_ylabel(f"{LABELS[kind]} (nats)", fontsize=9)
    grid[0, 0].legend(frameon=False, fontsize=8)
    return figure
