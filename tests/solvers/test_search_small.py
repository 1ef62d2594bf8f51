"""Small decision problems as a user writes them, by search and by a recursion over what is believed."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import npro_aif as aif
from npro_aif.solvers.search.andor import AndOrSearch, Node, Stop
from tests.support import assert_close

pytestmark = pytest.mark.usefixtures("quick_compile")

KEY = jax.random.key(0)


def planner(model: Any, horizon: int, **limits: Any) -> aif.Planner:
    solver = aif.SearchSolver(**limits)
    return aif.Planner(model, aif.guides.RecallGuide(model), aif.Planning(), solver, max_horizon=horizon)


# --- A clinic: test, treat or wait ---

WAIT, TEST, TREAT = range(3)
PRICE = np.array([0.0, 0.2, 2.0])  # of each control
BURDEN = 1.5  # of each step at the end of which somebody ill is not treated
RESULT = np.zeros((2, 3, 3))  # (ill, u, result): none, negative, positive
RESULT[:, [WAIT, TREAT], 0] = 1.0
RESULT[:, TEST] = [[0.0, 0.9, 0.1], [0.0, 0.2, 0.8]]


def clinic(belief: aif.Belief, horizon: int = 4) -> None:
    ill = aif.parameter("ill", dist.Categorical(belief.parameter), labels=("no", "yes"))
    treated = aif.state("treated", dist.Categorical(belief.state[ill]), labels=("no", "yes"))

    def step(treated: Any, t: Any) -> Any:
        u = aif.control("u", dist.Categorical(logits=jnp.zeros(3)), labels=("wait", "test", "treat"))
        treated = aif.state("treated", aif.DeterministicCategorical(treated | (u == TREAT), 2))
        aif.observation(
            "result", dist.Categorical(jnp.asarray(RESULT)[ill, u]), labels=("none", "negative", "positive")
        )
        aif.preference("price", -jnp.asarray(PRICE)[u])
        aif.preference("burden", -BURDEN * ill * (1 - treated))
        return treated

    aif.rollout(step, treated, horizon)


def clinic_costs(ill: float, treated: bool, left: int) -> list[float]:
    """What each control costs if all goes on optimally, by hand; without the log 3 a step of the control prior."""
    if left == 0:
        return [0.0]
    after = [treated, treated, True]
    now = [PRICE[u] + BURDEN * ill * (not after[u]) for u in range(3)]
    later = [0.0] * 3
    for u in range(3):
        for sight in range(3):
            joint = np.array([1 - ill, ill]) * RESULT[:, u, sight]
            if joint.sum() > 0:
                later[u] += joint.sum() * min(clinic_costs(joint[1] / joint.sum(), after[u], left - 1))
    return [a + b for a, b in zip(now, later, strict=True)]


def clinic_belief(ill: float) -> aif.Belief:
    return aif.Belief(jnp.array([1 - ill, ill]), jnp.array([[1.0, 0.0]] * 2))


@functools.cache
def clinic_planner() -> aif.Planner:
    return planner(clinic, 4)


@pytest.mark.parametrize("ill", [0.02, 0.3, 0.9])
def test_a_clinic(ill: float) -> None:
    plan = clinic_planner()(KEY, clinic_belief(ill))
    prior = 4 * np.log(3)
    costs = np.array(clinic_costs(ill, False, 4)) + prior
    assert plan.info.optimal
    assert_close(plan.info.upper, costs.min(), 1e-5)
    assert_close(plan.info.lower, costs.min(), 1e-5)
    assert (plan.info.control_lower <= costs + 1e-5).all()
    assert (costs <= plan.control_cost + 1e-5).all()
    best = int(costs.argmin())
    assert int(plan.best_control()) == best == {0.02: WAIT, 0.3: TEST, 0.9: TREAT}[ill]
    assert_close(plan.control_cost[best], costs.min(), 1e-5)
    assert_close(plan.terms["plan_prior"], prior, 1e-5)
    assert_close(sum(plan.terms.values()), plan.free_energy[-1], 1e-5)


def test_the_clinics_plan_in_words_and_draws() -> None:
    """Test once; treat where the result is positive, wait where it is negative."""
    plan = clinic_planner()(KEY, clinic_belief(0.3))
    (start,) = plan.tree().branches
    assert start.control == {"test": 1.0}
    then = {branch.seen["result"]: branch for branch in start.branches}
    positive = 0.3 * 0.8 + 0.7 * 0.1
    assert_close(then["positive"].probability, positive, 1e-6)
    assert_close(then["positive"].believed["ill"]["yes"], 0.24 / positive, 1e-6)
    assert {seen: next(iter(branch.control)) for seen, branch in then.items()} == {
        "negative": "wait",
        "positive": "treat",
    }
    draws = {name: np.asarray(values) for name, values in plan.sample(KEY, 400).items()}
    assert (draws["u"][:, 0] == TEST).all()
    assert ((draws["u"][:, 1] == TREAT) == (draws["result"][:, 0] == 2)).all()
    assert abs((draws["result"][:, 0] == 2).mean() - positive) < 4 * 0.5 / np.sqrt(400)
    price = (PRICE[draws["u"]] + BURDEN * draws["ill"][:, None] * (1 - draws["treated"][:, 1:])).sum(1)
    cost = float(plan.info.upper) - 4 * np.log(3)
    assert abs(price.mean() - cost) < 4 * price.std() / np.sqrt(400)


def test_the_clinic_for_arviz() -> None:
    pytest.importorskip("arviz")
    plan = clinic_planner()(KEY, clinic_belief(0.3))
    data = plan.to_arviz(num_samples=50)
    assert_close(float(data.free_energy["upper"]), plan.info.upper, 1e-6)
    assert data.posterior["result"].shape == (1, 50, 4)


# --- A lost item behind a noisy channel: look somewhere, or say where it is ---

BOXES, HIT, FALSE, LOOK, RIGHT, WRONG = 3, 0.8, 0.1, 0.2, 3.0, -4.0


def lost(belief: aif.Belief, horizon: int = 5) -> None:
    """Controls: look into each box, or name it, which ends it. ``over`` is seen in belief updates only."""
    box = aif.parameter("box", dist.Categorical(belief.parameter))
    over = aif.state("over", dist.Categorical(belief.state[box]))

    def step(before: Any, t: Any) -> Any:
        u = aif.control("u", dist.Categorical(logits=jnp.zeros(2 * BOXES)))
        over = aif.state("over", aif.DeterministicCategorical(before | (u >= BOXES), 2))
        ping = jnp.where(u == box, HIT, FALSE) * (1 - over)
        aif.observation("ping", dist.Categorical(jnp.stack([1 - ping, ping], -1)))
        aif.observation("end", aif.DeterministicCategorical(over, 2), plan=False)
        gain = jnp.where(u < BOXES, -LOOK, jnp.where(u - BOXES == box, RIGHT, WRONG))
        aif.preference("gain", gain * (1 - before))
        return over

    aif.rollout(step, over, horizon)


def lost_cost(weight: tuple[float, ...], left: int) -> float:
    if left == 0:
        return 0.0
    probs = np.array(weight)
    options = [-(probs[i] * RIGHT + (1 - probs[i]) * WRONG) for i in range(BOXES)]
    for i in range(BOXES):
        ping = np.where(np.arange(BOXES) == i, HIT, FALSE)
        parts = [probs * ping, probs * (1 - ping)]
        options.append(LOOK + sum(part.sum() * lost_cost(tuple(part / part.sum()), left - 1) for part in parts))
    return min(options)


def test_a_lost_item() -> None:
    horizon = 5
    probs = (0.5, 0.3, 0.2)
    belief = aif.Belief(jnp.array(probs), jnp.array([[1.0, 0.0]] * BOXES))
    plans = planner(lost, horizon)
    plan = plans(KEY, belief)
    expected = lost_cost(probs, horizon) + horizon * np.log(2 * BOXES)
    assert plan.info.optimal
    assert_close(plan.info.upper, expected, 1e-5)
    assert_close(plan.info.lower, expected, 1e-5)
    agent = aif.Agent(plans, belief, max_steps=horizon)
    assert agent.act(None) == int(plan.best_control()) < BOXES
    agent.act({"ping": 1, "end": 0})
    assert agent.plans[-1].info.nodes == 0  # it was in the first plan's tree, but for rounding in float32
    after = np.array(agent.belief.parameter)
    rest = lost_cost(tuple(after / after.sum()), horizon - 1) + (horizon - 1) * np.log(2 * BOXES)
    assert_close(agent.plans[-1].info.upper, rest, 1e-5)
    early = planner(lost, horizon, max_nodes=3)(KEY, belief)
    assert early.info.lower <= expected + 1e-6 <= early.info.upper + 2e-6
    assert not early.info.optimal


class Creeping(AndOrSearch):
    """A search whose leaves are never solved: each look raises their bound to what is asked for and no further."""

    def __init__(self) -> None:
        self.interrupted, self.deadline, self.looks = False, np.inf, 0

    def improve(self, node: Node, bound: float) -> None:
        if node.left > 1:
            return super().improve(node, bound)
        self.looks += 1
        assert self.looks < 1000, "they overtake each other by less and less"
        node.low = bound + 1e-13
        return None


def tied() -> Node:
    """A node whose two controls cost the same, and lead to one leaf each."""
    state: Any = None
    root = Node(state, 2, 2, 0.0)
    root.kids = [[(1.0, Node(state, 1, 1, 0.0))], [(1.0, Node(state, 1, 1, 0.0))]]
    root.costs, root.bounds = [1.0, 1.0], [1.0, 1.0]
    return root


def test_controls_that_tie_overtake_each_other_by_a_real_amount() -> None:
    search, root = Creeping(), tied()
    search.improve(root, 1 + 1e-4)
    assert root.low > 1 + 1e-4


def test_time_is_looked_at_where_nothing_new_is() -> None:
    search = Creeping()
    search.deadline = 0.0
    with pytest.raises(Stop):
        search.improve(tied(), 1.1)
