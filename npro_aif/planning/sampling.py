"""Draws from a plan's posterior, compiled once for each planner, horizon and number of draws."""

from __future__ import annotations

import functools
from typing import Any

import jax
from jax import Array

from npro_aif.belief import Belief
from npro_aif.planning.origin import Origin
from npro_aif.planning.support import Support
from npro_aif.program.program import Fixed


@functools.partial(jax.jit, static_argnames=("origin", "num_samples", "num_steps"))
def draw(
    origin: Origin,
    fixed: Fixed,
    belief: Belief,
    horizon: Array,
    support: Support,
    params: Any,
    key: Array,
    *,
    num_samples: int,
    num_steps: int,
) -> dict[str, Array]:
    """``num_samples`` draws by site, stacked over time.

    :param params: the guide's parameters, which stand for the posterior.
    :param num_steps: the horizon as a plain number.
    """
    world = origin.program.bind(fixed, belief, horizon, support.theta, support.valid)
    posterior = origin.guide.posterior(world, params, origin.program.num_steps)
    return origin.guide.sample(world, posterior, params, key, num_samples, num_steps)
