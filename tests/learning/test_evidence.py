"""The evidence of episodes against enumeration of every path, its gradient against central differences."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.util import log_density

import npro_aif as aif
from npro_aif.envs import TMaze
from npro_aif.learning.evidence import _evidence_of
from npro_aif.models.tmaze import CUE, NORTH, SOUTH, START, initial_belief, tmaze
from npro_aif.program.program import program_of
from tests.worlds import random_world

pytestmark = pytest.mark.usefixtures("quick_compile")


def enumerated(tables: Any, controls: np.ndarray, seen: np.ndarray, first: np.ndarray) -> float:
    """log Σ over θ and every path x_0 … x_T of p(θ) p(x_0|θ) Π p(x_t|x_{t-1},u_t,θ) p(y_t|x_t,θ)."""
    num_parameters, num_states = tables.initial.shape
    total = 0.0

    def likelihood(theta: int, x: int, values: np.ndarray) -> float:
        rows = [table[0, theta, x, y] for table, y in zip(tables.observations, values, strict=True) if y >= 0]
        return float(np.prod(rows))

    for theta in range(num_parameters):
        for path in itertools.product(range(num_states), repeat=len(controls) + 1):
            mass = tables.parameter[theta] * tables.initial[theta, path[0]] * likelihood(theta, path[0], first)
            for t, u in enumerate(controls):
                mass *= tables.state[0, theta, path[t], u, path[t + 1]] * likelihood(theta, path[t + 1], seen[t])
            total += mass
    return np.log(total) if total > 0 else -np.inf


# In the short run several sites, zeros, and moves that are certain.
SEEDS = [
    seed if seed in (4, 14, 16, 20, 27) else pytest.param(seed, marks=pytest.mark.slow)
    for seed in (*range(0, 40, 4), 1, 14, 27)
]


@pytest.mark.parametrize("seed", SEEDS)
def test_equals_enumeration(seed: int, x64: None) -> None:
    world, rng = random_world(seed), np.random.default_rng(seed)
    names, tables = list(world.shapes.observation), world.tables
    controls = rng.integers(0, tables.control.shape[-1], 3)
    sizes = [table.shape[-1] for table in tables.observations]
    for hidden in (0.0, 0.5):  # nothing, or half of it, was not observed
        seen = np.stack([rng.integers(0, size, 3) for size in sizes], 1)
        seen = np.where(rng.random(seen.shape) < hidden, -1, seen)
        first = np.where(rng.random(len(sizes)) < hidden, -1, [rng.integers(size) for size in sizes])
        found = aif.log_evidence(
            world.model,
            world.belief(),
            controls,
            {name: seen[:, i] for i, name in enumerate(names)},
            {name: first[i] for i, name in enumerate(names)},
        )
        expected = enumerated(tables, controls, seen, first)
        np.testing.assert_allclose(float(found), expected, rtol=1e-9, atol=1e-9, err_msg=world.description)


def small(free: Any) -> Any:
    """A world of two hidden parameters, three hidden states and two sensors whose tables are traced."""
    dynamics = jax.nn.softmax(free["dynamics"])  # (Θ, X, U, X')
    heard, word = jax.nn.softmax(free["heard"]), jax.nn.sigmoid(free["word"])  # (Θ, X, Y), (X,)

    def model(belief: aif.Belief, horizon: int = 1) -> None:
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        x = aif.state("x", dist.Categorical(probs=belief.state[theta]))

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=jnp.full(2, 0.5)))
            x = aif.state("x", dist.Categorical(probs=dynamics[theta, x, u]))
            aif.observation("heard", dist.Categorical(probs=heard[theta, x]))
            aif.observation("word", dist.Bernoulli(probs=word[x]), plan=False)
            aif.preference("liked", free["liked"] * (x == 2))
            return x

        aif.rollout(step, x, horizon)

    return model


def free_numbers(rng: np.random.Generator) -> dict[str, Any]:
    shapes = {"dynamics": (2, 3, 2, 3), "heard": (2, 3, 4), "word": (3,), "liked": ()}
    return {name: jnp.asarray(rng.normal(size=shape)) for name, shape in shapes.items()}


def test_gradient_equals_central_differences(x64: None) -> None:
    rng = np.random.default_rng(0)
    free, step = free_numbers(rng), 1e-5
    belief = aif.Belief(jnp.array([0.3, 0.7]), jnp.asarray(rng.dirichlet(np.ones(3), 2)))
    controls, heard = rng.integers(0, 2, 5), rng.integers(0, 4, 5)
    word = np.array([0, -1, 1, 1, -1])

    @jax.jit
    def value(free: Any, parameter: Any, state: Any) -> Any:
        own = aif.Belief(jax.nn.softmax(parameter), jax.nn.softmax(state))
        return aif.log_evidence(small(free), own, controls, {"heard": heard, "word": word}, {"heard": 2})

    arguments = free, jnp.log(belief.parameter), jnp.log(belief.state)
    gradient = jax.jit(jax.grad(value, (0, 1, 2)))(*arguments)
    leaves, structure = jax.tree.flatten(arguments)
    for i, (leaf, slope) in enumerate(zip(leaves, jax.tree.leaves(gradient), strict=True)):
        direction = jnp.asarray(rng.normal(size=leaf.shape))
        above, below = (
            value(*jax.tree.unflatten(structure, [*leaves[:i], leaf + sign * step * direction, *leaves[i + 1 :]]))
            for sign in (1, -1)
        )
        np.testing.assert_allclose((slope * direction).sum(), (above - below) / (2 * step), rtol=1e-6, atol=1e-9)
    assert float(gradient[0]["liked"]) == 0  # preferences are no evidence


def test_a_thousand_steps_in_float32() -> None:
    rng = np.random.default_rng(1)
    numbers = jax.tree.map(np.asarray, free_numbers(rng))
    controls, heard, word = (rng.integers(0, size, 1000) for size in (2, 4, 2))

    def value(free: Any) -> Any:
        belief = aif.Belief(jnp.full(2, 0.5), jnp.full((2, 3), 1 / 3))
        return aif.log_evidence(small(free), belief, controls, {"heard": heard, "word": word})

    single = jax.jit(jax.value_and_grad(value))(jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), numbers))
    with jax.enable_x64(True):
        double = jax.jit(jax.value_and_grad(value))(jax.tree.map(jnp.asarray, numbers))
    assert -3000 < float(double[0]) < -1500
    np.testing.assert_allclose(single[0], double[0], rtol=1e-5)
    for own, exact in zip(jax.tree.leaves(single[1]), jax.tree.leaves(double[1]), strict=True):
        np.testing.assert_allclose(own, exact, rtol=1e-3, atol=1e-2)


def test_an_unlikely_parameter_is_not_lost() -> None:
    """200 words for the other side, each right in 80 %, and then the truth is seen: 1e-120 in float32."""

    def model(belief: aif.Belief, horizon: int = 1) -> None:
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        x = aif.state("x", dist.Categorical(probs=belief.state[theta]))

        def step(x: Any, t: Any) -> Any:
            aif.control("u", dist.Categorical(probs=jnp.ones(1)))
            x = aif.state("x", aif.DeterministicCategorical(x, 1))
            aif.observation("word", dist.Bernoulli(probs=0.2 + 0.6 * theta))
            aif.observation("truth", aif.DeterministicCategorical(theta, 2), plan=False)
            return x

        aif.rollout(step, x, horizon)

    belief = aif.Belief(jnp.full(2, 0.5), jnp.ones((2, 1)))
    truth = np.append(np.full(200, -1), 0)
    seen = {"word": np.append(np.ones(200, int), -1), "truth": truth}
    found = aif.log_evidence(model, belief, np.zeros(201, int), seen)
    np.testing.assert_allclose(found, np.log(0.5) + 200 * np.log(0.2), rtol=1e-5)


def test_impossible_data() -> None:
    def value(accuracy: Any) -> Any:
        model = functools.partial(tmaze, cue_accuracy=accuracy)
        seen = {"cue": [0, 0, 1], "place": [CUE, CUE, START]}
        return aif.log_evidence(model, initial_belief(), [SOUTH, SOUTH, SOUTH], seen)

    found, slope = jax.value_and_grad(value)(0.8)
    assert found == -np.inf
    assert slope == 0


def test_episodes_of_any_length_compile_once() -> None:
    model = functools.partial(tmaze, cue_accuracy=0.75)
    belief = initial_belief()
    evidence = _evidence_of(program_of(model, belief, 1).base)
    values = {}
    for length in (1, 3, 5, 8):
        controls = np.tile([SOUTH, NORTH], 4)[:length]
        values[length] = aif.log_evidence(model, belief, controls, {"cue": np.arange(length) % 2})
    assert evidence._cache_size() == 1  # type: ignore[attr-defined]
    controls = np.tile(np.tile([SOUTH, NORTH], 4), (4, 1))
    data = aif.Records(controls, {"cue": np.tile(np.arange(8) % 2, (4, 1))}, lengths=np.array(list(values)))
    np.testing.assert_allclose(aif.log_evidence(model, belief, data), list(values.values()), rtol=1e-6)
    padded = np.where(np.arange(8) < data.lengths[:, None], controls, -1)  # the same by padding
    np.testing.assert_allclose(
        aif.log_evidence(model, belief, aif.Records(padded, data.observations)), list(values.values()), rtol=1e-6
    )
    lengths = jnp.asarray(data.lengths)
    one = jax.vmap(lambda n: aif.log_evidence(model, belief, controls[0], {"cue": np.arange(8) % 2}, length=n))
    np.testing.assert_allclose(one(lengths), list(values.values()), rtol=1e-6)


def test_what_does_not_fit_is_refused() -> None:
    belief = initial_belief()
    for controls, seen, what in (
        ([4], {"cue": [0]}, "controls: found 4, expected -1 to 3"),
        ([0], {"cue": [2]}, "observations 'cue': found 2"),
        ([0], {"clue": [0]}, "observations: found 'clue'"),
        ([0, 1], {"cue": [0]}, "observations 'cue': found shape"),
        ([0], [0], "observations: found ndarray, expected a dict"),
        ([0.5], {"cue": [0]}, "whole numbers"),
    ):
        with pytest.raises(ValueError, match=what):
            aif.log_evidence(tmaze, belief, controls, seen)


# --- One step, traced ---


def test_a_traced_update() -> None:
    rng = np.random.default_rng(3)
    free = free_numbers(rng)
    belief = aif.Belief(jnp.array([0.3, 0.7]), jnp.asarray(rng.dirichlet(np.ones(3), 2), jnp.float32))
    model = small(free)
    expected = aif.update_belief(model, belief, 1, {"heard": 2, "word": 0})

    def update(belief: aif.Belief, control: Any, heard: Any) -> aif.Belief:
        return aif.update_belief(model, belief, control, {"heard": heard, "word": 0})

    compiled = jax.jit(update)(belief, 1, 2)
    mapped = jax.jit(jax.vmap(update, (None, 0, 0)))(belief, jnp.array([1, 0]), jnp.array([2, 1]))
    for found in (compiled, jax.tree.map(lambda a: a[0], mapped)):
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), found, expected)
    end, _ = jax.lax.scan(lambda b, u: (update(b, u, 2), None), belief, jnp.array([1, 0, 1]))
    for control in (1, 0, 1):
        belief = aif.update_belief(model, belief, control, {"heard": 2, "word": 0})
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), end, belief)


def test_a_step_tells_its_probability() -> None:
    step = aif.Filter(tmaze, initial_belief()).step
    belief, log = jax.jit(step)(initial_belief(), SOUTH, {"cue": 1, "place": CUE})
    np.testing.assert_allclose(log, np.log(0.5), rtol=1e-6)
    same, log = jax.jit(step)(belief, NORTH, {"cue": -1, "place": CUE})  # it stands at the start, and not at the cue
    assert log == -np.inf
    np.testing.assert_allclose(same.parameter, belief.parameter)
    assert same.state[1, START] == 1

    def surprise(first: Any) -> Any:
        parameter = jnp.stack([first, 1 - first])
        return step(aif.Belief(parameter, initial_belief().state), SOUTH, {"cue": 1, "place": CUE})[1]

    np.testing.assert_allclose(jax.grad(surprise)(0.25), -1 / 0.75, rtol=1e-5)


# --- Inside a NumPyro program ---


def test_a_plate_of_machines() -> None:
    """A hierarchy is a vmap inside a plate: the same as each machine by itself."""
    accuracy, belief = jnp.array([0.6, 0.9]), initial_belief()
    controls = np.array([[[SOUTH, SOUTH], [SOUTH, NORTH]], [[NORTH, SOUTH], [SOUTH, SOUTH]]])
    data = aif.Records(controls, {"cue": np.array([[[0, 0], [1, -1]], [[0, 1], [1, 0]]])})

    def evidence(accuracy: Any, own: aif.Records) -> Any:
        return aif.log_evidence(functools.partial(tmaze, cue_accuracy=accuracy), belief, own).sum()

    def program() -> None:
        with numpyro.plate("machine", 2):
            own = numpyro.sample("accuracy", dist.Beta(2, 2))
            numpyro.factor("episodes", jax.vmap(evidence)(own, data))

    found = log_density(program, (), {}, {"accuracy": accuracy})[0]
    expected = dist.Beta(2, 2).log_prob(accuracy).sum() + sum(
        float(evidence(float(accuracy[i]), jax.tree.map(lambda table, i=i: table[i], data))) for i in range(2)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_episodes_as_they_were_run() -> None:
    """Episodes of an agent in an environment have what was observed."""
    planner = aif.Planner(tmaze, solver=aif.CoordinateSolver(restarts=1), max_horizon=4)
    outcomes = aif.run_episodes(TMaze, aif.Agent(planner, initial_belief(), max_steps=4), range(3))
    evidence = None

    def program() -> None:
        nonlocal evidence
        evidence = aif.episodes("maze", tmaze, initial_belief(), outcomes.episodes)

    log_density(program, (), {}, {})
    coins = [episode.steps + 1 for episode in outcomes.episodes]  # every word is a coin's, the first one at the cue too
    np.testing.assert_allclose(evidence, -np.log(2) * np.array(coins), rtol=1e-5)


@pytest.mark.slow
def test_svi_nuts_and_arviz() -> None:
    belief = initial_belief()
    data = aif.simulate(jax.random.key(0), functools.partial(tmaze, cue_accuracy=0.9), belief, 100, 4)._replace(
        truth=None
    )

    def program(data: Any) -> None:
        own = numpyro.sample("accuracy", dist.Uniform(0.5, 1.0))
        aif.episodes("maze", functools.partial(tmaze, cue_accuracy=own), belief, data)

    grid = jnp.linspace(0.5, 1.0, 202)[1:-1]  # the posterior of one number needs no sampler
    log = jax.jit(jax.vmap(lambda own: log_density(program, (data,), {}, {"accuracy": own})[0]))(grid)
    exact = np.cumsum(jax.nn.softmax(log))
    expected = np.interp([0.05, 0.5, 0.95], exact, grid)
    guide = AutoNormal(program)
    result = SVI(program, guide, optax.adam(0.1), Trace_ELBO()).run(jax.random.key(0), 200, data, progress_bar=False)
    found = guide.quantiles(result.params, [0.05, 0.5, 0.95])["accuracy"]
    np.testing.assert_allclose(found, expected, atol=0.04)
    mcmc = MCMC(NUTS(program), num_warmup=100, num_samples=400, progress_bar=False)
    mcmc.run(jax.random.key(0), data)
    np.testing.assert_allclose(np.percentile(mcmc.get_samples()["accuracy"], [5, 50, 95]), expected, atol=0.02)
    summary = az.summary(az.from_numpyro(mcmc))
    np.testing.assert_allclose(float(summary.loc["accuracy", "mean"]), expected[1], atol=0.02)
