"""Objectives as a user would write them: F is what they say it is, or a solver refuses."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import numpy as np
import optax
import pytest

import npro_aif as aif
from npro_aif.inference.posterior import Terms
from npro_aif.models import tmaze
from tests import oracle
from tests.support import assert_close, skeleton, temporal, world_of
from tests.worlds import random_temporal, random_world

pytestmark = pytest.mark.usefixtures("quick_compile")

KEY = jax.random.key(0)
SVI = aif.SVISolver(optax.adam(0.1), 150)


def planner_of(objective: Any, solver: Any) -> aif.Planner:
    guide = aif.guides.TemporalGuide(tmaze.tmaze, learn=("control",))
    return aif.Planner(tmaze.tmaze, guide, objective, solver, max_horizon=2)


SKELETON = skeleton("objective")
Taxed, Curious = SKELETON["Taxed"], SKELETON["Curious"]


class TaxedBySum(aif.Planning):
    """The same in another way: an ordinary class, and the terms as a whole."""

    def __init__(self, price: float):
        self.price = price

    def terms(self, world: Any, posterior: Any) -> Terms:
        paid = posterior.marginals(world).control[:, tmaze.EAST].sum()
        return super().terms(world, posterior) | {"tax": self.price * paid}


@pytest.mark.parametrize("kind", [Taxed, TaxedBySum])
def test_svi_minimises_what_a_subclass_says(kind: Any) -> None:
    plan = planner_of(kind(price=100.0), SVI)(KEY, tmaze.initial_belief())
    assert float(plan.control[:, tmaze.EAST].max()) < 1e-2
    assert_close(sum(plan.terms.values()), plan.free_energy[-1], 1e-5)
    assert_close(plan.terms["tax"], 100 * plan.control[:, tmaze.EAST].sum(), 1e-4)
    with pytest.raises(ValueError, match=f"control_cost: found {kind.__name__}"):
        _ = plan.control_cost


@pytest.mark.parametrize("kind", [Taxed, TaxedBySum])
def test_a_closed_form_that_does_not_know_it_is_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match=f"CoordinateSolver: found the objective {kind.__name__}"):
        planner_of(kind(price=100.0), aif.CoordinateSolver())(KEY, tmaze.initial_belief())


@pytest.mark.parametrize("solver", [SVI, aif.CoordinateSolver()], ids=["svi", "coordinate"])
def test_other_priors_go_with_every_solver(solver: Any) -> None:
    plan = planner_of(Curious(), solver)(KEY, tmaze.initial_belief())
    assert int(plan.best_control()) == tmaze.SOUTH
    assert_close(plan.terms["novelty"], -2 * np.log(2), 1e-2)  # at the cue for two steps
    assert float(plan.terms["ambiguity"]) == 0


def test_other_priors_against_brute_force(x64: None) -> None:
    """F of a random posterior, its terms taken from the enumerated joint."""
    random = random_world(6)
    world = world_of(random)
    q = random_temporal(random, np.random.default_rng(0), 0.3)
    joint = oracle.temporal_joint(random.tables, *q)
    posterior = temporal(random, world, q)
    terms = Curious().terms(world, posterior)
    everything = aif.Active().terms(world, posterior)
    planning = oracle.free_energy(joint, random.tables, "planning", "temporal")
    assert_close(sum(terms.values()), planning + float(everything["novelty"]), 1e-8)
    assert_close(terms["novelty"], everything["novelty"], 1e-12)
    assert float(terms["novelty"]) < 0


def test_objectives_with_other_parameters_are_others() -> None:
    for kind in (Taxed, TaxedBySum):
        assert kind(price=1.0) == kind(price=1.0)
        assert kind(price=1.0) != kind(price=2.0)
        assert len({kind(price=1.0), kind(price=1.0), kind(price=2.0)}) == 2
    assert aif.Active() != aif.Active(weight=2.0)
    assert aif.Active() != Curious()
    assert "price=3.0" in repr(Taxed(3.0))
    with pytest.raises(AttributeError):
        aif.Active().weight = 2.0  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(aif.Active(weight=0.5))) == aif.Active(weight=0.5)


def test_novelty_lowers_the_free_energy_everywhere() -> None:
    G = aif.expected_free_energy(tmaze.tmaze, tmaze.initial_belief(), 2)
    assert_close(G.novelty.min(), -np.log(2), 1e-5)  # one look at the cue tells all there is to know
    assert float(G.novelty.max()) <= 1e-6
    assert_close(G.total, G.risk + G.ambiguity + G.novelty, 1e-6)
    plan = planner_of(aif.Active(), aif.CoordinateSolver())(KEY, tmaze.initial_belief())
    assert float(plan.terms["novelty"]) < 0
