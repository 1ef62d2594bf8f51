"""How far a backward pass moves each factor: to its exact minimiser, or by a mirror step towards it.

A mirror step of size η minimises what a factor costs plus KL[q ‖ q_old] / η: with costs held it never leads upwards,
and for η → ∞ it is the exact minimiser.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax.numpy as jnp
from jax import Array

from npro_aif.numerics import masked_log_softmax
from npro_aif.tables.kernels import Transition

TIE = 1e-5  # controls whose costs differ by less, in nats, are tied and share,
ROUNDING = 16  # or by less than so many times the rounding of the costs themselves
FLOOR = -27.6  # log 1e-12: the least log π that a mirror step starts from, so that every control can come back


class Step(Protocol):
    """What becomes of each factor, given what its values cost."""

    def control(self, cost: Array, allowed: Array, old: Array) -> Array:
        """log π of costs (P, U), and the old log π."""
        ...

    def normalized(self, policy: Array) -> Array:
        """log π of all steps, (T, P, U), with rows that sum to one whatever rounding did to them."""
        ...

    def state(self, kernel: Transition, cost: Array, old: Transition) -> tuple[Transition, Array]:
        """q(x'|x,u,θ) of costs (Θ, X|1, U|1, X'), and what it costs: KL[q ‖ p] + E_q[cost], (Θ, X, U)."""
        ...

    def parameter(self, prior: Array, cost: Array, old: Array) -> Array:
        """log q(θ) of log p(θ) and costs (Θ,)."""
        ...


class Exact(NamedTuple):
    """Each factor's minimiser."""

    correction: bool  # whether the policy's entropy does not count
    rounding: int = ROUNDING  # of ties

    def control(self, cost: Array, allowed: Array, old: Array) -> Array:
        return least(cost, allowed, self.rounding) if self.correction else masked_log_softmax(-cost, allowed)

    def normalized(self, policy: Array) -> Array:
        return policy if self.correction else normalized_rows(policy)  # equal shares have no rounding of costs in them

    def state(self, kernel: Transition, cost: Array, old: Transition) -> tuple[Transition, Array]:
        return kernel.tilt(cost)

    def parameter(self, prior: Array, cost: Array, old: Array) -> Array:
        return masked_log_softmax(prior - cost, prior > -jnp.inf)


class Mirror(NamedTuple):
    """A step towards it, where the policy's entropy does not count."""

    size: Array  # () η; infinite for the minimiser itself

    @property
    def share(self) -> Array:
        """η / (1 + η), (): how far the logarithms of a factor whose entropy counts go towards the minimiser's."""
        finite = jnp.where(jnp.isinf(self.size), 0.0, self.size)
        return jnp.where(jnp.isinf(self.size), 1.0, finite / (1 + finite))

    def control(self, cost: Array, allowed: Array, old: Array) -> Array:
        finite = jnp.where(jnp.isinf(self.size), 0.0, self.size)
        above = jnp.where(allowed, cost - jnp.where(allowed, cost, jnp.inf).min(-1, keepdims=True), 0.0)
        moved = masked_log_softmax(jnp.maximum(old, FLOOR) - finite * above, allowed)
        return jnp.where(jnp.isinf(self.size), least(cost, allowed), moved)

    def normalized(self, policy: Array) -> Array:
        return normalized_rows(policy)

    def state(self, kernel: Transition, cost: Array, old: Transition) -> tuple[Transition, Array]:
        held = log_ratio(old.table(), kernel.table())
        moved = kernel.learned((1 - self.share) * held - self.share * (cost - cost.min(-1, keepdims=True)))
        return moved, moved.divergence(kernel) + moved.expect(cost)  # type: ignore[return-value]

    def parameter(self, prior: Array, cost: Array, old: Array) -> Array:
        held = log_ratio(old, prior)
        return masked_log_softmax(prior + (1 - self.share) * held - self.share * cost, prior > -jnp.inf)


def normalized_rows(policy: Array) -> Array:
    """log π with rows that sum to one; what is impossible stays so."""
    return masked_log_softmax(policy, policy > -jnp.inf)


def log_ratio(q: Array, p: Array) -> Array:
    """log q − log p, zero where p is zero, and not below where an exponential is."""
    possible = p > -jnp.inf
    return jnp.where(possible, jnp.maximum(q, -100.0) - jnp.where(possible, p, 0.0), 0.0)


def least(cost: Array, allowed: Array, rounding: int = ROUNDING) -> Array:
    """log of the policy that takes the cheapest control; ties share equally."""
    cost = jnp.where(allowed, cost, jnp.inf)
    lowest = cost.min(-1, keepdims=True)
    unseen = TIE + rounding * jnp.finfo(cost.dtype).eps * jnp.abs(lowest)
    tied = (cost <= lowest + unseen) & allowed
    return jnp.where(tied, -jnp.log(tied.sum(-1, keepdims=True)), -jnp.inf)
