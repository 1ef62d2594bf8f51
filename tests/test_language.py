"""The language under plain NumPyro: programs unroll into time-indexed sites and mean what they say."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import condition, seed, substitute, trace
from numpyro.infer import Predictive
from numpyro.infer.util import log_density

import npro_aif as aif
from npro_aif.language import ROLE, sensing
from npro_aif.models.tmaze import START, cue_probabilities, goal_preference, initial_belief, tmaze, transitions
from npro_aif.program.program import program_of

pytestmark = pytest.mark.usefixtures("quick_compile")

HORIZON = 3
KEY = jax.random.key(0)


def test_a_program_unrolls_into_time_indexed_sites() -> None:
    sites = trace(seed(tmaze, 0)).get_trace(initial_belief(), horizon=HORIZON)
    expected = ["theta", "x_0"] + [f"{name}_{t}" for t in range(1, HORIZON + 1) for name in ("u", "x", "cue", "goal")]
    assert list(sites) == expected
    roles = {name: site["infer"][ROLE].kind for name, site in sites.items() if not name.startswith("goal")}
    assert {roles["theta"], roles["x_0"], roles["u_2"], roles["cue_3"]} == {
        "parameter",
        "state",
        "control",
        "observation",
    }
    assert sites["goal_1"]["is_observed"]
    assert len({id(site["infer"]) for site in sites.values()}) == len(sites)  # one dictionary each


def test_the_joint_density_of_a_program() -> None:
    values: dict[str, Any] = {"theta": 1, "x_0": START, "u_1": 2, "x_1": 0, "cue_1": 1, "u_2": 0, "x_2": 1, "cue_2": 0}
    expected = np.log(0.5)  # θ; x_0 is certain
    for t in (1, 2):
        before, u, x, y = (values[name] for name in (f"x_{t - 1}", f"u_{t}", f"x_{t}", f"cue_{t}"))
        assert transitions()[before, u] == x
        expected += np.log(0.25) + np.log(cue_probabilities()[x, 1, y])
    expected += goal_preference(4.0)[values["x_2"], 1]
    arrays = {name: jnp.asarray(value) for name, value in values.items()}
    found, _ = log_density(tmaze, (initial_belief(),), {"horizon": 2}, arrays)
    assert float(found) == pytest.approx(expected, abs=1e-5)
    impossible, _ = log_density(tmaze, (initial_belief(),), {"horizon": 2}, arrays | {"x_1": jnp.asarray(4)})
    assert float(impossible) == -np.inf


def test_predictive_draws_futures() -> None:
    draws = Predictive(tmaze, num_samples=500)(KEY, initial_belief(), horizon=HORIZON)
    for t in range(1, HORIZON + 1):
        moved = transitions()[np.asarray(draws[f"x_{t - 1}"]), np.asarray(draws[f"u_{t}"])]
        np.testing.assert_array_equal(draws[f"x_{t}"], moved)
    at_cue = np.asarray(draws["x_1"]) == 0
    assert at_cue.any()
    np.testing.assert_array_equal(np.asarray(draws["cue_1"])[at_cue], np.asarray(draws["theta"])[at_cue])


def test_render_model_draws_the_unrolled_program() -> None:
    pytest.importorskip("graphviz")
    graph = numpyro.render_model(tmaze, (initial_belief(),), {"horizon": 2})
    for name in ("theta", "x_0", "u_1", "cue_2", "goal_2"):
        assert name in graph.source
    assert "theta -> cue_1" in graph.source
    assert "x_0 -> x_1" in graph.source


def test_conditioning_works_on_the_unrolled_sites() -> None:
    given = condition(tmaze, {"u_1": jnp.asarray(2), "theta": jnp.asarray(1)})
    sites = trace(seed(given, 0)).get_trace(initial_belief(), horizon=2)
    assert int(sites["x_1"]["value"]) == 0
    assert int(sites["cue_1"]["value"]) == 1


def test_an_observation_for_belief_updates_only() -> None:
    """Emitted where beliefs are updated and nowhere else."""
    assert not any(name.startswith("place") for name in trace(seed(tmaze, 0)).get_trace(initial_belief(), horizon=2))
    with sensing():
        sites = trace(seed(tmaze, 0)).get_trace(initial_belief(), horizon=2)
    assert int(sites["place_1"]["value"]) == int(sites["x_1"]["value"])
    signature = program_of(tmaze, initial_belief(), 2).signature
    assert [site.name for site in signature.observation] == ["cue"]
    assert [site.name for site in signature.sensor] == ["place"]


# Several sites at once


JOINT = np.random.default_rng(0).dirichlet(np.ones(6), 2)  # (θ, a × b)


def pair(belief: aif.Belief, horizon: int = 1) -> None:
    """Two states and two parameters, each pair from one joint table."""
    theta = aif.parameters({"left": 1, "right": 2}, belief.parameter, labels={"right": ("no", "yes")})
    x = aif.initial_state({"a": 2, "b": 3}, belief.state[theta["right"]])

    def step(x: Any, t: Any) -> Any:
        u = aif.control("u", dist.Categorical(probs=jnp.full(2, 0.5)))
        a = aif.state("a", aif.DeterministicCategorical((x["a"] + u) % 2, 2))
        b = aif.state("b", aif.DeterministicCategorical((x["b"] + a) % 3, 3))
        return {"a": a, "b": b}

    aif.rollout(step, x, horizon)


def test_a_joint_draw_is_its_chain_of_conditionals() -> None:
    belief = aif.Belief(jnp.asarray([0.25, 0.75]), jnp.asarray(JOINT))
    for theta in range(2):
        for a in range(2):
            for b in range(3):
                values = {"left": 0, "right": theta, "a_0": a, "b_0": b}
                given = substitute(pair, data={name: jnp.asarray(value) for name, value in values.items()})
                sites = trace(seed(given, 0)).get_trace(belief, horizon=1)
                found = sum(float(sites[name]["fn"].log_prob(sites[name]["value"])) for name in values)
                assert np.exp(found) == pytest.approx(
                    float(belief.parameter[theta]) * JOINT[theta, 3 * a + b], rel=1e-5
                )


def test_roles_run_over_the_product_of_their_sites_in_program_order() -> None:
    belief = aif.Belief(jnp.asarray([0.25, 0.75]), jnp.asarray(JOINT, jnp.float32))
    program = program_of(pair, belief, 1)
    signature = program.signature
    assert (signature.num_parameters, signature.num_states, signature.num_controls) == (2, 6, 2)
    assert signature.find("right")[1].label(1) == "yes"
    world = program.world(belief, 1)
    np.testing.assert_allclose(np.exp(world.initial), JOINT, rtol=1e-5)
    moves = np.asarray(jnp.broadcast_to(world.state.at(0).index, (1, 6, 2)))[0]
    for a in range(2):
        for b in range(3):
            for u in range(2):
                new = (a + u) % 2
                assert moves[3 * a + b, u] == 3 * new + (b + new) % 3


def test_a_program_runs_without_any_handler() -> None:
    """Outside handlers NumPyro asks for a key; a program that is fed every value needs none."""
    drawn = {}

    def model(belief: aif.Belief, horizon: int) -> None:
        def step(x: Any, t: int) -> Any:
            drawn[t] = x
            return x + 1

        drawn["last"] = aif.rollout(step, 0, horizon)

    model(initial_belief(), 3)
    assert drawn == {1: 0, 2: 1, 3: 2, "last": 3}


def test_a_history_of_many_values_forgets_the_oldest_step() -> None:
    """By counting in Python's integers; 49,999 · 50,001 is beyond those of 32 bits."""

    def step(past: Any, t: int) -> Any:
        return aif.history("past", 1, {"y": 50_000}, past, y=jnp.asarray(50_000 - t))

    sites = trace(seed(lambda: aif.rollout(step, aif.history("past", 1, {"y": 50_000}), 3), 0)).get_trace()
    assert [int(sites[f"past_{t}"]["value"]) for t in range(4)] == [0, 50_000, 49_999, 49_998]


# Deterministic outcomes


def test_deterministic_categorical() -> None:
    certain = aif.DeterministicCategorical(jnp.asarray([[2, 0], [1, 1]]), 3)
    assert certain.batch_shape == (2, 2)
    np.testing.assert_array_equal(certain.sample(KEY), certain.index)
    assert certain.sample(KEY, (5,)).shape == (5, 2, 2)
    values = certain.enumerate_support()
    assert values.shape == (3, 2, 2)
    np.testing.assert_allclose(np.exp(certain.log_prob(values)).sum(0), 1.0)
    np.testing.assert_array_equal(jnp.argmax(certain.log_prob(values), 0), certain.index)
    assert certain.enumerate_support(expand=False).shape == (3, 1, 1)
    mapped = jax.vmap(lambda d: d.log_prob(jnp.asarray([1, 1])))(certain)  # a pytree
    np.testing.assert_array_equal(mapped, [[-np.inf, -np.inf], [0.0, 0.0]])


def test_a_traced_horizon_is_for_planners() -> None:
    with pytest.raises(aif.ModelError, match="found a traced horizon while unrolling under plain NumPyro"):
        jax.jit(lambda horizon: seed(tmaze, 0)(initial_belief(), horizon=horizon))(2)
