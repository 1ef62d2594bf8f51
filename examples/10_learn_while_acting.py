"""Learn while acting: a grid with wind that nobody has told the agent about.

The wind of each column is a parameter. What an episode taught about it is where the next one begins (`agent.learn()`):
the belief that acting filters is the posterior, so that learning costs nothing.
"""

from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

import npro_aif as aif
from npro_aif.analysis.style import PALETTE
from npro_aif.models.windy_grid import GOAL, START, cell, initial_belief, transitions, windy_grid

EPISODES, STEPS = 12, 4
next_cell = transitions()  # how the wind really blows


def episodes(objective):
    """Which of the episodes end at the goal, and how many winds are still possible after each."""
    planner = aif.Planner(windy_grid, objective=objective, solver=aif.CoordinateSolver(restarts=1), max_horizon=STEPS)
    agent = aif.Agent(planner, initial_belief(), max_steps=STEPS, record=False)
    reached, possible = [], []
    for episode in range(EPISODES):
        agent.reset(jax.random.key(episode))  # breaks ties
        at = cell(START)
        for _ in range(STEPS):
            at = int(next_cell[at, agent.act(at)])
        agent.observe(at)  # where it ended
        agent.learn()  # the next episode begins with what is known of the wind now
        reached.append(at == cell(GOAL))
        possible.append(int((np.asarray(agent.belief.parameter) > 0).sum()))
    return reached, possible


axes = Figure(figsize=(5, 3), layout="constrained").add_subplot()
curves = {"with novelty about the wind": aif.Active(), "without": aif.Planning()}
for i, (name, objective) in enumerate(curves.items()):
    reached, possible = episodes(objective)
    print(f"{name}: the goal in {sum(reached)} of {EPISODES} episodes; winds still possible after each: {possible}")
    axes.step(range(1, EPISODES + 1), np.cumsum(reached), where="post", color=PALETTE[i], label=name, linewidth=2)
axes.set(xlabel="episode", ylabel="times at the goal")
axes.legend(frameon=False)
folder = Path("outputs")
folder.mkdir(exist_ok=True)
axes.figure.savefig(folder / "10_learn_while_acting.png", dpi=150)
