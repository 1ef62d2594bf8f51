"""Draws as a parameter against a program that has them as one, grids of continuous numbers, counts."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import condition, seed, substitute, trace

import npro_aif as aif
from npro_aif.models.tmaze import (
    CUE,
    NORTH,
    SOUTH,
    cue_probabilities,
    goal_preference,
    initial_belief,
    tmaze,
    transitions,
)

pytestmark = pytest.mark.usefixtures("quick_compile")
KEY = jax.random.key(0)
ACCURACY = np.array([0.55, 0.7, 0.95])
GAMMA = np.array([2.0, 4.0, 3.0])


def by_hand(belief: aif.Belief, horizon: int = 2) -> None:
    """The T-maze with draws of accuracy and preference as a program of its own."""
    cue = jnp.stack([jnp.asarray(cue_probabilities(a)) for a in ACCURACY])
    goal = jnp.stack([jnp.asarray(goal_preference(g)) for g in GAMMA])
    sites: Any = aif.parameters({"draw": 3, "theta": 2}, belief.parameter)
    draw, theta = sites["draw"], sites["theta"]
    x = aif.state("x", dist.Categorical(probs=belief.state[2 * draw + theta]))

    def step(x: Any, t: Any) -> Any:
        u = aif.control("u", dist.Categorical(probs=jnp.full(4, 0.25)))
        x = aif.state("x", aif.DeterministicCategorical(jnp.asarray(transitions())[x, u], 5))
        aif.observation("cue", dist.Categorical(probs=cue[draw, x, theta]))
        aif.observation("place", aif.DeterministicCategorical(x, 5), plan=False)
        aif.preference("goal", jnp.where(t == horizon, goal[draw, x, theta], 0.0))
        return x

    aif.rollout(step, x, horizon)


def test_draws_are_a_parameter() -> None:
    maze = aif.with_draws(tmaze, {"cue_accuracy": ACCURACY, "gamma": GAMMA})
    belief = maze.belief(initial_belief())
    solver = aif.CoordinateSolver(restarts=1)
    plans = [
        aif.Planner(model, objective=aif.Active(), solver=solver, max_horizon=2)(KEY, belief, horizon=2)
        for model in (maze, by_hand)
    ]
    np.testing.assert_allclose(plans[0].free_energy[-1], plans[1].free_energy[-1], rtol=1e-5)
    np.testing.assert_allclose(plans[0].control_cost, plans[1].control_cost, rtol=1e-5)
    seen = {"cue": 1, "place": CUE}
    after = [aif.update_belief(model, belief, SOUTH, seen) for model in (maze, by_hand)]
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), *after)
    np.testing.assert_allclose(
        aif.log_evidence(maze, belief, [SOUTH, NORTH], {"cue": [1, 0]}),
        aif.log_evidence(by_hand, belief, [SOUTH, NORTH], {"cue": [1, 0]}),
        rtol=1e-5,
    )
    with numpyro.validation_enabled(False):
        sites = trace(seed(maze, 0)).get_trace(belief, horizon=1)
    assert list(sites) == ["draw", "theta", "x_0", "u_1", "x_1", "cue_1", "goal_1"]


def test_wrong_draws_are_refused() -> None:
    for draws, num, what in (
        ({}, None, "found none"),
        ({"accuracy": ACCURACY}, None, "found 'accuracy'"),
        ({"cue_accuracy": ACCURACY, "gamma": GAMMA[:2]}, None, "found lengths"),
        ({"cue_accuracy": ACCURACY}, 4, "num: found 4"),
    ):
        with pytest.raises(ValueError, match=what):
            aif.with_draws(tmaze, draws, num)
    with pytest.raises(aif.ModelError, match="expected a multiple of the 3 draws"):
        aif.update_belief(aif.with_draws(tmaze, {"cue_accuracy": ACCURACY}), initial_belief(), 0, None)


def test_a_grid_has_the_moments() -> None:
    for distribution in (dist.Beta(8, 2), dist.Normal(1.0, 2.0), dist.Gamma(3.0, 1.0)):
        grid = aif.discretize(distribution, 60)
        mean = float(grid.values @ grid.probs)
        np.testing.assert_allclose(mean, distribution.mean, rtol=2e-3)
        np.testing.assert_allclose(((grid.values - mean) ** 2) @ grid.probs, distribution.variance, rtol=0.06)
        assert (np.diff(grid.values) > 0).all()


def test_a_continuous_site_that_is_given() -> None:
    def maze(belief: aif.Belief, horizon: int = 2, given: Any = None) -> None:
        accuracy = numpyro.sample("accuracy", dist.Beta(8, 2), obs=given)
        tmaze(belief, horizon, cue_accuracy=accuracy)

    expected = aif.update_belief(functools.partial(tmaze, cue_accuracy=0.7), initial_belief(), SOUTH, {"cue": 1})
    models = (
        functools.partial(maze, given=jnp.asarray(0.7)),
        condition(maze, {"accuracy": jnp.asarray(0.7)}),
        substitute(maze, {"accuracy": jnp.asarray(0.7)}),
    )
    for model in models:
        found = aif.update_belief(model, initial_belief(), SOUTH, {"cue": 1})
        np.testing.assert_allclose(found.parameter, expected.parameter, rtol=1e-6)
    with pytest.raises(aif.ModelError, match=r"site 'accuracy': found Beta.*discretize"):
        aif.update_belief(maze, initial_belief(), SOUTH, {"cue": 1})


def test_counts_are_the_posterior_of_a_dirichlet_prior() -> None:
    """Against the evidence of the same episode: p(next | seen) is a ratio of two evidences, averaged over draws."""
    counts = aif.Counts(jnp.array([[0.5, 1.5]]))
    seen = jnp.array([1, 1, 0, 1, -1])
    after = counts.learn((jnp.zeros(5, int),), seen)
    np.testing.assert_allclose(after.alpha, [[1.5, 4.5]])
    draws = counts.draw(KEY, 40_000)[:, 0]  # importance weights: the likelihood of what was seen
    weight = np.asarray(draws[:, 0] * draws[:, 1] ** 3)
    np.testing.assert_allclose(after.mean[0, 1], (weight * draws[:, 1]).sum() / weight.sum(), atol=5e-3)
