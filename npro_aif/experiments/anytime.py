"""Descents whose plans are recorded on the way, and an agent that can act after any number of their steps.

For each maze and objective one compiled descent (:class:`Descent`) serves all beliefs, keys and learning rates. Every
descent is kept with all its records, so that episodes with fewer steps per plan cost nothing more. With a folder,
descents are kept as files, and a study that was stopped continues.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from npro_aif.acting.agent import Agent
from npro_aif.acting.episodes import Episode
from npro_aif.acting.solutions import fingerprint
from npro_aif.belief import Belief
from npro_aif.experiments.tasks import Task
from npro_aif.planning.planner import Planner
from npro_aif.solvers.svi import stepper


class Curve(NamedTuple):
    """One descent."""

    free_energy: np.ndarray  # (num_steps,) F before every step
    control: np.ndarray  # (num_steps / every, U) q(u_1) after every few steps
    seconds: float  # of a core that it took; compiling included


class Descent:
    """Gradient descent as in :class:`npro_aif.SVISolver`, which records the plan on its way.

    :param planner: its guide and objective are taken, not its solver.
    :param horizon: the largest one; with a guide that compiles for each horizon, the only one.
    :param every: steps between two records.
    """

    def __init__(self, planner: Planner, belief: Belief, horizon: int, num_steps: int, every: int):
        self.program = planner.program(belief, horizon)
        self.planner, self.horizon = planner, horizon
        self.num_looks, self.every = num_steps // every, every
        self._run = jax.jit(self._descend)

    def __call__(self, belief: Belief, key: Array, rate: float, horizon: int | None = None) -> Curve:
        begin = time.process_time()
        belief = Belief(*(jnp.asarray(table, float) for table in belief))
        steps = jnp.asarray(self.horizon if horizon is None else horizon)
        energy, control = map(np.asarray, self._run(self.program.fixed, belief, steps, key, rate))
        return Curve(energy, control, time.process_time() - begin)

    def _descend(self, fixed: Any, belief: Belief, horizon: Array, key: Array, rate: Array) -> tuple[Array, Array]:
        guide, world = self.planner.guide, self.program.bind(fixed, belief, horizon)
        optimizer = optax.adam(rate)  # the rate is traced, so that all of them run the same code
        step = stepper(optimizer, guide.loss_function(self.planner.objective, world, self.horizon))

        def look(state: Any, _: None) -> tuple[Any, tuple[Array, Array]]:
            state, values = jax.lax.scan(step, state, length=self.every)
            return state, (values, guide.posterior(world, state[0], self.horizon).first_control(world))

        params = guide.first_params(key, world, self.horizon)
        _, (values, controls) = jax.lax.scan(look, (params, optimizer.init(params)), length=self.num_looks)
        return values.ravel(), controls


class Anytime:
    """The agent of a row of the tables, with the descents of its plans kept.

    :param agent: plans, and says where each step's descent starts.
    :param folder: where descents are kept; those that are there already are used.
    """

    def __init__(self, task: Task, agent: Agent, num_steps: int, every: int, folder: Path | None = None):
        self.task, self.agent, self.num_steps, self.every, self.folder = task, agent, num_steps, every, folder
        self._descents: dict[int, Descent] = {}
        self._curves: dict[str, Curve] = {}

    @property
    def curves(self) -> list[Curve]:
        """Every descent that was asked for so far."""
        return list(self._curves.values())

    def curve(self, belief: Belief, step: int, rate: float) -> Curve:
        """The descent of the plan from a belief at a step of an episode."""
        agent = self.agent
        ahead = agent.steps_ahead(step)
        name = fingerprint(belief, ahead, step, rate, self.num_steps, self.every)
        if name not in self._curves:
            path = None if self.folder is None else self.folder / f"{name}.npz"
            curve = None if path is None else read_curve(path)
            if curve is None:
                curve = self._descend(belief, step, ahead, rate)
                if path is not None:
                    write_curve(path, curve)
            self._curves[name] = curve
        return self._curves[name]

    def _descend(self, belief: Belief, step: int, ahead: int, rate: float) -> Curve:
        agent = self.agent
        longest = agent.horizon if agent.planner.guide.any_horizon else ahead
        if longest not in self._descents:
            descent = Descent(agent.planner, agent.initial_belief, longest, self.num_steps, self.every)
            self._descents[longest] = descent
        key = jax.random.fold_in(jax.random.key(agent.seed), step)
        return self._descents[longest](belief, key, rate, ahead)

    def play(self, env: Any, episodes: int, steps: int, rate: float) -> Iterator[tuple[Episode, list[Curve]]]:
        """Episodes that act after this many steps a plan, one after the other, and their plans' descents.

        :param steps: a multiple of ``every``; the control is the first of the most probable ones.
        """
        for seed in range(episodes):
            observation, info = env.reset(seed=seed)
            belief, control, over = self.agent.initial_belief, None, False
            controls: list[int] = []
            infos, curves, reward, terminated = [info], list[Curve](), 0.0, False
            while not over:
                belief = self.agent.filter(belief, control, observation, step=len(controls))
                curves.append(self.curve(belief, len(controls), rate))
                control = int(np.argmax(curves[-1].control[steps // self.every - 1]))
                observation, gained, terminated, truncated, info = env.step(control)
                reward, over = reward + float(gained), terminated or truncated
                controls.append(control)
                infos.append(info)
            yield Episode(seed, reward, len(controls), terminated, tuple(controls), tuple(infos)), curves


def read_curve(path: Path) -> Curve | None:
    """The descent that a file holds, if it is there."""
    if not path.exists():
        return None
    with np.load(path) as content:
        return Curve(content["free_energy"], content["control"], float(content["seconds"]))


def write_curve(path: Path, curve: Curve) -> None:
    """Keep a descent in a file, written in one go."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.stem}.{os.getpid()}.partial.npz")
    np.savez(partial, **curve._asdict())
    os.replace(partial, path)
