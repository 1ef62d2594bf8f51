"""Hidden states and memories: F and its terms by enumeration of all histories, exact plans by a tree of beliefs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npro_aif as aif
from npro_aif.guides import TemporalGuide
from npro_aif.program.program import program_of
from tests.closed_worlds import ClosedWorld, brute_force, closed_world, tree_value
from tests.support import assert_close

pytestmark = pytest.mark.usefixtures("quick_compile", "x64")

KEY = jax.random.key(0)
FEW = (0, 1, 2, 3)
MANY = range(4, 34)


def check_terms(seed: int, memory: str) -> None:
    """Every term of F under a random policy and a random q(θ)."""
    random = closed_world(seed, memory)
    belief = random.belief()
    world = program_of(random.model, belief, random.horizon).world(belief, random.horizon)
    guide = TemporalGuide(random.model, learn=("control", "parameter"))
    keys = jax.random.split(jax.random.key(seed))
    tables = guide.tables(world, random.horizon)
    params = {name: jax.random.normal(k, table.shape) for k, (name, table) in zip(keys, tables.items(), strict=True)}
    posterior = guide.posterior(world, params, random.horizon)
    found = aif.Active().terms(world, posterior)
    expected = brute_force(random, np.exp(np.asarray(posterior.control)), np.exp(np.asarray(posterior.parameter)))
    assert_close(found["risk"], -expected["preference"] - expected["moves"], 1e-9)
    assert_close(found["correction"], expected["policy"], 1e-9)
    assert_close(found["plan_prior"], expected["prior"] - expected["policy"], 1e-9)
    assert_close(found["ambiguity"], expected["ambiguity"], 1e-9)
    assert_close(found["novelty"], expected["ambiguity"] - expected["sights"], 1e-9)
    assert_close(found["complexity"], expected["complexity"], 1e-9)


@pytest.mark.parametrize("memory", ["all", "last"])
@pytest.mark.parametrize("seed", FEW)
def test_every_term_by_enumeration(seed: int, memory: str) -> None:
    check_terms(seed, memory)


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["all", "seen", "last"])
@pytest.mark.parametrize("seed", MANY)
def test_every_term_by_enumeration_everywhere(seed: int, memory: str) -> None:
    check_terms(seed, memory)


def plan_of(random: ClosedWorld, objective: Any, **settings: Any) -> aif.Plan:
    guide = TemporalGuide(random.model, learn=("control",))
    solver = aif.CoordinateSolver(tol=1e-9, **settings)
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


@pytest.mark.parametrize("memory", ["all", "seen"])
@pytest.mark.parametrize("seed", FEW)
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


@pytest.mark.parametrize("seed", FEW)
def test_information_is_counted_once(seed: int) -> None:
    """With fixed controls the novelties add up to Σ_t H[y_t|v_0:t, y_<t] − H[y_t|x_t, θ], as H[y|history] telescopes."""
    random = closed_world(seed, "all")
    belief = random.belief()
    world = program_of(random.model, belief, random.horizon).world(belief, random.horizon)
    rng = np.random.default_rng(seed)
    controls = rng.integers(2, size=random.horizon)
    rows = random.num_visible * random.num_memories
    policy = np.zeros((random.horizon, rows, 2))
    policy[np.arange(random.horizon), :, controls] = 1
    params = {"control_logits": jnp.where(jnp.asarray(policy) > 0, 0.0, -jnp.inf)}
    posterior = TemporalGuide(random.model, learn=("control",)).posterior(world, params, random.horizon)
    terms = brute_force(random, policy, random.parameter)
    novelty = aif.Active().terms(world, posterior)["novelty"]
    assert_close(-novelty, terms["sights"] - terms["ambiguity"], 1e-9)
