"""Computations side by side are those one after the other, also where each thread compiles its own."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npro_aif as aif
from npro_aif.guides import TemporalGuide
from npro_aif.planning import threads
from npro_aif.planning.threads import on_all_cores
from tests.layouts import HORIZON, ring, ring_belief

pytestmark = pytest.mark.usefixtures("quick_compile")


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "num_cores", lambda: 3)


def test_the_order_is_kept(cores: None) -> None:
    def slow(i: int) -> int:
        time.sleep(0.01 * (5 - i))
        return i

    assert on_all_cores(slow, range(5)) == list(range(5))


def test_an_error_is_raised_and_the_rest_left(cores: None) -> None:
    begun: list[int] = []

    def fail(i: int) -> None:
        begun.append(i)
        time.sleep(0.01)
        raise ValueError(f"item {i}")

    with pytest.raises(ValueError, match="item 0"):
        on_all_cores(fail, range(100))
    assert len(begun) < 100


@pytest.mark.parametrize("double", [False, True])
def test_the_precision_is_the_callers(cores: None, double: bool) -> None:
    with jax.enable_x64(double):
        found = on_all_cores(lambda _: jnp.zeros(1).dtype, range(4))
    assert found == [jnp.float64 if double else jnp.float32] * 4


def test_plans_that_are_traced_and_compiled_side_by_side(cores: None) -> None:
    model = ring()
    beliefs = [ring_belief(count) for count in (2, 9, 3, 10)]  # of two support sizes

    def planner() -> aif.Planner:
        guide = TemporalGuide(model, learn=("control",))
        return aif.Planner(model, guide, aif.Active(), aif.CoordinateSolver(), max_horizon=HORIZON)

    alone, shared = planner(), planner()
    expected = [alone(jax.random.key(0), belief).control[0] for belief in beliefs]
    found = on_all_cores(lambda belief: np.asarray(shared.first_control(jax.random.key(0), belief)), beliefs)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert shared.num_traces == alone.num_traces
