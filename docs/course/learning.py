# %% [markdown]
# # Learn a world, fit an agent
# So far the tables of the world were given. Here the sign at the lakes is of unknown quality: it is learned from what
# was read on it. Then the other way round: we watch somebody who fishes, and learn how much they like fish. Both are
# ordinary NumPyro programs, because the evidence of an episode is exact and differentiable.

# %%
import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import log_density

import npro_aif as aif

PLACES = ("sign", "east", "west")


def fishing(belief, horizon=2, accuracy=0.9, liking=3.0):
    truth = aif.parameter("truth", dist.Categorical(belief.parameter))
    x = aif.state("place", dist.Categorical(belief.state[truth]), labels=PLACES)
    right = jnp.array([[1.0, 0.0], [0.0, 1.0]])  # the word that is right, by truth
    words = jnp.stack([accuracy * right + (1 - accuracy) * (1 - right), jnp.full((2, 2), 0.5), jnp.full((2, 2), 0.5)])
    fish = liking * jnp.array([[0.0, 0.0], [1.0, -1.0], [-1.0, 1.0]])  # of a place, by truth

    def step(x, t):
        u = aif.control("go", dist.Categorical(probs=jnp.full(3, 1 / 3)), labels=PLACES)
        x = aif.state("place", aif.DeterministicCategorical(u, 3))
        aif.observation("word", dist.Categorical(probs=words[x, truth]))
        aif.preference("fish", jnp.where(t == horizon, fish[x, truth], 0.0))
        return x

    aif.rollout(step, x, horizon)


belief = aif.Belief(parameter=jnp.array([0.5, 0.5]), state=jnp.array([[0.0, 1.0, 0.0]] * 2))

# %% [markdown]
# Sixty people each read the sign three times on one day. Nobody tells us where the fish were: all that speaks about the
# sign's quality is how often its words agree. The evidence of a day sums the two truths out.

# %%
ACCURACY = 0.85  # of which the learner knows nothing
world = functools.partial(fishing, accuracy=ACCURACY)
read_three_times = jnp.zeros(3, jnp.int32)
days = aif.simulate(jax.random.key(0), world, belief, num_episodes=60, num_steps=3, controls=read_three_times)
wests = np.asarray(days.observations["word"]).sum(1)  # how often each read "west"
print("words 'west' of three:", np.bincount(wests, minlength=4))

by_hand = np.log(
    (ACCURACY**wests * (1 - ACCURACY) ** (3 - wests) + (1 - ACCURACY) ** wests * ACCURACY ** (3 - wests)) / 2
)
evidence = aif.log_evidence(world, belief, days)
print(f"log-evidence {float(evidence.sum()):.3f}, by hand {by_hand.sum():.3f}")
assert np.allclose(evidence, by_hand, atol=1e-4)

# %% [markdown]
# In a NumPyro program `aif.episodes` adds that evidence, and NUTS does the rest. A sign that is always wrong would say
# the same as one that is always right, so the prior rules it out. With one number to learn, the exact posterior can
# be had on a grid too.


# %%
def learner(days):
    accuracy = numpyro.sample("accuracy", dist.Uniform(0.5, 1.0))
    aif.episodes("days", functools.partial(fishing, accuracy=accuracy), belief, days)


mcmc = MCMC(NUTS(learner), num_warmup=200, num_samples=400, progress_bar=False)
mcmc.run(jax.random.key(1), days)
draws = mcmc.get_samples()
grid = np.linspace(0.5, 1, 201)[:-1, None]
log_posterior = np.log(grid**wests * (1 - grid) ** (3 - wests) + (1 - grid) ** wests * grid ** (3 - wests)).sum(1)
exact = np.average(grid[:, 0], weights=np.exp(log_posterior - log_posterior.max()))
low, high = np.percentile(draws["accuracy"], [2.5, 97.5])
print(f"the sign is right in {draws['accuracy'].mean():.3f} of all cases, 95 % interval {low:.2f} to {high:.2f}")
print(f"exact posterior mean {exact:.3f}; the truth {ACCURACY}")
assert abs(float(draws["accuracy"].mean()) - exact) < 0.01

# %% [markdown]
# Plan with what was learned: which of eight posterior draws is right becomes one more parameter, over which plans
# average.

# %%
learned = aif.with_draws(fishing, {"accuracy": draws["accuracy"]}, num=8)
one_start = aif.CoordinateSolver(restarts=1)
plan = aif.Planner(learned, solver=one_start, max_horizon=2)(jax.random.key(0), learned.belief(belief), horizon=2)
print(f"with {learned.num_draws} draws: first to the {PLACES[int(plan.best_control())]}")
assert PLACES[int(plan.best_control())] == "sign"

# %% [markdown]
# Now the agent. `aif.Choice` is a NumPyro distribution over controls, softmax(−precision · what each costs), and
# `aif.behaviour` the likelihood of whole episodes, with the agent's beliefs followed on the way. Equal beliefs with as
# many steps to go are one decision, which is planned once. Choices tell only the product of precision and liking, so
# the precision is 1 here. NUTS would do again (`examples/09_fit_an_agent.py`); one number can be had on a grid, each
# point of which is a batch of plans.

# %%
LIKING = 2.0


def planner(liking):
    return aif.Planner(functools.partial(fishing, liking=liking), solver=one_start, max_horizon=2)


def policy(belief, t):
    return aif.Choice(planner(LIKING), belief, horizon=2 - t).probs


watched = aif.simulate(jax.random.key(2), fishing, belief, num_episodes=100, num_steps=2, policy=policy)
decisions = aif.decisions(fishing, belief, watched, horizon=2, max_steps=2)
print(f"{int(decisions.counts.sum())} choices, {int((decisions.counts.sum(1) > 0).sum())} different decisions")


def observer(decisions):
    liking = numpyro.sample("liking", dist.LogNormal(0.5, 1.0))
    aif.behaviour("choices", planner(liking), belief, decisions)


log_joint = jax.jit(lambda liking: log_density(observer, (decisions,), {}, {"liking": liking})[0])
grid = np.linspace(0.1, 6.0, 60)
log_posterior = np.array([log_joint(liking) for liking in grid])
probability = np.exp(log_posterior - log_posterior.max())
probability /= probability.sum()
low, high = np.interp([0.025, 0.975], probability.cumsum(), grid)
print(f"liking {grid @ probability:.2f}, 95 % interval {low:.2f} to {high:.2f}; it was {LIKING}")
assert low < LIKING < high
