"""The costs of controls: of each first control of a plan, and of the best policy with perfect information."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.belief import Belief
from npro_aif.guides import TableGuide
from npro_aif.inference.objectives import Objective, Planning
from npro_aif.inference.temporal import TemporalPosterior
from npro_aif.numerics import mul_log, near_sum, sum_last
from npro_aif.program.checks import check_belief
from npro_aif.program.program import Fixed, Program, program_of
from npro_aif.solvers.base import Problem
from npro_aif.solvers.envelope import Live, attached, cost_fault, numbers_of, refused, with_numbers
from npro_aif.solvers.passes import over_steps, prior_policy
from npro_aif.solvers.sweep import CostsAt, Sweep, level, prepare
from npro_aif.tables.world import World


def control_cost(
    world: World, objective: Objective, posterior: TemporalPosterior, *, reversible: bool = False
) -> Array:
    """F if a control is done first and the posterior's policy is followed from then on, (U,).

    Epistemic costs are held at the posterior. A control that the prior excludes costs infinitely much.

    :param reversible: compute it so that it can be differentiated backwards, with the policy held.
    """
    if not objective.closed_form:
        raise ValueError(
            f"control_cost: found {type(objective).__name__}, which puts F together in its own way; expected an "
            "objective with a closed form (closed_form = True in its class says that it has one)"
        )
    sweep = sweep_of(world, objective, posterior, reversible=reversible)
    world, template = sweep.world, sweep.template(posterior)
    if is_descended(objective):
        mass = sweep.masses(template)
        costs = sweep.derivatives(template, mass, sweep.look(template, mass)[0])
    else:
        costs = sweep.held(sweep.forward(template).costs)
    future = _to_go(sweep, posterior, costs)
    _, moving, effort = sweep.controls(jnp.asarray(0), future, costs(jnp.asarray(0)))
    start = posterior.start(world)
    seen = world.loop.seen(sum_last(start))
    cost = moving.average(start).sum(0) + (seen[:, None] * effort).sum(0)
    excluded = (seen[:, None] * (prior_policy(world, jnp.asarray(0)) == -jnp.inf)).sum(0) > 0
    return jnp.where(excluded, jnp.inf, cost)


def attached_cost(
    value: Array, world: World, objective: Objective, guide: TableGuide, params: Any, num_steps: int
) -> Array:
    """The costs of first controls, (U,), with derivatives with respect to the world and the objective's numbers."""
    live = world, numbers_of(objective)
    fault = cost_fault(objective, guide, world)
    if fault is not None:
        return refused(fault, value, live)

    def cost(params: Any, live: Live) -> Array:
        world, numbers = live
        posterior: Any = guide.posterior(world, params, num_steps)
        return control_cost(world, with_numbers(objective, numbers), posterior, reversible=True)

    return attached(cost, value, params, live)


@functools.partial(jax.jit, static_argnums=0)
def first_costs(objective: Objective, world: World, posterior: TemporalPosterior) -> Array:
    """:func:`control_cost`, compiled once for an objective and the shapes of a world."""
    return control_cost(world, objective, posterior)


def sweep_of(world: World, objective: Objective, posterior: TemporalPosterior, *, reversible: bool = False) -> Sweep:
    """Sweeps that learn nothing: every factor is the posterior's."""
    problem = Problem(_with_factors_of(world, posterior), None, objective, posterior.num_steps)  # type: ignore[arg-type]
    return prepare(problem, (), with_reference=True, reversible=reversible)


def is_descended(objective: Objective) -> bool:
    """Whether the costs are the derivatives of the epistemic terms, and not the terms themselves."""
    return objective.epistemic and objective.gradient == "through" and objective.descends


def _to_go(sweep: Sweep, posterior: TemporalPosterior, costs: CostsAt) -> Array:
    """The cost to go after the first step, (S, Θ)."""
    horizon = sweep.world.horizon

    def step(i: Array, future: Array) -> Array:
        t = horizon - 1 - i
        _, moving, effort = sweep.controls(t, future, costs(t))
        return sweep.follow(t, posterior.control[t], moving, effort)

    nothing = jnp.zeros_like(posterior.start(sweep.world))
    return over_steps(horizon - 1, sweep.num_steps - 1, step, nothing, reversible=sweep.reversible)


def _with_factors_of(world: World, posterior: TemporalPosterior) -> World:
    """The world with the posterior's moves and observations, whose costs are put into its preferences."""
    if world.loop.closed:  # where neither is learned
        return world._replace(parameter=posterior.parameter)
    preference = dict(world.preference)
    if posterior.state is not world.state and posterior.state.learnable:
        gap = jax.vmap(lambda t: posterior.state.at(t).divergence(world.state.at(t)))(jnp.arange(posterior.num_steps))
        preference["learned states"] = -gap[..., None]
    for name, kernel in posterior.observation.items():
        if kernel is not world.observation[name] and kernel.learnable:
            times = jnp.arange(posterior.num_steps)
            gap = jax.vmap(lambda t, k=kernel, n=name: k.at(t).divergence(world.observation[n].at(t)))(times)
            preference[f"learned observation {name}"] = -gap[:, :, None, None, :]
    return world._replace(
        parameter=posterior.parameter, state=posterior.state, observation=posterior.observation, preference=preference
    )


def perfect_information(model: Callable[..., Any], belief: Belief, horizon: int) -> Array:
    """The average cost of the best policy that sees every state and parameter, (): a bound from below.

    No plan has a lower F_planning if only controls are learned. (It is no bound on F_marginal and F_active.)

    >>> from npro_aif.models.tmaze import tmaze, initial_belief
    >>> round(float(perfect_information(tmaze, initial_belief(), 4)), 3)  # straight to the right arm
    5.599
    """
    program = program_of(model, belief, horizon)
    check_belief(belief, program.signature)
    return _bound(program)(program.fixed, belief)


@functools.lru_cache(maxsize=64)
def _bound(program: Program) -> Callable[[Fixed, Belief], Array]:
    def bound(fixed: Fixed, belief: Belief) -> Array:
        return _best(program.bind(fixed, belief, program.num_steps).routed(), program.num_steps)

    return jax.jit(bound)


def _best(world: World, num_steps: int) -> Array:
    """The least cost for each state and parameter, averaged over the belief, ()."""
    world = world.seeing_everything()
    problem = Problem(world, None, Planning(), num_steps)  # type: ignore[arg-type]
    sweep = prepare(problem, (), with_reference=False)
    free = sweep.free()

    start = jnp.exp(world.parameter) * jnp.exp(world.initial).T  # (X, Θ)

    def step(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        future, common = carry  # (X, Θ), relative to the cost that all starts share: (T,), a part for each step
        t = num_steps - 1 - i
        _, moving, effort = sweep.controls(t, future, free(t))
        effort = jnp.where(prior_policy(world, t) > -jnp.inf, effort, jnp.inf)
        future = (moving.table() + effort.T[:, :, None]).min(0)
        least = level(start, future)
        return future - least, common.at[t].set(least)

    first = jnp.zeros_like(start), jnp.zeros(num_steps, start.dtype)
    future, common = jax.lax.fori_loop(0, num_steps, step, first)
    return near_sum(mul_log(start, future)) + near_sum(common)
