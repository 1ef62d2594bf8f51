"""Search against a belief-tree dynamic programme: optimum, bounds at every interruption, and the plan's own value."""

from __future__ import annotations

import functools
import itertools
import os
import pickle
import signal
import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest

import npro_aif as aif
from npro_aif.models import reactivity_maze, tiger, tmaze
from npro_aif.solvers.search.classes import names
from npro_aif.solvers.search.growing import StepTables
from npro_aif.solvers.search.hypotheses import Step
from npro_aif.solvers.search.solver import Searches
from tests.search_worlds import CONTROLS, HORIZON, THETAS, WORLDS, Family, family, optimum, replayed
from tests.support import assert_close

pytestmark = pytest.mark.usefixtures("quick_compile", "x64")

KEY = jax.random.key(0)


@functools.cache
def planner(worlds: Family, **limits: Any) -> aif.Planner:
    guide = aif.guides.RecallGuide(worlds.model)
    return aif.Planner(worlds.model, guide, aif.Planning(), aif.SearchSolver(**limits), max_horizon=HORIZON)


@pytest.mark.parametrize("certain", [False, True])
def test_fifty_random_worlds(certain: bool) -> None:
    """The optimum, and bounds around it wherever the search is stopped; the plan costs its upper bound."""
    worlds = family(certain)
    gaps = 0
    for world in range(WORLDS):
        belief = worlds.belief(world)
        expected = optimum(worlds, belief, HORIZON)
        plan = planner(worlds)(KEY, belief)
        assert plan.info.optimal
        assert plan.info.converged
        assert_close(plan.info.upper, expected, 1e-6, world)
        assert_close(plan.info.lower, expected, 1e-6, world)
        assert_close(replayed(worlds, plan), expected, 1e-9, world)
        assert_close(sum(plan.terms.values()), expected, 1e-9, world)
        assert_close(plan.free_energy[-1], expected, 1e-9, world)
        for max_nodes in (1, 10, 100):
            early = planner(worlds, max_nodes=max_nodes)(KEY, belief)
            assert early.info.nodes <= max_nodes
            assert early.info.lower <= expected + 1e-9 <= early.info.upper + 2e-9
            assert_close(replayed(worlds, early), early.info.upper, 1e-9, (world, max_nodes))
            assert_close(early.free_energy[-1], early.info.upper, 1e-9)
            assert (early.info.control_lower <= early.info.control_upper + 1e-9).all()
            gaps += not early.info.optimal
    assert gaps > WORLDS // 2  # the limits did stop it


def swapped(belief: aif.Belief, horizon: int = 2) -> None:
    """From 0 to a good and a bad place, which look red and blue, or with the other θ blue and red; then take or not."""
    move = np.zeros((2, 6, 6))
    move[0, 0, [1, 2]] = move[1, 0, [3, 4]] = 0.5
    move[:, 1:, 5] = 1.0
    gain = np.array([0.0, 1.0, -1.0, -1.0, 1.0, 0.0])
    theta = aif.parameter("theta", dist.Categorical(belief.parameter))
    x = aif.state("x", dist.Categorical(belief.state[theta]), hidden=True)

    def step(x: Any, t: Any) -> Any:
        u = aif.control("u", dist.Categorical(jnp.full(2, 0.5)))
        new = aif.state("x", dist.Categorical(jnp.asarray(move)[theta, x]), hidden=True)
        aif.observation("y", aif.DeterministicCategorical(jnp.array([2, 0, 1, 0, 1, 2])[new], 3))
        aif.preference("gain", jnp.asarray(gain)[x] * u)
        return new

    aif.rollout(step, x, horizon)


def test_what_looks_and_leads_alike_apart_is_not_alike() -> None:
    """Each θ leads to good and bad as often and to red and blue as often: only both together tell them apart."""
    start = jnp.eye(6)[jnp.zeros(2, int)]
    for probs in (0.5, 0.8, 1.0):
        plan = solved(swapped, aif.Belief(jnp.array([1 - probs, probs]), start), 2)
        assert_close(plan.info.upper, 2 * np.log(2) - 0.5 * (2 * probs - 1), 1e-9)
        assert plan.info.optimal


def test_names_tell_many_hypotheses_apart() -> None:
    """Half of them differ by where they lead only, most of them certainly in a world of chance."""
    count = 20_000
    to = np.stack([np.r_[count : 2 * count, :count], np.zeros(2 * count, int)], -1)[:, None]
    chance = np.tile([1.0, 0.0], (2 * count, 1, 1))
    label = np.r_[np.zeros(count, int), :count].astype(np.uint64)[:, None]
    cost = np.zeros((2 * count, 1))
    step = Step(to, chance, label, label[..., None], (), cost, cost)
    assert len(np.unique(names([step], 2, 0)[:count])) == count


@pytest.mark.parametrize("blur", [1e-2, 0.3])
def test_bounds_hold_however_beliefs_are_merged(blur: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beliefs that are far from equal stand for each other, and the certificate says what that may cost."""
    monkeypatch.setattr(Searches, "_tolerance", staticmethod(lambda belief: blur))
    worlds = family(certain=False)
    recall = aif.guides.RecallGuide(worlds.model)
    plans = aif.Planner(worlds.model, recall, aif.Planning(), aif.SearchSolver(), max_horizon=HORIZON)
    gaps = []
    for world in range(WORLDS):
        belief = worlds.belief(world)
        near = belief._replace(parameter=belief.parameter * (1 + 0.3 * blur * (jnp.arange(WORLDS * THETAS) % 2)))
        for each in (belief, near._replace(parameter=near.parameter / near.parameter.sum())):
            plan, expected = plans(KEY, each), optimum(worlds, each, HORIZON)
            assert plan.info.lower <= expected + 1e-9
            assert expected <= plan.info.upper + 1e-9
            assert_close(replayed(worlds, plan), plan.info.upper, 1e-9)
            assert plan.info.upper <= plans.certificates[-1].upper + 1e-9
            assert plan.info.optimal == (plan.info.upper - plan.info.lower < 1e-7 * (1 + abs(plan.info.upper)))
            gaps.append(plan.info.upper - plan.info.lower)
    assert max(gaps) > 1e-4  # beliefs were merged


def test_a_tolerance_and_a_time() -> None:
    worlds = family(certain=False)
    for world in range(5):
        belief = worlds.belief(world)
        plan = planner(worlds, tol=0.5)(KEY, belief)
        assert plan.info.converged
        assert plan.info.upper - plan.info.lower <= 0.5
        assert_close(replayed(worlds, plan), plan.info.upper, 1e-9)
    assert not planner(worlds, seconds=1e-9)(KEY, belief).info.converged


class Ticks:
    """A clock that every look at it moves on."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> float:
        self.now += 1
        return float(self.now)


def test_a_search_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables leave half of the time for the search, which is over when it is up, with its plan."""
    belief, model = tiger.initial_belief(), functools.partial(tiger.tiger, accuracy=0.6)
    guide = aif.guides.RecallGuide(model)
    plans = aif.Planner(model, guide, aif.Planning(), aif.SearchSolver(seconds=200), max_horizon=60)
    clock = Ticks()
    monkeypatch.setattr("time.perf_counter", clock)
    plan = plans(KEY, belief, 60)
    assert 100 <= plan.info.nodes < 200  # every node looks at the clock
    assert clock.now < 220
    assert plan.info.lower < plan.info.upper


@pytest.mark.parametrize("certain", [False, True])
def test_parameters_come_in_when_they_are_possible(certain: bool) -> None:
    """One belief after the other, with what was there."""
    worlds = family(certain)
    guide = aif.guides.RecallGuide(worlds.model)
    plans = aif.Planner(worlds.model, guide, aif.Planning(), aif.SearchSolver(), max_horizon=HORIZON)
    for world in (7, 3, 3, 11, 7):
        belief = worlds.belief(world)
        plan = plans(KEY, belief)
        assert_close(plan.info.upper, optimum(worlds, belief, HORIZON), 1e-9)
        assert_close(replayed(worlds, plan), plan.info.upper, 1e-9)
    both = worlds.belief(5)._replace(parameter=(worlds.belief(3).parameter + worlds.belief(20).parameter) / 2)
    assert_close(plans(KEY, both).info.upper, optimum(worlds, both, HORIZON), 1e-9)


def test_steps_that_were_alike_may_part_as_tables_grow() -> None:
    """Two kinds of step share their moves until rows come in that differ."""
    tables = StepTables()
    ones, twos = np.ones((2, 1, 1), np.int32), np.full((1, 1, 2), 2, np.int32)
    label, cost = np.zeros((3, 1), np.uint64), np.zeros((3, 1))

    def step(to: np.ndarray) -> Step:
        return Step(to, None, label[: len(to)], label[: len(to)], (), cost[: len(to)], cost[: len(to)])

    first = step(ones)
    tables.add([first, first._replace(cost=first.cost + 1)])
    assert tables.steps[0].to is tables.steps[1].to
    before = tables.steps[0].to
    tables.add([step(twos), step(3 * twos)])
    assert tables.steps[0].to.tolist() == [[[1, 0]], [[1, 0]], [[2, 2]]]  # zeros fill up what was narrower
    assert tables.steps[1].to.tolist() == [[[1, 0]], [[1, 0]], [[6, 6]]]
    assert tables.steps[1].cost.ravel().tolist() == [1, 1, 0]
    assert before.tolist() == ones.tolist()


def test_a_depth_is_look_ahead_with_the_bound_beyond() -> None:
    """By a tree in which the perfect-information cost stands for all that follows; ties are shared."""
    worlds = family(certain=False)
    for world, depth in itertools.product(range(5), (1, 2, 3)):
        belief = worlds.belief(world)

        def ahead(joint: np.ndarray, t: int, depth: int = depth) -> np.ndarray:
            if t == depth:
                return np.array([(joint * informed(worlds, t)).sum()])
            later = [sum(ahead(seen, t + 1).min() for _, seen in worlds.outcomes(joint, u)) for u in range(CONTROLS)]
            return np.array([worlds.cost(joint, u, t) + later[u] for u in range(CONTROLS)])

        costs = ahead(np.asarray(belief.parameter)[:, None] * np.asarray(belief.state), 0)
        plan = planner(worlds, max_depth=depth)(KEY, belief)
        assert plan.info.depth <= depth
        assert_close(plan.info.lower, costs.min(), 1e-9)
        assert int(plan.best_control()) == int(costs.argmin())
        assert_close(replayed(worlds, plan), plan.info.upper, 1e-9)


@functools.cache
def informed(worlds: Family, t: int) -> np.ndarray:
    """What is left to pay from time t on if everything is seen, (Θ, X)."""
    if t == HORIZON:
        return np.zeros(worlds.move.shape[:2])
    ahead = np.einsum("ixuk,ik->ixu", worlds.move, informed(worlds, t + 1))
    ahead -= np.log(worlds.control)[None]
    ahead -= np.einsum("ixuk,ixuk->ixu", worlds.move, worlds.preference[t])
    ahead -= np.einsum("ixuk,ikuy,y->ixu", worlds.move, worlds.y, worlds.liked[t])
    return ahead.min(-1)


def test_the_bound_of_the_root_is_perfect_information() -> None:
    worlds = family(certain=False)
    belief = worlds.belief(0)
    low = planner(worlds, max_depth=1)(KEY, belief).info.lower
    bound = float(aif.perfect_information(worlds.model, belief, HORIZON))
    assert_close(
        bound, (np.asarray(belief.parameter)[:, None] * np.asarray(belief.state) * informed(worlds, 0)).sum(), 1e-9
    )
    assert low >= bound - 1e-9


def test_draws_have_the_plans_marginals() -> None:
    worlds = family(certain=True)
    plan = planner(worlds)(KEY, worlds.belief(3))
    draws = plan.sample(KEY, 500)
    for name, table in (("u", plan.control), ("x", plan.state), ("y", plan.observation["y"])):
        for t, probs in enumerate(np.asarray(table)):
            share = np.bincount(np.asarray(draws[name])[:, t], minlength=len(probs)) / 500
            assert np.abs(share - probs).max() < 4 * 0.5 / np.sqrt(500)
    given = np.asarray(plan.policy)  # q(u_t|x_{t-1}) is a conditional of the same joint
    np.testing.assert_allclose(np.einsum("tx,txu->tu", plan.state[:-1], given), plan.control, atol=1e-9)


# --- Reuse ---


def test_what_was_looked_at_serves_the_next_step() -> None:
    """The steps that are left are the same, so that the next plan is solved before it is begun."""
    worlds = family(certain=False, timeless=True)
    plans, belief = planner(worlds), worlds.belief(2)
    plan = plans(KEY, belief)
    control = int(plan.best_control())
    belief = aif.update_belief(worlds.model, belief, control, {"y": 0, "z": 1})
    after = plans(KEY, belief, HORIZON - 1)
    assert after.info.nodes == 0 < plan.info.nodes
    assert_close(after.info.upper, optimum(worlds, belief, HORIZON - 1), 1e-6)


def test_steps_that_differ_are_not_taken_for_the_same() -> None:
    worlds = family(certain=False)  # preferences at each time, counted from the start
    plans, belief = planner(worlds), worlds.belief(2)
    plans(KEY, belief)
    for horizon in (1, 2, 3):
        assert_close(plans(KEY, belief, horizon).info.upper, optimum(worlds, belief, horizon), 1e-6)


# --- Steps that have passed, and memories ---


def rush(belief: aif.Belief, horizon: int = 4, elapsed: Any = 0) -> None:
    """Listen, or say what it is; each of them costs more from step to step of the whole episode."""
    theta = aif.parameter("theta", dist.Categorical(belief.parameter))
    x = aif.state("x", dist.Categorical(belief.state[theta]), hidden=False)

    def step(x: Any, t: Any) -> Any:
        u = aif.control("u", dist.Categorical(jnp.full(3, 1 / 3)))
        new = aif.state("x", aif.DeterministicCategorical(x | (u < 2), 2), hidden=False)
        heard = jnp.where(u == 2, jnp.where(theta == 1, 0.8, 0.3), 0.5)
        aif.observation("y", dist.Categorical(jnp.stack([1 - heard, heard], -1)))
        late = 0.1 * (t + elapsed)
        aif.preference("gain", jnp.where(u == 2, -late, jnp.where(u == theta, 3.0 - late, -3.0 - late)) * (1 - x))
        return new

    aif.rollout(step, x, horizon)


def rushed(probs: float, left: int, time: int) -> float:
    if left == 0:
        return 0.0
    says = [6 * p - 3 - 0.1 * time for p in (1 - probs, probs)]
    heard = [np.array([(1 - probs) * a, probs * b]) for a, b in ((0.7, 0.2), (0.3, 0.8))]
    listens = 0.1 * time + sum(part.sum() * rushed(part[1] / part.sum(), left - 1, time + 1) for part in heard)
    return min(-max(says), listens)


def test_steps_that_have_passed() -> None:
    belief = aif.Belief(jnp.array([0.4, 0.6]), jnp.array([[1.0, 0.0]] * 2))
    plans = aif.Planner(rush, aif.guides.RecallGuide(rush), aif.Planning(), aif.SearchSolver(), max_horizon=4)
    for elapsed in (0, 3):
        plan = plans(KEY, belief, elapsed=elapsed)
        assert_close(plan.info.upper, rushed(0.6, 4, 1 + elapsed) + 4 * np.log(3), 1e-6)
        assert_close(plan.info.lower, plan.info.upper, 1e-6)
    agent = aif.Agent(plans, belief, max_steps=4)
    assert agent.act(None) == 2
    agent.act({"y": 1})
    assert int(agent.plans[-1].elapsed) == 1
    assert agent.plans[-1].info.nodes == 0  # the steps that are left are the same
    assert_close(agent.plans[-1].info.upper, rushed(0.8, 3, 2) + 3 * np.log(3), 1e-6)


def test_a_memory_of_what_the_search_does_not_see() -> None:
    """It holds the state, which is not observed: the plan does not use it, and knows how it will be."""

    def model(belief: aif.Belief, horizon: int = 3) -> None:
        x = aif.state("x", dist.Categorical(belief.state[0]), hidden=False)
        aif.memory("last", x, 2)

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(jnp.full(2, 0.5)))
            new = aif.state(
                "x", dist.Categorical(jnp.array([[[0.7, 0.3], [0.5, 0.5]], [[0.2, 0.8], [0.5, 0.5]]])[x, u])
            )
            y = aif.observation("y", dist.Categorical(jnp.array([[0.9, 0.1], [0.2, 0.8]])[new]))
            aif.memory("last", new, 2)
            aif.preference("liked", jnp.array([0.0, 1.0])[y])
            aif.preference("price", jnp.where(u == 1, -0.1, 0.0))
            return new

        aif.rollout(step, x, horizon)

    plan = solved(model, aif.Belief(jnp.ones(1), jnp.array([[0.6, 0.4]])), 3)
    assert plan.info.optimal
    np.testing.assert_allclose(plan.memory, plan.state, atol=1e-9)


# --- Interruptions ---


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread")
def test_ctrl_c_returns_the_best_plan_so_far() -> None:
    """In a search that would take hours."""
    belief = tiger.initial_belief()
    model = functools.partial(tiger.tiger, accuracy=0.6)
    guide = aif.guides.RecallGuide(model)
    plans = aif.Planner(model, guide, aif.Planning(), aif.SearchSolver(seconds=60), max_horizon=60)
    before = signal.getsignal(signal.SIGINT)

    def press() -> None:
        while signal.getsignal(signal.SIGINT) is before:  # until the search itself has begun
            time.sleep(0.01)
        time.sleep(0.05)
        if signal.getsignal(signal.SIGINT) is not before:  # else it is over, and Ctrl-C would end the tests
            os.kill(os.getpid(), signal.SIGINT)

    finger = threading.Thread(target=press, daemon=True)
    finger.start()
    plan = plans(KEY, belief, 60)
    finger.join(10)
    assert plan.info.interrupted
    assert not plan.info.converged
    assert plan.info.lower < plan.info.upper
    assert_close(sum(plan.terms.values()), plan.info.upper, 1e-6)


# --- Known worlds ---


def solved(model: Any, belief: aif.Belief, horizon: int) -> aif.Plan:
    return aif.Planner(model, aif.guides.RecallGuide(model), aif.Planning(), aif.SearchSolver(), max_horizon=horizon)(
        KEY, belief
    )


def test_the_mazes_and_the_tiger() -> None:
    """What memories attain where they are exact (docs/what_the_policy_sees.md)."""
    plan = solved(tmaze.tmaze, tmaze.initial_belief(), 4)
    assert_close(plan.info.upper, 5.5990, 1e-4)
    assert tmaze.CONTROLS[int(plan.best_control())] == "South"
    plan = solved(reactivity_maze.reactivity_maze, reactivity_maze.initial_belief(), 3)
    assert_close(plan.info.upper, 5.3575, 1e-4)
    plan = solved(tiger.tiger, tiger.initial_belief(), 6)
    assert_close(6 * np.log(3) - plan.info.upper, 5.6188, 1e-4)
    assert_close(plan.memory.sum(-1), np.ones(7), 1e-9)
    guide = aif.guides.TemporalGuide(tiger.tiger, learn=("control",))
    exact = aif.Planner(tiger.tiger, guide, aif.Planning(), aif.CoordinateSolver(), max_horizon=6)
    assert_close(exact(KEY, tiger.initial_belief()).free_energy[-1], plan.info.upper, 1e-6)


def test_the_tree_in_words() -> None:
    tree = solved(tmaze.tmaze, tmaze.initial_belief(), 4).tree()
    (start,) = tree.branches
    assert start.control == {"South": 1.0}
    assert start.seen == {}
    assert {branch.seen["cue"]: branch.believed["theta"][branch.seen["cue"]] for branch in start.branches} == {
        "left": 1.0,
        "right": 1.0,
    }
    assert "cue=left" in repr(tree)


def test_a_plan_for_arviz_and_in_bytes() -> None:
    pytest.importorskip("arviz")
    plan = solved(tmaze.tmaze, tmaze.initial_belief(), 4)
    data = plan.to_arviz(num_samples=20)
    assert_close(data.free_energy["upper"], plan.info.upper, 1e-9)
    assert data.posterior["u"].shape == (1, 20, 4)
    again = pickle.loads(pickle.dumps(plan))
    assert again.params["contingency"].controls == plan.params["contingency"].controls
    assert repr(again.tree()) == repr(plan.tree())


def test_an_agent_keeps_the_tree() -> None:
    from npro_aif.envs import TMaze

    plans = aif.Planner(
        tmaze.tmaze, aif.guides.RecallGuide(tmaze.tmaze), aif.Planning(), aif.SearchSolver(), max_horizon=4
    )
    agent = aif.Agent(plans, tmaze.initial_belief(), max_steps=4, record=True)
    outcomes = aif.run_episodes(TMaze, agent, range(6))
    assert all(episode.reward == 1.0 for episode in outcomes.episodes)
    nodes = [int(plan.info.nodes) for plan in outcomes.episodes[-1].plans]
    assert sum(nodes[1:]) == 0


def boxes(belief: aif.Belief, horizon: int = 3) -> None:
    """One of four boxes holds a token, which is worth 1 at every step at which that box is open."""
    theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
    x = aif.state("x", dist.Categorical(probs=belief.state[theta]))

    def step(x: Any, t: Any) -> Any:
        u = aif.control("u", dist.Categorical(probs=jnp.full(4, 0.25)))
        x = aif.state("x", aif.DeterministicCategorical(u, 4))
        aif.observation("token", aif.DeterministicCategorical(jnp.where(x == theta, 1, 0), 2))
        aif.preference("worth", jnp.where(x == theta, 1.0, 0.0))
        return x

    aif.rollout(step, x, horizon)


def test_tied_controls_share_whatever_was_looked_at_before() -> None:
    """By symmetry: closed boxes are alike; neither rounding of the belief nor what a planner knows decides."""
    state = jnp.zeros((4, 4)).at[:, 0].set(1.0)
    noise = 1 + 1e-7 * np.random.default_rng(0).normal(size=4)
    closed = [aif.Belief(jnp.asarray(noise / noise.sum(), jnp.float32), state), aif.Belief(jnp.full(4, 0.25), state)]
    one = aif.Belief(jnp.array([0.0, 1 / 3, 1 / 3, 1 / 3]), state)  # the first was empty
    guide = aif.guides.RecallGuide(boxes)
    for order in ([*closed, one], [one, *closed]):
        planner = aif.Planner(boxes, guide, aif.Planning(), aif.SearchSolver(), max_horizon=3)
        for belief in order:
            plan, shares = planner(KEY, belief), np.array([0, 1, 1, 1]) / 3 if belief is one else np.full(4, 0.25)
            assert_close(plan.control[0], shares, 1e-6)
            assert plan.info.optimal
            # The k-th box that is tried holds it with the same probability, and pays at every step from then on.
            tries = 3 if belief is one else 4
            worth = sum((3 - step) / tries for step in range(3))
            assert_close(plan.info.upper, 3 * np.log(4) - worth, 1e-5)


# --- What is refused ---


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_nodes": 0}, "max_nodes: found 0"),
        ({"max_depth": 1.5}, "max_depth: found 1.5"),
        ({"tol": -1.0}, "tol: found -1.0"),
        ({"seconds": 0}, "seconds: found 0"),
    ],
)
def test_bad_limits(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        aif.SearchSolver(**limits)


def test_what_does_not_go_with_it_is_refused_by_name() -> None:
    model, belief = tmaze.tmaze, tmaze.initial_belief()
    recall, search = aif.guides.RecallGuide(model), aif.SearchSolver()
    for objective in (aif.Active(), aif.Active(entropy=0, normalize=True), aif.Marginal()):
        with pytest.raises(ValueError, match=r"SearchSolver: found the objective .*, expected aif.Planning\(\), or"):
            aif.Planner(model, recall, objective, search)(KEY, belief, 2)
    with pytest.raises(ValueError, match=r"SearchSolver: found a TemporalGuide, expected aif\.guides\.RecallGuide"):
        aif.Planner(model, None, aif.Planning(), search)(KEY, belief, 2)
    for solver in (aif.CoordinateSolver(), aif.SVISolver(optax.adam(0.1), 1)):
        with pytest.raises(aif.GuideError, match="RecallGuide: found a call for tables, expected plans by search"):
            aif.Planner(model, recall, aif.Planning(), solver)(KEY, belief, 2)
    plans = aif.Planner(model, recall, aif.Planning(), search, max_horizon=2)
    with pytest.raises(ValueError, match="warm: found a plan to start from"):
        plans(KEY, belief, warm=plans(KEY, belief))
    with pytest.raises(ValueError, match="batch: found the solver SearchSolver"):
        plans.batch(jax.random.split(KEY, 2), jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), belief))
    with pytest.raises(ValueError, match="belief: found a traced one with SearchSolver"):
        jax.jit(lambda belief: plans(KEY, belief).control)(belief)
