"""Gradients through a plan equal central differences; those that would be wrong are refused by name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import npro_aif as aif
from npro_aif.models.tmaze import initial_belief, tmaze

pytestmark = pytest.mark.usefixtures("quick_compile")
KEY = jax.random.key(0)
START = 3.9, 0.9, 0.85, 0.55  # preference, weight, accuracy, p(left): no ties


def planned(objective: Callable[[Any], Any], solver: Any, cost: bool) -> Callable[..., jax.Array]:
    """F, or a mixture of what the first controls cost, as a function of numbers in all that is planned with."""

    def value(numbers: Any) -> jax.Array:
        gamma, weight, accuracy, left = numbers
        model = functools.partial(tmaze, gamma=gamma, cue_accuracy=accuracy)
        planner = aif.Planner(model, objective=objective(weight), solver=solver, max_horizon=3)
        belief = aif.Belief(jnp.stack([left, 1 - left]), initial_belief().state)
        if cost:
            return planner.first_cost(KEY, belief, 2) @ jnp.array([1.0, -0.5, 2.0, 0.25])
        return planner.solve(KEY, belief, 2).free_energy[-1]

    return value


def check(value: Callable[..., jax.Array], tolerance: float) -> None:
    step = 1e-4
    start = jnp.array(START)
    value = jax.jit(value)
    slope = jax.jit(jax.grad(value))(start)
    for i in range(len(START)):
        apart = step * jnp.eye(len(START))[i]
        np.testing.assert_allclose(
            slope[i], (value(start + apart) - value(start - apart)) / (2 * step), rtol=tolerance, atol=tolerance
        )


# Costs in the short run: tests/learning/test_behaviour.py.
@pytest.mark.parametrize("cost", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["F", "cost"])
def test_coordinate(cost: bool, x64: None) -> None:
    check(planned(lambda w: aif.Active(weight=w), aif.CoordinateSolver(restarts=1), cost), 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("cost", [False, True], ids=["F", "cost"])
@pytest.mark.parametrize("name", ["planning", "marginal", "through"])
def test_coordinate_with_other_objectives(name: str, cost: bool, x64: None) -> None:
    make: Any = {
        "planning": lambda w: aif.Planning(),
        "marginal": lambda w: aif.Marginal(),
        "through": lambda w: aif.Active(weight=w, gradient="through"),
    }[name]
    value = planned(make, aif.CoordinateSolver(restarts=1, min_decrease=1e-12), cost)
    if cost and name != "planning":
        with pytest.raises(ValueError, match="gradient: found a derivative of control costs"):
            jax.grad(value)(jnp.array(START))
        return
    check(value, 1e-4)


@pytest.mark.slow
def test_svi(x64: None) -> None:
    check(planned(lambda w: aif.Planning(), aif.SVISolver(optax.adam(0.3), 400), False), 1e-3)


def test_what_has_no_derivative_is_refused() -> None:
    planner = aif.Planner(tmaze, solver=aif.CoordinateSolver(max_sweeps=2), max_horizon=1)

    def control(belief: aif.Belief) -> jax.Array:
        return planner.solve(KEY, belief, 1).control[0, 0]

    with pytest.raises(ValueError, match="gradient: found a derivative of a plan's posterior"):
        jax.grad(control)(initial_belief())
    assert jax.jit(control)(initial_belief()).shape == ()  # a traced belief is not a derivative

    def earlier(belief: aif.Belief) -> jax.Array:
        return planner.solve(KEY, belief, 1).free_energy[0]

    assert np.isnan(jax.grad(earlier)(initial_belief()).parameter).all()


def test_a_posterior_that_moves_with_held_costs_is_refused() -> None:
    guide = aif.guides.TemporalGuide(tmaze, learn=("control", "parameter"))
    planner = aif.Planner(tmaze, guide, solver=aif.CoordinateSolver(max_sweeps=2), max_horizon=1)
    with pytest.raises(ValueError, match="gradient: found a derivative of F through a plan whose epistemic costs"):
        jax.grad(lambda belief: planner.solve(KEY, belief, 1).free_energy[-1])(initial_belief())


def test_through_a_loss_whose_costs_are_held() -> None:
    guide = aif.guides.TemporalGuide(tmaze)
    world = aif.Planner(tmaze, guide, max_horizon=1).program(initial_belief()).world(initial_belief(), 1)
    params = guide.first_params(KEY, world, 1)

    def loss(objective: Any, belief: aif.Belief) -> jax.Array:
        return objective.loss(KEY, params, tmaze, guide, belief, horizon=1)

    with pytest.raises(ValueError, match="gradient: found a derivative with respect to the belief"):
        jax.grad(lambda belief: loss(aif.Active(), belief))(initial_belief())
    assert jax.grad(lambda belief: loss(aif.Planning(), belief))(initial_belief()).parameter.shape == (2,)
