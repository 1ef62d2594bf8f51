"""The choice of an agent as a distribution: the softmax of minus the costs of its controls, differentiable."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from npro_aif.belief import Belief
from npro_aif.planning.planner import Planner


def choice_logits(cost: Array, precision: Any) -> Array:
    """−precision · cost, (…, U), and −inf where the cost is infinite; derivatives stay finite."""
    possible = jnp.isfinite(cost)
    scaled = -jnp.asarray(precision)[..., None] * jnp.where(possible, cost, 0.0)
    return jnp.where(possible, scaled, -jnp.inf)


def first_costs_of(planner: Planner, belief: Belief, horizon: Any, key: Array | None = None, elapsed: Any = 0) -> Array:
    """The costs of the first controls from a belief, (U,), or from each belief of a batch, (B, U)."""
    key = jax.random.key(0) if key is None else key
    if jnp.ndim(belief.parameter) == 1:
        return planner.first_cost(key, belief, horizon, elapsed=elapsed)
    count = len(belief.parameter)
    horizons = jnp.broadcast_to(jnp.asarray(planner.max_horizon if horizon is None else horizon), (count,))
    times = jnp.broadcast_to(jnp.asarray(elapsed), (count,))
    return jax.vmap(lambda b, h, t: planner.first_cost(key, b, h, elapsed=t))(belief, horizons, times)


class Choice(dist.CategoricalLogits):
    """The control that an agent chooses: p(u) ∝ exp(−precision · cost(u)), with the cost of u as the first control.

    It is differentiable with respect to the precision and to everything that the plan is made from (preferences,
    beliefs, priors, the weight of the epistemic terms), by the envelope theorem at the plan; see
    :mod:`npro_aif.solvers.envelope`. Choices identify only products: precision × preference and precision × weight.

    :param planner: made inside the NumPyro program if its numbers are sampled there.
    :param belief: where the agent stands; a batch (B, Θ) and (B, Θ, X) is planned at once.
    :param horizon: how many steps the agent looks ahead, the planner's largest by default.
    :param precision: how surely it takes the best control.
    :param key: the key of the solver's initial values.

    >>> import npro_aif as aif
    >>> from npro_aif.models.tmaze import SOUTH, initial_belief, tmaze
    >>> planner = aif.Planner(tmaze, solver=aif.CoordinateSolver(restarts=1), max_horizon=2)
    >>> choice = Choice(planner, initial_belief(), horizon=2, precision=2.0)
    >>> int(choice.probs.argmax()) == SOUTH, choice.log_prob(jnp.array([0, 2])).shape
    (True, (2,))
    """

    def __init__(
        self,
        planner: Planner,
        belief: Belief,
        horizon: Any = None,
        precision: Any = 1.0,
        *,
        key: Array | None = None,
        validate_args: bool | None = None,
    ):
        cost = first_costs_of(planner, belief, horizon, key)
        super().__init__(choice_logits(cost, precision), validate_args=validate_args)
