"""The temporal posterior q(θ) p(x0|θ) Π_t q(u_t|x_{t-1}) q(x_t|x_{t-1},u_t,θ) q(y_t|x_t,θ), and its free energy.

Everything is one forward pass over time; the cost is linear in the horizon. :func:`flow` is one slice of
that pass, and serves the free energy, the marginals and the coordinate solver alike.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.epistemic import EpistemicCosts, EpistemicPriors, epistemic_costs, epistemic_priors
from npro_aif.kernels import Evidence, Kernel, time_slice
from npro_aif.numerics import divide, hold, mul_log
from npro_aif.objectives import Objective
from npro_aif.world import World


class TemporalPosterior(NamedTuple):
    """q as conditional tables, one for each factor and time."""

    parameter: Array  # (Θ,) log q(θ)
    initial: Array  # (Θ, X) log p(x0|θ)
    control: Array  # (T, X, U) log q(u_t|x_{t-1})
    state: Kernel  # (T|1, Θ|1, X|1, U|1, X') q(x_t|x_{t-1},u_t,θ); the world's own where it is not learned
    observation: dict[str, Kernel]  # by site, (T|1, Θ|1, X, Y) q(y_t|x_t,θ)

    def terms(self, world: World, objective: Objective) -> dict[str, Array]:
        return temporal_terms(world, self, objective)

    def marginals(self, world: World) -> Marginals:
        return temporal_marginals(world, self)


class Flow(NamedTuple):
    """The mass that moves through one time slice."""

    before: Array  # (Θ, X) q(θ, x_{t-1})
    joint: Array  # (Θ, X, U) q(θ, x_{t-1}, u_t)
    mass: Array  # (X, U) q(x_{t-1}, u_t)
    after: Array  # (Θ, X') q(θ, x_t)


class Marginals(NamedTuple):
    """Marginals of a posterior; rows beyond the horizon repeat the last state and are zero elsewhere."""

    control: Array  # (T, U) q(u_t)
    policy: Array  # (T, X, U) q(u_t|x_{t-1})
    state: Array  # (T+1, X) q(x_t)
    parameter: Array  # (Θ,) q(θ)
    observation: dict[str, Array]  # by site, (T, Y) q(y_t)


def start(posterior: TemporalPosterior) -> Array:
    """q(θ, x0), (Θ, X)."""
    return jnp.exp(posterior.parameter)[:, None] * jnp.exp(posterior.initial)


def flow(control: Array, state: Kernel, before: Array) -> Flow:
    """Push q(θ, x_{t-1}) through the policy's slice log q(u_t|x_{t-1}) (X, U) and the state kernel's slice."""
    joint = before[:, :, None] * jnp.exp(control)
    return Flow(before, joint, joint.sum(0), state.push(joint))


def slice_evidence(
    flow: Flow, state: Kernel, observation: dict[str, Kernel]
) -> tuple[Array, Array, dict[str, Evidence], Array]:
    """The arguments of the epistemic priors at one slice: a(u), q(u), evidence and q(x)."""
    control = flow.mass.sum(0)
    evidence = {name: kernel.evidence(flow.after) for name, kernel in observation.items()}
    return divide(state.flow_entropy(flow.joint), control), control, evidence, flow.after.sum(0)


def slice_costs(flow: Flow, state: Kernel, observation: dict[str, Kernel], objective: Objective) -> EpistemicCosts:
    """The epistemic costs d_t(u) and c_t(x) at one slice."""
    return epistemic_costs(
        *slice_evidence(flow, state, observation), normalize=objective.normalize, weight=objective.weight
    )


def expected_preference(world: World, t: Array, flow: Flow, state: Kernel, observation: dict[str, Kernel]) -> Array:
    """E_q[log p̂] of one slice."""
    total: Array = jnp.zeros((), flow.joint.dtype)
    for table in world.preference.values():
        edge = time_slice(table, t)  # (Θ|1, X|1, U|1, X'|1)
        if edge.shape[1] == edge.shape[2] == 1:
            total = total + (flow.after * edge[:, 0, 0, :]).sum()
        elif edge.shape[3] == 1:
            total = total + (flow.joint * edge[..., 0]).sum()
        else:
            total = total + (flow.joint * state.expect(edge)).sum()
    for site, tables in world.observation_preference.items():
        for table in tables:
            total = total + (flow.after * observation[site].expect(time_slice(table, t))).sum()
    return total


def slice_terms(
    world: World,
    posterior: TemporalPosterior,
    objective: Objective,
    t: Array,
    now: Flow,
    costs: EpistemicCosts | None,
) -> dict[str, Array]:
    """One slice's share of the free energy (see :meth:`Objective.terms`), given its epistemic costs."""
    state, control = posterior.state.at(t), posterior.control[t]
    observation = {name: kernel.at(t) for name, kernel in posterior.observation.items()}
    prior = time_slice(world.control, t)
    terms = {
        "risk": -expected_preference(world, t, now, state, observation),
        "complexity": jnp.zeros((), now.joint.dtype),
        "plan_prior": mul_log(now.mass, control - jnp.where(now.mass > 0, prior, 0.0)).sum(),
    }
    if posterior.state is not world.state:
        terms["complexity"] += (now.joint * state.divergence(world.state.at(t))).sum()
    for name, kernel in observation.items():
        if posterior.observation[name] is not world.observation[name]:
            terms["complexity"] += (now.after * kernel.divergence(world.observation[name].at(t))).sum()
    if objective.correction:
        terms["correction"] = -mul_log(now.mass, control).sum()
    if costs is not None:
        reached = now.after.sum(0)
        terms["risk"] += (now.mass.sum(0) * costs.control).sum()
        terms["ambiguity"] = (reached * costs.ambiguity).sum()
        terms["novelty"] = (reached * costs.novelty).sum()
        if objective.normalize:
            terms["normalizer"] = costs.normalizer
    return terms


def parameter_complexity(world: World, posterior: TemporalPosterior) -> Array:
    """KL[q(θ) ‖ p(θ)]."""
    believed = jnp.exp(posterior.parameter)
    return mul_log(believed, posterior.parameter - jnp.where(believed > 0, world.parameter, 0.0)).sum()


def temporal_terms(world: World, posterior: TemporalPosterior, objective: Objective) -> dict[str, Array]:
    """The free energy of a temporal posterior, term by term."""
    keep = hold(objective.gradient)

    def step(before: Array, t: Array) -> tuple[Array, dict[str, Array]]:
        state = posterior.state.at(t)
        now = flow(posterior.control[t], state, before)
        costs = None
        if objective.epistemic:
            observation = {name: kernel.at(t) for name, kernel in posterior.observation.items()}
            costs = jax.tree.map(keep, slice_costs(now, state, observation, objective))
        terms = slice_terms(world, posterior, objective, t, now, costs)
        counts = t < world.horizon
        return jnp.where(counts, now.after, before), {k: jnp.where(counts, v, 0.0) for k, v in terms.items()}

    _, per_step = jax.lax.scan(step, start(posterior), jnp.arange(posterior.control.shape[0]))
    terms = {name: values.sum() for name, values in per_step.items()}
    terms["complexity"] += parameter_complexity(world, posterior)
    return terms


def temporal_priors(posterior: TemporalPosterior, objective: Objective) -> EpistemicPriors:
    """log p̃ of every slice, stacked along a leading time axis."""

    def step(before: Array, inputs: tuple[Array, Array]) -> tuple[Array, EpistemicPriors]:
        t, control = inputs
        state = posterior.state.at(t)
        observation = {name: kernel.at(t) for name, kernel in posterior.observation.items()}
        now = flow(control, state, before)
        priors = epistemic_priors(
            *slice_evidence(now, state, observation), normalize=objective.normalize, weight=objective.weight
        )
        return now.after, priors

    times = jnp.arange(posterior.control.shape[0])
    return jax.lax.scan(step, start(posterior), (times, posterior.control))[1]


def temporal_marginals(world: World, posterior: TemporalPosterior) -> Marginals:
    """All marginals in one forward pass."""

    def step(before: Array, inputs: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array, dict[str, Array]]]:
        t, control = inputs
        now = flow(control, posterior.state.at(t), before)
        counts = t < world.horizon
        seen = {
            name: jnp.where(counts, kernel.at(t).predict(now.after), 0.0)
            for name, kernel in posterior.observation.items()
        }
        after = jnp.where(counts, now.after, before)
        return after, (jnp.where(counts, now.mass.sum(0), 0.0), after.sum(0), seen)

    times = jnp.arange(posterior.control.shape[0])
    first = start(posterior)
    _, (control, state, seen) = jax.lax.scan(step, first, (times, posterior.control))
    return Marginals(
        control=control,
        policy=jnp.exp(posterior.control),
        state=jnp.concatenate([first.sum(0)[None], state]),
        parameter=jnp.exp(posterior.parameter),
        observation=seen,
    )
