"""The effect of leaving out layouts at the belief's floor in the paper's DoorKey: F and q(u_1) of the first decisions.

With the paper's 3000 steps a plan with all 360 layouts takes minutes; the script prints how long each took.

    python benchmarks/doorkey_layouts.py [--objective active|planning] [--decisions 3] [--steps 3000] [--size 8]
"""

from __future__ import annotations

import argparse
import time

import jax
import numpy as np

from npro_aif.experiments.agents import vfe_agent
from npro_aif.experiments.tasks import Settings, make_task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objective", choices=("active", "planning"), default="active")
    parser.add_argument("--decisions", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--size", type=int, default=8)
    arguments = parser.parse_args()
    task = make_task("doorkey", size=arguments.size, paper=True)
    settings = Settings(objective=arguments.objective, solver="svi", paper=True, num_steps=arguments.steps)
    agents = {everything: vfe_agent(task, settings) for everything in (False, True)}
    for everything, agent in agents.items():
        agent.planner.everything = everything  # type: ignore[attr-defined]
    own = agents[False]
    print(f"{2 * arguments.decisions} plans of {arguments.steps} steps: with 360 layouts some minutes each")
    env = task.environment()
    observation, _ = env.reset(seed=task.first_seed)
    belief, control = task.belief, None
    for step in range(arguments.decisions):
        belief = own.filter(belief, control, observation, ignore_impossible=True, step=step)
        key, ahead = jax.random.fold_in(jax.random.key(own.seed), step), own.steps_ahead(step)
        for everything, agent in agents.items():
            start = time.perf_counter()
            plan = agent.planner(key, belief, ahead)
            layouts, first = int(np.asarray(plan.valid).sum()), np.asarray(plan.control)[0].round(3)
            took = time.perf_counter() - start
            energy = float(plan.free_energy[-1])
            print(f"decision {step + 1}, {layouts} layouts: F {energy:.4f}, q(u_1) {first}, {took:.0f} s", flush=True)
            control = control if everything else int(np.argmax(np.asarray(plan.control)[0]))
        observation, *_ = env.step(control)


if __name__ == "__main__":
    main()
