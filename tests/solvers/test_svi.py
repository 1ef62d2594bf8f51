"""Gradient descent: the solver's steps are the optimizer's own, and a tolerance ends them."""

from typing import Any

import jax
import numpy as np
import optax
import pytest

import npro_aif as aif
from npro_aif.planning.plan import Plan
from npro_aif.program.program import program_of
from tests.support import assert_close
from tests.worlds import random_world

pytestmark = pytest.mark.usefixtures("quick_compile", "x64")

WORLD = random_world(18)
KEY = jax.random.key(3)
OPTIMIZER = optax.adam(0.2, eps=1e-4)
ROUNDING = 1e-6


def solve(**settings: Any) -> Plan:
    solver = aif.SVISolver(OPTIMIZER, **settings)
    planner = aif.Planner(WORLD.model, objective=aif.Planning(), solver=solver, max_horizon=WORLD.horizon)
    return planner(KEY, WORLD.belief())


def test_it_is_plain_gradient_descent() -> None:
    belief = WORLD.belief()
    world = program_of(WORLD.model, belief, WORLD.horizon).world(belief, WORLD.horizon)
    guide = aif.guides.TemporalGuide(WORLD.model)
    params = guide.first_params(KEY, world, WORLD.horizon)
    value_and_gradient = jax.jit(jax.value_and_grad(guide.loss_function(aif.Planning(), world, WORLD.horizon)))
    state, history = OPTIMIZER.init(params), []
    for _ in range(5):
        value, gradient = value_and_gradient(params)
        history.append(value)
        updates, state = OPTIMIZER.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    plan = solve(num_steps=5)
    assert_close(plan.free_energy[:-1], np.asarray(history), ROUNDING)
    assert_close(plan.free_energy[-1], value_and_gradient(params)[0], ROUNDING)


def test_it_stops_when_f_stands_still() -> None:
    steps = 300
    plan = solve(num_steps=steps, tol=1e-3)
    assert bool(plan.info.converged)
    assert int(plan.info.iterations) < steps
    assert plan.free_energy.shape == (steps + 1,)
    assert_close(plan.free_energy[-1], sum(plan.terms.values()), ROUNDING)
