"""The temporal posterior q(θ) p(x0|θ) Π_t q(u_t|x_{t-1}) q(x_t|x_{t-1},u_t,θ) q(y_t|x_t,θ), and its free energy.

Everything is one forward pass over time; the cost is linear in the horizon. :func:`flow` is one slice of
that pass, and serves the free energy, the marginals and the coordinate solver alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from npro_aif.inference.epistemic import EpistemicCosts, EpistemicPriors, epistemic_costs, epistemic_priors
from npro_aif.inference.objectives import Objective
from npro_aif.program.program import World
from npro_aif.tables.kernels import Kernel
from npro_aif.tables.layout import Evidence, contract, time_slice
from npro_aif.tables.numerics import divide, hold, mul_log, sum_last

COSTS = "epistemic costs"  # what the gradient's forward pass keeps of a slice


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

    def first_control(self, world: World) -> Array:
        return sum_last(start(self)) @ jnp.exp(self.control[0])


class Flow(NamedTuple):
    """The mass that moves through one time slice."""

    before: Array  # (X, Θ) q(θ, x_{t-1})
    policy: Array  # (X, U) q(u_t|x_{t-1})
    after: Array  # (X', Θ) q(θ, x_t)

    @property
    def mass(self) -> Array:
        """q(x_{t-1}, u_t), (X, U)."""
        return sum_last(self.before)[:, None] * self.policy


class Marginals(NamedTuple):
    """Marginals of a posterior; rows beyond the horizon repeat the last state and are zero elsewhere."""

    control: Array  # (T, U) q(u_t)
    policy: Array  # (T, X, U) q(u_t|x_{t-1})
    state: Array  # (T+1, X) q(x_t)
    parameter: Array  # (Θ,) q(θ)
    observation: dict[str, Array]  # by site, (T, Y) q(y_t)


def start(posterior: TemporalPosterior) -> Array:
    """q(θ, x0), (X, Θ)."""
    return jnp.exp(posterior.parameter) * jnp.exp(posterior.initial).T


def flow(control: Array, state: Kernel, before: Array) -> Flow:
    """Push q(θ, x_{t-1}) through the policy's slice log q(u_t|x_{t-1}) (X, U) and the state kernel's slice."""
    policy = jnp.exp(control)
    return Flow(before, policy, state.push(before, policy))


def slice_evidence(
    flow: Flow, state: Kernel, observation: dict[str, Kernel]
) -> tuple[Array, Array, dict[str, Evidence], Array]:
    """The arguments of the epistemic priors at one slice: a(u), q(u), evidence and q(x)."""
    control = flow.mass.sum(0)
    entropy = (flow.policy.T * state.spread(flow.before)).sum(-1)  # q(u) a(u) = Σ_x q(x,u) H[x'|x,u]
    after = flow.after.T
    evidence = {name: kernel.evidence(after) for name, kernel in observation.items()}
    return divide(entropy, control), control, evidence, sum_last(flow.after)


def slice_costs(flow: Flow, state: Kernel, observation: dict[str, Kernel], objective: Objective) -> EpistemicCosts:
    """The epistemic costs d_t(u) and c_t(x) at one slice."""
    return epistemic_costs(
        *slice_evidence(flow, state, observation), normalize=objective.normalize, weight=objective.weight
    )


def scan_horizon(
    step: Callable[[Array, Array], tuple[Array, Any]], first: Array, num_steps: int, horizon: Array
) -> tuple[Array, Any]:
    """Scan over the steps that count; the others cost nothing, keep the carry and yield zeros."""
    blank = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(step, first, jnp.zeros((), int))[1])

    def body(carry: Array, t: Array) -> tuple[Array, Any]:
        return jax.lax.cond(t < horizon, step, lambda carry, t: (carry, blank), carry, t)

    return jax.lax.scan(body, first, jnp.arange(num_steps))


def expected_preference(world: World, t: Array, flow: Flow, state: Kernel, observation: dict[str, Kernel]) -> Array:
    """E_q[log p̂] of one slice."""
    total: Array = jnp.zeros((), flow.after.dtype)
    for table in world.preference.values():
        edge = time_slice(table, t)  # (Θ|1, X|1, U|1, X'|1)
        if edge.shape[1] == edge.shape[2] == 1:
            total = total + contract("", (flow.after, "ki"), (edge[:, 0, 0, :], "ik"))
        else:
            total = total + over_moves(flow, edge[..., 0] if edge.shape[3] == 1 else state.expect(edge))
    for site, tables in world.observation_preference.items():
        for table in tables:
            expected = observation[site].expect(time_slice(table, t))  # (Θ|1, X'|1)
            total = total + contract("", (flow.after, "ki"), (expected, "ik"))
    return total


def over_moves(flow: Flow, table: Array) -> Array:
    """Σ_{θ,x,u} q(θ,x,u) table(θ,x,u), the table (Θ|1, X|1, U|1)."""
    return contract("", (flow.before, "xi"), (flow.policy, "xu"), (table, "ixu"))


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
    prior, mass = time_slice(world.control, t), now.mass
    terms = {
        "risk": -expected_preference(world, t, now, state, observation),
        "complexity": jnp.zeros((), now.after.dtype),
        "plan_prior": mul_log(mass, control - jnp.where(mass > 0, prior, 0.0)).sum(),
    }
    if posterior.state is not world.state:
        terms["complexity"] += over_moves(now, state.divergence(world.state.at(t)))
    for name, kernel in observation.items():
        if posterior.observation[name] is not world.observation[name]:
            divergence = kernel.divergence(world.observation[name].at(t))
            terms["complexity"] += contract("", (now.after, "ki"), (divergence, "ik"))
    if objective.correction:
        terms["correction"] = -mul_log(mass, control).sum()
    if costs is not None:
        reached = sum_last(now.after)
        terms["risk"] += (mass.sum(0) * costs.control).sum()
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

    def slice_(before: Array, t: Array) -> tuple[Array, dict[str, Array]]:
        state = posterior.state.at(t)
        now = flow(posterior.control[t], state, before)
        costs = None
        if objective.epistemic:
            observation = {name: kernel.at(t) for name, kernel in posterior.observation.items()}
            costs = jax.tree.map(keep, slice_costs(now, state, observation, objective))
            costs = checkpoint_name(costs, COSTS)
        return now.after, slice_terms(world, posterior, objective, t, now, costs)

    # The gradient recomputes what a slice is made of, but for its costs: to keep it would cost more than to make it.
    slice_ = jax.checkpoint(slice_, prevent_cse=False, policy=jax.checkpoint_policies.save_only_these_names(COSTS))
    _, per_step = scan_horizon(slice_, start(posterior), posterior.control.shape[0], world.horizon)
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

    def slice_(before: Array, t: Array) -> tuple[Array, tuple[Array, Array, dict[str, Array]]]:
        now = flow(posterior.control[t], posterior.state.at(t), before)
        seen = {name: kernel.at(t).predict(now.after.T) for name, kernel in posterior.observation.items()}
        return now.after, (now.mass.sum(0), sum_last(now.after), seen)

    num_steps, first = posterior.control.shape[0], start(posterior)
    last, (control, state, seen) = scan_horizon(slice_, first, num_steps, world.horizon)
    beyond = jnp.arange(num_steps)[:, None] >= world.horizon
    return Marginals(
        control=control,
        policy=jnp.exp(posterior.control),
        state=jnp.concatenate([sum_last(first)[None], jnp.where(beyond, sum_last(last), state)]),
        parameter=jnp.exp(posterior.parameter),
        observation=seen,
    )
