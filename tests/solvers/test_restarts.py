"""Gradient descents from several starts: the lowest F is kept, and one start is plain gradient descent."""

from typing import Any

import jax
import numpy as np
import optax
import pytest

import npro_aif as aif
from npro_aif.experiments.agents import make_planner
from npro_aif.experiments.run import describe
from npro_aif.experiments.tasks import Settings, make_task
from npro_aif.planning.plan import Plan
from npro_aif.program.program import program_of
from tests.support import assert_close, planner_of_all
from tests.worlds import random_world

pytestmark = pytest.mark.usefixtures("quick_compile", "x64")

WORLD = random_world(18)
KEY = jax.random.key(3)
OPTIMIZER = optax.adam(0.2, eps=1e-4)
STEPS = 60
ROUNDING = 1e-6


def solve(**settings: Any) -> Plan:
    solver = aif.SVISolver(OPTIMIZER, **({"num_steps": STEPS} | settings))
    planner = planner_of_all(WORLD.model, aif.Planning(), solver, WORLD.horizon)
    return planner(KEY, WORLD.belief())


@pytest.mark.parametrize(("tol", "steps"), [pytest.param(None, 10, marks=pytest.mark.slow), (1e-3, STEPS)])
def test_the_start_with_the_lowest_free_energy_is_kept(tol: float | None, steps: int) -> None:
    """The first start is among the eight."""
    one, many = (solve(restarts=restarts, tol=tol, num_steps=steps) for restarts in (1, 8))
    assert many.free_energy[-1] <= one.free_energy[-1] + ROUNDING
    for plan in (one, many):
        assert plan.free_energy.shape == (steps + 1,)
        assert_close(plan.free_energy[-1], sum(plan.terms.values()), ROUNDING)
        assert bool(plan.info.converged) == (int(plan.info.iterations) < steps)


def test_only_the_best_start_goes_on_after_its_trial() -> None:
    trial, tol = 20, 1e-3
    short = solve(restarts=8, num_steps=trial, tol=tol)
    long = solve(restarts=8, trial_steps=trial, tol=tol)
    assert_close(long.free_energy[:trial], short.free_energy[:trial], 1e-3)  # Adam blows up what is only rounding
    assert long.free_energy[-1] < short.free_energy[-1]
    assert int(long.info.iterations) > trial


def test_one_start_is_plain_gradient_descent() -> None:
    belief = WORLD.belief()
    world = program_of(WORLD.model, belief, WORLD.horizon).world(belief, WORLD.horizon)
    guide = aif.guides.TemporalGuide(WORLD.model, aif.guides.FACTORS)
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


def test_the_tasks_say_how_many_starts_they_make() -> None:
    def starts(name: str, **settings: Any) -> tuple[Any, Any, Any]:
        chosen = Settings(solver="svi", **settings)
        task = make_task(name, paper=chosen.paper)
        solver = make_planner(task, chosen).solver
        about = describe(task, chosen, None, None)
        return solver.restarts, solver.trial_steps, about.get("restarts")

    assert starts("reactivity") == (16, 100, 16)
    assert starts("reactivity", objective="planning") == (1, None, None)
    assert starts("reactivity", num_steps=10) == (16, 10, 16)
    assert starts("reactivity", paper=True) == (1, None, None)
    assert starts("tmaze") == (1, None, None)
