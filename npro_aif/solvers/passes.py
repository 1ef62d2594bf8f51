"""The passes over time in a sweep: the flow of mass under a policy, and the evaluation of every slice."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.inference.posterior import Terms
from npro_aif.inference.temporal import flow
from npro_aif.numerics import near_sum
from npro_aif.tables.kernels import Emission, Transition
from npro_aif.tables.layout import time_slice
from npro_aif.tables.world import World

REFERENCE_MASS = 1e-8  # the share ε of the prior-predictive flow where q has no mass; ε log ε does not show in F

Look = Callable[[Array], tuple[Any, Terms]]


def prior_policy(world: World, t: Array) -> Array:
    """log p(u|v), (P, U)."""
    prior = world.loop.prior(time_slice(world.control, t))
    return jnp.broadcast_to(prior, (world.loop.num_classes(world.initial.shape[1]), world.num_controls))


def flows(
    world: World,
    first: Array,
    control: Callable[[Array], Array],
    state: Transition,
    observation: dict[str, Emission],
    num_steps: int,
    *,
    reversible: bool = False,
) -> Array:
    """q(θ, s_t) from q(θ, s_0) on, (T+1, S, Θ), under a policy log q(u_t|p) of t; zero beyond the horizon."""

    def step(t: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        mass, now = carry
        seen = {name: kernel.at(t) for name, kernel in observation.items()}
        after = flow(world.loop.at(t), control(t), state.at(t), seen, now).after
        return mass.at[t + 1].set(after), after

    # The first row is put in last: XLA would otherwise keep a further table of this size from sweep to sweep.
    mass = jnp.zeros((num_steps + 1, *first.shape), first.dtype)
    return over_steps(world.horizon, num_steps, step, (mass, first), reversible=reversible)[0].at[0].set(first)


def over_steps(
    count: Array, most: int, step: Callable[[Array, Any], Any], first: Any, *, reversible: bool = False
) -> Any:
    """A loop over ``count`` steps, at most ``most``; a reversible one can be differentiated backwards."""
    if not reversible:
        return jax.lax.fori_loop(jnp.zeros_like(count), count, step, first)  # a 0 would make t of a weak type

    def body(carry: Any, t: Array) -> tuple[Any, None]:
        counts = t < count  # not a branch: JAX cannot transpose a branch whose condition is batched
        after = step(jnp.minimum(t, jnp.maximum(count - 1, 0)), carry)
        return jax.tree.map(lambda new, old: jnp.where(counts, new, old), after, carry), None

    return jax.lax.scan(body, first, jnp.arange(most))[0]


def reference_flow(world: World, num_steps: int, *, reversible: bool = False) -> Array:
    """The prior-predictive p(θ, s_t), (T+1, S, Θ), in the trace that stands in for q where q has no mass."""
    first = REFERENCE_MASS * world.loop.start(jnp.exp(world.parameter) * jnp.exp(world.initial).T)
    policy = functools.partial(prior_policy, world)
    return flows(world, first, policy, world.state, world.observation, num_steps, reversible=reversible)


def at_once(look: Look, num_steps: int, horizon: Array) -> tuple[Any, Terms]:
    """The results of ``look`` in all slices at once, zero beyond the horizon, and the sum of its terms."""
    times = jnp.arange(num_steps)
    counts = times < horizon

    def masked(table: Array) -> Array:
        return jnp.where(counts.reshape((-1,) + (1,) * (table.ndim - 1)), table, 0.0)

    rows, terms = jax.tree.map(masked, jax.vmap(look)(times))
    return rows, {name: near_sum(values) for name, values in terms.items()}


def one_by_one(look: Look, num_steps: int, horizon: Array, *, reversible: bool = False) -> tuple[Any, Terms]:
    """The same slice by slice, so that steps beyond the horizon cost nothing and memory stays small."""
    look = jax.jit(look)  # traced once, for its shapes and for the loop

    def step(t: Array, tables: tuple[Any, Terms]) -> tuple[Any, Terms]:
        return jax.tree.map(lambda table, row: table.at[t].set(row), tables, look(t))

    shapes = jax.eval_shape(look, jnp.zeros_like(horizon))
    none = jax.tree.map(lambda a: jnp.zeros((num_steps, *a.shape), a.dtype), shapes)
    rows, terms = over_steps(horizon, num_steps, step, none, reversible=reversible)
    return rows, {name: near_sum(values) for name, values in terms.items()}
