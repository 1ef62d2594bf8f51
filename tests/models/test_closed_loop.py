"""The models with memories and hidden states: the figures of their plans, their trees, and what agents attain."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npro_aif as aif
from npro_aif.envs import TMaze
from npro_aif.guides import TemporalGuide
from npro_aif.models import reactivity_maze, tiger, tmaze
from npro_aif.solvers import Problem
from tests.support import assert_close

pytestmark = pytest.mark.usefixtures("quick_compile")

KEY = jax.random.key(0)


def planner_of(model: Any, objective: Any, horizon: int, **settings: Any) -> aif.Planner:
    guide = TemporalGuide(model, learn=("control",))
    return aif.Planner(model, guide, objective, aif.CoordinateSolver(**settings), max_horizon=horizon)


def success(plan: aif.Plan) -> float:
    """The probability that the plan itself ends at the rewarded arm, by walking its tree."""

    def arrives(branch: Any) -> float:
        if not branch.branches:
            return branch.probability * branch.believed["theta"].get(branch.seen["x"], 0.0)
        return sum(arrives(later) for later in branch.branches)

    return sum(arrives(branch) for branch in plan.tree(depth=99).branches)


TMAZES = [  # memory, accuracy of the cue, horizon, objective, F, the plan's own success
    pytest.param(None, 1.0, 4, aif.Planning(), 9.5990, None, marks=pytest.mark.slow),
    ("told", 1.0, 4, aif.Planning(), 5.5990, 1.0),
    (None, 1.0, 4, aif.Active(), 6.8264, 0.0),
    pytest.param("told", 1.0, 4, aif.Active(), 6.9853, 1.0, marks=pytest.mark.slow),
    pytest.param("count", 0.9, 6, aif.Planning(), 8.5956, 0.9720, marks=pytest.mark.slow),  # its episodes: below
]


@pytest.mark.parametrize(("memory", "accuracy", "horizon", "objective", "value", "own"), TMAZES)
def test_the_tmaze(memory: Any, accuracy: float, horizon: int, objective: Any, value: float, own: float | None) -> None:
    model = functools.partial(tmaze.tmaze, memory=memory, cue_accuracy=accuracy)
    plan = planner_of(model, objective, horizon)(KEY, tmaze.initial_belief())
    assert float(plan.free_energy[-1]) == pytest.approx(value, abs=1e-4)
    if own is not None:
        assert success(plan) == pytest.approx(own, abs=1e-4)
    if memory:
        assert int(plan.best_control()) == tmaze.SOUTH


def test_one_word_and_the_place_remember_more_than_one_word() -> None:
    """From a uniform policy sweeps end where everybody waits for one word; others are lower."""
    model = functools.partial(tmaze.tmaze, memory="told", cue_accuracy=0.9)
    belief, planner = tmaze.initial_belief(), planner_of(functools.partial(model), aif.Planning(), 6, restarts=1)
    plan = planner(KEY, belief)
    problem = Problem(plan.world(), planner.guide, aif.Planning(), 6)
    uniform = {name: jnp.zeros(t.shape) for name, t in planner.guide.tables(plan.world(), 6).items()}
    solved = jax.jit(lambda params: aif.CoordinateSolver(restarts=1).solve(problem, KEY, params))(uniform)
    assert float(solved.free_energy[-1]) == pytest.approx(9.1716, abs=1e-4)
    assert float(plan.free_energy[-1]) == pytest.approx(8.8836, abs=1e-4)
    assert success(plan) == pytest.approx(0.936, abs=1e-3)


@pytest.mark.parametrize(
    ("memory", "objective", "value"),
    [
        ("told", aif.Planning(), 5.3575),
        pytest.param("told", aif.Active(), 4.4412, marks=pytest.mark.slow),
        pytest.param(None, aif.Planning(), 6.0308, marks=pytest.mark.slow),
    ],
)
def test_the_reactivity_maze(memory: str | None, objective: Any, value: float) -> None:
    model = functools.partial(reactivity_maze.reactivity_maze, memory=memory)
    plan = planner_of(model, objective, 3)(KEY, reactivity_maze.initial_belief())
    assert float(plan.free_energy[-1]) == pytest.approx(value, abs=1e-4)


@pytest.fixture(scope="module")
def hunter() -> aif.Planner:
    return planner_of(tiger.tiger, aif.Planning(), 6, restarts=1)  # one sweep from anywhere is exact


def test_the_tiger(hunter: aif.Planner) -> None:
    """The exact finite-horizon values, by a counter of words."""
    for horizon, reward in {2: -2.0, 3: 2.72, 4: 2.4213, 5: 3.6092, 6: 5.6188}.items():
        plan = hunter(KEY, tiger.initial_belief(), horizon)
        prior = float(plan.terms["plan_prior"] + plan.terms["correction"])
        assert prior == pytest.approx(horizon * math.log(3), abs=1e-4)
        assert -float(plan.terms["risk"]) == pytest.approx(reward, abs=2e-4)


def test_an_agent_without_a_first_look_is_worth_what_its_plan_promises(hunter: aif.Planner) -> None:
    planner, belief = hunter, tiger.initial_belief()
    agent = aif.Agent(planner, belief, max_steps=4)
    assert tiger.CONTROLS[agent.act(None)] == "listen"
    assert tiger.CONTROLS[agent.act(1)] == "listen"
    assert agent.belief.state[0].tolist() == pytest.approx([0.15, 0.85])
    worth = aif.evaluate(planner, tiger.tiger, belief, 4)
    assert worth.exact
    assert worth.value == pytest.approx(2.4213, abs=2e-4)
    drawn = aif.evaluate(planner, tiger.tiger, belief, 4, max_beliefs=3, episodes=200)
    assert abs(drawn.value - worth.value) < 4 * drawn.standard_error


def test_episodes_with_an_unreliable_cue() -> None:
    """An agent that counts and replans does as well as its first plan promises."""
    model = functools.partial(tmaze.tmaze, memory="count", cue_accuracy=0.9)
    agent = aif.Agent(planner_of(model, aif.Planning(), 6), tmaze.initial_belief(), max_steps=6)
    worth = aif.evaluate(agent, model, tmaze.initial_belief(), 6)
    goal = tmaze.goal_preference(tmaze.GAMMA)
    best, worst = goal[tmaze.LEFT]
    assert (worth.value - worst) / (best - worst) >= 0.9720 - 1e-3  # no place but the arms at the end
    outcomes = aif.run_episodes(TMaze, aif.Agent(agent.planner, tmaze.initial_belief(), max_steps=4), range(3))
    assert [episode.reward for episode in outcomes.episodes] == [1, 1, 1]  # where the cue is always right


def test_costs_of_controls_against_brute_force() -> None:
    """With everything else as it is, doing another control first costs what the plan says it does."""
    model = functools.partial(tmaze.tmaze, memory="told")
    planner = planner_of(model, aif.Planning(), 3)
    plan = planner(KEY, tmaze.initial_belief())
    world, posterior = plan.world(), plan.complete()
    value = jax.jit(aif.Planning().free_energy)
    for u, cost in enumerate(np.asarray(plan.control_cost)):
        certain = jnp.where(jnp.arange(4) == u, 0.0, -jnp.inf)
        other = posterior._replace(control=posterior.control.at[0].set(certain))
        assert_close(value(world, other), cost, 1e-5)


def test_a_history_remembers_steps() -> None:
    """The last two words are the same as a hand-made memory of them."""

    def told(belief: aif.Belief, horizon: int = 3) -> None:
        x = aif.state("x", aif.DeterministicCategorical(jnp.asarray(0), 1))
        truth = aif.parameter("truth", aif.DeterministicCategorical(jnp.asarray(0), 1))
        past = aif.history("past", 2, {"u": 2, "y": 2})

        def step(carry: Any, t: Any) -> Any:
            x, past = carry
            u = aif.control("u", tiger.dist.Categorical(probs=jnp.ones(2) / 2))
            x = aif.state("x", aif.DeterministicCategorical(0 * x, 1))
            y = aif.observation("y", aif.DeterministicCategorical(u, 2))
            aif.preference("goal", jnp.where(u == 1, 1.0, 0.0) + 0.0 * truth)
            return x, aif.history("past", 2, {"u": 2, "y": 2}, past, u=u, y=y)

        aif.rollout(step, (x, past), horizon)

    plan = planner_of(told, aif.Planning(), 3)(KEY, aif.Belief(jnp.ones(1), jnp.ones((1, 1))))
    labels = [plan.signature.memory[0].label(int(m)) for m in np.argmax(plan.memory, -1)]
    assert labels == ["–, –", "–, u1 y1", "u1 y1, u1 y1", "u1 y1, u1 y1"]
    assert plan.memory.shape == (4, 25)
    assert list(itertools.chain(plan.sample(KEY, 2)["past"][0].tolist())) == [0, 4, 24, 24]
