"""The planner: compiles once, composes with JAX, and stays finite where the world is exactly deterministic."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import npro_aif as aif
from npro_aif.models.tmaze import CUE, JUNCTION, START, initial_belief, tmaze
from npro_aif.program.program import program_of
from tests.support import assert_close

pytestmark = pytest.mark.usefixtures("quick_compile")

KEY = jax.random.key(0)
HORIZON = 4
GUIDES: dict[str, Any] = {"temporal": aif.guides.TemporalGuide, "sequence": aif.guides.SequenceGuide}


def some_beliefs(count: int) -> list[aif.Belief]:
    """Joint beliefs in which x depends on θ; the first two with exact zeros, in types as callers happen to have."""
    rng = np.random.default_rng(0)
    random = [aif.Belief(rng.dirichlet(np.ones(2)), rng.dirichlet(np.ones(5), 2)) for _ in range(count - 2)]
    return [initial_belief(), initial_belief(CUE, theta=1), *random]


def planner_of(guide: str, **settings: Any) -> aif.Planner:
    """A planner that makes a few steps; plain gradients, as Adam's first steps blow up what is only rounding."""
    return aif.Planner(tmaze, guide=GUIDES[guide](tmaze), solver=aif.SVISolver(optax.sgd(0.1), 3), **settings)


@pytest.fixture(scope="module")
def temporal() -> aif.Planner:
    """Shared, for it compiles once."""
    return planner_of("temporal", max_horizon=HORIZON)


# Compile once


def test_horizons_and_beliefs_trace_once(temporal: aif.Planner) -> None:
    """Every horizon up to the largest, as an int or an array, and ten beliefs."""
    for horizon in range(1, HORIZON + 1):
        plan = temporal(KEY, initial_belief(), horizon=horizon)
        assert plan.control.shape == (horizon, 4)
        assert plan.policy.shape == (horizon, 5, 4)
        assert plan.state.shape == (horizon + 1, 5)
        assert plan.observation["cue"].shape == (horizon, 2)
    for horizon in (np.int64(2), jnp.asarray(2), None):
        temporal(KEY, initial_belief(), horizon=horizon)
    for i, belief in enumerate(some_beliefs(10)):
        temporal(jax.random.key(i), belief, horizon=HORIZON)
    assert temporal.num_traces == 1


def test_a_sequence_guide_traces_once_for_each_horizon() -> None:
    planner = planner_of("sequence")
    for belief in some_beliefs(10):
        planner(KEY, belief, horizon=2)
    assert planner.num_traces == 1
    planner(KEY, initial_belief(), horizon=1)
    assert planner.num_traces == 2
    planner(KEY, initial_belief(), horizon=2)
    assert planner.num_traces == 2


def test_the_program_is_run_a_fixed_number_of_times() -> None:
    """Reading a program takes a few runs of it, whatever the horizon (fewer if it was read before)."""

    def runs(horizon: int) -> int:
        count = 0

        def counted(belief: aif.Belief, horizon: int = 1) -> None:
            nonlocal count
            count += 1
            tmaze(belief, horizon)

        aif.Planner(counted, solver=aif.SVISolver(optax.adam(0.05), 1), max_horizon=horizon).program(initial_belief())
        return count

    assert max(runs(2), runs(25)) <= 8


def test_a_shorter_horizon_is_the_shorter_problem(temporal: aif.Planner) -> None:
    """Steps beyond the horizon are masked: F of the longer tables is that of a planner made for the shorter ones."""
    params = {"control_logits": jax.random.normal(KEY, (HORIZON, 5, 4)), "parameter_logits": jnp.zeros(2)}
    params["observation_cue_logits"] = jax.random.normal(KEY, (HORIZON, 2, 5, 2))
    objective, values = aif.Active(), []
    for length in (2, HORIZON):
        program = planner_of("temporal", max_horizon=length).program(initial_belief())
        world = program.world(initial_belief(), 2)
        tables = {name: table if name == "parameter_logits" else table[:length] for name, table in params.items()}
        posterior = GUIDES["temporal"](tmaze).posterior(world, tables, length)
        values.append(objective.free_energy(world, posterior))
    assert_close(*values, 1e-5)


# Inside JAX


def test_jit(temporal: aif.Planner) -> None:
    """Also with the horizon as an argument of the compiled function."""

    @jax.jit
    def plan(key: jax.Array, belief: aif.Belief, horizon: jax.Array) -> aif.Plan:
        return temporal(key, belief, horizon=horizon)

    for horizon in (2, HORIZON):
        outside, inside = temporal(KEY, initial_belief(), horizon=horizon), plan(KEY, initial_belief(), horizon)
        assert inside.control.shape == (HORIZON, 4)  # as long as the largest horizon
        np.testing.assert_allclose(inside.control[:horizon], outside.control, atol=1e-5)
        assert_close(inside.free_energy, outside.free_energy, 1e-5)


@pytest.mark.parametrize("guide", ["temporal", pytest.param("sequence", marks=pytest.mark.slow)])
def test_vmap(guide: str) -> None:
    planner = planner_of(guide, max_horizon=2)
    beliefs = some_beliefs(3)
    keys = jax.random.split(KEY, 3)
    stacked = jax.tree.map(lambda *tables: jnp.stack([jnp.asarray(t, jnp.float32) for t in tables]), *beliefs)
    together = jax.vmap(lambda key, belief: planner(key, belief, horizon=2))(keys, stacked)
    for i, belief in enumerate(beliefs):
        alone = planner(keys[i], belief, horizon=2)
        np.testing.assert_allclose(together.control[i], alone.control, atol=1e-5)
        assert_close(together.free_energy[i], alone.free_energy, 1e-5)
    assert together.best_control().shape == (3,)


def test_batch(temporal: aif.Planner) -> None:
    beliefs = some_beliefs(3)
    keys = jax.random.split(KEY, 3)
    stacked = jax.tree.map(lambda *tables: jnp.stack([jnp.asarray(t, jnp.float32) for t in tables]), *beliefs)
    together = temporal.batch(keys, stacked, horizon=HORIZON)
    for i, belief in enumerate(beliefs):
        alone = temporal(keys[i], belief, horizon=HORIZON)
        np.testing.assert_allclose(together.policy[i], alone.policy, atol=1e-5)
    with pytest.raises(ValueError, match="found arrays of shapes"):
        temporal.batch(keys[:2], stacked, horizon=HORIZON)


# No NaN


@pytest.mark.parametrize("guide", GUIDES)
def test_values_and_gradients_are_finite_in_a_deterministic_world(guide: str) -> None:
    """Every term of F, where q is uniform, random, and so certain that its probabilities underflow."""
    program, horizon = GUIDES[guide](tmaze), 2
    beliefs = [initial_belief(), initial_belief(CUE, theta=0)]
    read = program_of(tmaze, beliefs[0], horizon)
    first = program.first_params(KEY, read.world(beliefs[0], horizon), horizon)

    @jax.jit
    def evaluate(world: Any, scale: jax.Array) -> Any:
        params = jax.tree.map(lambda table: scale * jax.random.normal(KEY, table.shape), first)

        def terms(params: Any) -> Any:
            posterior = program.posterior(world, params, horizon)
            return [aif.Active(True, gradient).terms(world, posterior) for gradient in ("fixed", "through")]

        return terms(params), jax.jacrev(terms)(params)

    for belief in beliefs:
        for scale in (0.0, 1.0, 30.0, 300.0):
            for array in jax.tree.leaves(evaluate(read.world(belief, horizon), jnp.asarray(scale))):
                assert array.dtype == jnp.float32
                assert jnp.isfinite(array).all(), scale


# Plans


def test_what_a_plan_says(temporal: aif.Planner) -> None:
    plan = temporal(KEY, initial_belief(), horizon=3)
    np.testing.assert_allclose(plan.control.sum(-1), 1.0, atol=1e-5)
    np.testing.assert_allclose(plan.policy.sum(-1), 1.0, atol=1e-5)
    np.testing.assert_allclose(plan.state.sum(-1), 1.0, atol=1e-5)
    np.testing.assert_array_equal(plan.state[0] > 0, np.arange(5) == START)  # exact zeros
    np.testing.assert_allclose(plan.state[0, START], 1.0, rtol=1e-6)
    assert plan.free_energy.shape == (4,)  # before each of three steps, and of the plan itself
    assert_close(sum(plan.terms.values()), plan.free_energy[-1], 1e-5)
    np.testing.assert_array_equal(plan.marginal("u"), plan.control)
    np.testing.assert_array_equal(plan.marginal("cue"), plan.observation["cue"])
    np.testing.assert_array_equal(plan.marginal("theta"), plan.parameter)
    with pytest.raises(KeyError, match="'place' has plan=False"):
        plan.marginal("place")
    with pytest.raises(KeyError, match="'nowhere' is not in the model; its sites are theta, x, u, cue"):
        plan.marginal("nowhere")


def test_ties_between_controls(temporal: aif.Planner) -> None:
    plan = temporal(KEY, initial_belief(), horizon=1)
    tied = plan._replace(control=jnp.asarray([[0.1, 0.4, 0.1, 0.4]]))
    assert int(tied.best_control()) == 1  # the first
    drawn = {int(tied.best_control(jax.random.key(i))) for i in range(20)}
    assert drawn == {1, 3}
    apart = plan._replace(control=jnp.asarray([[0.1, 0.39, 0.1, 0.41]]))
    assert {int(apart.best_control(jax.random.key(i))) for i in range(20)} == {3}


def test_an_early_stop_reports_the_free_energy_of_what_is_returned() -> None:
    solver = aif.SVISolver(optax.adam(0.1), 2000, tol=1e-5)
    planner = aif.Planner(tmaze, guide=GUIDES["temporal"](tmaze), objective=aif.Marginal(), solver=solver)
    plan = planner(KEY, initial_belief(JUNCTION, theta=0), horizon=1)
    assert bool(plan.info.converged)
    assert 20 < int(plan.info.iterations) < 2000
    assert plan.free_energy.shape == (2001,)
    assert_close(plan.free_energy[-1], sum(plan.terms.values()), 1e-5)
    posterior = plan.complete()
    assert_close(aif.Marginal().free_energy(plan.world(), posterior), plan.free_energy[-1], 1e-5)
