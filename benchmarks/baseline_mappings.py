"""What the mapping of the Reactivity Maze does to Standard EFE and Sophisticated Inference, by the exact references.

Each row is a way to read the same world; the episodes and seeds are the same. "Feedback" lets the agent see at every
step how good its state is (it never is in our environment), as an agent with an observed reward modality does.

    python benchmarks/baseline_mappings.py [--episodes 200]
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import npro_aif as aif
from npro_aif.acting.run import run_episodes
from npro_aif.baselines import ReferenceAgent
from npro_aif.envs import ReactivityMaze
from npro_aif.experiments.tasks import make_task
from npro_aif.models import reactivity_maze

LEVEL = "level"


class ToldReward(ReactivityMaze):
    """The maze with the reward that the present state would have among the observations."""

    def _observe(self) -> dict[str, int]:
        state = self._location, self._knob, self._theta
        return super()._observe() | {LEVEL: round(100 * float(reactivity_maze.REWARD[state]))}


class Listening(ReferenceAgent):
    """Conditions its belief on that reward, too."""

    def observe(self, observation: Any) -> None:
        super().observe({name: value for name, value in observation.items() if name != LEVEL})
        levels = np.moveaxis(100 * reactivity_maze.REWARD, -1, 0).reshape(self.belief.state.shape).round()
        joint = np.asarray(self.belief.parameter)[:, None] * np.asarray(self.belief.state)
        joint = joint * (levels == observation[LEVEL])
        parameter = joint.sum(1)
        scale = np.where(parameter > 0, parameter, 1.0)[:, None]
        state = np.where(parameter[:, None] > 0, joint / scale, np.asarray(self.belief.state))
        self.belief = aif.Belief(jnp.asarray(parameter / parameter.sum()), jnp.asarray(state))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--gamma", type=float, default=16.0)
    arguments = parser.parse_args()
    task = make_task("reactivity")
    table = Table(title=f"Reactivity Maze, exact references, γ = {arguments.gamma:g}, seeds 0–{arguments.episodes - 1}")
    for title in ("method", "sensors", "goal", "preference at", "feedback"):
        table.add_column(title)
    for title in ("success", "safe", "cue", "reward"):
        table.add_column(title, justify="right")
    choices = ("efe", "sophisticated"), (False, True), ("silent", "seen"), ("model", "every"), (False, True)
    for method, sensors, goal, timing, feedback in itertools.product(*choices):
        agent = (Listening if feedback else ReferenceAgent)(
            task.model,
            task.belief,
            task.horizon,
            task.max_steps,
            method=method,  # type: ignore[arg-type]
            sensors=sensors,
            goal=goal,  # type: ignore[arg-type]
            timing=timing,  # type: ignore[arg-type]
            gamma=arguments.gamma,
        )
        env = ToldReward() if feedback else ReactivityMaze()
        episodes = run_episodes(env, agent, range(arguments.episodes)).episodes
        outcomes = [task.outcome(episode) for episode in episodes]
        rates = [f"{100 * np.mean([one[name] for one in outcomes]):.0f} %" for name in ("success", "safe", "cue")]
        table.add_row(
            method,
            "planned" if sensors else "perceived",
            goal,
            "the end" if timing == "model" else "every step",
            "yes" if feedback else "no",
            *rates,
            f"{np.mean([episode.reward for episode in episodes]):+.2f}",
            end_section=feedback and timing == "every",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
