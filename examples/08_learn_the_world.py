"""Learn the world: how often is the cue right? And plan with what was learned.

The evidence of recorded episodes is exact and differentiable, so that NumPyro's own inference learns whatever the
program's tables are made of. Posterior draws then become a parameter of the plan: the index of the draw.
"""

import functools

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import npro_aif as aif
from npro_aif.models.tmaze import CONTROLS, initial_belief, tmaze

ACCURACY = 0.8  # the truth, of which the learner knows nothing
maze = functools.partial(tmaze, cue_accuracy=ACCURACY)
belief = initial_belief()
data = aif.simulate(jax.random.key(2), maze, belief, num_episodes=200, num_steps=4)  # random walks
print(f"{data.num_episodes} episodes; the cue was read {int((data.truth['x'][:, 1:] == 0).sum())} times")


def program(data):
    """The side is never shown, only the cue: a cue that is wrong in 80 % would say the same, so it is ruled out."""
    accuracy = numpyro.sample("cue_accuracy", dist.Uniform(0.5, 1.0))
    aif.episodes("maze", functools.partial(tmaze, cue_accuracy=accuracy), belief, data)


mcmc = MCMC(NUTS(program), num_warmup=200, num_samples=300, progress_bar=False)
mcmc.run(jax.random.key(1), data)
draws = mcmc.get_samples()
low, high = np.percentile(draws["cue_accuracy"], [5, 95])
print(f"the cue is right in {draws['cue_accuracy'].mean():.2f} of all cases, 90 % interval {low:.2f} to {high:.2f}")
print("the truth is inside:", bool(low <= ACCURACY <= high))  # in nine of ten data sets, not in all

# Sixteen draws are as many worlds in which the agent may be. Which one is a parameter that it may learn about.
learned = aif.with_draws(tmaze, draws, num=16)
planner = aif.Planner(learned, solver=aif.CoordinateSolver(restarts=1), max_horizon=4)
plan = planner(jax.random.key(0), learned.belief(belief), horizon=4)
print(f"with {learned.num_draws} draws it goes {CONTROLS[int(plan.best_control())]} first")
