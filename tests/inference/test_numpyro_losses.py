"""NumPyro's own losses and Predictive on programs and guides: the same numbers as the exact ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpyro.contrib.funsor import config_enumerate
from numpyro.infer import SVI, Predictive, Trace_ELBO, TraceEnum_ELBO

import npro_aif as aif
from npro_aif.inference.sequence import SequencePosterior
from npro_aif.models.tmaze import initial_belief, tmaze
from npro_aif.program.program import program_of
from tests import oracle
from tests.support import assert_close
from tests.worlds import RandomWorld, random_world

pytestmark = pytest.mark.usefixtures("quick_compile")

GUIDES: dict[str, Any] = {"temporal": aif.guides.TemporalGuide, "sequence": aif.guides.SequenceGuide}
NUM_DRAWS = 20_000
STANDARD_ERRORS = 4
KEY = jax.random.key(0)
# Where one guide says it for both, the other one is for the long run.
TEMPORAL_FIRST = pytest.mark.parametrize("guide", ["temporal", pytest.param("sequence", marks=pytest.mark.slow)])
SEQUENCE_FIRST = pytest.mark.parametrize("guide", ["sequence", pytest.param("temporal", marks=pytest.mark.slow)])


def prepare(
    model: Any, belief: aif.Belief, horizon: int, guide: Any, seed: int = 0
) -> tuple[Any, dict[str, jax.Array]]:
    """The model's world and random logits of its guide."""
    world = program_of(model, belief, horizon).world(belief, horizon)
    rng = np.random.default_rng(seed)
    shapes = {name: table.shape for name, table in guide.tables(world, horizon).items()}
    return world, {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()}


@TEMPORAL_FIRST
def test_marginal_is_minus_the_enumerated_elbo(guide: str) -> None:
    """On two unrolled steps of a world with two observation sites.

    It has no exact zeros: with them NumPyro's enumerated ELBO is not a number (0 · log 0).
    """
    world = random_world(18)
    assert all((table > 0).all() for table in world.tables[:4])
    model, belief, program = world.model, world.belief(), GUIDES[guide](world.model)
    _, params = prepare(model, belief, 2, program)

    @jax.jit
    def losses(params: Any) -> tuple[jax.Array, jax.Array]:
        sites = config_enumerate(model), config_enumerate(program)
        enumerated = TraceEnum_ELBO(max_plate_nesting=0).loss(KEY, params, *sites, belief, horizon=2)
        return aif.Marginal().loss(KEY, params, model, program, belief, horizon=2), enumerated

    assert_close(*losses(params), 1e-5)


def joint_of(world: RandomWorld, posterior: Any) -> oracle.Joint:
    """A guide's posterior as the oracle's dense joint."""
    probs = jax.tree.map(lambda table: np.exp(np.asarray(table, float)), posterior)
    tables = world.tables
    if isinstance(posterior, SequencePosterior):
        return oracle.sequence_joint(tables, probs.control, probs.state, probs.emission)

    def full(kernel: Any, shape: tuple[int, ...]) -> np.ndarray:
        return np.broadcast_to(np.exp(np.asarray(kernel.table(), float)), shape)

    return oracle.temporal_joint(
        tables,
        probs.parameter,
        np.broadcast_to(probs.control, tables.control.shape),
        full(posterior.state, tables.state.shape),
        tuple(
            full(posterior.observation[name], table.shape)
            for name, table in zip(world.shapes.observation, tables.observations, strict=True)
        ),
    )


def flat_draws(world: RandomWorld, draws: dict[str, Any]) -> dict[str, np.ndarray]:
    """Draws by site as draws of the joint's variables."""
    shapes, found = world.shapes, {}

    def flat(role: dict[str, int], suffix: str) -> np.ndarray:
        return np.ravel_multi_index([np.asarray(draws[name + suffix]) for name in role], tuple(role.values()))

    found["theta"], found["x0"] = flat(shapes.parameter, ""), flat(shapes.state, "_0")
    for t in range(1, world.horizon + 1):
        found |= {f"u{t}": flat(shapes.control, f"_{t}"), f"x{t}": flat(shapes.state, f"_{t}")}
        found |= {oracle.y_axis(t, k): np.asarray(draws[f"{name}_{t}"]) for k, name in enumerate(shapes.observation)}
    return found


def check_frequencies(joint: oracle.Joint, draws: dict[str, np.ndarray]) -> None:
    """All pairs of variables have the frequencies of the joint."""
    assert draws.keys() == set(joint.axes)
    for i, first in enumerate(joint.axes):
        for second in joint.axes[i + 1 :]:
            expected = joint.marginal(first, second)
            counts = np.zeros(expected.shape)
            np.add.at(counts, (draws[first], draws[second]), 1)
            error = np.sqrt(expected * np.maximum(1 - expected, 0.0) / NUM_DRAWS)
            assert (np.abs(counts / NUM_DRAWS - expected) <= STANDARD_ERRORS * error + 1e-6).all(), (first, second)


@TEMPORAL_FIRST
# Three steps with exact zeros; two sites in every role.
@pytest.mark.parametrize("seed", [pytest.param(2, marks=pytest.mark.slow), 27])
def test_guides_under_predictive(seed: int, guide: str) -> None:
    random = random_world(seed)
    arguments = random.model, random.belief(), random.horizon
    program = GUIDES[guide](random.model)
    world, params = prepare(*arguments, program)
    joint = joint_of(random, program.posterior(world, params, random.horizon))
    draws = Predictive(program, params=params, num_samples=NUM_DRAWS)(KEY, random.belief(), horizon=random.horizon)
    check_frequencies(joint, flat_draws(random, draws))


@SEQUENCE_FIRST
def test_a_plan_draws_from_its_posterior(guide: str) -> None:
    random = random_world(27)
    planner = aif.Planner(random.model, guide=GUIDES[guide](random.model), solver=aif.SVISolver(optax.adam(0.1), 5))
    plan = planner(KEY, random.belief(), horizon=random.horizon)
    stacked = {name: np.asarray(draw) for name, draw in plan.sample(KEY, NUM_DRAWS).items()}
    draws = {name: stacked[name] for name in random.shapes.parameter}
    for role, first in ((random.shapes.state, 0), (random.shapes.control, 1), (random.shapes.observation, 1)):
        for name in role:
            draws |= {f"{name}_{t}": stacked[name][:, t - first] for t in range(first, random.horizon + 1)}
    check_frequencies(joint_of(random, plan.complete()), flat_draws(random, draws))


@TEMPORAL_FIRST
def test_trace_elbo_estimates_the_marginal(guide: str) -> None:
    random = random_world(2)
    program = GUIDES[guide](random.model)
    _, params = prepare(random.model, random.belief(), random.horizon, program)

    @jax.jit
    @jax.vmap
    def estimate(key: jax.Array) -> jax.Array:
        return Trace_ELBO().loss(key, params, random.model, program, random.belief(), horizon=random.horizon)

    draws = np.asarray(estimate(jax.random.split(KEY, 4000)), float)
    exact = float(aif.Marginal().loss(KEY, params, random.model, program, random.belief(), horizon=random.horizon))
    assert abs(draws.mean() - exact) <= STANDARD_ERRORS * draws.std() / np.sqrt(len(draws))


@TEMPORAL_FIRST
def test_numpyro_svi_reaches_the_planners_free_energy(guide: str) -> None:
    """``svi.init`` and ``svi.update`` with an objective as the loss: the same steps as the Planner's solver."""
    steps, horizon = 60, 2
    program = GUIDES[guide](tmaze)
    svi = SVI(tmaze, program, optax.adam(0.05), loss=aif.Active())
    state = svi.init(KEY, initial_belief(), horizon=horizon)

    @jax.jit
    def run(state: Any, belief: aif.Belief) -> Any:
        return jax.lax.scan(lambda s, _: svi.update(s, belief, horizon=horizon), state, length=steps)

    first = svi.get_params(state)
    state, losses = run(state, initial_belief())
    final = float(svi.evaluate(state, initial_belief(), horizon=horizon))
    solver = aif.SVISolver(optax.adam(0.05), steps)
    planner = aif.Planner(tmaze, starting_at(program, first), solver=solver, max_horizon=horizon)
    plan = planner(KEY, initial_belief(), horizon=horizon)
    np.testing.assert_allclose(losses, plan.free_energy[:-1], rtol=1e-4, atol=1e-4)
    assert final == pytest.approx(float(plan.free_energy[-1]), abs=1e-4)
    assert final < float(losses[0])


def starting_at(guide: Any, params: dict[str, jax.Array]) -> Any:
    """The guide with other first logits."""

    class Started(type(guide)):  # type: ignore[misc]
        def first_params(self, key: Any, world: Any, num_steps: int) -> dict[str, jax.Array]:
            return dict(params)

    return Started(guide.model)
