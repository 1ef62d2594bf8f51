"""Supports, batches and warm starts change what is computed, not what comes out."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import npro_aif as aif
from npro_aif import sizes
from npro_aif.guides import FACTORS, Table, TemporalGuide
from npro_aif.guides.base import zeros
from npro_aif.planning import batches, support
from npro_aif.planning.support import Sizes, Support
from npro_aif.planning.warm import realign
from tests.layouts import HORIZON, THETA, ring, ring_belief
from tests.support import assert_close

pytestmark = pytest.mark.usefixtures("quick_compile")

MODEL = ring(noise=0.25)  # with noise the state factor is learned too, a table over θ
SOLVERS: dict[str, Any] = {
    "coordinate": aif.CoordinateSolver(max_sweeps=4, tol=1e-9, restarts=1),
    "svi": aif.SVISolver(optax.sgd(0.1), 3),
}


def planner_of(solver: str) -> aif.Planner:
    return aif.Planner(MODEL, TemporalGuide(MODEL, FACTORS), None, SOLVERS[solver], max_horizon=HORIZON)


shared = functools.cache(planner_of)  # what one test compiles serves the next one


def together(beliefs: list[aif.Belief]) -> aif.Belief:
    return jax.tree.map(lambda *tables: jnp.stack(tables), *beliefs)


def assert_same_plan(found: aif.Plan, expected: aif.Plan) -> None:
    for name in ("control", "policy", "state", "parameter", "free_energy"):
        assert_close(getattr(found, name), getattr(expected, name), 1e-5, name)
    assert_close(found.terms["risk"], expected.terms["risk"], 1e-5)
    for name, table in expected.observation.items():
        assert_close(found.observation[name], table, 1e-5, name)


def row(plan: aif.Plan, i: int) -> aif.Plan:
    return jax.tree.map(lambda leaf: leaf[i], plan)


# Supports


@pytest.mark.parametrize(
    "objective",
    [pytest.param(aif.Marginal(), marks=pytest.mark.slow), aif.Active(normalize=True)],
    ids=["marginal", "active"],
)
def test_pruned_and_unpruned_plans_are_the_same(objective: Any, monkeypatch: pytest.MonkeyPatch, x64: None) -> None:
    belief = ring_belief(3)
    guide = TemporalGuide(MODEL, learn=("control", "state", "observation"))  # q(θ) starts at random, of K numbers
    pruned, whole = (aif.Planner(MODEL, guide, objective, SOLVERS["coordinate"], max_horizon=HORIZON) for _ in range(2))
    plan = pruned(jax.random.key(0), belief)
    assert plan.theta.shape == (4,)
    monkeypatch.setattr(support, "PRUNE_FROM", 10**9)
    other = whole(jax.random.key(0), belief)
    assert other.theta.shape == (THETA,)
    assert_same_plan(plan, other)


@pytest.mark.slow
def test_pruned_and_unpruned_gradient_steps_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    belief = ring_belief(3)
    plan = shared("svi")(jax.random.key(0), belief)
    assert plan.theta.shape == (4,)
    monkeypatch.setattr(support, "PRUNE_FROM", 10**9)
    assert_same_plan(plan, planner_of("svi")(jax.random.key(0), belief))


def test_shrinking_supports_compile_once_for_each_power_of_two() -> None:
    """And nothing when they shrink a second time."""
    model = ring()
    guide = TemporalGuide(model, learn=("control",))
    own = aif.Planner(model, guide, aif.Planning(), aif.CoordinateSolver(2, restarts=1), max_horizon=HORIZON)
    for _ in range(2):
        for count in (19, 18, 8, 6, 5):
            own(jax.random.key(count), ring_belief(count, seed=count))
        assert own.num_traces == 2  # for 19 and 8 parameters


def test_sizes() -> None:
    sizes = Sizes(300)
    assert [sizes.of(count) for count in (1, 2, 3, 256, 257, 299, 298, 300)] == [4, 4, 4, 256, 257, 300, 300, 300]
    padded = sizes.support(np.eye(300)[[3, 5, 9]].sum(0))
    assert padded is not None
    np.testing.assert_array_equal(padded.theta, [3, 5, 9, 3])
    np.testing.assert_array_equal(padded.valid, [True, True, True, False])
    assert sizes.support(np.ones(300)) is None
    assert Sizes(4).support(np.eye(4)[0]) is None  # too few to bother


# Batches


@pytest.mark.parametrize(
    ("solver", "counts"),
    [("coordinate", (3, 20, 2)), pytest.param("svi", (3, 4), marks=pytest.mark.slow)],
    ids=["coordinate", "svi"],
)
def test_a_batch_is_its_plans(solver: str, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Beliefs with supports of some sizes, the largest one by one; also what a plan rebuilds from its tables."""
    monkeypatch.setattr(sizes, "SMALL", 20 * 8 * 3)
    own = planner_of(solver)
    beliefs = [ring_belief(count, seed) for seed, count in enumerate(counts)]
    keys = jax.random.split(jax.random.key(0), len(beliefs))
    plans = own.batch(keys, together(beliefs), HORIZON)
    assert plans.control.shape == (len(beliefs), HORIZON, 3)
    assert plans.best_control().shape == (len(beliefs),)
    for i, belief in enumerate(beliefs):
        alone = own(keys[i], belief, HORIZON)
        assert_same_plan(row(plans, i), alone)
    rebuilt = own.objective.free_energy(row(plans, i).world(), row(plans, i).complete())
    assert_close(rebuilt, alone.free_energy[-1], 1e-5)


def test_a_batch_of_policies_alone_joins_supports_of_different_sizes() -> None:
    """Where parameters are not learned a plan has no logits of them to pad."""
    own = aif.Planner(MODEL, TemporalGuide(MODEL, ("control",)), aif.Planning(), SOLVERS["coordinate"], HORIZON)
    beliefs = [ring_belief(count, seed) for seed, count in enumerate((3, 20))]
    keys = jax.random.split(jax.random.key(0), len(beliefs))
    plans = own.batch(keys, together(beliefs), HORIZON)
    assert_same_plan(row(plans, 0), own(keys[0], beliefs[0], HORIZON))
    assert_close(plans.control.sum(-1), np.ones((2, HORIZON)), 1e-5)


def test_a_batch_starts_warm() -> None:
    guide = TemporalGuide(MODEL, ("control", "parameter"))
    own = aif.Planner(MODEL, guide, aif.Planning(), SOLVERS["svi"], HORIZON)
    beliefs = [ring_belief(count, seed) for seed, count in enumerate((3, 4))]
    keys = jax.random.split(jax.random.key(0), len(beliefs))
    before = own.batch(keys, together(beliefs), HORIZON)
    after = own.batch(keys, together(beliefs), HORIZON - 1, warm=before)
    for i, belief in enumerate(beliefs):
        warm = own(keys[i], belief, HORIZON - 1, warm=own(keys[i], belief, HORIZON))
        assert_same_plan(row(after, i), warm)


def test_a_traced_batch() -> None:
    own = shared("coordinate")
    beliefs = [ring_belief(count, seed) for seed, count in enumerate((3, 4))]
    keys = jax.random.split(jax.random.key(0), 2)
    traced = jax.jit(lambda keys, beliefs: own.batch(keys, beliefs, HORIZON))(keys, together(beliefs))
    assert traced.theta.shape == (2, THETA)
    for i, belief in enumerate(beliefs):
        assert_close(traced.free_energy[i, -1], own(keys[i], belief).free_energy[-1], 1e-4)


def test_keys_stay_keys() -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    assert batches.rows(keys, [2, 0]).dtype == keys.dtype


# Warm starts


def test_a_warm_start_continues_where_the_plan_ended() -> None:
    """The first F of the next plan is F of the old tables, one step later, at the new belief."""
    own = shared("svi")
    belief, later = ring_belief(7), ring_belief(3)  # the later one's parameters are among the first one's
    assert set(np.flatnonzero(later.parameter)) <= set(np.flatnonzero(belief.parameter))
    plan = own.solve(jax.random.key(0), belief, HORIZON)
    warm = own.solve(jax.random.key(1), later, HORIZON - 1, warm=plan)
    whole = own.program(belief).world(later, HORIZON - 1)
    place = {int(theta): i for i, theta in reversed(list(enumerate(plan.theta)))}

    def over_all(name: str, table: jax.Array) -> jax.Array:
        """The old tables over all parameters, shifted."""
        if name == "control_logits":
            return jnp.concatenate([table[1:], jnp.zeros_like(table[:1])])
        axis = 0 if name == "parameter_logits" else 1
        known = np.array([i in place for i in range(THETA)]).reshape((-1,) + (1,) * (table.ndim - axis - 1))
        full = known * jnp.take(table, np.array([place.get(i, 0) for i in range(THETA)]), axis)
        return full if axis == 0 else jnp.concatenate([full[1:], jnp.zeros_like(full[:1])])

    params = {name: over_all(name, table) for name, table in plan.params.items()}
    expected = own.objective.free_energy(whole, own.guide.posterior(whole, params, HORIZON))
    assert_close(warm.free_energy[0], expected, 1e-5)


def test_a_warm_start_saves_sweeps() -> None:
    """A plan that has settled has settled one step later, too."""
    model = ring()
    guide = TemporalGuide(model, learn=("control",))
    own = aif.Planner(model, guide, aif.Planning(), aif.CoordinateSolver(50, restarts=1), max_horizon=HORIZON)
    belief = ring_belief(1)
    plan = own.solve(jax.random.key(0), belief, HORIZON)
    cold = own(jax.random.key(1), belief, HORIZON - 1)
    warm = own(jax.random.key(1), belief, HORIZON - 1, warm=plan)
    assert_same_plan(warm._replace(free_energy=warm.free_energy[-1:]), cold._replace(free_energy=cold.free_energy[-1:]))
    assert int(warm.info.iterations) <= int(cold.info.iterations)
    assert warm.free_energy[0] < cold.free_energy[0]


def test_realign() -> None:
    before = Support(jnp.array([4, 7, 9, 4]), jnp.array([True, True, True, False]))
    after = Support(jnp.array([7, 8]), jnp.array([True, True]))
    params = {"a": jnp.array([1.0, 2.0, 3.0, 0.0]), "b": jnp.ones((2, 3, 2)), "c": jnp.arange(8.0).reshape(2, 4, 1)}
    axes = {"a": ("parameter",), "b": ("time", "state", "control"), "c": ("time", "parameter", "outcome")}
    tables = {name: Table("other", axes[name], values.shape, zeros) for name, values in params.items()}
    moved = realign(params, tables, before, after)
    np.testing.assert_array_equal(moved["a"], [2.0, 0.0])
    np.testing.assert_array_equal(moved["c"], [[[1.0], [0.0]], [[5.0], [0.0]]])
    assert moved["b"] is params["b"]
