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
from npro_aif.inference.temporal import TemporalPosterior
from npro_aif.program.program import Fixed, World
from npro_aif.program.signature import split
from npro_aif.tables.kernels import Index, Kernel

if TYPE_CHECKING:
    from npro_aif.planning.plan import Plan


def sample_plan(plan: Plan, key: Array, num_samples: int) -> dict[str, Array]:
    """``num_samples`` draws, stacked over time by site."""
    return _sample(plan, plan.origin.program.fixed, key, num_samples, int(plan.horizon))


@functools.partial(jax.jit, static_argnames=("num_samples", "horizon"))
def _sample(plan: Plan, fixed: Fixed, key: Array, num_samples: int, horizon: int) -> dict[str, Array]:
    program, guide = plan.origin.program, plan.origin.guide
    world = program.bind(fixed, plan.belief, plan.horizon, plan.theta, plan.valid)
    posterior = guide.posterior(world, plan.params, program.num_steps)

    if isinstance(posterior, TemporalPosterior):
        # All the noise at once: a generator inside the loop takes many times longer to compile.
        noise = jax.random.uniform(key, (num_samples, 1 + horizon, 2 + len(posterior.observation)))
        return jax.vmap(lambda noise: _along_time(posterior, world, noise))(noise)

    def run(key: Array) -> dict[str, Array]:
        with trace() as sites, seed(rng_seed=key), substitute(data=plan.params):
            guide.draw(world, posterior, horizon)
        return _stacked(sites, world, horizon)

    return jax.vmap(run)(jax.random.split(key, num_samples))


def _along_time(posterior: TemporalPosterior, world: World, noise: Array) -> dict[str, Array]:
    """One draw, site by site along the chain; noise (1+T, 2 + the number of observation sites)."""
    row = _choose(posterior.parameter, noise[0, 0])
    first = _choose(posterior.initial[row], noise[0, 1])

    def step(x: Array, inputs: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array, dict[str, Array]]]:
        t, noise = inputs
        u = _choose(posterior.control[t, x], noise[0])
        x = _outcome(posterior.state.at(t), noise[1], row, x, u)
        seen = {
            name: _outcome(kernel.at(t), noise[2 + i], row, x)
            for i, (name, kernel) in enumerate(posterior.observation.items())
        }
        return x, (u, x, seen)

    _, (u, x, seen) = jax.lax.scan(step, first, (jnp.arange(len(noise) - 1), noise[1:]))
    signature = world.signature
    states = split(jnp.append(first, x), signature.state)
    return split(world.theta[row], signature.parameter) | states | split(u, signature.control) | seen


def _outcome(kernel: Kernel, noise: Array, *given: Array) -> Array:
    """Draw from one slice of a kernel; the flat value."""
    if isinstance(kernel, Index):
        return lookup(kernel.index, *given)
    return _choose(lookup(kernel.log, *given), noise)


def _choose(log_probs: Array, noise: Array) -> Array:
    """The category in which a uniform number falls: never one of probability zero."""
    cumulative = jnp.cumsum(jnp.exp(log_probs))
    below_total = jnp.nextafter(cumulative[-1], jnp.zeros_like(cumulative[-1]))
    return jnp.argmax(cumulative > jnp.minimum(noise * cumulative[-1], below_total))


def _stacked(sites: dict[str, Any], world: World, horizon: int) -> dict[str, Array]:
    """A trace's values by site, over time."""
    signature = world.signature
    found = {site.name: sites[site.name]["value"] for site in signature.parameter}
    for role, first in (("state", 0), ("control", 1), ("observation", 1)):
        for site in signature.sites(role):
            found[site.name] = jnp.stack([sites[f"{site.name}_{t}"]["value"] for t in range(first, horizon + 1)])
    return found
