"""Guides as a user would write them: constraints are honoured, names mean nothing, other models are refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax import Array
from numpyro.distributions import constraints
from numpyro.infer import SVI

import npro_aif as aif
from npro_aif.guides import TemporalGuide
from npro_aif.models import tmaze
from tests.support import assert_close, skeleton

pytestmark = pytest.mark.usefixtures("quick_compile")

KEY = jax.random.key(0)
MOVES = jnp.array([[[0.8, 0.2], [0.3, 0.7]], [[0.4, 0.6], [0.1, 0.9]]])
SIGHTS = jnp.array([[[0.9, 0.1], [0.5, 0.5]], [[0.2, 0.8], [0.5, 0.5]]])
BELIEF = aif.Belief(jnp.array([0.3, 0.7]), jnp.array([[0.6, 0.4], [0.5, 0.5]]))


def world_with(site: str) -> Any:
    """A small world whose observation has this name."""

    def model(belief: aif.Belief, horizon: int = 2) -> None:
        theta = aif.parameter("theta", dist.Categorical(belief.parameter))
        x = aif.state("x", dist.Categorical(belief.state[theta]))

        def step(x: Array, t: Array) -> Array:
            u = aif.control("u", dist.Categorical(probs=jnp.array([0.5, 0.5])))
            x = aif.state("x", dist.Categorical(probs=MOVES[x, u]))
            y = aif.observation(site, dist.Categorical(probs=SIGHTS[x, theta]))
            aif.preference("goal", jnp.where(x == 1, 1.0, 0.0))
            aif.preference("sight", jnp.where(y == 1, 0.5, 0.0))
            return x

        aif.rollout(step, x, horizon)

    return model


@pytest.mark.parametrize(
    ("solver", "names"),
    [
        (aif.SVISolver(optax.adam(0.1), 40), ("state",)),
        (aif.CoordinateSolver(), ("control",)),
        pytest.param(aif.CoordinateSolver(), ("parameter",), marks=pytest.mark.slow),
    ],
    ids=["svi", "sweeps", "sweeps of parameters"],
)
def test_a_site_may_have_the_name_of_a_role(solver: Any, names: tuple[str, ...]) -> None:
    plans = {}
    for site in ("y", *names):
        planner = aif.Planner(world_with(site), objective=aif.Active(), solver=solver, max_horizon=2)
        plans[site] = plan = planner(KEY, BELIEF)
        warm = planner(KEY, BELIEF, 1, warm=plan)
        assert plan.sample(KEY, 3)[site].shape == (3, 2)
        for mine, theirs in zip(jax.tree.leaves(plan.terms), jax.tree.leaves(plans["y"].terms), strict=True):
            assert_close(mine, theirs, 1e-5, site)
        assert_close(plan.observation[site], plans["y"].observation["y"], 1e-5)
        assert np.isfinite(np.asarray(warm.free_energy)).all()


# Constraints


def moves() -> tuple[Array, Array]:
    return jnp.asarray(tmaze.transitions()), jnp.asarray(tmaze.cue_probabilities())


def open_loop(kind: str) -> Any:
    """Controls drawn one by one, from logits or from probabilities on the simplex (and one rate that is positive)."""

    def guide(belief: aif.Belief, horizon: int) -> None:
        to, cue = moves()
        theta = numpyro.sample("theta", dist.Categorical(probs=belief.parameter))
        x = numpyro.sample("x_0", dist.Categorical(probs=belief.state[theta]))
        sharp = numpyro.param("sharp", jnp.ones(()), constraint=constraints.positive) if kind == "simplex" else 1.0
        for t in range(1, horizon + 1):
            if kind == "simplex":
                first = jnp.array([0.4, 0.3, 0.2, 0.1])
                probs = numpyro.param(f"p_{t}", first, constraint=constraints.simplex)
                fn = dist.Categorical(logits=sharp * jnp.log(probs))
            else:
                fn = dist.Categorical(logits=numpyro.param(f"p_{t}", jnp.log(jnp.array([0.4, 0.3, 0.2, 0.1]))))
            u = numpyro.sample(f"u_{t}", fn)
            x = numpyro.sample(f"x_{t}", aif.DeterministicCategorical(to[x, u], 5))
            numpyro.sample(f"cue_{t}", dist.Categorical(probs=cue[x, theta]))

    return guide


def test_constrained_parameters() -> None:
    """The same plan as from logits, and as NumPyro's own SVI makes it."""
    belief, steps = tmaze.initial_belief(), 100
    guide = open_loop("simplex")
    planner = aif.Planner(tmaze.tmaze, guide, aif.Active(), aif.SVISolver(optax.adam(0.1), steps))
    plan = planner(KEY, belief, horizon=1)
    np.testing.assert_allclose(plan.control.sum(-1), 1, atol=1e-5)
    assert float(plan.control[0, tmaze.SOUTH]) > 0.9
    logits = aif.Planner(tmaze.tmaze, open_loop("logits"), aif.Active(), aif.SVISolver(optax.adam(0.1), steps))
    other = logits(KEY, belief, horizon=1)
    assert_close(plan.free_energy[0], other.free_energy[0], 1e-5)
    assert_close(plan.free_energy[-1], other.free_energy[-1], 0.05)
    # NumPyro's own SVI, step by step
    svi = SVI(tmaze.tmaze, guide, optax.adam(0.1), loss=aif.Active())
    state = svi.init(KEY, belief, horizon=1)
    state, losses = jax.lax.scan(lambda s, _: svi.update(s, belief, horizon=1), state, length=steps)
    np.testing.assert_allclose(plan.free_energy[:-1], losses, atol=2e-3)
    for name, value in svi.get_params(state).items():
        np.testing.assert_allclose(plan.params[name], value, atol=5e-3)
    assert plan.sample(KEY, 4)["u"].shape == (4, 1)


# Tables of one's own


Open = skeleton("guide")["Open"]


def test_a_table_guide_of_ones_own() -> None:
    """It plans for every horizon with one compiled function, starts warm, and draws."""
    belief, solver = tmaze.initial_belief(), aif.SVISolver(optax.adam(0.1), 150)
    planner = aif.Planner(tmaze.tmaze, Open(tmaze.tmaze), aif.Active(), solver, max_horizon=3)
    plan = planner(KEY, belief, horizon=2)
    assert int(plan.best_control()) == tmaze.SOUTH
    np.testing.assert_allclose(plan.policy[0], jnp.tile(plan.policy[0, 0], (5, 1)), atol=1e-6)
    warm = planner(KEY, belief, horizon=1, warm=plan)
    assert planner.num_traces == 1
    shifted = {"anything": jnp.concatenate([plan.params["anything"][1:], jnp.zeros((1, 4))])}
    world = planner.program(belief).world(belief, 1)
    first = aif.Active().free_energy(world, planner.guide.posterior(world, shifted, 3))
    assert_close(warm.free_energy[0], first, 1e-5)
    assert plan.sample(KEY, 4)["u"].shape == (4, 2)


def test_a_closed_form_is_not_inherited_with_another_posterior() -> None:
    class Held(TemporalGuide):
        def posterior(self, world: Any, params: Any, num_steps: int) -> Any:
            return super().posterior(world, {}, num_steps)

    planner = aif.Planner(tmaze.tmaze, Held(tmaze.tmaze), aif.Planning(), aif.CoordinateSolver(), max_horizon=2)
    with pytest.raises(ValueError, match="found the guide Held, which has no closed-form updates"):
        planner(KEY, tmaze.initial_belief())


def test_a_guide_of_another_model_is_refused() -> None:
    def other(belief: aif.Belief, horizon: int = 4) -> None:
        tmaze.tmaze(belief, horizon)

    for guide in (TemporalGuide(tmaze.tmaze), aif.guides.SequenceGuide(tmaze.tmaze)):
        with pytest.raises(aif.GuideError, match=r"of the model tmaze, expected one of the planner's own: .*other"):
            aif.Planner(other, guide)
