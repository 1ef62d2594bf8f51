"""Controls that change nothing may be left out of a search, but not where the best is to wait for ever.

Worlds with a hidden parameter, a control that waits, and two that may show something at a price, beside a tree of
beliefs in plain NumPy.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import npro_aif as aif
from tests.search_worlds import entropy
from tests.support import assert_close

pytestmark = pytest.mark.usefixtures("quick_compile", "x64")

WORLDS, THETAS, CONTROLS, HORIZON = 20, 3, 3, 4
OBJECTIVES = (aif.Planning(), aif.Active(entropy=0), aif.Active(weight=0.1, entropy=0))


class Family(NamedTuple):
    """Random worlds by their parameters, Θ = worlds × 3; the last step may have tables of its own."""

    sight: np.ndarray  # (2, Θ, U, Y) before the last step, and at it
    price: np.ndarray  # (2, Θ, U)

    def __hash__(self) -> int:
        return id(self)

    def model(self, belief: aif.Belief, horizon: int = HORIZON) -> None:
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        x = aif.state("x", dist.Categorical(probs=belief.state[theta]))
        sight, price = jnp.asarray(self.sight), jnp.asarray(self.price)

        def step(x: Any, t: Any) -> Any:
            last = jnp.where(t == horizon, 1, 0)
            u = aif.control("u", dist.Categorical(probs=jnp.full(CONTROLS, 1 / CONTROLS)))
            x = aif.state("x", aif.DeterministicCategorical(0 * u, 1))
            aif.observation("y", dist.Categorical(probs=sight[last, theta, u]))
            aif.preference("price", -price[last, theta, u])
            return x

        aif.rollout(step, x, horizon)

    def optimum(self, belief: np.ndarray, steps: int, ambiguity: float, novelty: float) -> float:
        """The least cost of a policy of everything, (Θ,) → (), by a tree of beliefs."""
        if steps == 0:
            return 0.0
        sight, price = (table[int(steps == 1)] for table in (self.sight, self.price))
        costs = []
        for u in range(CONTROLS):
            seen = belief[:, None] * sight[:, u]  # (Θ, Y)
            noise = float(belief @ [entropy(row) for row in sight[:, u]])
            told = entropy(seen.sum(0)) - noise
            later = sum(
                p * self.optimum(after / p, steps - 1, ambiguity, novelty)
                for after, p in zip(seen.T, seen.sum(0), strict=True)
                if p > 0
            )
            costs.append(np.log(CONTROLS) + belief @ price[:, u] + ambiguity * noise - novelty * told + later)
        return float(min(costs))


@functools.cache
def family(*, free: bool, own_last: bool) -> Family:
    """Random worlds.

    :param free: whether waiting is free everywhere; otherwise everything has a random price.
    :param own_last: whether sights and prices of the last step are others.
    """
    rng = np.random.default_rng(3)
    size = WORLDS * THETAS
    sight = rng.dirichlet(np.full(2, 0.7), (2, size, CONTROLS))
    certain = np.repeat(rng.random(WORLDS) < 0.5, THETAS)
    sight[:, certain] = np.eye(2)[rng.integers(2, size=(2, certain.sum(), CONTROLS))]
    sight[0, :, 0] = [1.0, 0.0]
    price = 0.3 * rng.normal(size=(2, size, CONTROLS))
    if free:
        price = np.abs(price)
        price[:, :, 0] = 0.0
    if not own_last:
        sight[1], price[1] = sight[0], price[0]
    return Family(sight, price)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=["planning", "active", "weight=.1"])
@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("own_last", [True, False])
def test_waiting(objective: Any, free: bool, own_last: bool) -> None:
    worlds, waited = family(free=free, own_last=own_last), 0
    weight = getattr(objective, "weight", 0.0)
    planner = aif.Planner(worlds.model, aif.guides.RecallGuide(worlds.model), objective, max_horizon=HORIZON)
    for world in range(WORLDS):
        parameter = np.zeros(WORLDS * THETAS)
        parameter[world * THETAS :][:THETAS] = np.random.default_rng(world).dirichlet(np.ones(THETAS))
        belief = aif.Belief(jnp.asarray(parameter), jnp.ones((len(parameter), 1)))
        plan = planner(jax.random.key(0), belief)
        expected = worlds.optimum(parameter, HORIZON, weight, weight)
        assert plan.info.optimal
        assert_close(plan.info.lower, expected, 1e-9, world)
        assert_close(plan.info.upper, expected, 1e-9, world)
        waited += bool(plan.control[:, 0].min() > 0.999)
    if free and not own_last and weight == 0:
        assert waited > WORLDS / 2  # it never pays to look
