# %% [markdown]
# # Plans that react
# A policy can only react to what it sees. Give it a memory of what the cue said, and the plan is the whole way: to the
# cue, and then to the arm that it names.

# %%
import functools

import jax

import npro_aif as aif
from npro_aif.models.tmaze import initial_belief, tmaze

remembering = functools.partial(tmaze, memory="told")
bound = float(aif.perfect_information(tmaze, initial_belief(), 4))
plans = {}
for name, model in (("nothing remembered", tmaze), ("told remembered", remembering)):
    plans[name] = aif.Planner(model, objective=aif.Planning())(jax.random.key(0), initial_belief())
    print(f"{name:20} F_planning = {float(plans[name].free_energy[-1]):.4f}, at least {bound:.4f} for anybody")
assert abs(float(plans["told remembered"].free_energy[-1]) - 5.5990) < 1e-3
assert abs(float(plans["nothing remembered"].free_energy[-1]) - 9.5990) < 1e-3

# %% [markdown]
# No epistemic prior is at work here: information is worth what it changes. The plan as a tree, in words:

# %%
print(plans["told remembered"].tree())

# %% [markdown]
# Where no memory is large enough, the closed loop can be solved by search from one belief, with a certificate.

# %%
guide = aif.guides.RecallGuide(tmaze)
plan = aif.Planner(tmaze, guide, aif.Planning(), aif.SearchSolver())(jax.random.key(0), initial_belief())
print(plan.info.explain())
assert bool(plan.info.optimal)
assert abs(float(plan.info.upper) - 5.5990) < 1e-3
