# %% [markdown]
# # DoorKey
# MiniGrid's DoorKey: the agent knows neither where the key lies nor where the door is, and sees three by three cells
# ahead. Here the smaller grid of 6 × 6; the layout is the parameter, position, direction and status are the state.

# %%
import functools

import npro_aif as aif
from npro_aif.envs import DoorKey
from npro_aif.models import doorkey

model = functools.partial(doorkey.doorkey, size=6)
belief = doorkey.initial_belief(6)
print(f"{int((belief.parameter > 0).sum())} layouts, {belief.state.shape[1]} states")

# %% [markdown]
# Perfect recall by search: every plan is the best there is, or says how far from it it may be.

# %%
planner = aif.Planner(model, aif.guides.RecallGuide(model), aif.Planning(), aif.SearchSolver(), max_horizon=35)
agent = aif.Agent(planner, belief, max_steps=35)
outcomes = aif.run_episodes(functools.partial(DoorKey, size=6), agent, range(1000, 1005))
for episode in outcomes.episodes:
    print(f"seed {episode.seed}: {episode.steps} steps, reward {episode.reward:.2f}")
proven = [certificate.optimal for certificate in planner.certificates]
print(f"{sum(proven)} of {len(proven)} plans proven optimal")
assert all(episode.reward > 0 for episode in outcomes.episodes)
assert all(proven)
