"""The paper's convergence studies in the two mazes: how F falls, and when the plan comes to want the cue.

For each maze and objective one compiled descent (:class:`Descent`) serves all seeds, beliefs and learning rates; what
it finds is one JSON file, from which the figures are drawn. DoorKey's studies are in
:mod:`npro_aif.experiments.doorkey_convergence`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from rich.console import Console

import npro_aif
from npro_aif.belief import Belief
from npro_aif.experiments import convergence_figures, doorkey_convergence
from npro_aif.experiments.figures import agent_of, row_named
from npro_aif.experiments.files import save_figure, store, stored, write_text
from npro_aif.experiments.play import play
from npro_aif.experiments.rows import LABELS, OBJECTIVES, Row
from npro_aif.models import reactivity_maze, tmaze
from npro_aif.planning.planner import Planner
from npro_aif.solvers.svi import stepper

Say = Callable[[str], None]


class Size(NamedTuple):
    """How much is done."""

    num_steps: int
    every: int  # steps between two looks at the plan
    seeds: int  # of the curves
    seeds_known: int  # of the curves with θ known
    rates: tuple[float, ...]
    seeds_rates: int
    seeds_reward: int
    episodes: int  # for each of these


FULL = Size(1500, 25, 20, 5, (0.001, 0.005, 0.01, 0.05, 0.1), 5, 5, 20)
QUICK = Size(1200, 25, 2, 1, (0.01, 0.1), 1, 2, 10)
RATE = 0.05  # the paper's learning rate
MAZES = ("tmaze", "reactivity")
CUE_CONTROL = {"tmaze": tmaze.SOUTH, "reactivity": reactivity_maze.VISIT_CUE}
PAPER_REWARD = {  # appendix "Learning rate sensitivity and robustness": mean ± std over 5 seeds
    "tmaze": {"active": (1.0, 0.0), "marginal": (0.14, 0.22), "planning": (-0.14, 0.22)},
    "reactivity": {"active": (1.0, 0.0), "marginal": (0.33, 0.0), "planning": (0.22, 0.05)},
}


class Curve(NamedTuple):
    """One descent."""

    free_energy: Array  # (num_steps,) F before every step
    control: Array  # (num_steps / every, U) q(u_1) after every few steps


class Descent:
    """Gradient descent as in :class:`npro_aif.SVISolver`, that looks at the plan on its way.

    :param planner: its guide and objective are taken, not its solver.
    """

    def __init__(self, planner: Planner, belief: Belief, horizon: int, num_steps: int, every: int):
        self.program = planner.program(belief, horizon)
        self.planner, self.horizon = planner, horizon
        self.num_looks, self.every = num_steps // every, every
        self._run = jax.jit(self._descend)

    def __call__(self, belief: Belief, seed: int, rate: float = RATE) -> Curve:
        belief = Belief(*(jax.numpy.asarray(table, float) for table in belief))
        return self._run(self.program.fixed, belief, jax.random.key(seed), rate)

    def _descend(self, fixed: Any, belief: Belief, key: Array, rate: Array) -> Curve:
        guide, world = self.planner.guide, self.program.bind(fixed, belief, self.horizon)
        optimizer = optax.adam(rate)  # the rate is traced, so that all of them run the same code
        step = stepper(optimizer, guide.loss_function(self.planner.objective, world, self.horizon))

        def look(state: Any, _: None) -> tuple[Any, tuple[Array, Array]]:
            state, values = jax.lax.scan(step, state, length=self.every)
            posterior = guide.posterior(world, state[0], self.horizon)
            return state, (values, posterior.marginals(world).control[0])

        params = guide.first_params(key, world, self.horizon)
        _, (values, controls) = jax.lax.scan(look, (params, optimizer.init(params)), length=self.num_looks)
        return Curve(values.ravel(), controls)


# --- What is studied ---------------------------------------------------------------------------------------


def kinds(maze: str) -> dict[str, Row]:
    """The rows whose objectives are studied, by label: ours, and in the T-maze also the paper's switches.

    In the Reactivity Maze these change nothing: with the priors held while stepping, normalising them has no gradient.
    """
    if maze == "tmaze":
        paper = {f"{LABELS['active']}, paper's switches": row_named("table1", "paper", "active")}
        return paper | {LABELS[kind]: row_named("table1", "svi", kind) for kind in OBJECTIVES}
    return {LABELS[kind]: row_named("table2", "paper", kind) for kind in OBJECTIVES}


def study_maze(maze: str, label: str, row: Row, size: Size) -> dict[str, Any]:
    """All curves of one objective in one maze, as plain lists."""
    agent = agent_of(row)
    descent = Descent(agent.planner, agent.initial_belief, agent.horizon, size.num_steps, size.every)
    cue, belief = CUE_CONTROL[maze], agent.initial_belief

    def curves(belief: Belief, seeds: int) -> dict[str, Any]:
        found = [descent(belief, seed) for seed in range(seeds)]
        energy = np.stack([np.asarray(curve.free_energy)[:: size.every] for curve in found])
        wants = np.stack([np.asarray(curve.control)[:, cue] for curve in found])
        return {
            "step": list(range(0, size.num_steps, size.every)),
            "free_energy": energy.mean(0).tolist(),
            "free_energy_std": energy.std(0).tolist(),
            "cue": wants.mean(0).tolist(),
            "cue_std": wants.std(0).tolist(),
        }

    found = {"label": label, "unknown": curves(belief, size.seeds)}
    if maze == "tmaze":
        known = Belief(jnp.eye(len(belief.parameter))[0], belief.state)
        found["known"] = curves(known, size.seeds_known)
    found["rates"] = {
        str(rate): [float(descent(belief, seed, rate).control[-1, cue]) for seed in range(size.seeds_rates)]
        for rate in size.rates
    }
    return found


def study_rewards(maze: str, size: Size) -> dict[str, Any]:
    """The mean reward over some episodes for several seeds of the solver's initial values."""
    table, rewards = "table1" if maze == "tmaze" else "table2", {}
    for kind in OBJECTIVES:
        row = row_named(table, "coordinate", kind)
        rewards[kind] = [play(row, size.episodes, solver_seed=seed)["reward"] for seed in range(size.seeds_reward)]
    return {"rewards": rewards}


def kept_or(path: Path, settings: dict[str, Any], study: Callable[[], dict[str, Any]], say: Say) -> dict[str, Any]:
    """What a file holds, if it is of the same settings; else the study, which is then written."""
    found = stored(path, settings)
    if found is not None:
        say(f"{path.stem}: finished before with the same settings, kept")
        return found
    say(f"{path.stem}: running")
    return store(path, settings, study())


def make_convergence(out: Path, *, quick: bool = False, console: Console | None = None) -> list[Path]:
    """Run the studies that are not there yet, draw them, and print what they say."""
    console = console or Console()
    size = QUICK if quick else FULL
    about = {"size": list(size), "rate": RATE, "version": npro_aif.__version__}

    def say(text: str) -> None:
        console.print(f"convergence | {text}", highlight=False)

    studies: dict[str, dict[str, Any]] = {}
    rewards: dict[str, dict[str, Any]] = {}
    for maze in MAZES:
        studies[maze] = {}
        for label, row in kinds(maze).items():
            name = row.name.replace(row.name.split("-")[0], maze)
            settings = about | {"row": row.name}
            studies[maze][label] = kept_or(
                out / f"{name}.json",
                settings,
                functools.partial(study_maze, maze, label, row, size),
                say,
            )
        rewards[maze] = kept_or(
            out / f"{maze}-rewards.json",
            about,
            functools.partial(study_rewards, maze, size),
            say,
        )["rewards"]
    console.print(convergence_figures.cue_table(studies))
    console.print(convergence_figures.rates_table(studies))
    console.print(convergence_figures.rewards_table(rewards, PAPER_REWARD))
    figures = {
        "curves": convergence_figures.curves(studies),
        "two_phases": convergence_figures.two_phases(studies["tmaze"]),
        "budget": convergence_figures.budget(studies),
        "learning_rate": convergence_figures.learning_rates(studies),
        "seeds": convergence_figures.rewards(rewards, PAPER_REWARD),
    }
    made = [file for name, figure in figures.items() for file in save_figure(figure, out / name)]
    write_text(out / "convergence.csv", convergence_figures.csv_text(studies, rewards))
    return [*made, out / "convergence.csv", *doorkey_convergence.make(out, quick=quick, say=say, keep=kept_or)]
