# %% [markdown]
# # From pymdp to npro-aif
# The same T-maze by both. In pymdp a world is arrays A, B, C, D; here it is a program, and an adapter makes the arrays
# from it.

# %%
import npro_aif as aif
from npro_aif.baselines.pymdp_agents import StandardEFE
from npro_aif.envs import TMaze
from npro_aif.models.tmaze import initial_belief, tmaze

SEEDS = range(20)
theirs = StandardEFE(tmaze, initial_belief(), 4, 4, gamma=16.0)
ours = aif.Agent(aif.Planner(tmaze), initial_belief(), max_steps=4)

# %% [markdown]
# | pymdp | npro-aif |
# |---|---|
# | `A[m]`, `B[f]` | `aif.observation`, `aif.state` with any NumPyro categorical |
# | `C[m]`, over observations | `aif.preference`, over states, parameters, controls or observations, at any time |
# | `D[f]`, a product over factors | `aif.Belief(parameter, state)`, joint |
# | `E` | the control's own distribution |
# | plans as sequences of controls | policies: `plan.policy[t, x, u]`; with memories or search, contingent ones |
# | `infer_states`, `infer_policies` | `aif.update_belief`, `planner(key, belief)` |

# %%
for name, agent in (("pymdp, Standard EFE", theirs), ("npro-aif, F_active", ours)):
    outcomes = aif.run_episodes(TMaze, agent, SEEDS)
    rewarded = sum(episode.reward > 0 for episode in outcomes.episodes)
    effort = outcomes.effort
    print(f"{name:20} {rewarded} of {len(SEEDS)} episodes rewarded, {effort.decisions} decisions")
    assert rewarded == len(SEEDS)
