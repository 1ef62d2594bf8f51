"""Time: a model with an argument ``elapsed`` is told the steps that have passed; and what an agent refuses."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import npro_aif as aif

pytestmark = pytest.mark.usefixtures("quick_compile")
GOOD = jnp.asarray([0, 0, 1, 1])  # the control that pays at each step
BELIEF = aif.Belief(jnp.ones(1), jnp.asarray([[1.0, 0.0]]))


def seasons(belief: aif.Belief, horizon: int = 4, elapsed: int = 0) -> None:
    """A is good in the first two steps, B in the others; x tells what was done last."""
    x = aif.state("x", dist.Categorical(probs=belief.state[0]))

    def step(x: Any, t: Any) -> Any:
        u = aif.control("u", dist.Categorical(probs=jnp.full(2, 0.5)), labels=("A", "B"))
        x = aif.state("x", aif.DeterministicCategorical(u, 2))
        now = (t + elapsed - 1) % 4
        tells = jnp.asarray(now >= 2)[..., None]
        aif.observation("y", dist.Categorical(probs=jnp.where(tells, jnp.eye(2)[x], jnp.full(2, 0.5))))
        aif.preference("season", 2.0 * (u == GOOD[now]))
        return x

    aif.rollout(step, x, horizon)


@pytest.fixture(scope="module")
def planner() -> aif.Planner:
    guide = aif.guides.TemporalGuide(seasons, learn=("control",))
    return aif.Planner(seasons, guide, aif.Planning(), aif.CoordinateSolver(), max_horizon=4)


@pytest.mark.parametrize("record", [True, False])
def test_an_agent_keeps_to_its_plan(planner: aif.Planner, record: bool) -> None:
    plan = planner(jax.random.key(0), BELIEF)
    assert np.asarray(plan.control).argmax(1).tolist() == [0, 0, 1, 1]
    agent = aif.Agent(planner, BELIEF, max_steps=4, record=record)
    assert [agent.act(None) for _ in range(4)] == [0, 0, 1, 1]
    with pytest.raises(ValueError, match="4 steps done in an episode of max_steps=4"):
        agent.act(None)


def test_plans_remember_their_time(planner: aif.Planner) -> None:
    late = planner(jax.random.key(0), BELIEF, horizon=2, elapsed=2)
    assert np.asarray(late.control).argmax(1).tolist() == [1, 1]
    np.testing.assert_allclose(late.control_cost.argmin(), 1)  # by tables that are made again
    keys = jax.random.split(jax.random.key(0), 2)
    batch = planner.batch(keys, jax.tree.map(lambda a: jnp.stack([a, a]), BELIEF), horizon=2, elapsed=2)
    np.testing.assert_allclose(batch.control[0], late.control, atol=1e-6)


def test_a_belief_is_updated_at_its_time() -> None:
    """The observation tells x in the third and fourth step only."""
    unsure = aif.Belief(jnp.ones(1), jnp.asarray([[0.5, 0.5]]))
    update = aif.Filter(seasons, unsure)
    for late in (update, lambda *a, **k: aif.update_belief(seasons, *a, **k)):
        np.testing.assert_allclose(late(unsure, None, 1, elapsed=2).state, [[0, 1]], atol=1e-6)  # type: ignore[operator]
    np.testing.assert_allclose(update(unsure, None, 1).state, [[0.5, 0.5]], atol=1e-6)


def test_a_model_that_does_not_ask_for_it() -> None:
    from npro_aif.models.tmaze import initial_belief, tmaze

    with pytest.raises(ValueError, match="elapsed: found 3, expected 0 of a model that has no argument 'elapsed'"):
        aif.update_belief(tmaze, initial_belief(), None, None, elapsed=3)


def test_what_an_update_refuses(planner: aif.Planner) -> None:
    with pytest.raises(ValueError, match=r"observation: found an empty dict, expected some of the sites \['y'\]"):
        aif.update_belief(seasons, BELIEF, 0, {})
    with pytest.raises(ValueError, match="belief: found None"):
        aif.Filter(seasons)
    with pytest.raises(aif.ImpossibleObservation, match=r"observed 0, to which .*ignore_impossible=True leaves"):
        aif.update_belief(seasons, BELIEF, 1, 0, elapsed=3)
