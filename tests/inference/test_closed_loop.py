"""Hidden states and memories: F and its terms by enumeration of all histories, exact plans by a tree of beliefs."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import Trace_ELBO

import npro_aif as aif
from npro_aif.guides import TemporalGuide
from npro_aif.inference.generic import enumerate_guide
from npro_aif.models import tmaze
from npro_aif.program.program import program_of
from tests.closed_worlds import ClosedWorld, brute_force, closed_world, entropy, histories, seen_world, tree_value
from tests.support import assert_close

pytestmark = pytest.mark.usefixtures("quick_compile", "x64")

KEY = jax.random.key(0)
FEW = (1, pytest.param(3, marks=pytest.mark.slow))
MANY = range(4, 34)


def check_terms(seed: int, memory: str, *, certain: bool = False) -> None:
    """Every term of F under a random policy and a random q(θ)."""
    random = closed_world(seed, memory, certain=certain)
    belief = random.belief()
    world = program_of(random.model, belief, random.horizon).world(belief, random.horizon)
    guide = TemporalGuide(random.model, learn=("control", "parameter"))
    keys = jax.random.split(jax.random.key(seed))
    tables = guide.tables(world, random.horizon)
    params = {name: jax.random.normal(k, table.shape) for k, (name, table) in zip(keys, tables.items(), strict=True)}
    posterior = guide.posterior(world, params, random.horizon)
    found = jax.jit(aif.Active().terms)(world, posterior)
    expected = brute_force(random, np.exp(np.asarray(posterior.control)), np.exp(np.asarray(posterior.parameter)))
    assert_close(found["risk"], -expected["preference"] - expected["moves"], 1e-9)
    assert_close(found["correction"], expected["policy"], 1e-9)
    assert_close(found["plan_prior"], expected["prior"] - expected["policy"], 1e-9)
    assert_close(found["ambiguity"], expected["ambiguity"], 1e-9)
    assert_close(found["novelty"], expected["ambiguity"] - expected["sights"], 1e-9)
    assert_close(found["complexity"], expected["complexity"], 1e-9)


@pytest.mark.parametrize(("seed", "memory"), [(1, "all"), pytest.param(3, "last", marks=pytest.mark.slow)])
def test_every_term_by_enumeration(seed: int, memory: str) -> None:
    check_terms(seed, memory)


def test_every_term_where_what_is_remembered_is_certain() -> None:
    """Given θ and the state; what is observed still differs between parameters."""
    check_terms(1, "last", certain=True)


@pytest.mark.slow
@pytest.mark.parametrize("certain", [False, True])
@pytest.mark.parametrize("memory", ["all", "seen", "last"])
@pytest.mark.parametrize("seed", MANY)
def test_every_term_by_enumeration_everywhere(seed: int, memory: str, certain: bool) -> None:
    check_terms(seed, memory, certain=certain)


def plan_of(random: ClosedWorld, objective: Any, **settings: Any) -> aif.Plan:
    guide = TemporalGuide(random.model, learn=("control",))
    solver = aif.CoordinateSolver(tol=1e-9, restarts=1, **settings)
    return aif.Planner(random.model, guide, objective, solver, max_horizon=random.horizon)(KEY, random.belief())


def check_tree(seed: int, memory: str, horizon: int) -> None:
    """With everything remembered one sweep is exact, and no plan is below what perfect information allows."""
    random = closed_world(seed, memory, horizon)
    plan = plan_of(random, aif.Planning())
    exact = tree_value(random)
    assert_close(plan.free_energy[1], exact, 1e-7)  # after one sweep
    assert_close(plan.free_energy[-1], exact, 1e-7)
    assert_close(plan.control_cost.min(), exact, 1e-7) if float(plan.control[0].max()) > 1 - 1e-9 else None
    assert float(aif.perfect_information(random.model, random.belief(), horizon)) <= exact + 1e-9


@pytest.mark.parametrize(("seed", "memory"), [pytest.param(1, "seen", marks=pytest.mark.slow), (3, "all")])
def test_one_sweep_is_the_tree_of_beliefs(seed: int, memory: str) -> None:
    check_tree(seed, memory, 2)


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["all", "seen"])
@pytest.mark.parametrize("seed", MANY)
def test_one_sweep_is_the_tree_of_beliefs_everywhere(seed: int, memory: str) -> None:
    check_tree(seed, memory, 3)


@pytest.mark.parametrize("seed", FEW)
def test_with_less_memory_no_row_of_the_policy_can_be_better(seed: int) -> None:
    """F never rises, and every row that is visited is the brute-force minimiser given the rest."""
    random = closed_world(seed, "last")
    plan = plan_of(random, aif.Planning(), max_sweeps=40)
    history = np.asarray(plan.free_energy)
    assert (np.diff(history) <= 1e-9).all()
    policy, parameter = np.asarray(plan.policy), np.asarray(plan.parameter)

    def value(policy: np.ndarray) -> float:
        terms = brute_force(random, policy, parameter)
        return terms["prior"] - terms["preference"]

    least = value(policy)
    assert_close(history[-1], least, 1e-9)
    for t, row, u in np.ndindex(policy.shape):
        other = policy.copy()
        other[t, row] = np.eye(policy.shape[-1])[u]
        assert value(other) >= least - 1e-7


def novelty_of(random: ClosedWorld, seed: int) -> tuple[float, np.ndarray]:
    """The sum of the novelties under a random sequence of controls, and these as a policy."""
    belief = random.belief()
    world = program_of(random.model, belief, random.horizon).world(belief, random.horizon)
    controls = np.random.default_rng(seed).integers(2, size=random.horizon)
    policy = np.zeros((random.horizon, random.num_visible * random.num_memories, 2))
    policy[np.arange(random.horizon), :, controls] = 1
    params = {"control_logits": jnp.where(jnp.asarray(policy) > 0, 0.0, -jnp.inf)}
    posterior = TemporalGuide(random.model, learn=("control",)).posterior(world, params, random.horizon)
    return -float(aif.Active().terms(world, posterior)["novelty"]), policy


@pytest.mark.parametrize("seed", FEW)
def test_information_is_counted_once(seed: int) -> None:
    """With fixed controls the novelties add up to Σ_t H[y_t|v_0:t, y_<t] − H[y_t|x_t, θ]."""
    random = closed_world(seed, "all")
    novelty, policy = novelty_of(random, seed)
    terms = brute_force(random, policy, random.parameter)
    assert_close(novelty, terms["sights"] - terms["ambiguity"], 1e-9)


def check_proposition(seed: int, horizon: int) -> None:
    """Where all states are seen and only observations tell of θ, the novelties add up to I(θ; y|x) of the sequences."""
    random = seen_world(seed, horizon)
    novelty, policy = novelty_of(random, seed)
    every = histories(random, policy, random.parameter)

    def entropy_of(*names: str) -> float:
        return entropy(*((tuple(getattr(h, name) for name in names), h.probability) for h in every))

    gain = entropy_of("states", "sights") - entropy_of("states")
    gain -= entropy_of("states", "sights", "theta") - entropy_of("states", "theta")
    assert gain > 1e-3
    assert_close(novelty, gain, 1e-9)


@pytest.mark.parametrize("seed", FEW)
def test_novelties_add_up_to_the_information_about_the_parameter(seed: int) -> None:
    check_proposition(seed, 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY)
def test_novelties_add_up_to_the_information_about_the_parameter_everywhere(seed: int) -> None:
    check_proposition(seed, 3)


def test_a_memory_of_certain_and_uncertain_sites() -> None:
    """What is certain is remembered by its integer; written as rows of ones and zeros it is the same."""

    def model(belief: aif.Belief, horizon: int = 3, *, certain: bool) -> None:
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        x = aif.state("x", dist.Categorical(probs=belief.state[theta]))
        m = aif.memory("m", 0, 6)

        def step(carry: Any, t: Any) -> Any:
            x, m = carry
            u = aif.control("u", dist.Categorical(probs=jnp.array([0.5, 0.5])))
            x = aif.state("x", dist.Categorical(probs=jnp.array([[0.8, 0.2], [0.3, 0.7]])[u]))
            sign = (x + theta) % 3  # differs between parameters
            rows = dist.Categorical(probs=jnp.eye(3)[sign])
            a = aif.observation("a", aif.DeterministicCategorical(sign, 3) if certain else rows)
            b = aif.observation("b", dist.Categorical(probs=jnp.array([[0.9, 0.1], [0.4, 0.6]])[x]))
            m = aif.memory("m", 2 * a + b, 6)
            aif.preference("goal", jnp.where(u == theta % 2, 1.0, 0.0) + jnp.where(x == 1, 0.3, 0.0))
            return x, m

        aif.rollout(step, (x, m), horizon)

    belief = aif.Belief(jnp.array([0.5, 0.3, 0.2]), jnp.full((3, 2), 0.5))
    plans = []
    for certain in (True, False):
        own = functools.partial(model, certain=certain)
        guide = TemporalGuide(own, learn=("control", "parameter"))
        plans.append(
            aif.Planner(own, guide, aif.Planning(), aif.CoordinateSolver(restarts=2), max_horizon=3)(KEY, belief)
        )
    for name in ("control", "policy", "state", "memory", "parameter", "free_energy"):
        assert_close(getattr(plans[0], name), getattr(plans[1], name), 1e-9, name)


@pytest.mark.parametrize("seed", FEW)
def test_the_generic_evaluator_agrees(seed: int) -> None:
    """The guide as an ordinary NumPyro program, enumerated by funsor with the model's memory, term by term."""
    random = closed_world(seed, "last")
    belief, horizon = random.belief(), random.horizon
    world = program_of(random.model, belief, horizon).world(belief, horizon)
    guide = TemporalGuide(random.model, learn=("control",))
    params = {name: jax.random.normal(KEY, t.shape) for name, t in guide.tables(world, horizon).items()}
    objective = aif.Active(normalize=True, gradient="through", weight=0.7)

    @jax.jit
    def both(params: Any) -> Any:
        fast = objective.terms(world, guide.posterior(world, params, horizon))
        return fast, objective.terms(world, enumerate_guide(random.model, guide, params, belief, horizon, world))

    fast, generic = both(params)
    for name, value in generic.items():
        assert_close(fast[name], value, 1e-8, name)


def test_a_guide_that_reads_what_no_policy_sees_is_refused() -> None:
    random = closed_world(1, "last")

    def guide(belief: aif.Belief, horizon: int) -> None:
        numpyro.sample("theta", dist.Categorical(probs=belief.parameter))
        v = numpyro.sample("v_0", dist.Categorical(probs=jnp.full(random.num_visible, 1 / random.num_visible)))
        h = numpyro.sample("h_0", dist.Categorical(probs=jnp.full(random.num_hidden, 1 / random.num_hidden)))
        for t in (1, 2):
            numpyro.sample(f"u_{t}", dist.Categorical(logits=jnp.stack([0.0 * h, 1.0 * h + 0.0 * v], -1)))
            v = numpyro.sample(f"v_{t}", dist.Categorical(probs=jnp.full(random.num_visible, 1 / random.num_visible)))
            h = numpyro.sample(f"h_{t}", dist.Categorical(probs=jnp.full(random.num_hidden, 1 / random.num_hidden)))
            numpyro.sample(f"y_{t}", dist.Categorical(probs=jnp.array([0.5, 0.5])))

    planner = aif.Planner(random.model, guide, aif.Planning(), aif.SVISolver(optax.adam(0.1), 1))
    with pytest.raises(aif.GuideError, match="site 'u_1': found a control in the guide that reads 'h_0'"):
        planner(KEY, random.belief(), horizon=2)


@pytest.mark.slow  # without one: tests/inference/test_augmented.py
def test_the_augmented_program_with_a_memory() -> None:
    """Minus the ELBO of the augmented program, estimated by NumPyro's own Trace_ELBO, is F less the correction."""
    model, belief = functools.partial(tmaze.tmaze, memory="told", cue_accuracy=0.8), tmaze.initial_belief()
    guide, objective = TemporalGuide(model, learn=("control",)), aif.Active(normalize=True)
    planner = aif.Planner(model, guide, objective, aif.SVISolver(optax.adam(0.1), 5), max_horizon=2)
    plan = planner(KEY, belief)
    program, count = aif.augmented(model, plan, objective), 4000

    @jax.jit
    def losses(keys: Any) -> Any:
        elbo = Trace_ELBO()
        return jax.vmap(lambda key: elbo.loss(key, plan.params, program, guide, belief, horizon=2))(keys)

    drawn = np.asarray(losses(jax.random.split(KEY, count)))
    expected = float(plan.free_energy[-1] - plan.terms["correction"])
    assert abs(drawn.mean() - expected) < 4 * drawn.std() / np.sqrt(count)


@pytest.mark.parametrize("certain", [False, True])
def test_several_sites_tell_what_they_tell_together(certain: bool) -> None:
    """At one step from a known place the temporal F_active is the sequence guide's; sites by themselves count twice."""
    rng = np.random.default_rng(0)
    sights = [rng.dirichlet(np.ones(2), (2, 3)) for _ in range(3)]
    if certain:  # the first and the last site tell the same
        sights = [np.eye(2)[np.tile(row, (2, 1))] for row in ([0, 1, 1], [1, 0, 1], [1, 0, 0])]

    def model(belief: aif.Belief, horizon: int = 1) -> None:
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        x = aif.state("x", dist.Categorical(probs=belief.state[theta]))

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=jnp.array([0.5, 0.5])))
            x = aif.state("x", dist.Categorical(probs=jnp.array([[0.8, 0.2], [0.3, 0.7]])[u]))
            for name, table in zip("abc", sights, strict=True):
                if certain:
                    aif.observation(name, aif.DeterministicCategorical(jnp.asarray(table.argmax(-1))[x, theta], 2))
                else:
                    aif.observation(name, dist.Categorical(probs=jnp.asarray(table)[x, theta]))
            aif.preference("goal", jnp.where(x == 1, 1.0, 0.0))
            return x

        aif.rollout(step, x, horizon)

    belief = aif.Belief(jnp.array([0.5, 0.3, 0.2]), jnp.tile(jnp.array([1.0, 0.0]), (3, 1)))
    world = program_of(model, belief, 1).world(belief, 1)
    logits = jnp.array([0.3, -0.2])
    temporal = TemporalGuide(model, learn=("control",)).posterior(
        world, {"control_logits": jnp.tile(logits, (1, 2, 1))}, 1
    )
    guide = aif.guides.SequenceGuide(model)
    tables = guide.prepare(world, 1).tables
    sequence = guide.posterior(world, {name: jnp.zeros(t.shape) for name, t in guide.tables(world, 1).items()}, 1)
    sequence = sequence._replace(control=jax.nn.log_softmax(logits), emission=jnp.maximum(tables.emission, -1e9))
    together, by_site = (jax.jit(aif.Active(evidence=e).terms)(world, temporal) for e in ("joint", "sites"))
    expected = jax.jit(aif.Active().terms)(world, sequence)
    for name in ("risk", "ambiguity", "novelty"):
        assert_close(together[name], expected[name], 1e-6, name)
    assert float(by_site["novelty"]) < float(together["novelty"]) - 1e-3
