"""Large tables row by row against the same tables as a whole: values, derivatives and batches."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npro_aif as aif
from npro_aif.models import doorkey
from npro_aif.tables import live
from npro_aif.tables.index import IndexEmission
from npro_aif.tables.joint import each_evidence, merge_certain
from npro_aif.tables.labels import find_labels
from npro_aif.tables.routing import Rows, find_rows

PARAMETERS, STATES, CONTROLS = 16, 7, 3


@pytest.fixture
def by_rows(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Says whether tables of this size are gone through row by row."""
    return lambda use: monkeypatch.setattr(live, "ROW_BY_ROW", 0 if use else 10**9)


def random_rows(num_outcomes: int) -> Rows:
    """Moves whose θ have so many different outcomes at one (x, u) at most."""
    rng = np.random.default_rng(num_outcomes)
    choices = rng.integers(STATES, size=(num_outcomes, 1, STATES, CONTROLS))
    group = rng.integers(num_outcomes, size=(1, PARAMETERS, STATES, CONTROLS))
    index = np.take_along_axis(np.broadcast_to(choices, (num_outcomes, *group.shape[1:])), group, axis=0)
    rows = find_rows(jnp.asarray(index[:, :1] if num_outcomes == 1 else index))
    assert rows is not None
    return rows.at(0)


def sparse(*shape: int, seed: int = 0) -> jax.Array:
    """Numbers of which many are zero, whole rows too."""
    rng = np.random.default_rng(seed)
    table = rng.random(shape) * (rng.random(shape) < 0.5) * (rng.random((shape[0], 1)) < 0.7)
    return jnp.asarray(table, jnp.float32)


def push(rows: Rows, mass: Any, policy: Any, _: Any) -> Any:
    return rows.push(mass, policy, STATES)


def follow(rows: Rows, _: Any, policy: Any, value: Any) -> Any:
    return rows.follow(value, policy)


def expect(rows: Rows, mass: Any, _: Any, value: Any) -> Any:
    return rows.expect(value, mass)


def spread(rows: Rows, mass: Any, _: Any, __: Any) -> Any:
    return jnp.broadcast_to(rows.spread(mass), (CONTROLS, STATES))


@pytest.mark.parametrize("function", [push, follow, expect, spread])
@pytest.mark.parametrize("num_outcomes", [1, 2])
def test_rows_are_the_whole(function: Any, num_outcomes: int, by_rows: Any) -> None:
    rows = random_rows(num_outcomes)
    arguments = sparse(STATES, PARAMETERS), sparse(STATES, CONTROLS, seed=1), sparse(STATES, PARAMETERS, seed=2)

    def found(use: bool) -> Any:
        by_rows(use)

        def total(*arguments: Any) -> Any:
            return jnp.sin(function(rows, *arguments)).sum()

        def one(scale: Any) -> Any:
            return function(rows, *(scale * argument for argument in arguments))

        derivatives = jax.jit(jax.grad(total, (0, 1, 2)))(*arguments)
        return jax.jit(lambda *a: function(rows, *a))(*arguments), derivatives, jax.vmap(one)(jnp.arange(1.0, 3.0))

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6), found(True), found(False))


@pytest.mark.parametrize("joint", [False, True])
def test_labels_tell_what_the_sites_tell(joint: bool) -> None:
    rng = np.random.default_rng(0)
    tables = rng.integers(2, size=(2, 1, PARAMETERS, STATES))
    sites = {name: IndexEmission(jnp.asarray(table), 3) for name, table in zip(("a", "b"), tables, strict=True)}
    certain = merge_certain(sites, jnp.arange(STATES)[:, None], 1)
    assert certain is not None
    certain = IndexEmission(certain.index, 4)
    labels = find_labels(certain, sites, PARAMETERS, STATES)
    assert labels is not None
    mass = sparse(STATES, PARAMETERS)
    expected = each_evidence(
        {"y": certain.at(0)} if joint else {name: kernel.at(0) for name, kernel in sites.items()},
        lambda kernel: kernel.evidence(mass.T),
    )
    for name, told in labels.evidence(mass, joint=joint).items():
        for a, b in zip(told, expected[name], strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)
    for name, seen in labels.predict(mass).items():
        np.testing.assert_allclose(seen, sites[name].at(0).predict(mass.T), atol=1e-6)
    assert find_labels(IndexEmission(certain.index, 5), sites, PARAMETERS, STATES) is None


@pytest.mark.slow
@pytest.mark.parametrize("evidence", ["sites", "joint"])
def test_a_plan_of_rows_is_the_plan(evidence: Any, by_rows: Any) -> None:
    """On a mesh too, where labels are few."""

    def model(belief: aif.Belief, horizon: Any = 12) -> None:
        doorkey.doorkey(belief, horizon, size=7)

    mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("parameter",))
    belief = doorkey.initial_belief(7)
    solver = aif.CoordinateSolver(max_sweeps=doorkey.SWEEPS, lead=doorkey.LEAD, unvisited=doorkey.UNVISITED)
    objective = aif.Active(weight=doorkey.WEIGHT, evidence=evidence)

    def plan(use: bool, mesh: Any) -> Any:
        by_rows(use)
        planner = aif.Planner(model, objective=objective, solver=solver, max_horizon=12, mesh=mesh)
        plan = planner(jax.random.key(0), belief)
        return plan.control, plan.state, plan.observation, plan.free_energy, plan.terms

    expected = plan(False, None)
    for mesh_or_none in (None, mesh):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), plan(True, mesh_or_none), expected
        )


def test_moves_that_are_counted_without_need_change_nothing() -> None:
    base = (np.arange(STATES)[:, None] + np.arange(CONTROLS)) % STATES
    index = np.tile(base, (1, PARAMETERS, 1, 1))
    index[0, 3, :5, 1] += STATES // 2  # 5 moves at which one parameter differs, which are counted as 8
    index %= STATES
    exact, rounded = (find_rows(jnp.asarray(index), rounded=rounded) for rounded in (False, True))
    assert exact is not None
    assert rounded is not None
    assert exact.mixed is not None
    assert rounded.mixed is not None
    assert len(rounded.mixed.place) > len(exact.mixed.place)
    mass, policy = sparse(STATES, PARAMETERS), sparse(STATES, CONTROLS, seed=1)
    for function in (push, follow, expect, spread):
        found = [function(rows.at(0), mass, policy, mass + 1) for rows in (exact, rounded)]
        np.testing.assert_allclose(*found, atol=1e-6)
    np.testing.assert_allclose(*(rows.at(0).surprise(mass) for rows in (exact, rounded)), atol=1e-6)
    np.testing.assert_allclose(*(rows.at(0).pull(mass) for rows in (exact, rounded)))
