"""Many plans at once: how sure must the agent be before it skips the cue?

In the T-maze the agent may ask the cue which arm holds the reward, or go to an arm. Two steps are enough for either but
not for both. Here it plans from 64 beliefs, from "certainly right" to "certainly left", in one compiled call.
"""

import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import npro_aif as aif
from npro_aif.analysis.style import PALETTE
from npro_aif.models.tmaze import CONTROLS, NORTH, SOUTH, START, tmaze

# Only the controls are learned, so that the plan cannot believe what it hopes for: q(θ) stays at the belief. Where the
# agent changes its mind both plans are stable, so several starts are made and the lowest free energy is kept.
guide = aif.guides.TemporalGuide(tmaze, learn=("control",))
planner = aif.Planner(tmaze, guide, aif.Active(), aif.CoordinateSolver(restarts=4), max_horizon=2)

# A batch of beliefs is a Belief whose arrays have one more axis, in front.
count = 64
chance = np.linspace(0.0, 1.0, count, dtype=np.float32)
beliefs = aif.Belief(
    parameter=jnp.asarray(np.stack([chance, 1 - chance], axis=-1)),  # (64, Θ)
    state=jnp.tile(jax.nn.one_hot(START, 5), (count, 2, 1)),  # (64, Θ, X): at the start, whatever the arm
)
keys = jax.random.split(jax.random.key(0), count)
plans = planner.batch(keys, beliefs, horizon=2)  # compiles; every array of `plans` has the batch in front, too

start = time.perf_counter()
plans = jax.block_until_ready(planner.batch(keys, beliefs, horizon=2))
print(f"{count} plans in {1000 * (time.perf_counter() - start):.0f} ms, once compiled")

first = np.asarray(plans.control[:, 0])  # (64, U) q(u_1)
asks = first[:, SOUTH] > 0.5
print(f"it asks the cue while p(left) is from {chance[asks].min():.2f} to {chance[asks].max():.2f}")  # 0.21 to 0.79
for i in (0, count // 2, count - 1):
    print(f"  p(left) = {chance[i]:.2f}: first {CONTROLS[int(np.argmax(first[i]))]}")

# One plan of the batch is as any other plan.
one = jax.tree.map(lambda array: array[0], plans)
print("the first of them:", " ".join(CONTROLS[u] for u in np.argmax(one.control, -1)))

axes = Figure(figsize=(5, 3), layout="constrained").add_subplot()
for control, style in ((NORTH, "-"), (SOUTH, "--")):  # East and West are walls at the start, and never chosen
    axes.plot(chance, first[:, control], style, color=PALETTE[control], label=CONTROLS[control], linewidth=2)
axes.set(xlabel="belief that the reward is left", ylabel="$q(u_1)$")
axes.legend(frameon=False, loc="center")
folder = Path("outputs")
folder.mkdir(exist_ok=True)
axes.figure.savefig(folder / "06_batch_planning.png", dpi=150)
