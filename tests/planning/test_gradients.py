"""Gradients that would be wrong are refused by name."""

from __future__ import annotations

from typing import Any

import jax
import optax
import pytest

import npro_aif as aif
from npro_aif.models.tmaze import initial_belief, tmaze

pytestmark = pytest.mark.usefixtures("quick_compile")
KEY = jax.random.key(0)


@pytest.mark.parametrize(
    "solver", [aif.SVISolver(optax.adam(0.05), 2), aif.CoordinateSolver(max_sweeps=2)], ids=["svi", "coordinate"]
)
def test_through_a_planner(solver: Any) -> None:
    planner = aif.Planner(tmaze, solver=solver, max_horizon=1)

    def value(belief: aif.Belief) -> jax.Array:
        return planner.solve(KEY, belief, 1).free_energy[-1]

    for function in (value, jax.jit(value)):
        with pytest.raises(ValueError, match="gradient: found a derivative with respect to the belief"):
            jax.grad(function)(initial_belief())
    assert jax.jit(value)(initial_belief()).shape == ()  # a traced belief is not a derivative


def test_through_a_loss_whose_costs_are_held() -> None:
    guide = aif.guides.TemporalGuide(tmaze)
    world = aif.Planner(tmaze, guide, max_horizon=1).program(initial_belief()).world(initial_belief(), 1)
    params = guide.first_params(KEY, world, 1)

    def loss(objective: Any, belief: aif.Belief) -> jax.Array:
        return objective.loss(KEY, params, tmaze, guide, belief, horizon=1)

    with pytest.raises(ValueError, match="gradient: found a derivative with respect to the belief"):
        jax.grad(lambda belief: loss(aif.Active(), belief))(initial_belief())
    assert jax.grad(lambda belief: loss(aif.Planning(), belief))(initial_belief()).parameter.shape == (2,)
