"""The T-maze as published: first controls of each objective with the sequence guide, 1500 Adam steps at 0.05.

The figures are acceptance figures, measured with two independent implementations before this one. Columns are
North, East, South, West.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import jax
import numpy as np
import optax
import pytest

import npro_aif as aif
from npro_aif.models.tmaze import CUE, NORTH, SOUTH, initial_belief, tmaze

pytestmark = pytest.mark.optimised

NUM_STEPS, LEARNING_RATE = 1500, 0.05
PAPER = aif.Active(normalize=True, gradient="through", planning_correction=False)
STAYS = (0.2225, 0.259, 0.259, 0.259)  # at the cue: going North, the only way out, is the least likely
Where = Literal["start", "cue"]


def with_shortcut(belief: aif.Belief, horizon: int = 4) -> None:
    """The maze of the paper's code, where South from an arm leads to the start."""
    tmaze(belief, horizon, arm_shortcut=True)


@functools.lru_cache(maxsize=1)  # seeds follow each other and share what was compiled
def planner_of(model: Any, objective: Any, support: Any) -> aif.Planner:
    guide = aif.guides.SequenceGuide(model, support=support)
    return aif.Planner(model, guide, objective, aif.SVISolver(optax.adam(LEARNING_RATE), NUM_STEPS))


def plan_of(model: Any, objective: Any, support: Any = "model", where: Where = "start", seed: int = 0) -> aif.Plan:
    """A plan at the start with θ unknown and four steps to go, or at the cue with θ known and three."""
    belief, horizon = (initial_belief(), 4) if where == "start" else (initial_belief(CUE, theta=0), 3)
    plan = planner_of(model, objective, support)(jax.random.key(seed), belief, horizon)
    assert np.isfinite(plan.free_energy).all()
    return plan


def first_control(*arguments: Any, **settings: Any) -> np.ndarray:
    """q(u_1) of :func:`plan_of`."""
    return np.asarray(plan_of(*arguments, **settings).control[0])


# The default objective


@pytest.mark.parametrize(("where", "control"), [pytest.param("start", SOUTH, marks=pytest.mark.slow), ("cue", NORTH)])
def test_active_visits_the_cue_and_leaves_it(where: Where, control: int) -> None:
    assert first_control(tmaze, aif.Active(), where=where)[control] > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("support", ["model", "all"])
@pytest.mark.parametrize("gradient", ["fixed", "through"])
@pytest.mark.parametrize("normalize", [False, True])
def test_so_does_every_corrected_objective(normalize: bool, gradient: Any, support: str) -> None:
    """For three seeds; with the paper's other switches one of them ends in a worse optimum, at the start."""
    objective = aif.Active(normalize=normalize, gradient=gradient)
    plans = [plan_of(tmaze, objective, support, "start", seed) for seed in range(3)]
    best = min(plans, key=lambda plan: float(plan.free_energy[-1]))
    for plan in plans:
        worse = float(plan.free_energy[-1]) > float(best.free_energy[-1]) + 0.5
        assert float(plan.control[0, SOUTH]) > 0.99 or (
            worse and (normalize, gradient, support) == (True, "through", "all")
        )
    assert float(best.control[0, SOUTH]) > 0.99
    for seed in range(3):
        assert first_control(tmaze, objective, support, "cue", seed)[NORTH] > 0.99


# The paper's switches


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (with_shortcut, (0.217, 0.197, 0.389, 0.197)),
        (tmaze, (0.285, 0.188, 0.339, 0.188)),
    ],
    ids=["code", "text"],
)
@pytest.mark.slow
def test_the_papers_active_prefers_the_cue(model: Any, expected: tuple[float, ...]) -> None:
    found = first_control(model, PAPER, "all")
    np.testing.assert_allclose(found, expected, atol=0.03)
    assert found.argmax() == SOUTH


def test_the_papers_active_leaves_the_cue() -> None:
    assert first_control(tmaze, PAPER, "all", "cue")[NORTH] > 0.75


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (with_shortcut, (0.434, 0.240, 0.086, 0.240)),
        (tmaze, (0.508, 0.213, 0.065, 0.213)),
    ],
    ids=["code", "text"],
)
@pytest.mark.slow
def test_marginal_goes_ahead_without_looking(model: Any, expected: tuple[float, ...]) -> None:
    np.testing.assert_allclose(first_control(model, aif.Marginal(), "all"), expected, atol=0.01)


@pytest.mark.slow
def test_planning_is_decided() -> None:
    """Which of the tied plans it takes depends on the seed."""
    assert first_control(with_shortcut, aif.Planning(), "all").max() > 0.98
    assert first_control(tmaze, aif.Planning(), "model").max() > 0.98


# What never leaves the cue


@pytest.mark.slow
@pytest.mark.parametrize(
    ("normalize", "gradient", "support"),
    [
        (True, "through", "model"),  # the paper's switches on restricted tables
        (False, "fixed", "model"),
        (False, "fixed", "all"),
        (False, "through", "model"),
        (False, "through", "all"),
        (True, "fixed", "model"),
        (True, "fixed", "all"),
    ],
)
def test_other_uncorrected_objectives_visit_the_cue_and_stay(normalize: bool, gradient: Any, support: str) -> None:
    objective = aif.Active(normalize=normalize, gradient=gradient, planning_correction=False)
    np.testing.assert_allclose(first_control(tmaze, objective, support), (0.268, 0.175, 0.382, 0.175), atol=0.03)
    found = first_control(tmaze, objective, support, "cue")
    np.testing.assert_allclose(found, STAYS, atol=0.03)
    assert found.argmin() == NORTH
