"""How surprising a move is while θ is unknown: −log m(x'|x,u), m being the next state with θ summed out.

Its average over next states, Σ_x' p(x'|x,u,θ) (−log m(x'|x,u)), is the derivative of q(x) H[q(x'|x,u)]
(:meth:`~npro_aif.tables.kernels.Transition.spread`) with respect to q(θ,x); kernels without a faster way use that.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.numerics import divide, safe_log
from npro_aif.tables.layout import contract

BOUND = 50.0  # nats: the surprise of a move that is held impossible


def derivative(spread: Callable[[Array], Array], weight: Array) -> Array:
    """The derivative of each row of spreads (U|1, P) with respect to the weight (S, Θ): (U|1, S, Θ)."""
    value, back = jax.vjp(spread, weight)
    return jax.vmap(lambda u: back(jnp.zeros_like(value).at[u].set(1.0))[0])(jnp.arange(len(value)))


def log_share(part: Array, whole: Array) -> Array:
    """log(part / whole), not below −BOUND; zero where there is nothing."""
    return jnp.where(whole > 0, jnp.maximum(safe_log(divide(part, whole)), -BOUND), 0.0)


def log_mixture(log: Array, weight: Array) -> Array:
    """log m(x'|x,u) under the weight q(θ,x), (X, Θ), where states are learned: (X, U|1, X').

    :param log: log p(x'|x,u,θ) of a slice as a table, (Θ|1, X|1, U|1, X').
    """
    flow = contract("xuk", (weight, "xi"), (jnp.exp(log), "ixuk"))
    return log_share(flow, flow.sum(-1, keepdims=True))
