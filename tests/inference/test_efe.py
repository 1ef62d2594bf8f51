"""Expected free energy under the model's own predictions: against enumeration, and by hand on the T-maze."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import npro_aif as aif
from npro_aif.models.tmaze import CUE, EAST, NORTH, SOUTH, goal_preference, initial_belief, tmaze
from tests import oracle
from tests.worlds import random_world

pytestmark = pytest.mark.usefixtures("quick_compile")


# Some supports depend on θ; 6 and 17: control priors on x.
@pytest.mark.parametrize("seed", [3, 17, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 6, 9, 14))])
def test_every_plan_equals_enumeration(seed: int, x64: None) -> None:
    """One plan at a time: the joint in which that plan is certain and everything else is the model's."""
    world = random_world(seed)
    found = aif.expected_free_energy(world.model, world.belief(), world.horizon)
    tables = world.tables
    for index, plan in enumerate(np.asarray(found.plans)):
        policy = np.zeros_like(tables.control)
        policy[np.arange(world.horizon), :, plan] = 1.0
        joint = oracle.temporal_joint(tables, tables.parameter, policy, tables.state, tables.observations)
        expected = oracle.expected_free_energy(joint, tables)
        for name in ("risk", "ambiguity", "novelty", "plan_prior"):
            sign = -1 if name == "novelty" else 1  # the oracle has the information gain itself
            value = sign * float(getattr(expected, name)[index])
            assert float(getattr(found, name)[index]) == pytest.approx(value, abs=1e-9)
        assert float(expected.complexity[index]) == pytest.approx(0.0, abs=1e-9)
    np.testing.assert_allclose(found.complexity, 0.0)


def test_the_tmaze_by_hand() -> None:
    """The cue tells which arm it is (novelty −log 2, no ambiguity); everywhere else a coin is tossed."""
    goal = goal_preference(4.0)
    found = aif.expected_free_energy(tmaze, initial_belief(), horizon=2)
    plans = [tuple(int(u) for u in plan) for plan in found.plans]
    stay, ahead = plans.index((SOUTH, SOUTH)), plans.index((NORTH, EAST))
    assert float(found.risk[stay]) == pytest.approx(-goal[CUE, 0], abs=1e-5)  # two steps at the cue
    assert float(found.ambiguity[stay]) == pytest.approx(0.0, abs=1e-6)
    assert float(found.novelty[stay]) == pytest.approx(-math.log(2), abs=1e-6)  # the second look tells no more
    assert float(found.risk[ahead]) == pytest.approx(-goal[4].mean(), abs=1e-5)  # the right arm, θ unknown
    assert float(found.ambiguity[ahead]) == pytest.approx(2 * math.log(2), abs=1e-6)
    assert float(found.novelty[ahead]) == pytest.approx(0.0, abs=1e-6)
    np.testing.assert_allclose(found.plan_prior, 2 * math.log(4), rtol=1e-6)
    np.testing.assert_allclose(
        found.posterior(), jax.nn.softmax(-found.total), rtol=1e-5
    )  # equal priors, no complexity
    assert plans[int(found.best(1)[0])][0] == SOUTH
    assert jnp.all(jnp.diff(found.total[found.best(16)]) >= 0)


def test_plans_that_are_too_many() -> None:
    with pytest.raises(ValueError, match=r"horizon: .* would take [\d,]+ entries at horizon 12, expected at most"):
        aif.expected_free_energy(tmaze, initial_belief(), horizon=12)


def test_several_control_sites() -> None:
    """Plans count over the product of the control sites, the last site fastest."""

    def model(belief: aif.Belief, horizon: int = 1) -> None:
        x = aif.state("x", dist.Categorical(probs=belief.state[0]))

        def step(x: jax.Array, t: jax.Array) -> jax.Array:
            a = aif.control("a", dist.Categorical(probs=jnp.asarray([0.25, 0.75])))
            b = aif.control("b", dist.Categorical(probs=jnp.asarray([0.5, 0.25, 0.25])))
            x = aif.state("x", aif.DeterministicCategorical(a * 3 + b, 6))
            aif.preference("goal", jnp.arange(6.0)[x])
            return x

        aif.rollout(step, x, horizon)

    found = aif.expected_free_energy(model, aif.Belief(jnp.ones(1), jnp.eye(1, 6)), horizon=1)
    np.testing.assert_allclose(found.risk, -np.arange(6.0), atol=1e-6)
    np.testing.assert_allclose(found.plan_prior, -np.log(np.outer([0.25, 0.75], [0.5, 0.25, 0.25]).ravel()), rtol=1e-6)
    np.testing.assert_allclose(found.total, -np.arange(6.0), atol=1e-6)
