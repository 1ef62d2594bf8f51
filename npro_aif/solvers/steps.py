"""The step of each factor in a backward pass: to its exact minimiser, or a mirror step towards it.

A mirror step of size η minimises the cost of a factor plus KL[q ‖ q_old] / η: with costs held F never rises, and for
η → ∞ it is the exact minimiser.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.numerics import masked_log_softmax, sum_last
from npro_aif.tables.kernels import Transition

TIE = 1e-5  # controls are tied, and share, if their costs differ by less than this, in nats,
ROUNDING = 16  # or by less than this many times the rounding error of the costs themselves
FLOOR = -27.6  # log 1e-12: the least log π from which a mirror step starts, so that every control can come back


class Step(Protocol):
    """The new value of each factor, given the costs of its values."""

    def control(self, cost: Array, allowed: Array, old: Array) -> Array:
        """log π from costs (P, U) and the old log π."""
        ...

    def normalized(self, policy: Array) -> Array:
        """log π of all steps, (T, P, U), with rows that sum to one despite rounding."""
        ...

    def state(self, kernel: Transition, cost: Array, old: Transition) -> tuple[Transition, Array]:
        """q(x'|x,u,θ) from costs (Θ, X|1, U|1, X'), and its own cost KL[q ‖ p] + E_q[cost], (Θ, X, U)."""
        ...

    def parameter(self, prior: Array, cost: Array, old: Array) -> Array:
        """log q(θ) from log p(θ) and costs (Θ,)."""
        ...


class Exact(NamedTuple):
    """Each factor's minimiser."""

    correction: bool  # True if the planning correction cancels the policy's entropy

    def control(self, cost: Array, allowed: Array, old: Array) -> Array:
        return least(cost, allowed) if self.correction else masked_log_softmax(-cost, allowed)

    def normalized(self, policy: Array) -> Array:
        return policy if self.correction else normalized_rows(policy)  # equal shares carry no rounding error of costs

    def state(self, kernel: Transition, cost: Array, old: Transition) -> tuple[Transition, Array]:
        return kernel.tilt(cost)

    def parameter(self, prior: Array, cost: Array, old: Array) -> Array:
        return masked_log_softmax(prior - cost, prior > -jnp.inf)


class Mirror(NamedTuple):
    """A step towards the minimiser, where the planning correction cancels the policy's entropy."""

    size: Array  # () η; infinite for the minimiser itself

    @property
    def share(self) -> Array:
        """η / (1 + η), (): the share of the way of a factor's logarithms to the minimiser's, if its entropy counts."""
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
        held = log_ratio(old.entries()[1], kernel.entries()[1])
        above = kernel.at_entries(cost - cost.min(-1, keepdims=True))
        moved = kernel.learned((1 - self.share) * held - self.share * above)
        return moved, moved.divergence(kernel) + moved.expect(cost)  # type: ignore[return-value]

    def parameter(self, prior: Array, cost: Array, old: Array) -> Array:
        held = log_ratio(old, prior)
        return masked_log_softmax(prior + (1 - self.share) * held - self.share * cost, prior > -jnp.inf)


def normalized_rows(policy: Array) -> Array:
    """log π with rows that sum to one; impossible controls stay impossible."""
    return masked_log_softmax(policy, policy > -jnp.inf)


def log_ratio(q: Array, p: Array) -> Array:
    """log q − log p: zero where p is zero, and bounded below so that its exponential does not underflow."""
    possible = p > -jnp.inf
    return jnp.where(possible, jnp.maximum(q, -100.0) - jnp.where(possible, p, 0.0), 0.0)


def least(cost: Array, allowed: Array) -> Array:
    """log of the policy that takes the cheapest control; ties share equally."""
    cost = jnp.where(allowed, cost, jnp.inf)
    lowest = cost.min(-1, keepdims=True)
    tied = (cost <= highest_tied(lowest, ROUNDING)) & allowed
    return jnp.where(tied, -jnp.log(tied.sum(-1, keepdims=True)), -jnp.inf)


def highest_tied(lowest: Array, rounding: int) -> Array:
    """The highest cost that counts as equal to the lowest one."""
    return lowest + TIE + rounding * jnp.finfo(lowest.dtype).eps * jnp.abs(lowest)


class Decision(NamedTuple):
    """The minimiser of a policy that sees everything, from costs (U, P), and its own cost.

    As nothing unseen has to follow the policy, its cost to go is the least cost, whichever of the tied controls share.
    In a loop over time XLA may compute costs several times, each with its own rounding: here none of them has to fit to
    another, so that sums need not be kept apart, which takes most of the time of a step.
    """

    control: Array  # (U, P) log π before :func:`decided`
    cost: Array  # (P,) E_π[cost], with E_π[log π] where the policy's entropy counts

    @classmethod
    def of(cls, cost: Array, *, correction: bool) -> Decision:
        """The decision between costs (U, P), infinite where a control is not allowed."""
        if correction:
            lowest = cost.min(0)  # over hundreds of steps the cost of shared ties adds up: no more than rounding
            tied = (cost <= highest_tied(lowest, 1)) & (cost < jnp.inf)
            return cls(jnp.where(tied, 0.0, -jnp.inf), lowest)
        value = -jax.nn.logsumexp(-cost, axis=0)
        return cls(value - cost, value)


def decided(policy: Array, *, correction: bool) -> Array:
    """log π of all steps, (T, P, U), with rows that sum to one; with the planning correction, equal shares."""
    if not correction:
        return normalized_rows(policy)
    possible = policy > -jnp.inf
    return jnp.where(possible, -jnp.log(sum_last(possible.astype(policy.dtype)))[..., None], -jnp.inf)
