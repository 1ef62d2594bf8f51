"""Draws from a plan's posterior, compiled once for each planner, horizon and number of draws.

Temporal posteriors are drawn along the time axis from their tables, which may hold a part of the parameters
only; the others by running their guide forward under NumPyro.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.handlers import seed, substitute, trace

from npro_aif.guides.base import lookup
from npro_aif.kernels import Index, Kernel
from npro_aif.signature import split
from npro_aif.temporal import TemporalPosterior
from npro_aif.world import Fixed, World

if TYPE_CHECKING:
    from npro_aif.plan import Plan


def sample_plan(plan: Plan, key: Array, num_samples: int) -> dict[str, Array]:
    """``num_samples`` draws, stacked over time by site."""
    return _sample(plan, plan.origin.program.fixed, key, num_samples, int(plan.horizon))


@functools.partial(jax.jit, static_argnames=("num_samples", "horizon"))
def _sample(plan: Plan, fixed: Fixed, key: Array, num_samples: int, horizon: int) -> dict[str, Array]:
    program, guide = plan.origin.program, plan.origin.guide
    world = program.bind(fixed, plan.belief, plan.horizon, plan.theta, plan.valid)
    posterior = guide.posterior(world, plan.params, program.num_steps)

    def draw(key: Array) -> dict[str, Array]:
        if isinstance(posterior, TemporalPosterior):
            return _along_time(posterior, world, key, horizon)
        with trace() as sites, seed(rng_seed=key), substitute(data=plan.params):
            guide.draw(world, posterior, horizon)
        return _stacked(sites, world, horizon)

    return jax.vmap(draw)(jax.random.split(key, num_samples))


def _along_time(posterior: TemporalPosterior, world: World, key: Array, horizon: int) -> dict[str, Array]:
    """One draw, site by site along the chain."""
    key, of_theta, of_start = jax.random.split(key, 3)
    row = jax.random.categorical(of_theta, posterior.parameter)
    first = jax.random.categorical(of_start, posterior.initial[row])

    def step(x: Array, inputs: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array, dict[str, Array]]]:
        t, key = inputs
        of_control, of_state, *of_sites = jax.random.split(key, 2 + len(posterior.observation))
        u = jax.random.categorical(of_control, posterior.control[t, x])
        x = _outcome(posterior.state.at(t), of_state, row, x, u)
        seen = {
            name: _outcome(kernel.at(t), of_site, row, x)
            for of_site, (name, kernel) in zip(of_sites, posterior.observation.items(), strict=True)
        }
        return x, (u, x, seen)

    keys = jax.random.split(key, horizon)
    _, (u, x, seen) = jax.lax.scan(step, first, (jnp.arange(horizon), keys))
    signature = world.signature
    states = split(jnp.append(first, x), signature.state)
    return split(world.theta[row], signature.parameter) | states | split(u, signature.control) | seen


def _outcome(kernel: Kernel, key: Array, *given: Array) -> Array:
    """Draw from one slice of a kernel; the flat value."""
    if isinstance(kernel, Index):
        return lookup(kernel.index, *given)
    return jax.random.categorical(key, lookup(kernel.log, *given))


def _stacked(sites: dict[str, Any], world: World, horizon: int) -> dict[str, Array]:
    """A trace's values by site, over time."""
    signature = world.signature
    found = {site.name: sites[site.name]["value"] for site in signature.parameter}
    for role, first in (("state", 0), ("control", 1), ("observation", 1)):
        for site in signature.sites(role):
            found[site.name] = jnp.stack([sites[f"{site.name}_{t}"]["value"] for t in range(first, horizon + 1)])
    return found
