"""A guide of your own: any NumPyro function that draws the model's sites can be the form of the plan.

Here a mean-field guide for the T-maze: the control of each step is drawn on its own, q(u_1) q(u_2), whatever the
other steps do and wherever the agent then is. The guides that come with the package know the place, q(u_t|x_{t-1}), so
they can say "West at the junction, else North"; how much is that worth? The free energy tells: lower is better.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax

import npro_aif as aif
from npro_aif.models.tmaze import CONTROLS, cue_probabilities, initial_belief, tmaze, transitions


def mean_field(belief: aif.Belief, horizon: int) -> None:
    """Draws every site of the model, by its name: θ, x_0, and u_t, x_t, cue_t for each step t."""
    next_place, cue_probs = jnp.asarray(transitions()), jnp.asarray(cue_probabilities())
    theta = numpyro.sample("theta", dist.Categorical(probs=belief.parameter))
    x = numpyro.sample("x_0", dist.Categorical(probs=belief.state[theta]))
    for t in range(1, horizon + 1):
        # What is learned: four logits a step. They start at random, as symmetric starts are often saddle points.
        logits = numpyro.param(f"u_{t}_logits", lambda key: jax.random.normal(key, (4,)))
        u = numpyro.sample(f"u_{t}", dist.Categorical(logits=logits))
        # What is not learned is as in the model. (Where the model is certain, a guide must not be uncertain: F would be
        # infinite. So places follow the controls here, and are not drawn on their own.)
        x = numpyro.sample(f"x_{t}", aif.DeterministicCategorical(next_place[x, u], 5))
        numpyro.sample(f"cue_{t}", dist.Categorical(probs=cue_probs[x, theta]))


key, horizon = jax.random.key(0), 2
belief = initial_belief(theta=0)  # at the start, knowing that the reward is in the left arm
solver = aif.SVISolver(optax.adam(0.1), num_steps=300)
for name, guide in {"mean-field": mean_field, "temporal": aif.guides.TemporalGuide(tmaze, aif.guides.FACTORS)}.items():
    # The free energy of any discrete guide is computed exactly, by enumeration: no noise, so 300 steps are plenty.
    plan = aif.Planner(tmaze, guide, aif.Marginal(), solver)(key, belief, horizon)
    print(f"{name:10} F = {plan.free_energy[-1]:.3f}")
    for t, row in enumerate(np.asarray(plan.control), 1):
        print(f"  q(u_{t}):", "  ".join(f"{control} {p:.2f}" for control, p in zip(CONTROLS, row, strict=True)))

# Objectives are NumPyro losses, so NumPyro's own SVI takes the guide too:
#     svi = numpyro.infer.SVI(tmaze, mean_field, optax.adam(0.1), loss=aif.Marginal())
#     result = svi.run(key, 300, belief, horizon=horizon)
