"""Fit an agent: what does it like, from what it did?

`aif.Choice` is a NumPyro distribution over controls, softmax(−precision · what each costs), differentiable at the plan;
`aif.behaviour` is its likelihood over whole episodes, with the agent's beliefs filtered on the way.
"""

import functools

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import npro_aif as aif
from npro_aif.models.tmaze import initial_belief, tmaze

STEPS, PREFERENCE = 3, 2.5
belief = initial_belief()


def planner(preference):
    """How the agent plans; the cue is right in 80 %."""
    model = functools.partial(tmaze, gamma=preference, cue_accuracy=0.8)
    return aif.Planner(model, objective=aif.Active(), solver=aif.CoordinateSolver(restarts=1), max_horizon=STEPS)


def policy(belief, t):
    """What a (simulated) agent does, given what it believes after t steps."""
    return aif.Choice(planner(PREFERENCE), belief, horizon=STEPS - t).probs


maze = planner(PREFERENCE).model
data = aif.simulate(jax.random.key(0), maze, belief, num_episodes=40, num_steps=STEPS, policy=policy)

# Equal beliefs are one decision, planned once. Choices tell precision × preference only, so precision is 1 here.
decisions = aif.decisions(maze, belief, data, horizon=STEPS, max_steps=STEPS)
count = int((decisions.counts.sum(1) > 0).sum())
print(f"{int(decisions.counts.sum())} choices, {count} different decisions")


def program(data):
    preference = numpyro.sample("preference", dist.LogNormal(0.5, 1.0))
    aif.behaviour("choices", planner(preference), belief, data)


mcmc = MCMC(NUTS(program), num_warmup=100, num_samples=150, progress_bar=False)
mcmc.run(jax.random.key(1), decisions)
draws = mcmc.get_samples()["preference"]
low, high = np.percentile(draws, [2.5, 97.5])
print(f"preference {draws.mean():.2f}, 95 % interval {low:.2f} to {high:.2f}; it was {PREFERENCE}")
print("the truth is inside:", bool(low <= PREFERENCE <= high))
