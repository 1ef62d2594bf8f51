# %% [markdown]
# # First plan
# The fish are in the east or the west lake, and a sign tells which, mostly. The world is an ordinary NumPyro program
# whose sites have roles: a parameter that is not known, a state, a control, an observation and a preference.

# %%
import jax
import jax.numpy as jnp
import numpyro.distributions as dist

import npro_aif as aif

PLACES = ("sign", "east", "west")
SIGN = jnp.array([[[0.95, 0.05], [0.05, 0.95]], [[0.5, 0.5]] * 2, [[0.5, 0.5]] * 2])  # p(word | place, truth)
LIKED = jnp.array([[0.0, 0.0], [3.0, -3.0], [-3.0, 3.0]])  # of a place, by truth


def fishing(belief, horizon=2):
    truth = aif.parameter("truth", dist.Categorical(belief.parameter))
    x = aif.state("place", dist.Categorical(belief.state[truth]), labels=PLACES)

    def step(x, t):
        u = aif.control("go", dist.Categorical(probs=jnp.full(3, 1 / 3)), labels=PLACES)
        x = aif.state("place", aif.DeterministicCategorical(u, 3))
        aif.observation("word", dist.Categorical(probs=SIGN[x, truth]))
        aif.preference("fish", jnp.where(t == horizon, LIKED[x, truth], 0.0))
        return x

    aif.rollout(step, x, horizon)


# %% [markdown]
# A belief is where planning starts from: both truths are equally likely, and we stand at the east lake. A planner
# learns the policy, in closed form, and gives a posterior over everything that may happen.

# %%
belief = aif.Belief(parameter=jnp.array([0.5, 0.5]), state=jnp.array([[0.0, 1.0, 0.0]] * 2))
planner = aif.Planner(fishing)
plan = planner(jax.random.key(0), belief, horizon=2)
print(plan)
assert PLACES[plan.best_control()] == "sign"

# %% [markdown]
# The terms add up to the free energy; novelty is negative, as information lowers F.

# %%
for name, value in plan.terms.items():
    print(f"{name:12} {float(value):+.3f}")
assert abs(sum(map(float, plan.terms.values())) - float(plan.free_energy[-1])) < 1e-4

# %% [markdown]
# We go to the sign and it says "west". The belief is updated exactly, by the same program, and the same planner plans
# the rest without compiling anything.

# %%
belief = aif.update_belief(fishing, belief, control=0, observation=1)
print("believed:", belief.parameter)
plan = planner(jax.random.key(0), belief, horizon=1)
print("go", PLACES[plan.best_control()])
assert PLACES[plan.best_control()] == "west"
