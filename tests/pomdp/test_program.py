"""Programs of `.POMDP` files: their plans against belief trees, and the file as an environment."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npro_aif as aif
from npro_aif.envs import PomdpFile
from npro_aif.pomdp.problem import Problem
from npro_aif.pomdp.program import read_problem, shipped

pytestmark = pytest.mark.usefixtures("quick_compile")

KEY = jax.random.key(0)


def best_value(problem: Problem, belief: np.ndarray, steps: int) -> float:
    """The most that can be had from a belief, by the whole tree of controls and observations."""
    if steps == 0:
        return 0.0
    values = []
    for u in range(len(problem.controls)):
        edges = belief[:, None] * problem.transition[u]  # (X, X')
        joint = edges.sum(0)[:, None] * problem.emission[u]  # (X', Y)
        rewards = np.broadcast_to(problem.rewards[u], (*edges.shape, joint.shape[1]))
        value = (edges[..., None] * problem.emission[u] * rewards).sum()
        for column in joint.T:
            if column.sum() > 0:
                later = best_value(problem, column / column.sum(), steps - 1)
                value += problem.discount * column.sum() * later
        values.append(value)
    return max(values)


def planner_of(model: Any, horizon: int) -> aif.Planner:
    return aif.Planner(model, objective=aif.Planning(), solver=aif.CoordinateSolver(), max_horizon=horizon)


def test_the_tiger_from_its_file() -> None:
    """The exact finite-horizon values, with all that was heard in memory."""
    model, belief = aif.read_pomdp("tiger.POMDP", horizon=6, memory=5, discount=1)
    planner = planner_of(model, 6)
    for horizon, reward in ((2, -2.0), (3, 2.72), (4, 2.4213), (5, 3.6092), (6, 5.6188)):
        plan = planner(KEY, belief, horizon=horizon)
        assert -float(plan.terms["risk"]) == pytest.approx(reward, abs=2e-4)
    listen = plan.signature.control[0].labels
    assert listen is not None
    assert listen[int(plan.best_control())] == "listen"


def test_the_tiger_by_search() -> None:
    """The same values with perfect recall, proven; and the discounted one far ahead, within bounds."""
    model, belief = aif.read_pomdp("tiger.POMDP", horizon=6, discount=1)
    planner = aif.Planner(model, aif.guides.RecallGuide(model), aif.Planning(), aif.SearchSolver(), max_horizon=6)
    for horizon, reward in ((2, -2.0), (3, 2.72), (4, 2.4213), (5, 3.6092), (6, 5.6188)):
        plan = planner(KEY, belief, horizon=horizon)
        assert bool(plan.info.optimal)
        assert -float(plan.terms["risk"]) == pytest.approx(reward, abs=2e-4)


@pytest.mark.slow  # a file of the test's own against its tree: below
@pytest.mark.parametrize("name", ["maze.POMDP", "grid4x3.POMDP"])
def test_shipped_files_against_a_belief_tree(name: str) -> None:
    model, belief = aif.read_pomdp(name, horizon=3, memory=2)
    plan = planner_of(model, 3)(KEY, belief)
    problem = read_problem(name)
    assert -float(plan.terms["risk"]) == pytest.approx(best_value(problem, problem.start, 3), abs=1e-4)


def test_rewards_of_observations_and_next_states(tmp_path: Path) -> None:
    """R(u, x, x', y) enters as its mean over y, which is exact for Planning."""
    path = tmp_path / "odd.POMDP"
    path.write_text(
        "discount: 0.8 values: cost states: 2 actions: 2 observations: 2 start: 0.3 0.7\n"
        "T: 0\n.9 .1\n.2 .8\nT: 1 uniform\nO: 0\n.7 .3\n.4 .6\nO: 1\n.5 .5\n0 1\n"
        "R: 0 : 0\n1 -2\n3 4\nR: 0 : 1 : * : 1 2.5\nR: 1 : * : 0\n-1 .5\nR: 1 : 1 : 1 : * -3\n"
    )
    problem = read_problem(path)
    model, belief = aif.read_pomdp(path, horizon=3, memory=2)
    plan = planner_of(model, 3)(KEY, belief)
    assert -float(plan.terms["risk"]) == pytest.approx(best_value(problem, problem.start, 3), abs=1e-5)


def test_a_file_without_observations_is_planned_with_its_states_seen(tmp_path: Path) -> None:
    path = tmp_path / "chain.POMDP"
    path.write_text(
        "discount: 0.5 values: reward states: 3 actions: 2 start: 0\nT: 0 identity\nT: 1\n0 1 0\n0 0 1\n1 0 0\n"
        "R: * : 2 : * 8\n"
    )
    model, belief = aif.read_pomdp(path, horizon=4)
    planner = planner_of(model, 4)
    plan = planner(KEY, belief)
    assert -float(plan.terms["risk"]) == pytest.approx(8 / 4 + 8 / 8)  # there after two steps, and it stays
    agent = aif.Agent(planner, belief, max_steps=4)
    outcomes = aif.run_episodes(functools.partial(PomdpFile, path, max_steps=4), agent, range(2))
    assert [episode.reward for episode in outcomes.episodes] == [3, 3]


def test_the_environment_is_the_file() -> None:
    """Means over many steps are the file's numbers."""
    env, rng = PomdpFile("grid4x3.POMDP", max_steps=20_000), np.random.default_rng(0)
    problem = env.problem
    moves = np.zeros(problem.transition.shape)
    state = env.reset(seed=0)[1]["state"]
    for _ in range(20_000):
        control = int(rng.integers(4))
        observation, _, _, _, info = env.step(control)
        moves[control, state, info["state"]] += 1
        assert problem.emission[control, info["state"], observation["y"]] > 0
        state = info["state"]
    seen = moves.sum(-1, keepdims=True)
    assert (np.abs(moves / seen - problem.transition) < 5 / np.sqrt(seen)).all()


def test_returns_are_discounted() -> None:
    env = PomdpFile("tiger.POMDP", max_steps=3)
    env.reset(seed=1)
    assert sum(env.step(0)[1] for _ in range(3)) == pytest.approx(-(1 + 0.95 + 0.95**2))


def test_the_belief_follows_the_file() -> None:
    model, belief = aif.read_pomdp("tiger.POMDP", memory=1)
    heard = aif.update_belief(model, belief, 0, 1)
    assert heard.state[0].tolist() == pytest.approx([0.15, 0.85])
    assert aif.update_belief(model, heard, 1, 0).state[0].tolist() == pytest.approx([0.5, 0.5])


def test_bad_arguments() -> None:
    with pytest.raises(FileNotFoundError, match=r"expected one, or one of grid4x3.POMDP, maze.POMDP, tiger.POMDP"):
        aif.read_pomdp("lion.POMDP")
    with pytest.raises(ValueError, match="horizon: found none with a discount of 1"):
        aif.read_pomdp("tiger.POMDP", discount=1)
    with pytest.raises(ValueError, match="memory: found -1"):
        aif.read_pomdp("tiger.POMDP", memory=-1)
    for discount in (2, "a", float("nan")):
        with pytest.raises(ValueError, match=f"discount: found {discount!r}, expected one from 0 to 1"):
            aif.read_pomdp("tiger.POMDP", discount=discount)  # type: ignore[arg-type]
    for scale in ("a", float("inf")):
        with pytest.raises(ValueError, match=f"scale: found {scale!r}, expected how many nats"):
            aif.read_pomdp("tiger.POMDP", scale=scale)  # type: ignore[arg-type]
    for memory in (1.5, "1"):
        with pytest.raises(ValueError, match=f"memory: found {memory!r}, expected a whole number of at least 0"):
            aif.read_pomdp("tiger.POMDP", memory=memory)  # type: ignore[arg-type]
    for horizon in (0, 1.5):
        with pytest.raises(ValueError, match=f"horizon: found {horizon!r}, expected a whole number of steps"):
            aif.read_pomdp("tiger.POMDP", horizon=horizon)  # type: ignore[arg-type]


def test_shipped_files_are_read_by_their_name_alone(tmp_path: Path) -> None:
    for path in ("/nonexistent/tiger.POMDP", "./tiger.POMDP", tmp_path / "tiger.POMDP"):
        with pytest.raises(FileNotFoundError, match=rf"found no file '{path}', expected one, or one of .* without a f"):
            aif.read_pomdp(path)
        with pytest.raises(FileNotFoundError, match="found no file"):
            PomdpFile(path)
    (tmp_path / "tiger.POMDP").write_text("discount: 0 values: reward states: 3 actions: 1 T: * identity")
    assert aif.read_pomdp(tmp_path / "tiger.POMDP")[1].state.shape == (1, 3)


@pytest.mark.parametrize("memory", [10, 30, 10**9])
def test_a_memory_with_too_many_contents_is_refused_before_they_are_listed(
    memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(*arguments: Any) -> Any:
        raise AssertionError("the histories were listed")

    monkeypatch.setattr("npro_aif.language._history_labels", listed)
    found = rf"memory: found {memory} steps of 7 values each, 7\^{memory} contents; "
    with pytest.raises(aif.ModelError, match=found + "expected at most 1,048,576, a length of 7"):
        aif.read_pomdp("tiger.POMDP", horizon=memory + 1, memory=memory)


def test_a_plan_remembers_no_more_than_there_is() -> None:
    """Any longer memory is the exact plan's: a plan of three steps has two to remember."""
    model, belief = aif.read_pomdp("tiger.POMDP", horizon=3, memory=30, discount=1)
    plan = planner_of(model, 3)(KEY, belief)
    assert plan.signature.num_memories == 7**2  # two of three controls with two observations, or nothing yet
    assert -float(plan.terms["risk"]) == pytest.approx(2.72, abs=2e-4)
    model, _ = aif.read_pomdp("tiger.POMDP", horizon=1, memory=30)
    assert not planner_of(model, 1)(KEY, belief).signature.memory


def test_an_episode_has_steps_and_a_beginning() -> None:
    for max_steps in (0, -1, 1.5):
        with pytest.raises(ValueError, match=f"max_steps: found {max_steps}, expected a whole number of at least 1"):
            PomdpFile("tiger.POMDP", max_steps=max_steps)  # type: ignore[arg-type]
    env = PomdpFile("tiger.POMDP", max_steps=1, render_mode="ansi")
    for call in (lambda: env.step(0), env.render):
        with pytest.raises(RuntimeError, match=r"found no episode, expected env.reset\(\) before it"):
            call()
    env.reset(seed=0)
    assert env.step(0)[1] == -1


@pytest.mark.slow
def test_the_discounted_tiger() -> None:
    """The value of the infinite horizon is 19.37; a memory of five steps attains 19.18 of it, one of four 18.69."""
    model, belief = aif.read_pomdp("tiger.POMDP", horizon=100, memory=5)
    plan = planner_of(model, 100)(KEY, belief)
    assert -float(plan.terms["risk"]) == pytest.approx(19.37, rel=0.01)


def test_every_shipped_file_starts_somewhere() -> None:
    for name in shipped():
        _, belief = aif.read_pomdp(name)
        assert float(jnp.sum(belief.state)) == pytest.approx(1)
