"""Agents and episodes: what an agent remembers, that lockstep changes nothing, and what is counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import npro_aif as aif
from npro_aif.acting.solutions import Solutions, fingerprint
from npro_aif.envs import TMaze
from npro_aif.models import tmaze
from npro_aif.planning.choose import Rule
from tests.support import tmaze_planner

START = {"cue": 0, "place": tmaze.START}


@pytest.fixture(scope="module")
def planner() -> Iterator[aif.Planner]:
    """One compiled planner for the module."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield tmaze_planner()
    jax.config.update("jax_disable_most_optimizations", before)


def agent(planner: aif.Planner, **options: Any) -> aif.Agent:
    return aif.Agent(planner, tmaze.initial_belief(), max_steps=4, **options)


def test_an_episode_compiles_once_and_its_horizon_recedes(planner: aif.Planner) -> None:
    own, env = agent(planner), TMaze()
    observation, _ = env.reset(seed=0)
    own.act(observation)
    traces = planner.num_traces
    for _ in range(2):
        observation, _ = env.reset(seed=1)
        own.reset()
        over, rewards = False, []
        while not over:
            observation, reward, terminated, truncated, info = env.step(own.act(observation))
            rewards.append(reward)
            over = terminated or truncated
        assert rewards == [0, 0, 0, 1]
        assert [len(plan.control) for plan in own.plans] == [4, 3, 2, 1]
        assert planner.num_traces == traces
    assert own.belief.parameter[info["theta"]] == 1
    assert own.plans[0].best_control() == tmaze.SOUTH


def test_without_a_limit_the_horizon_stays(planner: aif.Planner) -> None:
    own = aif.Agent(planner, tmaze.initial_belief(), horizon=2)
    own.act(START)
    own.act(None)  # nothing was seen
    assert [len(plan.control) for plan in own.plans] == [2, 2]


def test_the_first_observation_comes_before_the_first_move(planner: aif.Planner) -> None:
    own = agent(planner)
    own.observe({"cue": 1, "place": tmaze.START})
    np.testing.assert_array_equal(own.belief.parameter, [0.5, 0.5])
    own.reset()
    with pytest.raises(aif.ImpossibleObservation, match="site 'place' at step 0"):
        own.observe({"place": tmaze.JUNCTION})
    tolerant = agent(planner, ignore_impossible=True)
    tolerant.observe({"place": tmaze.JUNCTION})
    assert tolerant.belief.state[0, tmaze.START] == 1


def test_a_warm_start_decides_the_same(planner: aif.Planner) -> None:
    warm, cold = agent(planner, warm_start=True), agent(planner)
    path = [START, {"cue": 1, "place": tmaze.CUE}, {"place": tmaze.START}, {"place": tmaze.JUNCTION}]
    controls = [tmaze.CONTROLS[int(cold.act(seen))] for seen in path]  # type: ignore[call-overload]
    assert controls == ["South", "North", "North", "East"]
    assert [tmaze.CONTROLS[int(warm.act(seen))] for seen in path] == controls  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "options", [pytest.param({}, marks=pytest.mark.slow), {"record": False}, {"warm_start": True}], ids=str
)
def test_one_call_decides_as_two_do(planner: aif.Planner, options: dict[str, Any]) -> None:
    """Small worlds are perceived and planned in one compiled call."""
    one, two = agent(planner, **options), agent(planner, **options)
    two._decider.fused = None
    for seen in (START, {"cue": 1, "place": tmaze.CUE}, None, {"place": tmaze.JUNCTION}):
        assert one.act(seen) == two.act(seen)
        for a, b in zip(one.belief, two.belief, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)
    for a, b in zip(one.plans, two.plans, strict=True):
        np.testing.assert_allclose(a.control, b.control, atol=1e-5)
        np.testing.assert_allclose(a.free_energy[-1], b.free_energy[-1], rtol=1e-5)


def test_what_is_impossible_is_named_where_one_call_decides(planner: aif.Planner) -> None:
    own, tolerant = agent(planner), agent(planner, ignore_impossible=True)
    assert own._decider.fused is not None
    for act in (own.act, tolerant.act):
        act(START)
    with pytest.raises(aif.ImpossibleObservation, match="site 'place' at step 1: observed right"):
        own.act({"place": tmaze.RIGHT})
    tolerant.act({"place": tmaze.RIGHT})
    np.testing.assert_array_equal(tolerant.belief.state[0] > 0, np.arange(5) == tmaze.CUE)


def test_plans_are_kept_only_where_asked(planner: aif.Planner) -> None:
    own = agent(planner, record=False)
    own.act(START)
    assert own.plans == ()


def test_wrong_limits_are_refused(planner: aif.Planner) -> None:
    with pytest.raises(ValueError, match="max_steps: found 0"):
        aif.Agent(planner, tmaze.initial_belief(), max_steps=0)
    with pytest.raises(ValueError, match="horizon: found 5, expected at most max_horizon=4"):
        aif.Agent(planner, tmaze.initial_belief(), horizon=5)
    with pytest.raises(aif.ModelError, match="sums to"):
        aif.Agent(planner, aif.Belief(jnp.ones(2), tmaze.initial_belief().state))


def test_ties_are_broken_by_the_key() -> None:
    probs = jnp.array([0.3, 0.1, 0.3 - 1e-6, 0.3])
    most_probable = Rule().best_of
    assert int(most_probable(probs)) == 0
    keys = jax.random.split(jax.random.key(0), 300)
    chosen = np.bincount(jax.vmap(most_probable, (None, 0))(probs, keys), minlength=4)
    assert chosen[1] == 0
    assert chosen[[0, 2, 3]].min() > 60  # 100 each, four standard deviations are 33
    assert int(most_probable(probs, keys[0])) == int(most_probable(probs, keys[0]))


def test_several_control_sites_come_as_a_dict(quick_compile: None) -> None:
    def model(belief: aif.Belief, horizon: int = 1) -> None:
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        x = aif.state("x", dist.Categorical(probs=belief.state[theta]))

        def step(x: jax.Array, t: jax.Array) -> jax.Array:
            a = aif.control("a", dist.Categorical(probs=jnp.ones(2) / 2))
            b = aif.control("b", dist.Categorical(probs=jnp.ones(3) / 3))
            x = aif.state("x", aif.DeterministicCategorical(a * 3 + b, 6))
            aif.observation("y", aif.DeterministicCategorical(x, 6))
            aif.preference("goal", jnp.where(x == 5, 3.0, 0.0))
            return x

        aif.rollout(step, x, horizon)

    planner = aif.Planner(model, objective=aif.Planning(), solver=aif.CoordinateSolver(), max_horizon=1)
    own = aif.Agent(planner, aif.Belief(jnp.ones(1), jnp.ones((1, 6)) / 6))
    assert own.act(0) == {"a": 1, "b": 2}
    own.observe(5)  # the dict is one flat control to the belief update
    assert own.belief.state[0].tolist() == [0, 0, 0, 0, 0, 1]


def test_lockstep_changes_nothing(planner: aif.Planner) -> None:
    seeds = range(10, 22)
    together = aif.run_episodes(TMaze, agent(planner), seeds)
    alone = aif.run_episodes(TMaze(), agent(planner), seeds)
    chunks = aif.run_episodes(TMaze, agent(planner), seeds, lockstep=5)
    assert together.episodes == alone.episodes == chunks.episodes
    for outcomes in (together, alone, chunks):
        assert outcomes.effort.decisions == 4 * len(seeds)
        assert outcomes.effort.problems == 7  # one at the start, then one for each side
    assert [episode.seed for episode in together.episodes] == list(seeds)
    assert {(e.reward, e.steps, e.terminated) for e in together.episodes} == {(1.0, 4, True)}
    assert together.records()[0] == {"seed": 10, "reward": 1.0, "steps": 4, "terminated": True}
    assert [info["state"] for info in together.episodes[0].infos][:4] == [1, 0, 1, 3]


class Wanderer:
    """An agent of another kind: random controls, by the key."""

    def reset(self, key: jax.Array | None = None) -> None:
        self.rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))

    def act(self, observation: Any) -> int:
        return int(self.rng.integers(4))


def test_any_agent_will_do() -> None:
    ended: list[aif.Episode] = []
    outcomes = aif.run_episodes(TMaze, Wanderer(), [5, 3, 4], ended.append)
    assert [episode.seed for episode in outcomes.episodes] == [5, 3, 4] == [episode.seed for episode in ended]
    assert outcomes == aif.run_episodes(TMaze(), Wanderer(), [5, 3, 4])._replace(effort=outcomes.effort)
    assert outcomes.effort.decisions == outcomes.effort.problems == sum(e.steps for e in outcomes.episodes)


def test_a_wrapped_environment_will_do(planner: aif.Planner) -> None:
    outcomes = aif.run_episodes(lambda: gym.make("npro_aif/TMaze-v0"), agent(planner), range(2))
    assert [episode.reward for episode in outcomes.episodes] == [1, 1]


def test_equal_seeds_are_refused(planner: aif.Planner) -> None:
    with pytest.raises(ValueError, match="seeds: found some more than once"):
        aif.run_episodes(TMaze, agent(planner), [1, 1])


def test_a_stopped_run_goes_on(planner: aif.Planner, tmp_path: Path) -> None:
    settings = {"task": "tmaze", "seed": 0}
    first = aif.run_episodes(TMaze, agent(planner), [0, 1], solutions=Solutions(tmp_path, settings))
    kept = Solutions(tmp_path, settings)
    assert kept.problems == first.effort.problems
    assert kept.seconds == pytest.approx(first.effort.seconds)

    class NoPlans:
        def batch(self, *_: Any) -> None:
            raise AssertionError("a problem was solved again")

    silent = agent(planner)
    silent._decider.planner = NoPlans()  # type: ignore[assignment]
    again = aif.run_episodes(TMaze, silent, [0, 1], solutions=kept)
    assert again.episodes == first.episodes
    assert again.effort.problems == first.effort.problems
    with pytest.raises(ValueError, match=r"other settings \(seed\)"):
        Solutions(tmp_path, {"task": "tmaze", "seed": 1})
    assert json.loads((tmp_path / "settings.json").read_text()) == settings
    assert not list(tmp_path.glob("*.partial"))


def test_problems_are_told_apart() -> None:
    belief = tmaze.initial_belief()
    names = {
        fingerprint(belief, 4, 0, 0),
        fingerprint(belief, 3, 0, 0),
        fingerprint(belief, 4, 1, 0),
        fingerprint(belief, 4, 0, 1),
        fingerprint(tmaze.initial_belief(theta=0), 4, 0, 0),
        fingerprint(tmaze.initial_belief(place=0), 4, 0, 0),
    }
    assert len(names) == 6
    assert fingerprint(tmaze.initial_belief(), 4, 0, 0) in names
