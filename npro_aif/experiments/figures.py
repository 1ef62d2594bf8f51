"""The figures of a reproduction: trajectories in the T-maze, why it goes to the cue, DoorKey, and how F falls.

The plans are made by the agents of the tables, so that nothing is compiled twice where both are made. Beside every
picture lies a JSON file with the numbers that it shows; `docs/rows/figures` keeps those of the pictures in `docs`.
"""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from npro_aif.acting.agent import Agent
from npro_aif.acting.solutions import write
from npro_aif.analysis.doorkey_figure import plot_doorkey_frames
from npro_aif.analysis.free_energy_figure import plot_free_energy
from npro_aif.analysis.recording import Recording, record_episode
from npro_aif.analysis.terms_figure import plot_terms
from npro_aif.analysis.tmaze_figure import plot_tmaze_trajectories
from npro_aif.analysis.tree_figure import plot_tree
from npro_aif.envs import DoorKey, PublishedTMaze, TMaze
from npro_aif.experiments.agents import vfe_agent
from npro_aif.experiments.files import prepare, save_figure
from npro_aif.experiments.rows import LABELS, OBJECTIVES, SEEDS, TABLES, Row
from npro_aif.experiments.tasks import Settings, make_task
from npro_aif.inference.efe import expected_free_energy
from npro_aif.models import tmaze
from npro_aif.planning.plan import Plan

LEFT_ARM = 0  # θ of the paper's trajectory figure: the reward is on the left
DOORKEY_FRAMES = 4  # of one episode


DIGITS = 4  # of the numbers that are kept


class Drawing(NamedTuple):
    """A picture and what it shows."""

    figure: Figure
    numbers: dict[str, Any]  # as JSON has them


def row_named(table: str, block: str, kind: str) -> Row:
    """A row by the names of its table and block and by its objective."""
    name = f"{table}-{block}-{kind}"
    return next(row for part in TABLES[table].blocks for row in part.rows if row.name == name)


def agent_of(row: Row) -> Agent:
    """The agent of a row, compiled at most once."""
    _, agent = prepare(row.task, row.settings, row.preference)
    if not isinstance(agent, Agent):
        raise TypeError(f"row {row.name}: found {type(agent).__name__}, expected an agent that plans")
    return agent


def record(agent: Agent, env: Any, seed: int, options: dict[str, Any] | None = None) -> Recording:
    """One episode with the plan of every step; ties go to the first control."""
    agent = copy.copy(agent)
    agent.rule = dataclasses.replace(agent.rule, ties="first")
    return record_episode(env, agent, seed, options=options)


def trajectories() -> Drawing:
    """The paper's trajectory figure: an episode of each objective in the T-maze, the reward on the left."""
    return _trajectories("coordinate", TMaze())


def published_trajectories() -> Drawing:
    """The same in the paper's own setting: the numbers are the opacities of its figure."""
    return _trajectories("paper", PublishedTMaze(), numbers=True)


def _trajectories(block: str, env: Any, *, numbers: bool = False) -> Drawing:
    episodes = {
        LABELS[kind]: record(agent_of(row_named("table1", block, kind)), env, SEEDS["table1"], {"theta": LEFT_ARM})
        for kind in OBJECTIVES
    }
    arrivals = {name: recording.episode.infos[-1]["state"] for name, recording in episodes.items()}
    plans = {name: recording.plans for name, recording in episodes.items()}
    axes = plot_tmaze_trajectories(plans, theta=LEFT_ARM, arrivals=arrivals, numbers=numbers)
    return Drawing(_figure(axes.flat[0]), {name: _steps(recording) for name, recording in episodes.items()})


def terms() -> Drawing:
    """Why it goes to the cue: the terms of the expected free energy of the best plans from the T-maze's start."""
    energy = expected_free_energy(tmaze.tmaze, tmaze.initial_belief(), horizon=4)
    tables = {name: table for name, table in energy._asdict().items() if isinstance(table, jax.Array)}
    return Drawing(
        _figure(plot_terms(energy, tmaze.CONTROLS)), {name: _listed(table) for name, table in tables.items()}
    )


def doorkey_frames(seed: int = SEEDS["table3"]) -> Drawing:
    """Some steps of one DoorKey episode, with belief and planned path."""
    row = row_named("table3", "every-step", "active")
    episode = record(agent_of(row), DoorKey(render_mode="rgb_array"), seed)
    steps = np.unique(np.linspace(0, len(episode.plans) - 1, DOORKEY_FRAMES).round().astype(int))
    plans, frames = [episode.plans[t] for t in steps], [episode.frames[t] for t in steps]
    grid = plot_doorkey_frames(plans, frames, [f"$t={t}$" for t in steps])
    numbers = {"seed": seed, "frames": steps.tolist(), "steps": _steps(episode)}
    return Drawing(_figure(np.asarray(grid).flat[0]), numbers)


def free_energies() -> Drawing:
    """F in the T-maze: against gradient steps (SVI, sequence guide) and against sweeps (coordinate, temporal guide)."""
    figure = Figure(figsize=(9.5, 3.4), layout="constrained")
    steps, sweeps = figure.subplots(1, 2)
    numbers = {}
    for axes, block, xlabel in ((steps, "svi", "gradient step"), (sweeps, "coordinate", "sweep")):
        plans = {LABELS[kind]: first_plan(agent_of(row_named("table1", block, kind))) for kind in OBJECTIVES}
        plot_free_energy(plans, axes, xlabel=xlabel)
        numbers[xlabel] = {name: _listed(plan.free_energy) for name, plan in plans.items()}
    steps.set_title("SVI, sequence guide", fontsize=10)
    sweeps.set_title("coordinate updates, temporal guide", fontsize=10)
    return Drawing(figure, numbers)


def contingent_plans() -> Drawing:
    """The T-maze's first plan as a tree: F_active where nothing is remembered, F_planning where the cue's word is."""
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=[1, 2])
    rows = (
        (above, "active", None, "nothing remembered, F_active: to the cue, and stay there"),
        (
            below,
            "planning",
            "told",
            "what the cue says is remembered, F_planning: left if told left, right if told right",
        ),
    )
    numbers = {}
    for axes, objective, memory, title in rows:
        task = make_task("tmaze", memory=memory)._replace(learn=("control",))
        plan = first_plan(vfe_agent(task, Settings(objective=objective, solver="coordinate")))
        plot_tree(plan.tree(), axes, title=title)
        numbers[LABELS[objective]] = {"F": _listed(plan.free_energy[-1]), "tree": repr(plan.tree()).splitlines()}
    return Drawing(figure, numbers)


def _steps(recording: Recording) -> list[dict[str, Any]]:
    """What was planned and done at every step of an episode."""
    episode = recording.episode
    return [
        {"state": int(info["state"]), "q(u_1)": _listed(plan.control[0]), "control": int(control)}
        for info, plan, control in zip(episode.infos, recording.plans, episode.controls, strict=False)
    ]


def _listed(table: Any) -> Any:
    return np.round(np.asarray(table, np.float64), DIGITS).tolist()


def first_plan(agent: Agent, seed: int = 0) -> Plan:
    """The plan from what is believed before the first observation."""
    return agent.planner(jax.random.key(seed), agent.initial_belief, agent.horizon)


def _figure(axes: Any) -> Figure:
    return axes.figure


FIGURES = {
    "tmaze_trajectories": trajectories,
    "tmaze_published": published_trajectories,
    "tmaze_plans": contingent_plans,
    "tmaze_terms": terms,
    "tmaze_free_energy": free_energies,
    "doorkey_frames": doorkey_frames,
}


def make_figures(out: Path, *, console: Console | None = None) -> list[Path]:
    """Draw all of them as PNG and PDF, with their numbers as JSON beside them."""
    console = console or Console()
    pictures = []
    for name, draw in FIGURES.items():
        with console.status(f"drawing {name}"):
            drawing = draw()
            files = save_figure(drawing.figure, out / name)
            write(out / f"{name}.json", drawing.numbers)
        console.print(f"figures | {name}: {', '.join(map(str, files))}", highlight=False)
        pictures += files
    return pictures
