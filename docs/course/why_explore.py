# %% [markdown]
# # Why explore
# The T-maze: a reward waits in the left or the right arm, and a cue South of the start tells which. Three objectives
# make three decisions.

# %%
import jax
import numpy as np

import npro_aif as aif
from npro_aif.models.tmaze import CONTROLS, initial_belief, tmaze

for objective in (aif.Marginal(), aif.Planning(), aif.Active()):
    plan = aif.Planner(tmaze, objective=objective)(jax.random.key(0), initial_belief())
    probs = " ".join(f"{name} {p:.2f}" for name, p in zip(CONTROLS, np.asarray(plan.control[0]), strict=True))
    print(f"{type(objective).__name__:9} F = {float(plan.free_energy[-1]):.3f}: {probs}")
assert CONTROLS[int(plan.best_control())] == "South"

# %% [markdown]
# Only the last one goes South, to the cue. Its plan pays for that in risk and is paid in novelty. For every sequence of
# controls the expected free energy says the same, term by term.

# %%
energy = aif.expected_free_energy(tmaze, initial_belief(), horizon=4)
plans = np.asarray(energy.plans)
for story, controls in (("to the cue, and stay", (2, 2, 2, 2)), ("to the left arm at once", (0, 3, 3, 3))):
    row = int(np.flatnonzero((plans == controls).all(1))[0])
    terms = ", ".join(f"{name} {float(getattr(energy, name)[row]):+.2f}" for name in ("risk", "ambiguity", "novelty"))
    print(f"{story:24} G = {float(energy.total[row]):.2f} ({terms})")
cue = int(np.flatnonzero((plans == (2, 2, 2, 2)).all(1))[0])
assert abs(float(energy.novelty[cue]) + np.log(2)) < 1e-4  # one bit, counted once over the whole sequence

# %% [markdown]
# A plan that goes to the cue and stays there does not reach the reward: the agent does, because it replans at the cue.
# The next notebook makes plans that know what they will do there.
