"""The derivatives of F_active's epistemic terms with respect to the masses of a slice, as costs.

With raw priors these terms are a function of the masses alone (homogeneous of degree one, so that the costs add up to
the terms again), and their derivatives are

    at (x,u,x',θ):  w_entropy · log m_t(v'|v,m,u)        m_t: the next visible state, everything unseen summed out
    at (x',m,u,θ):  w_ambiguity · H[y|x',u,θ] − w_novelty · KL[p(y|x',u,θ) ‖ q_t(y|v',m,u)]

(without memory and hidden states x' stands for v', and u is summed out in the second).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.inference.epistemic import EpistemicCosts, counts
from npro_aif.inference.objectives import Objective
from npro_aif.inference.temporal import Slice
from npro_aif.tables.surprise import log_mixture


def told(now: Slice, objective: Objective) -> tuple[Array, EpistemicCosts]:
    """The cost of observations at each arrival, (A, Θ), and the epistemic costs of the slice."""

    def cost(arrived: Array) -> tuple[Array, EpistemicCosts]:
        part = now._replace(flow=now.flow._replace(arrived=arrived))
        costs = objective.costs(part)
        assert costs is not None
        return (part.state() * (costs.ambiguity + costs.novelty)).sum(), costs

    return jax.grad(cost, has_aux=True)(now.flow.arrived)


def moved(now: Slice, objective: Objective) -> Array:
    """The cost of each move on average over its next states, (U|1, S|1, Θ|1)."""
    if not counts(objective.weights.entropy):
        return jnp.zeros((1, 1, 1), now.flow.before.dtype)
    return -objective.weights.entropy * now.loop.surprise(now.kernel, now.flow.before)


def moved_to(now: Slice, objective: Objective) -> Array:
    """The cost of each move by its next state, in an open loop: (1, X, U|1, X')."""
    return objective.weights.entropy * log_mixture(now.kernel.table(), now.flow.before)[None]
