"""The generic evaluator: equal to the fast ones on both guides, and right on guides that only it can do."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest

import npro_aif as aif
from npro_aif.inference.generic import enumerate_guide
from npro_aif.inference.objectives import TERMS
from npro_aif.models.tmaze import JUNCTION, SOUTH, WEST, cue_probabilities, initial_belief, tmaze, transitions
from npro_aif.program.program import program_of
from tests import oracle
from tests.support import assert_close
from tests.worlds import RandomWorld, random_world

pytestmark = pytest.mark.usefixtures("quick_compile")

KEY = jax.random.key(0)
GUIDES: dict[str, Any] = {"temporal": aif.guides.TemporalGuide, "sequence": aif.guides.SequenceGuide}
OBJECTIVE = aif.Active(normalize=True, gradient="through", weight=0.7)  # which has every term


def check_both_evaluators(model: Any, belief: aif.Belief, horizon: int, guide: Any) -> None:
    """Every term of F to 1e-5, and the gradient of its sum."""
    program = program_of(model, belief, horizon)
    world = program.world(belief, horizon)
    rng = np.random.default_rng(0)
    shapes = {name: table.shape for name, table in guide.tables(world, horizon).items()}
    params = {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()}

    def fast(params: Any) -> Any:
        return OBJECTIVE.terms(world, guide.posterior(world, params, horizon))

    def generic(params: Any) -> Any:
        posterior = enumerate_guide(model, guide, params, belief, horizon, world)
        return OBJECTIVE.terms(world, posterior)

    @jax.jit
    def evaluate(params: Any) -> list[Any]:
        def with_sum(terms: Any) -> Any:
            return lambda params: (sum(terms(params).values()), terms(params))

        return [jax.grad(with_sum(terms), has_aux=True)(params) for terms in (fast, generic)]

    (gradient, terms), (expected_gradient, expected) = evaluate(params)
    assert terms.keys() == expected.keys() == set(TERMS)
    for name, value in expected.items():
        assert_close(terms[name], value, 1e-5, name)
    for name, table in expected_gradient.items():
        assert_close(gradient[name], table, 1e-4, name)


@pytest.mark.slow  # guides that are written by hand, below, go through the same evaluator
@pytest.mark.parametrize("guide", ["temporal", "sequence"])
def test_the_tmaze(guide: str) -> None:
    check_both_evaluators(tmaze, initial_belief(), 2, GUIDES[guide](tmaze))


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("seed", [0, 2, 6, 18, 24, 27])
def test_other_worlds(seed: int, guide: str) -> None:
    world = random_world(seed)
    check_both_evaluators(world.model, world.belief(), world.horizon, GUIDES[guide](world.model))


# Guides that are written by hand


def mean_field(world: RandomWorld) -> Any:
    """Every site by itself."""
    sizes = dict(world.shapes.parameter) | {f"{name}_0": size for name, size in world.shapes.state.items()}
    for t in range(1, world.horizon + 1):
        for role in (world.shapes.control, world.shapes.state, world.shapes.observation):
            sizes |= {f"{name}_{t}": size for name, size in role.items()}

    def guide(belief: aif.Belief, horizon: int) -> None:
        for name, size in sizes.items():
            logits = numpyro.param(f"{name}_logits", lambda key, size=size: jax.random.normal(key, (size,)))
            numpyro.sample(name, dist.Categorical(logits=logits))

    return guide


def mean_field_joint(world: RandomWorld, params: dict[str, jax.Array]) -> oracle.Joint:
    """The same q as a dense joint."""
    axes = oracle.joint_axes(world.horizon, len(world.shapes.observation))

    def table(role: dict[str, int], suffix: str) -> np.ndarray:
        rows = [np.asarray(jax.nn.softmax(params[f"{name}{suffix}_logits"]), float) for name in role]
        joint = rows[0]
        for row in rows[1:]:
            joint = np.outer(joint, row).ravel()
        return joint

    factors: list[oracle.Factor] = [
        (table(world.shapes.parameter, ""), ("theta",)),
        (table(world.shapes.state, "_0"), ("x0",)),
    ]
    for t in range(1, world.horizon + 1):
        factors += [
            (table(world.shapes.control, f"_{t}"), (f"u{t}",)),
            (table(world.shapes.state, f"_{t}"), (f"x{t}",)),
        ]
        factors += [
            (table({name: size}, f"_{t}"), (oracle.y_axis(t, k),))
            for k, (name, size) in enumerate(world.shapes.observation.items())
        ]
    return oracle.product(factors, axes)


def test_planning_with_a_mean_field_guide() -> None:
    """The plan's free energy is that of its tables by enumeration, and no lower than the evidence allows."""
    world = random_world(28)
    assert all((table > 0).all() for table in world.tables[:4])
    planner = aif.Planner(
        world.model, guide=mean_field(world), objective=aif.Marginal(), solver=aif.SVISolver(optax.adam(0.1), 150)
    )
    plan = planner(KEY, world.belief(), horizon=world.horizon)
    joint = mean_field_joint(world, plan.params)
    assert_close(plan.free_energy[-1], oracle.marginal_free_energy(joint, world.tables), 1e-5)
    assert_close(sum(plan.terms.values()), plan.free_energy[-1], 1e-5)
    assert float(plan.free_energy[-1]) < float(plan.free_energy[0]) - 0.1
    _, evidence = oracle.exact_joint(world.tables)
    assert float(plan.free_energy[-1]) >= -np.log(evidence) - 1e-5
    for t in range(1, world.horizon + 1):
        np.testing.assert_allclose(plan.control[t - 1], joint.marginal(f"u{t}"), atol=1e-5)
        np.testing.assert_allclose(plan.state[t], joint.marginal(f"x{t}"), atol=1e-5)
        np.testing.assert_allclose(
            plan.policy[t - 1], np.tile(joint.marginal(f"u{t}"), (len(plan.state[t]), 1)), atol=1e-5
        )
    np.testing.assert_allclose(plan.parameter, joint.marginal("theta"), atol=1e-5)
    assert plan.sample(KEY, 7)["x"].shape == (7, world.horizon + 1)


@pytest.mark.parametrize(
    "objective",
    [aif.Active(), pytest.param(aif.Active(normalize=True, planning_correction=False), marks=pytest.mark.slow)],
)
def test_every_objective_of_a_mean_field_guide(objective: Any) -> None:
    world = random_world(28)
    guide = mean_field(world)
    trace = numpyro.handlers.trace(numpyro.handlers.seed(guide, 3)).get_trace(world.belief(), horizon=world.horizon)
    params = {name: site["value"] for name, site in trace.items() if site["type"] == "param"}
    found = jax.jit(
        lambda params: objective.loss(KEY, params, world.model, guide, world.belief(), horizon=world.horizon)
    )(params)
    expected = oracle.free_energy(
        mean_field_joint(world, params),
        world.tables,
        type(objective).__name__.lower(),  # type: ignore[arg-type]
        "temporal",
        normalize=objective.normalize,
        correction=objective.correction,
    )
    assert_close(found, expected, 1e-5)


def open_loop(belief: aif.Belief, horizon: int) -> None:
    """Controls that are drawn one by one, whatever happens; the world does the rest (moves are certain)."""
    theta = numpyro.sample("theta", dist.Categorical(probs=belief.parameter))
    x = numpyro.sample("x_0", dist.Categorical(probs=belief.state[theta]))
    for t in range(1, horizon + 1):
        logits = numpyro.param(f"u_{t}_logits", jnp.zeros(4))
        u = numpyro.sample(f"u_{t}", dist.Categorical(logits=logits))
        x = numpyro.sample(f"x_{t}", aif.DeterministicCategorical(jnp.asarray(transitions())[x, u], 5))
        numpyro.sample(f"cue_{t}", dist.Categorical(probs=jnp.asarray(cue_probabilities())[x, theta]))


def test_planning_the_tmaze_with_a_guide_of_a_few_lines() -> None:
    """It looks at the cue where θ is unknown, and takes the arm at the junction where θ is known."""
    planner = aif.Planner(tmaze, guide=open_loop, objective=aif.Active(), solver=aif.SVISolver(optax.adam(0.1), 150))
    plan = planner(KEY, initial_belief(), horizon=1)
    assert int(plan.best_control()) == SOUTH
    assert float(plan.control[0, SOUTH]) > 0.9
    plan = planner(KEY, initial_belief(JUNCTION, theta=0), horizon=1)
    assert int(plan.best_control()) == WEST
    assert planner.num_traces == 1
