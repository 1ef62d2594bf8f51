"""F_active descended: its slope is what the backward pass says, F never rises, and where it settles nothing is lower.

F is that of the enumerated joint (`tests.oracle`) or of the list of all histories (`tests.closed_worlds`).
"""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import npro_aif as aif
from npro_aif.guides import TemporalGuide
from npro_aif.planning.plan import Plan
from npro_aif.program.program import program_of
from npro_aif.solvers import Problem
from npro_aif.solvers.descent import descend
from npro_aif.solvers.steps import Mirror
from npro_aif.solvers.sweep import prepare
from tests import oracle
from tests.closed_worlds import brute_force, closed_world
from tests.solvers.test_sweeps import numbers
from tests.solvers.test_value_iteration import HORIZON, NUM_STATES, random_mdp
from tests.support import assert_close
from tests.worlds import random_temporal, random_world

pytestmark = pytest.mark.usefixtures("quick_compile")

KEY = jax.random.key(0)
THROUGH = aif.Active(gradient="through", weight=0.7, entropy=1.2, ambiguity=0.5, novelty=1.5)
POLICY, MOST = ("control",), ("control", "parameter", "state")
SMALL_STEP = 1e-4


@pytest.mark.parametrize(
    ("seed", "learn"),
    [(9, MOST)]
    + [
        pytest.param(*case, marks=pytest.mark.slow)
        for case in ((107, ("control", "parameter")), (0, MOST), (8, POLICY), (100, POLICY))
    ],
)
def test_the_slope_is_what_the_backward_pass_promises(seed: int, learn: tuple[str, ...], x64: None) -> None:
    """A tiny step changes F by what the held derivatives say; seeds from 100 on have hidden states and memories."""
    closed = closed_world(seed - 100, "last", horizon=2) if seed >= 100 else None
    world: Any = random_world(seed) if closed is None else closed
    belief, model, horizon = world.belief(), world.model, world.horizon
    if closed is not None:
        model = lambda belief, horizon=horizon: closed.model(belief, horizon)  # noqa: E731
    tables = program_of(model, belief, horizon).world(belief, horizon)
    guide = TemporalGuide(model, learn=learn)
    sweep = prepare(Problem(tables, guide, THROUGH, horizon), learn, with_reference=True)

    @jax.jit
    def step(params: Any, size: Any) -> Any:
        first = sweep.template(guide.posterior(tables, params, horizon))
        mass = sweep.masses(first)
        moved, promised = sweep.backward(
            first, mass, sweep.derivatives(first, mass, sweep.look(first, mass)[0]), Mirror(size)
        )
        return [THROUGH.free_energy(tables, sweep.whole(q)) for q in (first, moved)], promised

    params = guide.first_params(KEY, tables, horizon)
    (before, after), promised = step(params, jnp.asarray(SMALL_STEP))
    assert promised < before
    np.testing.assert_allclose((after - before) / (promised - before), 1.0, atol=2e-3)
    (before, _), promised = step(params, jnp.asarray(0.0))
    assert_close(promised, before, 1e-6)  # the costs add up to F


def solve(
    model: Any, belief: aif.Belief, horizon: int, objective: Any, learn: tuple[str, ...], **settings: Any
) -> Plan:
    guide, solver = TemporalGuide(model, learn=learn), aif.CoordinateSolver(**({"max_sweeps": 400} | settings))
    return aif.Planner(model, guide, objective, solver, max_horizon=horizon)(KEY, belief)


@pytest.mark.parametrize(
    ("seed", "learn", "lead"),
    [(3, MOST, 0), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((9, POLICY, 2), (0, POLICY, 0)))],
)
def test_it_ends_where_nothing_near_is_lower(seed: int, learn: tuple[str, ...], lead: int, x64: None) -> None:
    world, objective = random_world(seed), aif.Active(gradient="through")
    plan = solve(world.model, world.belief(), world.horizon, objective, learn, min_decrease=1e-9, lead=lead)
    history = np.asarray(plan.free_energy)
    assert (np.diff(history) <= 0).all()
    assert plan.info.converged
    q = numbers(world, plan)

    def at(tables: Any) -> float:
        joint = oracle.temporal_joint(world.tables, *tables)
        return oracle.free_energy(joint, world.tables, "active", "temporal", correction=True)

    least = at(q)
    assert_close(history[-1], least, 1e-8)
    rng = np.random.default_rng(seed)
    factors = [name for name in learn if name != "state" or world.tables.state.ndim]
    for other in (random_temporal(world, rng, zeros) for zeros in (0.0, 0.5, 0.8)):
        for name, step in itertools.product(factors, (1e-2, 1e-3)):
            mixed = jax.tree.map(lambda a, b, step=step: (1 - step) * a + step * b, q, other)
            assert at(q._replace(**{name: getattr(mixed, name)})) >= least - 1e-6, (world.description, name, step)


def test_hidden_states_and_memories(x64: None) -> None:
    """F is that of all histories, never rises, and is no higher than that of any policy without ties."""
    world = closed_world(0, "last", horizon=2)
    model = lambda belief, horizon=world.horizon: world.model(belief, horizon)  # noqa: E731
    plan = solve(model, world.belief(), world.horizon, aif.Active(gradient="through"), POLICY, restarts=8)
    history = np.asarray(plan.free_energy)
    assert (np.diff(history) <= 0).all()
    assert plan.info.converged

    def at(policy: np.ndarray) -> float:
        t = brute_force(world, policy, world.parameter)
        return t["prior"] - t["preference"] - t["moves"] + 2 * t["ambiguity"] - t["sights"]

    assert_close(history[-1], at(np.asarray(plan.policy)), 1e-8)
    rng, shape = np.random.default_rng(0), plan.policy.shape
    for _ in range(60):
        assert at(np.eye(shape[-1])[rng.integers(shape[-1], size=shape[:2])]) >= history[-1] - 1e-6


def test_where_beliefs_do_not_depend_on_the_policy_it_is_value_iteration(x64: None) -> None:
    """With cost −w H[x'|x,u] and w (H[y|x,θ] − KL) added; in at most two sweeps, the second of which sees it."""
    mdp, rng, weight = random_mdp(0), np.random.default_rng(0), 0.6
    truth, senses = np.array([0.3, 0.7]), rng.dirichlet(np.ones(3), (2, NUM_STATES))  # (Θ,), (Θ, X, Y)
    transition, reward, prior, sight = (jnp.asarray(table) for table in (*mdp[:3], senses))

    def model(belief: aif.Belief, horizon: int = HORIZON) -> None:
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        x = aif.state("x", dist.Categorical(probs=belief.state[theta]))

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=prior[x]))
            x = aif.state("x", dist.Categorical(probs=transition[x, u]))
            aif.observation("y", dist.Categorical(probs=sight[theta, x]))
            aif.preference("reward", reward[t - 1, x])
            return x

        aif.rollout(step, x, horizon)

    belief = aif.Belief(jnp.asarray(truth), jnp.broadcast_to(jnp.asarray(mdp.start), (2, NUM_STATES)))
    plan = solve(model, belief, HORIZON, aif.Active(gradient="through", weight=weight), POLICY)

    def entropy(p: np.ndarray) -> np.ndarray:
        return -(p * np.log(p)).sum(-1)

    ambiguity = truth @ entropy(senses)
    information = entropy(truth @ senses.swapaxes(0, 1)) - ambiguity  # (X,)
    value = np.zeros(NUM_STATES)
    for t in reversed(range(HORIZON)):
        arrival = value - mdp.reward[t] + weight * (ambiguity - information)
        value = (-np.log(mdp.prior) - weight * entropy(mdp.transition) + mdp.transition @ arrival).min(1)
    assert_close(plan.free_energy[-1], mdp.start @ value, 1e-9)
    assert plan.info.converged
    assert plan.info.iterations <= 2


@pytest.mark.parametrize(
    ("objective", "learn", "message"),
    [
        (
            aif.Active(gradient="through"),
            aif.guides.FACTORS,
            "learned observations with gradient='through'.*imagining observations",
        ),
        (aif.Active(normalize=True, gradient="through"), POLICY, "expected normalize=False.*use SVISolver"),
        (aif.Active(gradient="through", planning_correction=False), POLICY, "planning_correction=True"),
    ],
)
def test_what_is_not_descended_is_refused(objective: Any, learn: Any, message: str) -> None:
    random = random_world(25)
    guide = TemporalGuide(random.model, learn=learn)
    planner = aif.Planner(random.model, guide, objective, aif.CoordinateSolver())
    with pytest.raises(ValueError, match=message):
        planner(KEY, random.belief(), horizon=random.horizon)


class Flat:
    """A sweep in which nothing can be gained, though rounding promises a little more than what counts as gain."""

    promise = 3e-6

    def masses(self, first: Any) -> Any:
        return jnp.zeros(1)

    def look(self, first: Any, mass: Any) -> Any:
        return jnp.zeros(1), {"all": jnp.asarray(2.0)}

    def derivatives(self, first: Any, mass: Any, seen: Any) -> None:
        return None

    def backward(self, first: Any, mass: Any, costs: Any, step: Any) -> Any:
        return first, jnp.asarray(2.0 * (1 - self.promise))


def test_a_greedy_step_that_gains_nothing_is_not_made_for_ever() -> None:
    sweep: Any = Flat()
    first: Any = jnp.zeros(1)
    end = descend(sweep, first, 200, 1e-6)
    assert end.settled
    assert end.sweep <= 5


class Valley:
    """A sweep over two numbers of which one is a thousand times steeper: it bounds the steps, and the other creeps."""

    steepness = jnp.array([1.0, 1e-3])

    def masses(self, first: Any) -> Any:
        return jnp.zeros(1)

    def look(self, first: Any, mass: Any) -> Any:
        return jnp.zeros(1), {"all": (self.steepness * first**2).sum() / 2}

    def derivatives(self, first: Any, mass: Any, seen: Any) -> Any:
        return self.steepness * first

    def backward(self, first: Any, mass: Any, costs: Any, step: Any) -> Any:
        greedy = jnp.isinf(step.size)
        return first - jnp.where(greedy, 100.0, step.size) * costs, jnp.asarray(-1.0)  # which nothing delivers


def test_steps_gain_momentum_where_they_would_creep() -> None:
    """Without it F is still 0.09 after 200 sweeps."""
    sweep: Any = Valley()
    first: Any = jnp.array([1.0, 30.0])
    end = descend(sweep, first, 200, 1e-6)
    assert end.settled
    assert end.value < 1e-3
    assert (np.diff(np.asarray(end.history)) <= 0).all()
