"""One sweep of coordinate inference: a forward pass and a backward pass over time.

The forward pass yields q(θ, x_{t-1}), F and the epistemic costs c_t(x), d_t(u) at the present posterior; the backward
pass updates the factors from the last to the first, each by its exact minimiser given the others. Where q has no mass
the prior-predictive flow may stand in; without it what is not used costs nothing, and q(θ|x) is p(θ) there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.inference.objectives import Objective
from npro_aif.inference.temporal import (
    Flow,
    TemporalPosterior,
    flow,
    parameter_complexity,
    slice_costs,
    slice_terms,
    start,
)
from npro_aif.program.program import World
from npro_aif.tables.kernels import Dense, Kernel
from npro_aif.tables.layout import control_first, time_slice
from npro_aif.tables.numerics import divide, masked_log_softmax, sum_last

TIE = 1e-5  # controls whose costs differ by less, relative to max(1, |cost|), are tied and share
ALL_AT_ONCE = 2**14  # entries of all slices' moves: with fewer, slices are looked at together and not one by one
REFERENCE_MASS = 1e-8  # how much of the prior-predictive flow stands in where q has no mass: ε log ε moves F unseen


class Costs(NamedTuple):
    """The epistemic costs of all slices."""

    state: Array  # (T, X) c_t(x)
    control: Array  # (T, U) d_t(u)


class Forward(NamedTuple):
    """What a forward pass finds."""

    before: Array  # (T, X, Θ) q(θ, x_{t-1})
    costs: Costs
    terms: dict[str, Array]  # by name, (): their sum is F


def template(world: World, posterior: TemporalPosterior, learn: tuple[str, ...]) -> TemporalPosterior:
    """The posterior with only what changes from sweep to sweep; learned states start at the model, tabled in time."""
    num_steps, num_parameters = posterior.control.shape[0], world.initial.shape[0]
    state: Any = None
    if "state" in learn and isinstance(world.state, Dense):
        log = world.state.log
        shape = (num_steps, num_parameters, world.initial.shape[1], posterior.control.shape[-1], log.shape[-1])
        state = Dense(jnp.broadcast_to(log, shape))
    return posterior._replace(state=state, observation={}, initial=None)  # type: ignore[arg-type]


def whole(world: World, posterior: TemporalPosterior, observation: dict[str, Kernel]) -> TemporalPosterior:
    """The whole posterior of a template: what is not learned is the world's own, observations are in closed form."""
    return posterior._replace(
        initial=world.initial,
        state=world.state if posterior.state is None else posterior.state,
        observation=observation,
    )


def emissions(world: World, learn: tuple[str, ...]) -> dict[str, Kernel]:
    """q(y|x,θ) ∝ p(y|x,θ) p̂(y) where observations are learned and preferred, p elsewhere; the same at every sweep."""
    found = {}
    for name, kernel in world.observation.items():
        tables = world.observation_preference[name]
        if "observation" in learn and tables:
            found[name] = kernel.tilt(-sum(tables))[0]  # type: ignore[arg-type]
        else:
            found[name] = kernel
    return found


def _prior(world: World, t: Array) -> Array:
    """log p(u|x), (X, U)."""
    return jnp.broadcast_to(time_slice(world.control, t), (world.initial.shape[1], world.control.shape[-1]))


def flows(first: Array, control: Callable[[Array], Array], state: Kernel, num_steps: int, horizon: Array) -> Array:
    """q(θ, x_t) from q(θ, x_0) on, (T+1, X, Θ), under a policy log q(u_t|x_{t-1}) of t; zero beyond the horizon."""

    def step(t: Array, found: Array) -> Array:
        return found.at[t + 1].set(flow(control(t), state.at(t), found[t]).after)

    found = jnp.zeros((num_steps + 1, *first.shape), first.dtype).at[0].set(first)
    return jax.lax.fori_loop(0, horizon, step, found)


def reference_flow(world: World, num_steps: int) -> Array:
    """The prior-predictive p(θ, x_t), (T+1, X, Θ), in the trace that stands in for q where q has no mass."""
    first = REFERENCE_MASS * jnp.exp(world.parameter) * jnp.exp(world.initial).T
    return flows(first, lambda t: _prior(world, t), world.state, num_steps, world.horizon)


def _mixed(now: Flow, reference: Array, prior: Array, t: Array) -> Flow:
    """The flow with a trace of the prior-predictive one, by which controls not used are spread as their prior is."""
    before = now.before + reference[t]
    mass = now.mass + sum_last(reference[t])[:, None] * jnp.exp(prior)
    return Flow(before, divide(mass, sum_last(before)[:, None]), now.after + reference[t + 1])


def forward(
    world: World,
    posterior: TemporalPosterior,
    objective: Objective,
    observation: dict[str, Kernel],
    reference: Array | None,
) -> Forward:
    """q(θ, x_{t-1}), the epistemic costs and F at the present posterior."""
    num_steps, num_states, num_controls = posterior.control.shape
    own = whole(world, posterior, observation)
    found = flows(start(own), lambda t: own.control[t], own.state, num_steps, world.horizon)

    def look(t: Array) -> tuple[Costs, dict[str, Array]]:
        now = Flow(found[t], jnp.exp(own.control[t]), found[t + 1])
        rows, costs = Costs(jnp.zeros(num_states, found.dtype), jnp.zeros(num_controls, found.dtype)), None
        if objective.epistemic:
            seen = now if reference is None else _mixed(now, reference, _prior(world, t), t)
            emission = {name: kernel.at(t) for name, kernel in own.observation.items()}
            costs = slice_costs(seen, own.state.at(t), emission, objective)
            rows = Costs(costs.ambiguity + costs.novelty, costs.control)
        return rows, slice_terms(world, own, objective, t, now, costs)

    each = at_once if is_small(world, num_steps) else one_by_one
    costs, terms = each(look, num_steps, world.horizon)
    terms["complexity"] += parameter_complexity(world, own)
    return Forward(found[:-1], costs, terms)


def is_small(world: World, num_steps: int) -> bool:
    """Whether a call, a loop or a branch costs more than what it computes."""
    return num_steps * world.control.shape[-1] * world.initial.size <= ALL_AT_ONCE


Look = Callable[[Array], tuple[Costs, dict[str, Array]]]


def at_once(look: Look, num_steps: int, horizon: Array) -> tuple[Costs, dict[str, Array]]:
    """What ``look`` finds in all slices, zero beyond the horizon, and the sum of its terms: in a small world."""
    times = jnp.arange(num_steps)
    counts = times < horizon

    def masked(table: Array) -> Array:
        return jnp.where(counts.reshape((-1,) + (1,) * (table.ndim - 1)), table, 0.0)

    rows, terms = jax.tree.map(masked, jax.vmap(look)(times))
    return rows, {name: values.sum() for name, values in terms.items()}


def one_by_one(look: Look, num_steps: int, horizon: Array) -> tuple[Costs, dict[str, Array]]:
    """The same slice by slice, so that what is beyond the horizon costs nothing and memory stays small."""

    def step(t: Array, found: tuple[Costs, dict[str, Array]]) -> tuple[Costs, dict[str, Array]]:
        rows, terms = look(t)
        all_rows = jax.tree.map(lambda table, row: table.at[t].set(row), found[0], rows)
        return all_rows, jax.tree.map(jnp.add, found[1], terms)

    rows, terms = jax.eval_shape(look, jnp.asarray(0))
    none = jax.tree.map(lambda a: jnp.zeros((num_steps, *a.shape), a.dtype), rows)
    return jax.lax.fori_loop(0, horizon, step, (none, jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), terms)))


def total(terms: dict[str, Array]) -> Array:
    """F from its terms."""
    return sum(terms.values())  # type: ignore[return-value]


def backward(
    world: World,
    posterior: TemporalPosterior,
    objective: Objective,
    before: Array,
    costs: Costs,
    learn: tuple[str, ...],
    reference: Array | None,
) -> TemporalPosterior:
    """Update every factor, from the last to the first, by its exact minimiser."""
    learns_state = posterior.state is not None

    def step(i: Array, carry: tuple[Array, TemporalPosterior]) -> tuple[Array, TemporalPosterior]:
        future, q = carry  # (X', Θ) the cost to go from x_t on
        t = world.horizon - 1 - i
        arrival = future + costs.state[t][:, None] + emission_cost(world, t, learn).T
        kernel, moving = _move(world, t, arrival, learns_state)  # (U, X, Θ)
        prior = _prior(world, t)
        effort = costs.control[t] - jnp.where(prior > -jnp.inf, prior, 0.0)  # (X, U); Q_t = moving + effort
        belief = parameter_given_state(world, before[t] if reference is None else before[t] + reference[t])
        average = sum_last(belief * moving).T + effort
        control = posterior.control[t]
        if "control" in learn:
            control = (least if objective.correction else soft)(average, prior > -jnp.inf)
        probs = jnp.exp(control)
        if not objective.correction:
            effort = effort + jnp.where(probs > 0, control, 0.0)
        future = sum(p[:, None] * cost for p, cost in zip(probs.T, moving, strict=True))
        future = future + (probs * effort).sum(-1)[:, None]
        q = q._replace(control=q.control.at[t].set(control))
        if learns_state:
            q = q._replace(state=Dense(q.state.table().at[t].set(kernel.table())))
        return future, q

    nothing = jnp.zeros(before.shape[1:], before.dtype)
    future, q = jax.lax.fori_loop(0, world.horizon, step, (nothing, posterior))
    if "parameter" in learn:
        cost = (jnp.exp(world.initial) * future.T).sum(-1)
        q = q._replace(parameter=masked_log_softmax(world.parameter - cost, world.parameter > -jnp.inf))
    return q


def parameter_given_state(world: World, joint: Array) -> Array:
    """q(θ|x) from q(θ,x), (X, Θ); p(θ) where there is no mass."""
    mass = sum_last(joint)[:, None]
    return jnp.where(mass > 0, divide(joint, mass), jnp.exp(world.parameter))


def _move(world: World, t: Array, arrival: Array, learns_state: bool) -> tuple[Any, Array]:
    """The state factor's minimiser, and the cost of moving: KL[q‖p] + E_q[V − log p̂], (U, X, Θ)."""
    kernel = world.state.at(t)
    edges: list[Array] = []
    for table in world.preference.values():
        edge = time_slice(table, t)
        if edge.shape[1] == edge.shape[2] == 1:
            arrival = arrival - edge[:, 0, 0, :].T
        else:
            edges.append(edge)
    num_parameters, num_states = world.initial.shape
    num_controls = world.control.shape[-1]
    if learns_state:
        cost = arrival.T[:, None, None, :] - sum(edges)
        kernel, value = kernel.tilt(cost)
        kernel = Dense(jnp.broadcast_to(kernel.table(), (num_parameters, num_states, num_controls, kernel.size)))
        value = control_first(value)
    else:
        value = kernel.pull(arrival)
        for edge in edges:
            value = value - control_first(edge[..., 0] if edge.shape[-1] == 1 else kernel.expect(edge))
    return kernel, jnp.broadcast_to(value, (num_controls, num_states, num_parameters))


def emission_cost(world: World, t: Array, learn: tuple[str, ...]) -> Array:
    """What preferences on observations cost at each (θ, x): −E_q[log p̂(y)] + KL[q(y|x,θ) ‖ p], (Θ|1, X|1)."""
    cost_of_all: Array = jnp.zeros((1, 1), world.initial.dtype)
    for name, tables in world.observation_preference.items():
        if tables:
            cost = -sum((time_slice(table, t) for table in tables), start=jnp.zeros(()))
            kernel = world.observation[name].at(t)
            cost_of_all += kernel.tilt(cost)[1] if "observation" in learn else kernel.expect(cost)
    return cost_of_all


def least(cost: Array, allowed: Array) -> Array:
    """log of the policy that takes the cheapest control; ties share equally."""
    cost = jnp.where(allowed, cost, jnp.inf)
    lowest = cost.min(-1, keepdims=True)
    tied = (cost <= lowest + TIE * jnp.maximum(1.0, jnp.abs(lowest))) & allowed
    return jnp.where(tied, -jnp.log(tied.sum(-1, keepdims=True)), -jnp.inf)


def soft(cost: Array, allowed: Array) -> Array:
    """log softmin over the controls."""
    return masked_log_softmax(-cost, allowed)
