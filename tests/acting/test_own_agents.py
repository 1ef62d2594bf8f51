"""Agents as a user would write them: what a subclass does is done in `run_episodes` too, and ties have one rule."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npro_aif as aif
from npro_aif.envs import TMaze
from npro_aif.models import tmaze
from tests.support import tmaze_planner

pytestmark = pytest.mark.usefixtures("quick_compile")

START = {"cue": 0, "place": tmaze.START}


def planner_of(objective: Any = None, horizon: int = 4) -> aif.Planner:
    guide = aif.guides.TemporalGuide(tmaze.tmaze, learn=("control",))
    return aif.Planner(tmaze.tmaze, guide, objective, aif.CoordinateSolver(max_sweeps=20), max_horizon=horizon)


@pytest.fixture(scope="module")
def planner() -> aif.Planner:
    return tmaze_planner()


class Stubborn(aif.Agent):
    """It believes and plans as any agent does, and goes North whatever comes of it."""

    heard: list[Any]

    def act(self, observation: Any) -> int:
        self.heard = [*getattr(self, "heard", []), observation]
        super().act(observation)
        self.did(tmaze.NORTH)
        return tmaze.NORTH


@pytest.mark.parametrize("env", [TMaze, TMaze()], ids=["in lockstep", "one after the other"])
def test_a_subclass_acts_for_itself(planner: aif.Planner, env: Any) -> None:
    own = Stubborn(planner, tmaze.initial_belief(), max_steps=4)
    outcomes = aif.run_episodes(env, own, range(3))
    assert [episode.controls for episode in outcomes.episodes] == [(tmaze.NORTH,) * 4] * 3
    assert len(own.heard) == 12
    assert outcomes.effort.decisions == 12


class Loud(aif.Agent):
    """An agent with a `reset` of its own."""

    episodes = 0

    def reset(self, key: Any = None) -> None:
        type(self).episodes += 1
        super().reset(key)


def test_a_subclass_begins_for_itself(planner: aif.Planner) -> None:
    own = Loud(planner, tmaze.initial_belief(), max_steps=4)
    Loud.episodes = 0
    outcomes = aif.run_episodes(TMaze, own, range(3))
    assert Loud.episodes == 3
    assert [episode.reward for episode in outcomes.episodes] == [1, 1, 1]


@pytest.mark.parametrize(("env", "warm"), [(TMaze, False), (TMaze(), True)], ids=["in lockstep", "alone"])
def test_plans_are_recorded_where_asked(planner: aif.Planner, env: Any, warm: bool) -> None:
    """As a loop of one's own would have recorded them."""
    own = aif.Agent(planner, tmaze.initial_belief(), max_steps=4, record=True, warm_start=warm)
    outcomes = aif.run_episodes(env, own, range(2))
    for episode in outcomes.episodes:
        alone, world = aif.Agent(planner, tmaze.initial_belief(), max_steps=4, warm_start=warm), TMaze()
        observation, _ = world.reset(seed=episode.seed)
        for control in episode.controls:
            assert alone.act(observation) == control
            observation, *_ = world.step(control)
        assert [len(plan.control) for plan in episode.plans] == [4, 3, 2, 1]
        for mine, theirs in zip(episode.plans, alone.plans, strict=True):
            np.testing.assert_allclose(mine.control, theirs.control, atol=1e-5)
            np.testing.assert_allclose(mine.free_energy[0], theirs.free_energy[0], rtol=1e-5)  # where it started
    assert own.plans == ()  # the agent itself is where it was


def test_a_warm_start_is_heard_in_episodes(planner: aif.Planner) -> None:
    """Where plans settle, the next one starts at what is left of the last and not at a random policy."""
    first = {}
    for warm in (False, True):
        own = aif.Agent(planner, tmaze.initial_belief(), max_steps=4, record=True, warm_start=warm)
        (episode,) = aif.run_episodes(TMaze, own, [0]).episodes
        first[warm] = [float(plan.free_energy[0] - plan.free_energy[-1]) for plan in episode.plans[2:]]
    assert max(first[True]) < min(first[False])


# Ties


@pytest.fixture(scope="module")
def tied() -> aif.Planner:
    """One step from the start, where nothing tells the controls apart: they are all at 1/4."""
    return planner_of(aif.Planning(), horizon=1)


def test_an_agent_begins_as_its_plan_says(tied: aif.Planner) -> None:
    own = aif.Agent(tied, tmaze.initial_belief(), horizon=1)
    chosen = []
    for seed in range(20):
        own.reset(jax.random.key(seed))
        chosen.append(own.act(START))
        assert int(own.plans[-1].best_control(jax.random.key(seed))) == chosen[-1]
    assert set(chosen) == {0, 1, 2, 3}
    assert float(own.plans[-1].control[0].max()) == pytest.approx(0.25)


@pytest.mark.parametrize(
    "rule", [{"ties": "first"}, pytest.param({"tie_tolerance": 0.0}, marks=pytest.mark.slow)], ids=str
)
def test_the_first_of_equals(tied: aif.Planner, rule: dict[str, Any]) -> None:
    own = aif.Agent(tied, tmaze.initial_belief(), horizon=1, **rule)
    for seed in range(5):
        own.reset(jax.random.key(seed))
        assert own.act(START) == 0 == int(own.plans[-1].best_control(jax.random.key(seed), **rule))


def test_a_tolerance_widens_ties(planner: aif.Planner) -> None:
    plan = planner(jax.random.key(0), tmaze.initial_belief(), 4)
    uneven = plan._replace(control=jnp.tile(jnp.array([0.3, 0.28, 0.22, 0.2]), (4, 1)))
    keys = [jax.random.key(seed) for seed in range(40)]
    assert {int(uneven.best_control(key)) for key in keys} == {0}
    assert {int(uneven.best_control(key, tie_tolerance=0.05)) for key in keys} == {0, 1}
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), uneven)
    assert batch.best_control(keys[0], tie_tolerance=0.05).shape == (2,)
    for key in keys[:5]:  # also while JAX is tracing
        traced = jax.jit(lambda plan, key: plan.best_control(key, tie_tolerance=0.05))(uneven, key)
        assert int(traced) == int(uneven.best_control(key, tie_tolerance=0.05))


@pytest.mark.parametrize(("rule", "message"), [({"ties": "last"}, "ties: found 'last'"), ({"tie_tolerance": -1}, "-1")])
def test_rules_that_there_are_not(tied: aif.Planner, rule: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        aif.Agent(tied, tmaze.initial_belief(), **rule)


def test_a_planner_says_which_way_it_goes(tied: aif.Planner) -> None:
    words = tied.describe(tmaze.initial_belief())
    assert "2 parameters × 5 states × 4 controls = 40: small" in words
    assert "one: perception and planning in one compiled call" in words
    assert "together" in words
    assert "not known" in planner_of().describe()
