"""Routes of deterministic worlds, in every form, against loops over every (u, x, θ)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npro_aif.sizes import MOST_GROUPS
from npro_aif.tables.dense import DenseTransition
from npro_aif.tables.index import IndexTransition
from npro_aif.tables.kernels import Transition
from npro_aif.tables.routing import Routes, Rows, find_routes, find_rows
from npro_aif.tables.surprise import derivative

pytestmark = pytest.mark.usefixtures("quick_compile")

PARAMETERS, STATES, CONTROLS = 8, 7, 19  # more controls than blocks
TIMES = 2


def moves(outcomes: int, axes: str = "tixu") -> np.ndarray:
    """An index table (T|1, Θ|1, X|1, U|1) whose θ have so many different outcomes at one (x, u) at most."""
    rng = np.random.default_rng(outcomes)
    sizes = {"t": TIMES, "i": PARAMETERS, "x": STATES, "u": CONTROLS}
    shape = tuple(size if axis in axes else 1 for axis, size in sizes.items())
    choices = rng.integers(STATES, size=(outcomes, shape[0], 1, *shape[2:]))
    return np.take_along_axis(
        np.broadcast_to(choices, (outcomes, *shape)), rng.integers(outcomes, size=(1, *shape)), axis=0
    )[0].astype(np.int32)


def kernels(table: np.ndarray) -> dict[str, Transition]:
    """The same moves in every form, at time 1."""
    index = jnp.asarray(table)
    t = min(1, len(table) - 1)
    found: dict[str, Any] = {
        "dense": DenseTransition(IndexTransition(index, STATES).table()).prepared(),
        "unprepared": IndexTransition(index, STATES),
        "routes": IndexTransition(index, STATES, find_routes(index, STATES, PARAMETERS, STATES)),
    }
    if (rows := find_rows(index)) is not None:
        found["rows"] = IndexTransition(index, STATES, rows)
    return {name: kernel.at(t) for name, kernel in found.items()}


@pytest.mark.parametrize("axes", ["tixu", "xu", pytest.param("u", marks=pytest.mark.slow), "ix"])
@pytest.mark.parametrize("outcomes", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_every_form_moves_the_same_mass(outcomes: int, axes: str) -> None:
    table = moves(outcomes, axes)
    rng = np.random.default_rng(0)
    before = jnp.asarray(rng.random((STATES, PARAMETERS)), jnp.float32)
    policy = jnp.asarray(rng.random((STATES, CONTROLS)), jnp.float32)
    value = jnp.asarray(rng.random((STATES, PARAMETERS)), jnp.float32)
    mass = jnp.asarray(rng.random((STATES, PARAMETERS)), jnp.float32)
    full = np.broadcast_to(table[min(1, len(table) - 1)], (PARAMETERS, STATES, CONTROLS))
    pushed, pulled = np.zeros((STATES, PARAMETERS)), np.zeros((CONTROLS, STATES, PARAMETERS))
    flow = np.zeros((CONTROLS, STATES, STATES))
    for (theta, x, u), outcome in np.ndenumerate(full):
        pushed[outcome, theta] += before[x, theta] * policy[x, u]
        pulled[u, x, theta] = value[outcome, theta]
        flow[u, x, outcome] += mass[x, theta]
    share = flow / flow.sum(-1, keepdims=True)
    entropy = -(share * np.log(np.where(share > 0, share, 1))).sum(-1) * mass.sum(-1)
    surprises = np.zeros(pulled.shape)
    for (theta, x, u), outcome in np.ndenumerate(full):
        surprises[u, x, theta] = -np.log(share[u, x, outcome])
    to_before = np.einsum("xu,uxi->xi", policy, pulled)  # what pushes are weighed with comes back as it is pulled
    to_policy = np.einsum("xi,uxi->xu", before, pulled)
    for name, kernel in kernels(table).items():
        found, gradient, spread, surprise, back = both_ways(kernel, before, policy, value, mass)
        np.testing.assert_allclose(found, pushed, rtol=1e-5, err_msg=name)
        for part, expected in zip(gradient, (to_before, to_policy), strict=True):
            np.testing.assert_allclose(part, expected, rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(np.broadcast_to(spread, entropy.shape), entropy, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(np.broadcast_to(surprise, pulled.shape), surprises, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(np.broadcast_to(back, pulled.shape), pulled, rtol=1e-6, err_msg=name)


@jax.jit
def both_ways(kernel: Any, before: Any, policy: Any, value: Any, mass: Any) -> tuple[Any, ...]:
    """What is pushed, its gradient at ``value``, the spread, the surprise, and what is pulled."""
    pushed, gradient = jax.vjp(kernel.push, before, policy)
    return pushed, gradient(value), kernel.spread(mass), kernel.surprise(mass), kernel.pull(value)


def test_few_outcomes_go_by_rows_and_many_by_routes() -> None:
    few, many = (jnp.asarray(moves(count)) for count in (2, 8))
    assert isinstance(find_rows(few), Rows)
    assert find_rows(many) is None
    kernel = IndexTransition(many, STATES).prepared().routed(PARAMETERS, STATES)
    assert isinstance(kernel.routing, Routes)
    assert kernel.routing.num_groups > MOST_GROUPS


def test_selected_parameters_keep_their_groups() -> None:
    kernel = IndexTransition(jnp.asarray(moves(3)), STATES).prepared()
    theta = jnp.array([4, 1, 1])
    before = jnp.asarray(np.random.default_rng(0).random((STATES, PARAMETERS)), jnp.float32)
    policy = jnp.asarray(np.random.default_rng(1).random((STATES, CONTROLS)), jnp.float32)
    everything = jax.jit(lambda: kernel.at(0).push(before, policy))()
    found = jax.jit(lambda: kernel.select(theta).at(0).push(before[:, theta], policy))()
    np.testing.assert_allclose(found, everything[:, theta], rtol=1e-6)


def test_a_kernel_without_its_own_surprise_has_the_derivative_of_its_spread() -> None:
    weight = jnp.asarray(np.random.default_rng(0).random((STATES, PARAMETERS)), jnp.float32)
    for name, kernel in kernels(moves(2)).items():
        found, expected = jax.jit(lambda kernel: (derivative(kernel.spread, weight), kernel.surprise(weight)))(kernel)
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=name)
