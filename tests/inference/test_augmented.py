"""The augmented program: a Monte-Carlo ELBO of NumPyro's own on it agrees with the exact free energy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro.infer import Trace_ELBO

import npro_aif as aif
from npro_aif.models.tmaze import initial_belief, tmaze
from npro_aif.program.program import program_of
from tests.worlds import random_world

pytestmark = pytest.mark.usefixtures("quick_compile")

NUM_DRAWS = 4000
STANDARD_ERRORS = 4
OBJECTIVES = (
    aif.Marginal(),
    aif.Planning(),
    aif.Active(planning_correction=False, weight=0.3),
    aif.Active(normalize=True),
)
GUIDES: dict[str, Any] = {"temporal": aif.guides.TemporalGuide, "sequence": aif.guides.SequenceGuide}


def random_params(guide: Any, world: Any, horizon: int, seed: int) -> dict[str, jax.Array]:
    shapes = {name: table.shape for name, table in guide.tables(world, horizon).items()}
    rng = np.random.default_rng(seed)
    return {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()}


def check_estimates(model: Any, belief: aif.Belief, horizon: int, guide: Any) -> None:
    """Minus the ELBO is F less the planning correction, for every objective and the same draws."""
    world = program_of(model, belief, horizon).world(belief, horizon)
    params = random_params(guide, world, horizon, seed=1)

    @jax.jit
    def exact(params: Any) -> tuple[Any, list[dict[str, jax.Array]]]:
        posterior = guide.posterior(world, params, horizon)
        return posterior, [objective.terms(world, posterior) for objective in OBJECTIVES]

    posterior, terms = exact(params)

    @jax.jit
    @jax.vmap
    def estimates(key: jax.Array) -> jax.Array:
        programs = [aif.augmented(model, posterior, objective) for objective in OBJECTIVES]
        return jnp.stack([Trace_ELBO().loss(key, params, p, guide, belief, horizon=horizon) for p in programs])

    draws = np.asarray(estimates(jax.random.split(jax.random.key(0), NUM_DRAWS)), float)
    assert np.isfinite(draws).all()
    errors = draws.std(0, ddof=1) / np.sqrt(NUM_DRAWS)
    for objective, parts, mean, error in zip(OBJECTIVES, terms, draws.mean(0), errors, strict=True):
        expected = sum(float(value) for name, value in parts.items() if name != "correction")
        assert abs(mean - expected) <= STANDARD_ERRORS * error + 1e-4, (objective, mean, expected, error)


@pytest.mark.parametrize("guide", [pytest.param("temporal", marks=pytest.mark.slow), "sequence"])
def test_the_tmaze(guide: str) -> None:
    """Exactly deterministic moves, with the cue as the only source of information."""
    check_estimates(tmaze, initial_belief(), 2, GUIDES[guide](tmaze))


@pytest.mark.slow
@pytest.mark.parametrize("guide", ["temporal", "sequence"])
def test_several_sites_in_every_role(guide: str) -> None:
    world = random_world(27)
    assert all(len(role) == 2 for role in world.shapes)
    check_estimates(world.model, world.belief(), world.horizon, GUIDES[guide](world.model))


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("seed", [2, 6, 18])
def test_other_worlds(seed: int, guide: str) -> None:
    world = random_world(seed)
    check_estimates(world.model, world.belief(), world.horizon, GUIDES[guide](world.model))


def factors(model: Any, posterior: Any, objective: Any, horizon: int) -> dict[str, float]:
    program = numpyro.handlers.seed(aif.augmented(model, posterior, objective), 0)
    trace = numpyro.handlers.trace(program).get_trace(initial_belief(), horizon=horizon)
    return {n: float(s["fn"].log_factor) for n, s in trace.items() if isinstance(s["fn"], numpyro.distributions.Unit)}


def test_the_epistemic_priors_are_visible_sites() -> None:
    solver = aif.SVISolver(optax.adam(0.05), 1)
    plans = {
        name: aif.Planner(tmaze, guide=guide(tmaze), solver=solver)(jax.random.key(0), initial_belief(), horizon=2)
        for name, guide in GUIDES.items()
    }
    goal = {"goal_1", "goal_2"}
    steps = {f"epistemic_{role}_{t}" for role in "uxy" for t in (1, 2)}
    assert factors(tmaze, plans["temporal"], aif.Active(), 2).keys() == goal | steps
    assert factors(tmaze, plans["sequence"], aif.Active(), 2).keys() == goal | {f"epistemic_{role}" for role in "uxy"}
    assert factors(tmaze, plans["temporal"], aif.Planning(), 2).keys() == goal

    # Moves are certain: log p̃(u) = 0 with raw priors, and −log 4 each with normalised ones.
    found = factors(tmaze, plans["temporal"], aif.Active(), 2)
    assert found["epistemic_u_1"] == pytest.approx(0.0, abs=1e-5)
    found = factors(tmaze, plans["temporal"], aif.Active(normalize=True), 2)
    assert found["epistemic_u_1"] == pytest.approx(-np.log(4), abs=1e-4)
