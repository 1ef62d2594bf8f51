"""An agent in a gymnasium loop: observe, plan anew, act, until the episode ends.

The Reactivity Maze: locations 0–4 on a ring, a knob from 0 to 4 that says how surely a move succeeds, a safe sink into
which a failed move falls, and a cue that tells which of two goals is the right one. The reward comes with the last of
five steps: 1 at the right goal with the knob at 4, 0.33 in the sink, less elsewhere.
"""

from pathlib import Path

import gymnasium as gym
import jax

import npro_aif as aif
import npro_aif.envs  # registers the environments with gymnasium
from npro_aif.analysis.reactivity_figure import plot_reactivity
from npro_aif.models.reactivity_maze import CONTROL_LABELS, LOCATION_LABELS, initial_belief, reactivity_maze

# The environment knows where the goal is. The agent has a model of the world, and a belief.
env = gym.make("npro_aif/ReactivityMaze-v0")
planner = aif.Planner(reactivity_maze, objective=aif.Active(), solver=aif.CoordinateSolver(), max_horizon=3)
agent = aif.Agent(planner, initial_belief(), horizon=3, max_steps=5)

rewards = []
for seed in range(3):
    observation, info = env.reset(seed=seed)
    agent.reset(key=jax.random.key(seed))  # the key breaks ties between controls that are equally good
    done, reward = False, 0.0
    print(f"episode {seed}: the right goal is {info['theta']}")
    while not done:
        place = LOCATION_LABELS[observation["seen_location"]]
        # The agent updates its belief with what it sees, plans as many steps ahead as are left (three at most), and
        # does the likeliest control. Observations are dicts by the names of the model's observation sites.
        control = agent.act(observation)
        sure = float(agent.belief.parameter[info["theta"]])
        print(f"  at {place:4} p(right goal) = {sure:.2f}: {CONTROL_LABELS[control]}")
        observation, reward, terminated, truncated, info = env.step(control)
        done = terminated or truncated
    rewards.append(float(reward))
    print(f"  reward {reward}")
print("rewards:", rewards)

# The plans of the last episode are kept in `agent.plans`: the first one, made before the cue was seen.
folder = Path("outputs")
folder.mkdir(exist_ok=True)
plot_reactivity(agent.plans[0], title="the first plan")[0].figure.savefig(folder / "04_gym_loop.png", dpi=150)

# For many episodes there is a shorter way, which plans for all of them together and solves equal problems once:
#     outcomes = aif.run_episodes(npro_aif.envs.ReactivityMaze, agent, seeds=range(100))
