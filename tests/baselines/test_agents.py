"""The baselines as agents: decisions as the exact references make them, the shrinking horizon, ties, plain errors."""

from __future__ import annotations

import sys

import jax
import numpy as np
import pytest

import npro_aif as aif
from npro_aif.acting.run import run_episodes
from npro_aif.baselines import ReferenceAgent, Sophisticated, StandardEFE
from npro_aif.baselines.acting import Acting
from npro_aif.envs import ReactivityMaze, TMaze
from npro_aif.experiments.agents import SOPHISTICATED_GAMMA, SOPHISTICATED_TRANSLATION, make_agent
from npro_aif.experiments.tasks import Settings, SettingsError, make_task
from npro_aif.models import reactivity_maze, tmaze

pytestmark = pytest.mark.usefixtures("quick_compile")

AT_START = {"cue": 0, "place": tmaze.START}


@pytest.fixture(scope="module")
def standard() -> StandardEFE:
    return StandardEFE(tmaze.tmaze, tmaze.initial_belief(), horizon=2, max_steps=3)


def test_standard_efe_scores_as_the_reference(standard: StandardEFE) -> None:
    reference = ReferenceAgent(tmaze.tmaze, tmaze.initial_belief(), 2, 3, method="efe", sensors=False)
    walk = [AT_START, {"cue": 1, "place": tmaze.CUE}]
    for agent in (standard, reference):
        agent.reset()
    for seen in walk:
        assert standard.act(seen) == reference.act(seen)
        theirs, ours = standard._score(2), reference._score(2)
        np.testing.assert_allclose(theirs - theirs.max(), ours - ours.max(), atol=1e-3)


def test_jit_around_pymdp_changes_nothing() -> None:
    plain, compiled = (StandardEFE(tmaze.tmaze, tmaze.initial_belief(), horizon=1, jit=jit) for jit in (False, True))
    for agent in (plain, compiled):
        agent.observe(AT_START)
    np.testing.assert_allclose(plain.scores(), compiled.scores(), atol=1e-5)


def test_plans_by_the_papers_g() -> None:
    agent = ReferenceAgent(tmaze.tmaze, tmaze.initial_belief(), 2, method="paper")
    agent.observe(AT_START)
    G = aif.expected_free_energy(tmaze.tmaze, agent.belief, 2)
    expected = [-float(np.asarray(G.total)[np.asarray(G.plans)[:, 0] == u].min()) for u in range(4)]
    ours = agent.scores()
    np.testing.assert_allclose(ours - ours.max(), np.array(expected) - max(expected), atol=1e-5)


def test_perception_is_bayes(standard: StandardEFE) -> None:
    standard.reset()
    standard.observe(AT_START)
    assert standard.beliefs is not None
    np.testing.assert_allclose(np.ravel(standard.beliefs[1]), [0.5, 0.5], atol=1e-5)
    standard.control = tmaze.SOUTH
    standard.observe({"cue": 1, "place": tmaze.CUE})
    np.testing.assert_allclose(np.ravel(standard.beliefs[0]), np.eye(5)[tmaze.CUE], atol=1e-5)
    np.testing.assert_allclose(np.ravel(standard.beliefs[1]), [0, 1], atol=1e-5)


def test_the_horizon_shrinks_with_the_steps_left(standard: StandardEFE) -> None:
    standard.reset()
    ahead = []
    for _ in range(4):
        ahead.append(standard.steps_ahead())
        standard.step += 1
    assert ahead == [2, 2, 1, 1]


def test_equal_decisions_are_remembered(standard: StandardEFE) -> None:
    remembered = []
    for _ in range(2):
        standard.reset()
        standard.act(AT_START)
        remembered.append(standard.remembered)
    assert remembered[-1]
    standard.remember = False
    standard.reset()
    standard.act(AT_START)
    assert not standard.remembered
    standard.remember = True


class Tied(Acting):
    """An agent whose last two controls are the best."""

    def observe(self, observation: object) -> None:
        pass

    def scores(self) -> np.ndarray:
        return np.array([0.0, 1.0, 1.5, 1.5])


def test_ties_and_draws_are_by_the_key() -> None:
    agent = Tied(tmaze.tmaze, tmaze.initial_belief(), 1, gamma=1.0)
    agent.reset()
    assert agent.act(AT_START) == 2

    def chosen() -> set[object]:
        found = set()
        for n in range(60):
            agent.reset(jax.random.key(n))
            found.add(agent.act(AT_START))
        return found

    assert chosen() == {2, 3}
    agent.stochastic = True
    assert chosen() == {0, 1, 2, 3}


def test_bad_arguments_are_named(standard: StandardEFE) -> None:
    standard.reset()
    with pytest.raises(ValueError, match="site 'place' is missing"):
        standard.act({"cue": 0})
    with pytest.raises(RuntimeError, match="expected an observation first"):
        standard.scores()
    with pytest.raises(ValueError, match="max_steps: found 0"):
        ReferenceAgent(tmaze.tmaze, tmaze.initial_belief(), 2, 0)
    with pytest.raises(ValueError, match="gamma: found -1"):
        ReferenceAgent(tmaze.tmaze, tmaze.initial_belief(), 2, gamma=-1)


def test_without_pymdp_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymdp", None)
    monkeypatch.setitem(sys.modules, "pymdp.agent", None)
    with pytest.raises(ImportError, match=r"pip install 'npro-aif\[baselines\]'"):
        StandardEFE(tmaze.tmaze, tmaze.initial_belief(), 2)
    with pytest.raises(SettingsError, match=r"pip install 'npro-aif\[baselines\]'"):
        make_agent(make_task("tmaze"), Settings(method="efe"))


def test_the_tasks_agents() -> None:
    task = make_task("tmaze")
    agent = make_agent(task, Settings(method="efe"))
    assert isinstance(agent, StandardEFE)
    assert (agent.horizon, agent.max_steps) == (4, 4)
    agent = make_agent(task, Settings(method="sophisticated", horizon=2))
    assert isinstance(agent, Sophisticated)
    assert (agent.horizon, agent.translation) == (2, SOPHISTICATED_TRANSLATION)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["efe", "sophisticated"])
def test_doorkey_is_refused(method: str) -> None:
    with pytest.raises(SettingsError, match="pymdp would need"):
        make_agent(make_task("doorkey"), Settings(method=method))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["efe", "sophisticated"])
def test_both_methods_solve_the_tmaze(method: str) -> None:
    agent = make_agent(make_task("tmaze"), Settings(method=method))
    outcomes = run_episodes(TMaze(), agent, range(1000, 1020))
    assert [episode.reward for episode in outcomes.episodes] == [1.0] * 20


@pytest.mark.slow
def test_standard_efe_does_as_the_reference_in_the_reactivity_maze() -> None:
    arguments = reactivity_maze.reactivity_maze, reactivity_maze.initial_belief(), 3, 5
    agents = StandardEFE(*arguments), ReferenceAgent(*arguments, method="efe", sensors=False)
    first, second = (run_episodes(ReactivityMaze(), agent, range(1000, 1020)).episodes for agent in agents)
    assert [episode.controls for episode in first] == [episode.controls for episode in second]


@pytest.mark.slow
def test_sophisticated_inference_reaches_the_goal_of_the_reactivity_maze() -> None:
    arguments = reactivity_maze.reactivity_maze, reactivity_maze.initial_belief(), 3, 5
    agent = Sophisticated(*arguments, gamma=SOPHISTICATED_GAMMA, translation=SOPHISTICATED_TRANSLATION)
    outcomes = run_episodes(ReactivityMaze(), agent, range(1000, 1010))
    assert np.mean([episode.reward for episode in outcomes.episodes]) > 0.9
