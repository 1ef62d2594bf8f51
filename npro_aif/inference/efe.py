"""The expected free energy G(u) of every plan, by enumeration: the oracle behind the proposition.

    G(u) = E[log q(x|u) − log p̂(x)] + E[H[q(y|x,θ)]] − E[KL[q(θ|y,x) ‖ q(θ|x)]]      (risk + ambiguity + novelty)

For ``Active(planning_correction=False)`` F = E_q[G] + complexity + E_q[log q(u) + P(u)], so that the best posterior
over plans is q*(u) = σ(−P − G − C).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.belief import Belief
from npro_aif.inference.sequence import (
    SequencePosterior,
    SequenceTables,
    digits,
    mass,
    sequence_evidence,
    sequence_tables,
)
from npro_aif.numerics import divide, mul_log, neg_entropy
from npro_aif.program.program import Fixed, Program, program_of
from npro_aif.sizes import MOST_ENUMERATED_ENTRIES


class ExpectedFreeEnergy(NamedTuple):
    """G and its parts for every plan; plans in C order with t = 1 slowest.

    >>> zero = jnp.zeros(2)
    >>> G = ExpectedFreeEnergy(jnp.array([[0], [1]]), jnp.array([3.0, 1.0]), zero, -jnp.array([0.0, 0.5]), zero, zero)
    >>> G.total.tolist(), G.best(1).tolist()
    ([3.0, 0.5], [1])
    """

    plans: Array  # (N, T) the controls (flat over the control sites)
    risk: Array  # (N,) E[log q(x|u)/p̂(x)], preferences on u and y included
    ambiguity: Array  # (N,) E[H[q(y|x,θ)]]
    novelty: Array  # (N,) −E[KL[q(θ|y,x) ‖ q(θ|x)]]: expected learning lowers G
    complexity: Array  # (N,) C(u) = E[log q(y,x,θ|u) − log p(y,x,θ|u)]
    plan_prior: Array  # (N,) P(u) = −E[log p(u)]

    @property
    def total(self) -> Array:
        """G(u), (N,)."""
        return self.risk + self.ambiguity + self.novelty

    def posterior(self) -> Array:
        """q*(u) = σ(−P − G − C), (N,)."""
        return jax.nn.softmax(-self.plan_prior - self.total - self.complexity)

    def best(self, count: int = 5) -> Array:
        """The indices of the plans with the lowest G, best first."""
        return jnp.argsort(self.total)[:count]


def expected_free_energy(
    model: Callable[..., Any], belief: Belief, horizon: int, posterior: SequencePosterior | None = None
) -> ExpectedFreeEnergy:
    """G(u) for every plan of ``horizon`` steps.

    :param posterior: a posterior of a sequence guide, under which expectations are taken; by default they are taken
        under the model's own predictions.

    >>> from npro_aif.models.tmaze import tmaze, initial_belief
    >>> G = expected_free_energy(tmaze, initial_belief(), horizon=2)
    >>> G.total.shape, int(G.plans[G.best(1)[0], 0])  # 16 plans; the best goes South, to the cue
    ((16,), 2)
    """
    program = program_of(model, belief, horizon)
    signature = program.signature
    entries = (
        (signature.num_controls * signature.num_states * signature.num_observations) ** int(horizon)
    ) * signature.num_parameters
    if entries > MOST_ENUMERATED_ENTRIES:
        raise ValueError(
            f"horizon: enumerating plans would take {entries:,} entries at horizon {horizon}, expected at most "
            f"{MOST_ENUMERATED_ENTRIES:,}"
        )
    plans = jnp.asarray(digits(signature.num_controls, int(horizon)))
    if posterior is not None:
        return ExpectedFreeEnergy(plans, *jax.jit(_under_posterior)(posterior))
    return ExpectedFreeEnergy(plans, *_model_terms(program)(program.fixed, belief))


@functools.lru_cache(maxsize=64)
def _model_terms(program: Program) -> Callable[[Fixed, Belief], tuple[Array, ...]]:
    """The terms of every plan, compiled once for a program (and so for a horizon)."""

    def under_model(fixed: Fixed, belief: Belief) -> tuple[Array, ...]:
        world = program.bind(fixed, belief, program.num_steps)
        return _under_model(sequence_tables(world, program.num_steps, chosen=True))

    return jax.jit(under_model)


def _under_posterior(posterior: SequencePosterior) -> tuple[Array, ...]:
    tables, q = posterior.tables, mass(posterior)
    states = q.moved  # (N_u, N_x) q(x|u)
    evidence = sequence_evidence(q, posterior.emission)

    def average(table: Array) -> Array:
        """E_q(x,θ|u) of a table (Θ|1, N_u|1, N_x|1)."""
        per_state = mul_log(q.parameter.T[:, None, :], table).sum(0)  # (N_u|1, N_x)
        return mul_log(states, jnp.broadcast_to(per_state, states.shape)).sum(1)

    plan, dynamics, moves = (average(tables.whole(factor)) for factor in (tables.plan, tables.states, tables.moves))
    cost = -(q.emission * tables.outcomes).sum((1, 2))  # (N_x,)
    gap = mul_log(q.emission, posterior.emission - tables.emission).sum((1, 2))
    novelty = -(states @ (evidence.observation * evidence.gain).sum(1))
    risk, complexity = states @ cost - q.entropy - moves, states @ gap - q.entropy - dynamics
    return risk, states @ evidence.ambiguity, novelty, complexity, -plan


def _under_model(tables: SequenceTables) -> tuple[Array, ...]:
    """The model's own predictions: q(x|u) = p(x|u), q(y,θ|x,u) = p(y,θ|x,u), one plan at a time."""
    emission = jnp.exp(tables.emission)  # (N_x, N_y, Θ) p(θ) p(y|x,θ)
    parameter = emission.sum(1)  # (N_x, Θ) p(θ)
    entropy = -neg_entropy(divide(emission, parameter[:, None, :])).sum(1)  # (N_x, Θ) H[p(y|x,θ)]

    def one(inputs: tuple[Array, Array, Array]) -> tuple[Array, ...]:
        plan, states, moves = inputs  # (Θ|1, N_x|1), (Θ|1, N_x), (Θ|1, N_x)
        reach = jnp.exp(states).T * jnp.ones_like(parameter)  # (N_x, Θ) p(x|u,θ)
        joint = reach[:, None, :] * emission  # (N_x, N_y, Θ) p(x,y,θ|u)
        with_theta, with_y = joint.sum(1), joint.sum(2)  # (N_x, Θ), (N_x, N_y)
        state = with_theta.sum(1)
        risk = neg_entropy(state).sum() - (with_theta * moves.T).sum() - (joint * tables.outcomes).sum()
        ambiguity = (with_theta * entropy).sum()
        gained, known = neg_entropy(joint).sum() - neg_entropy(with_y).sum(), neg_entropy(with_theta).sum()
        novelty = known - gained - neg_entropy(state).sum()
        prior = -mul_log(with_theta, jnp.broadcast_to(plan.T, with_theta.shape)).sum()
        return risk, ambiguity, novelty, jnp.zeros(()), prior

    num_plans, whole = len(tables.controls), map(tables.whole, (tables.plan, tables.states, tables.moves))
    per_plan = [jnp.moveaxis(jnp.broadcast_to(t, (t.shape[0], num_plans, t.shape[2])), 1, 0) for t in whole]
    return jax.lax.map(one, tuple(per_plan))
