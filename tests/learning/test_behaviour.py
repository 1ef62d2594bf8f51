"""Choices and behaviour against the plans one by one, and what choices can tell."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density

import npro_aif as aif
from npro_aif.learning.choice import choice_logits
from npro_aif.models.tmaze import CUE, NORTH, SOUTH, START, initial_belief, tmaze

pytestmark = pytest.mark.usefixtures("quick_compile")
KEY = jax.random.key(0)
SOLVER = aif.CoordinateSolver(restarts=1)
DATA = aif.Records(
    np.array([[SOUTH, NORTH, NORTH], [SOUTH, NORTH, -1], [NORTH, SOUTH, SOUTH]]),
    {
        "cue": np.array([[1, -1, -1], [0, -1, -1], [-1, -1, 1]]),
        "place": np.array([[CUE, START, 3], [CUE, START, -1], [3, START, CUE]]),
    },
)


def planner(gamma: Any = 2.0, weight: Any = 0.7, accuracy: Any = 0.8) -> aif.Planner:
    model = functools.partial(tmaze, gamma=gamma, cue_accuracy=accuracy)
    return aif.Planner(model, objective=aif.Active(weight=weight), solver=SOLVER, max_horizon=3)


def value(gamma: Any, weight: Any, precision: Any, accuracy: Any = 0.8) -> jax.Array:
    def program() -> None:
        aif.behaviour(
            "choices", planner(gamma, weight, accuracy), initial_belief(), DATA, precision=precision, max_steps=3
        )

    return log_density(program, (), {}, {})[0]


def test_a_choice_is_a_softmax_of_costs() -> None:
    own = planner()
    choice = aif.Choice(own, initial_belief(), 3, precision=1.5)
    cost = own(KEY, initial_belief(), 3).control_cost
    np.testing.assert_allclose(choice.probs, jax.nn.softmax(-1.5 * cost), rtol=1e-5)
    with numpyro.handlers.seed(rng_seed=0):
        assert int(numpyro.sample("u", aif.Choice(own, initial_belief(), 3, precision=50.0))) == SOUTH


def test_behaviour_is_every_choice_after_every_update() -> None:
    """The same by one agent at a time: update_belief, a plan, the softmax of its costs."""
    own, expected = planner(), 0.0
    for n in range(3):
        belief = initial_belief()
        for t, control in enumerate(DATA.controls[n]):
            if control < 0:
                break
            cost = own(KEY, belief, 3 - t).control_cost
            expected += float(jax.nn.log_softmax(-1.5 * cost)[control])
            seen = {name: int(table[n, t]) for name, table in DATA.observations.items() if table[n, t] >= 0}
            belief = aif.update_belief(own.model, belief, int(control), seen)
    np.testing.assert_allclose(value(2.0, 0.7, 1.5), expected, rtol=1e-5)
    choices = aif.decisions(own.model, initial_belief(), DATA, horizon=3, max_steps=3)
    assert choices.counts.sum() == 8
    assert (choices.counts.sum(1) > 0).sum() == 6  # the three first decisions are one


def test_choices_tell_products_only() -> None:
    own = jax.jit(value)
    base = own(2.0, 0.7, 1.5)
    for scale in (0.5, 3.0):
        np.testing.assert_allclose(own(2.0 * scale, 0.7 * scale, 1.5 / scale), base, rtol=1e-4)
    assert abs(float(own(2.0, 0.7, 3.0) - base)) > 0.1


def test_gradient_equals_central_differences(x64: None) -> None:
    """Also with respect to what beliefs are filtered with: then histories, and not beliefs, are told apart."""
    start, step = jnp.array([2.0, 0.7, 1.5, 0.8]), 1e-5
    own = jax.jit(lambda numbers: value(*numbers))
    slope = jax.jit(jax.grad(own))(start)
    for i, change in enumerate(step * jnp.eye(4)):
        expected = (own(start + change) - own(start - change)) / (2 * step)
        np.testing.assert_allclose(slope[i], expected, rtol=1e-5, atol=1e-6)


def test_what_is_wrong_is_refused() -> None:
    with pytest.raises(ValueError, match="max_steps: found 2, expected at least 3"):
        aif.decisions(tmaze, initial_belief(), DATA, horizon=3, max_steps=2)
    with pytest.raises(ValueError, match="size: found 2, expected at least the"):
        aif.decisions(tmaze, initial_belief(), DATA, horizon=3, size=2)


def test_an_excluded_control_has_no_nan() -> None:
    def slope(precision: Any) -> Any:
        cost = jnp.array([1.0, jnp.inf, 2.0])
        return jax.nn.log_softmax(choice_logits(cost, precision))[0]

    found = jax.grad(slope)(2.0)
    np.testing.assert_allclose(found, jax.grad(lambda p: jax.nn.log_softmax(-p * jnp.array([1.0, 2.0]))[0])(2.0))


@pytest.mark.slow
def test_nuts_fits_an_agent() -> None:
    from numpyro.infer import MCMC, NUTS

    data = aif.decisions(functools.partial(tmaze, cue_accuracy=0.8), initial_belief(), DATA, horizon=3, max_steps=3)

    def program(data: Any) -> None:
        gamma = numpyro.sample("gamma", dist.LogNormal(0.0, 1.0))
        aif.behaviour("choices", planner(gamma), initial_belief(), data)

    mcmc = MCMC(NUTS(program), num_warmup=50, num_samples=50, progress_bar=False)
    mcmc.run(KEY, data)
    assert np.isfinite(mcmc.get_samples()["gamma"]).all()
