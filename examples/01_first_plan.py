"""Your first plan: an agent in a T-maze decides where to go, and says why.

The maze: the agent starts in the middle of a corridor. North of it is a junction with a left and a right arm, one of
which holds a reward; South of it is a cue that tells which one. It has four steps.

    left – junction – right
               |
             start
               |
              cue

Run it with `python examples/01_first_plan.py`; it writes a figure to the folder `outputs`.
"""

from pathlib import Path

import jax
import numpy as np

import npro_aif as aif
from npro_aif.analysis.tmaze_figure import plot_tmaze_step
from npro_aif.models.tmaze import CONTROLS, PLACES, initial_belief, tmaze

# A planner is made of four things: a world (an ordinary NumPyro program), what a good plan is (the objective), the form
# of the posterior (the guide; a default here) and the algorithm that finds it (the solver).
planner = aif.Planner(tmaze, objective=aif.Active(), solver=aif.CoordinateSolver(), max_horizon=4)

# A belief is where planning starts from: here it stands at the start, and both arms are equally likely.
belief = initial_belief()
plan = planner(jax.random.key(0), belief, horizon=4)

# The plan is a posterior over everything that may happen. First of all: what to do now?
print("What to do first, q(u_1):")
for name, probability in zip(CONTROLS, np.asarray(plan.control[0]), strict=True):
    print(f"  {name:6} {probability:.3f}")
print("so it goes", CONTROLS[int(plan.best_control())])  # South, to the cue

# Where does it expect to be after each step, and what would it do at each place?
for t, place in enumerate(np.argmax(plan.state, -1)):
    print(f"after {t} steps it expects to be at the {PLACES[place]}")

# How good is the plan, and what is that made of? The terms add up to the free energy F.
print(f"F = {plan.free_energy[-1]:.3f} nats after {plan.info.iterations} sweeps, made of")
for name, value in plan.terms.items():
    print(f"  {name:11} {value:+.3f}")

# The same planner from another belief, without compiling anything: the agent is at the cue now and knows the side.
knows = planner(jax.random.key(0), initial_belief(PLACES.index("cue"), theta=0), horizon=3)
print("At the cue, knowing that the reward is left:", " ".join(CONTROLS[u] for u in np.argmax(knows.control, -1)))

# Everything about a plan, with names, for ArviZ and xarray. `posterior` holds draws, `exact` the exact tables.
data = knows.to_arviz()
print("q(u_3 = West | junction) =", float(data.exact["policy"].sel(time=3, state="junction", control="West")))

folder = Path("outputs")
folder.mkdir(exist_ok=True)
axes = plot_tmaze_step(knows, title="at the cue, the reward is left", present=1)
axes.figure.savefig(folder / "01_first_plan.png", dpi=150)
