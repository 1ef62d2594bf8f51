"""Where the starts are needed: q(θ) = p(θ) is a saddle of F_planning once parameters are learned."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import npro_aif as aif
from npro_aif.guides import TemporalGuide

pytestmark = pytest.mark.usefixtures("quick_compile")

HORIZON, TRUTHS, CONTROLS = 2, 2, 3
REWARD = np.array([[-0.25, 1.0, -10.0], [-0.25, -10.0, 1.0]])  # (Θ, U): listen, open the left door, open the right one
HEARING = np.array([[0.85, 0.15], [0.15, 0.85]])  # (Θ, Y)
BELIEF = aif.Belief(jnp.full(TRUTHS, 1 / TRUTHS), jnp.tile(jnp.array([1.0, 0.0]), (TRUTHS, 1)))


def tiger(belief: aif.Belief, horizon: int = HORIZON) -> None:
    truth = aif.parameter("truth", dist.Categorical(probs=belief.parameter))
    x = aif.state("x", dist.Categorical(probs=belief.state[truth]))

    def step(x: Any, t: Any) -> Any:
        u = aif.control("u", dist.Categorical(probs=jnp.full(CONTROLS, 1 / CONTROLS)))
        x = aif.state("x", aif.DeterministicCategorical(jnp.where(u == 0, x, 1), 2))  # whether a door was opened
        aif.observation("y", dist.Categorical(probs=jnp.asarray(HEARING)[truth]))
        aif.preference("reward", jnp.asarray(REWARD)[truth, u])
        return x

    aif.rollout(step, x, horizon)


def lowest(*, learned: bool) -> float:
    """The lowest F_planning of any policy without ties, with the best q(θ) for it or with p(θ)."""
    values = []
    for policy in itertools.product(range(CONTROLS), repeat=2 * HORIZON):  # (T, X)
        cost = np.zeros(TRUTHS)
        x = 0
        for t in range(HORIZON):
            u = policy[2 * t + x]
            cost += np.log(CONTROLS) - REWARD[:, u]
            x = x if u == 0 else 1
        values.append(-np.log(np.exp(-cost).mean()) if learned else cost.mean())
    return min(values)


def planned(*learn: str, restarts: int | None = None) -> Any:
    guide, solver = TemporalGuide(tiger, learn=learn), aif.CoordinateSolver(restarts=restarts)
    return aif.Planner(tiger, guide, aif.Planning(), solver)(jax.random.key(0), BELIEF)


def test_learned_parameters_leave_the_saddle() -> None:
    """There the plan listens; off it, which the default's further starts find, it believes what suits it."""
    saddle, plan = planned("control", "parameter", restarts=1), planned("control", "parameter")
    np.testing.assert_allclose(saddle.free_energy[-1], lowest(learned=False), atol=1e-5)
    np.testing.assert_allclose(saddle.parameter, BELIEF.parameter, atol=1e-5)
    np.testing.assert_allclose(plan.free_energy[-1], lowest(learned=True), atol=1e-5)
    assert np.max(plan.parameter) > 0.99
    assert int(plan.best_control()) != 0


def test_the_default_learns_the_policy_alone_and_listens() -> None:
    plan = aif.Planner(tiger, objective=aif.Planning())(jax.random.key(0), BELIEF)
    np.testing.assert_allclose(plan.free_energy[-1], lowest(learned=False), atol=1e-5)
    assert int(plan.best_control()) == 0
