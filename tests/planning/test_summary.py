"""``repr(plan)`` is a summary, and what is no key is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npro_aif as aif
from npro_aif.models.tmaze import initial_belief, tmaze

pytestmark = pytest.mark.usefixtures("quick_compile")


@pytest.fixture(scope="module")
def plan() -> aif.Plan:
    guide = aif.guides.TemporalGuide(tmaze, learn=("control",))
    planner = aif.Planner(tmaze, guide, aif.Active(), aif.CoordinateSolver())
    return planner(jax.random.key(0), initial_belief(), horizon=4)


def test_a_plan_says_what_to_do_what_it_costs_and_whether_it_settled(plan: aif.Plan) -> None:
    lines = repr(plan).splitlines()
    assert lines[0] == "Plan of 4 steps (tmaze)"
    assert lines[1] == "  step 1: u=South 1.00"
    parts = lines[5].removeprefix("  F = ").split(" = ")
    terms = [float(term.split()[-1]) for term in parts[1].split(", ")]
    np.testing.assert_allclose(float(parts[0]), plan.free_energy[-1], atol=1e-4)
    np.testing.assert_allclose(sum(terms), plan.free_energy[-1], atol=1e-3)
    assert lines[6].startswith("  Settled after ")
    assert len(lines) == 7


def test_how_it_ended(plan: aif.Plan) -> None:
    wild = plan._replace(info=plan.info._replace(converged=jnp.asarray(False), cycle=jnp.asarray(2)))
    assert "Not settled after" in repr(wild)
    assert "came back to the same posteriors every 2" in repr(wild)
    assert "make more of them" in repr(wild._replace(info=wild.info._replace(cycle=jnp.asarray(0))))
    batch = jax.tree.map(lambda a: jnp.stack([a, a]), plan)
    assert repr(batch) == "Plans(tmaze, a batch of 2, 2 of them settled)"


@pytest.mark.parametrize("key", [0, "0", None, np.zeros(2)])
def test_what_is_no_key(key: Any, plan: aif.Plan) -> None:
    planner = aif.Planner(tmaze, max_horizon=4)
    for call in (
        lambda: planner(key, initial_belief()),
        lambda: planner.batch(key, initial_belief()),
        lambda: plan.sample(key, 2),
    ):
        with pytest.raises(ValueError, match=r"keys?: found .*, expected a random key, such as jax.random.key\(0\)"):
            call()
