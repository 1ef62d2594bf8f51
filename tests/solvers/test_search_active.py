"""F_active under perfect recall: a tree of beliefs, memories by coordinate updates, bounds however a search ends."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import npro_aif as aif
from npro_aif.models import tiger
from npro_aif.solvers.search.solver import Searches
from tests.search_worlds import HORIZON, THETAS, WORLDS, Family, Worth, family, optimum, replayed
from tests.support import assert_close

pytestmark = pytest.mark.usefixtures("quick_compile", "x64")

KEY = jax.random.key(0)
OBJECTIVES = [aif.Active(entropy=0), aif.Active(weight=0.5, entropy=0, ambiguity=0, novelty=4)]


def planner(worlds: Family, objective: aif.Active, **limits: Any) -> aif.Planner:
    guide = aif.guides.RecallGuide(worlds.model)
    return aif.Planner(worlds.model, guide, objective, aif.SearchSolver(**limits), max_horizon=HORIZON)


def worth(objective: aif.Active) -> Worth:
    return Worth(objective.weight * objective.ambiguity, objective.weight * objective.novelty)


@pytest.mark.parametrize(
    ("certain", "objective"),
    [
        (False, OBJECTIVES[0]),
        (True, OBJECTIVES[1]),
        pytest.param(True, OBJECTIVES[0], marks=pytest.mark.slow),
        pytest.param(False, OBJECTIVES[1], marks=pytest.mark.slow),
    ],
)
def test_random_worlds(certain: bool, objective: aif.Active) -> None:
    """The optimum is that of a tree of beliefs, and the plan's own tree has its cost and its terms."""
    worlds, own = family(certain), worth(objective)
    plans, different = planner(worlds, objective), 0
    for world in range(0, WORLDS, 2):
        belief = worlds.belief(world)
        plan, expected = plans(KEY, belief), optimum(worlds, belief, HORIZON, own)
        assert plan.info.optimal
        assert_close(plan.info.lower, expected, 1e-6, world)
        assert_close(plan.info.upper, expected, 1e-6, world)
        assert_close(sum(plan.terms.values()), plan.free_energy[-1], 1e-9, world)
        assert_close(replayed(worlds, plan, own), expected, 1e-9, world)
        assert_close(replayed(worlds, plan), plan.terms["risk"] + plan.terms["plan_prior"], 1e-9, world)
        unbothered = replayed(worlds, plan, Worth(own.ambiguity))
        assert_close(replayed(worlds, plan, own) - unbothered, plan.terms["novelty"], 1e-9, world)
        assert (plan.info.control_lower <= plan.control_cost + 1e-9).all()
        assert_close(plan.control_cost[int(plan.best_control())], expected, 1e-9, world)
        different += abs(replayed(worlds, plan) - optimum(worlds, belief, HORIZON)) > 1e-6
    assert different  # information changed what is done


@pytest.mark.parametrize("certain", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_bounds_wherever_it_stops(certain: bool) -> None:
    """The bounds hold; beyond its nodes a plan in a world of chance goes on blindly, and may cost less than it says."""
    worlds, objective = family(certain), OBJECTIVES[0]
    own, gaps = worth(objective), 0
    for max_nodes in (1, 3):
        plans = planner(worlds, objective, max_nodes=max_nodes)
        for world in range(0, WORLDS, 3):
            belief = worlds.belief(world)
            plan, expected = plans(KEY, belief), optimum(worlds, belief, HORIZON, own)
            assert plan.info.lower <= expected + 1e-9 <= plan.info.upper + 2e-9
            actual = replayed(worlds, plan, own)
            assert actual <= plan.info.upper + 1e-9
            assert (plan.info.control_lower <= plan.info.control_upper + 1e-9).all()
            gaps += not plan.info.optimal
    assert gaps > 3


def test_bounds_hold_however_beliefs_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Information is no sum over hypotheses, so that beliefs that stand for each other need a slack as well."""
    monkeypatch.setattr(Searches, "_tolerance", staticmethod(lambda belief: 0.1))
    worlds, objective = family(certain=False), OBJECTIVES[1]
    plans, gaps = planner(worlds, objective), []
    for world in range(0, WORLDS, 2):
        belief = worlds.belief(world)
        near = belief._replace(parameter=belief.parameter * (1 + 0.03 * (jnp.arange(WORLDS * THETAS) % 2)))
        for each in (belief, near._replace(parameter=near.parameter / near.parameter.sum())):
            plan, expected = plans(KEY, each), optimum(worlds, each, HORIZON, worth(objective))
            assert plan.info.lower <= expected + 1e-9 <= plan.info.upper + 2e-9
            gaps.append(plan.info.upper - plan.info.lower)
    assert max(gaps) > 1e-3


def test_parameters_that_come_in_later_move_more() -> None:
    """The promise of information hangs on the largest entropy of a move, which new parameters may raise."""
    worlds, objective = family(certain=False), OBJECTIVES[0]
    plans = planner(worlds, objective)
    for world in (4, 9, 4, 1):
        plan = plans(KEY, worlds.belief(world))
        assert_close(plan.info.upper, optimum(worlds, worlds.belief(world), HORIZON, worth(objective)), 1e-9, world)
        assert plan.info.optimal


@pytest.mark.parametrize("horizon", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_a_memory_of_all_that_matters_has_the_same_cost(horizon: int) -> None:
    """The Tiger by one descent of the table of a policy, with a counter that tells all beliefs of three steps apart."""
    model, belief, objective = tiger.tiger, tiger.initial_belief(), aif.Active(entropy=0, gradient="through", weight=2)
    table = aif.guides.TemporalGuide(model, learn=("control",))
    swept = aif.Planner(model, table, objective, aif.CoordinateSolver(), max_horizon=horizon)(KEY, belief)
    plan = aif.Planner(model, aif.guides.RecallGuide(model), objective, max_horizon=horizon)(KEY, belief)
    assert plan.info.optimal
    assert_close(plan.info.upper, swept.free_energy[-1], 1e-6)
    for name in ("risk", "ambiguity", "novelty", "plan_prior"):
        assert_close(plan.terms[name], swept.terms[name], 1e-6, name)


@pytest.mark.parametrize("remembers", [False, True])
def test_a_memory_of_what_nobody_sees_tells_nothing(remembers: bool) -> None:
    """A memory may begin with a state that no observation shows; a policy of observations does not read it."""

    def hidden_coin(belief: aif.Belief, horizon: int = 2) -> None:
        x = aif.state("x", dist.Categorical(probs=belief.state[0]))
        if remembers:
            x = x, aif.memory("m", x, 2)

        def step(carry: Any, t: Any) -> Any:
            x, m = carry if remembers else (carry, None)
            u = aif.control("u", dist.Categorical(probs=jnp.full(2, 0.5)))
            x = aif.state("x", aif.DeterministicCategorical(x, 2))
            sight = jnp.array([[[0.5, 0.5], [0.5, 0.5]], [[0.9, 0.1], [0.1, 0.9]]])
            aif.observation("y", dist.Categorical(probs=sight[u, x]))
            aif.preference("price", jnp.where(u == 1, -0.1, 0.0))
            return (x, aif.memory("m", m, 2)) if remembers else x

        aif.rollout(step, x, horizon)

    belief = aif.Belief(jnp.ones(1), jnp.full((1, 2), 0.5))
    guide, objective = aif.guides.RecallGuide(hidden_coin), aif.Active(entropy=0)
    plan = aif.Planner(hidden_coin, guide, objective, max_horizon=2)(KEY, belief)
    once, noise = np.array([0.9, 0.1]), -(0.9 * np.log(0.9) + 0.1 * np.log(0.1))
    twice = np.array([once[0] ** 2 + once[1] ** 2, 2 * once[0] * once[1]])  # two looks agree, or not
    told = np.log(2) - (twice @ np.log(2 * twice)) + np.log(2) - 2 * noise  # H[y1] + H[y2|y1] − 2 H[y|x]
    assert_close(plan.terms["novelty"], -told, 1e-9)
    assert_close(plan.info.upper, 2 * np.log(2) + 0.2 + 2 * noise - told, 1e-9)
    assert plan.info.optimal


def test_look_ahead_is_refused() -> None:
    """At its end all that is unknown would count as told, so that nothing would be worth asking."""
    worlds = family(certain=True)
    with pytest.raises(ValueError, match=r"found max_depth=1 with the objective Active.*expected max_depth=None"):
        planner(worlds, OBJECTIVES[0], max_depth=1)(KEY, worlds.belief(0))


def test_information_that_nobody_needs_is_sought_once() -> None:
    """One of four boxes holds a token: opening a box tells log 4, log 3 and log 2 in all, and a second time nothing."""

    def boxes(belief: aif.Belief, horizon: int = 5) -> None:
        token = aif.parameter("token", dist.Categorical(probs=belief.parameter))
        x = aif.state("x", dist.Categorical(probs=belief.state[token]))

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=jnp.full(5, 0.2)))  # which box to open, or none
            x = aif.state("x", aif.DeterministicCategorical(0 * u, 1))
            aif.observation("found", aif.DeterministicCategorical((u == token) * 1, 2))
            aif.preference("price", jnp.where(u < 4, -0.1, 0.0))
            return x

        aif.rollout(step, x, horizon)

    belief = aif.Belief(jnp.full(4, 0.25), jnp.ones((4, 1)))
    plan = aif.Planner(boxes, aif.guides.RecallGuide(boxes), aif.Active(entropy=0), max_horizon=5)(KEY, belief)
    opened = 0.25 * 1 + 0.25 * 2 + 0.5 * 3  # the token is found, or one box is left
    assert_close(plan.terms["novelty"], -np.log(4), 1e-9)
    assert_close(plan.terms["risk"], 0.1 * opened, 1e-9)
    assert_close(plan.info.upper, 5 * np.log(5) + 0.1 * opened - np.log(4), 1e-9)
    assert plan.info.optimal


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_rules_in_a_certain_world(seed: int) -> None:
    """Where nothing is left to chance a stopped plan goes on by rules, and its F counts what they find out."""
    rng, horizon = np.random.default_rng(seed), 4
    move, sight = rng.integers(4, size=(6, 4, 3)), rng.integers(2, size=(6, 4, 3))  # (θ, x, u)
    value, prior = rng.normal(size=(6, 4)), rng.dirichlet(np.full(3, 5.0), 4)
    belief = aif.Belief(jnp.asarray(rng.dirichlet(np.ones(6))), jnp.asarray(rng.dirichlet(np.full(4, 0.5), 6)))

    def model(belief: aif.Belief, horizon: int = horizon) -> None:
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        x = aif.state("x", dist.Categorical(probs=belief.state[theta]))

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=jnp.asarray(prior)[x]))
            x = aif.state("x", aif.DeterministicCategorical(jnp.asarray(move)[theta, x, u], 4))
            aif.observation("y", aif.DeterministicCategorical(jnp.asarray(sight)[theta, x, u], 2))
            aif.preference("value", jnp.asarray(value)[theta, x])
            return x

        aif.rollout(step, x, horizon)

    def after(joint: np.ndarray, u: int) -> tuple[float, dict[int, np.ndarray]]:
        """The cost of a step, with its information at twice its nats, and the joint (θ, x') with each sight."""
        cost, seen = 0.0, {y: np.zeros_like(joint) for y in range(2)}
        for (i, x), p in np.ndenumerate(joint):
            to = move[i, x, u]
            cost -= p * (np.log(prior[x, u]) + value[i, to])
            seen[int(sight[i, to, u])][i, to] += p
        parts = {y: part for y, part in seen.items() if part.sum() > 0}
        told = sum(part.sum() * np.log(joint.sum() / part.sum()) for part in parts.values())
        return cost - 2 * told, parts

    def best(joint: np.ndarray, t: int) -> float:
        if t == horizon:
            return 0.0
        steps = (after(joint, u) for u in range(3))
        return min(cost + sum(best(part, t + 1) for part in parts.values()) for cost, parts in steps)

    def follow(plan: aif.Plan, joint: np.ndarray, place: int, t: int) -> float:
        if t == horizon:
            return 0.0
        policy = plan.params["contingency"]
        cost, parts = after(joint, policy.controls[place])
        return cost + sum(follow(plan, part, policy.follow(place, (y,)), t + 1) for y, part in parts.items())

    joint = np.asarray(belief.parameter)[:, None] * np.asarray(belief.state)
    least, guide = best(joint, 0), aif.guides.RecallGuide(model)
    for max_nodes in (None, 1, 3):
        plans = aif.Planner(model, guide, aif.Active(weight=2, entropy=0), aif.SearchSolver(max_nodes=max_nodes))
        plan = plans(KEY, belief, horizon)
        ((share, place),) = plan.params["contingency"].starts
        assert_close(share * follow(plan, joint, place, 0), plan.info.upper, 1e-9)
        assert plan.info.lower <= least + 1e-9 <= plan.info.upper + 2e-9
        assert max_nodes or plan.info.optimal
