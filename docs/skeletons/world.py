"""A world: a program of one step, written with the roles; what may be learned is a parameter, likes are preferences.

Copy this to ``models/``, give it an ``initial_belief`` and constants with labels, and test it against brute force.
"""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

import npro_aif as aif

WEATHER, CONTROLS = ("dry", "wet"), ("look", "umbrella", "coat")
FORECAST = jnp.array([[0.8, 0.2], [0.3, 0.7]])  # p(what it says | weather)
LIKED = jnp.array([[-0.1, -1.0, 1.0], [-0.1, 1.0, -2.0]])  # of a control, by weather


def outing(belief: aif.Belief, horizon: int = 2) -> None:
    weather = aif.parameter("weather", dist.Categorical(probs=belief.parameter), labels=WEATHER)
    outside = aif.state("outside", aif.DeterministicCategorical(jnp.zeros_like(weather), 2))
    word = aif.memory("forecast", 2, 3, labels=("dry", "wet", "none"))

    def step(carry, t):
        outside, word = carry
        u = aif.control("do", dist.Categorical(probs=jnp.ones(3) / 3), labels=CONTROLS)
        aif.preference("comfort", jnp.where(outside == 0, LIKED[weather, u], 0.0))
        outside = aif.state("outside", aif.DeterministicCategorical(jnp.where(u > 0, 1, outside), 2))
        says = aif.observation("says", dist.Categorical(probs=FORECAST[weather]), labels=WEATHER)
        word = aif.memory("forecast", says, 3)
        return outside, word

    aif.rollout(step, (outside, word), horizon)


def initial_belief(wet: float = 0.4) -> aif.Belief:
    return aif.Belief(parameter=jnp.array([1 - wet, wet]), state=jnp.array([[1.0, 0.0]] * 2))


def by_hand(belief: aif.Belief) -> float:
    """The best expected comfort by a decision tree: go at once, or look first and go by what it says."""
    at_once = (belief.parameter @ LIKED)[1:].max()
    joint = belief.parameter[:, None] * FORECAST  # (weather, what it says)
    looking = belief.parameter @ LIKED[:, 0] + (joint.T @ LIKED).max(-1).sum()
    return float(jnp.maximum(at_once, looking))


if __name__ == "__main__":
    planner = aif.Planner(outing, objective=aif.Planning(), solver=aif.CoordinateSolver())
    plan = planner(jax.random.key(0), initial_belief())
    print(plan.tree())
    assert abs(-float(plan.terms["risk"]) - by_hand(initial_belief())) < 1e-5
