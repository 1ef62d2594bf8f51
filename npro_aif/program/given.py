"""Parameters or present states that handlers fix (``condition``, ``substitute``): the belief given these, by Bayes."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from npro_aif.program.reading import Reading
from npro_aif.program.signature import Signature, split
from npro_aif.tables.world import World


def given_what_is_fixed(world: World) -> World:
    """p(θ) and p(x0|θ) given the values that handlers fix, by Bayes: their tables have only those outcomes."""
    joint = world.parameter[:, None] + world.initial  # (Θ, X) log p(θ, x0, what is fixed)
    parameter = jax.nn.logsumexp(joint, axis=1)
    possible = parameter[:, None] > -jnp.inf
    uniform = jnp.full_like(joint, -math.log(joint.shape[1]))
    initial = jnp.where(possible, joint - jnp.where(possible, parameter[:, None], 0.0), uniform)
    total = jax.nn.logsumexp(parameter)
    return world._replace(parameter=parameter - jnp.where(total > -jnp.inf, total, 0.0), initial=initial)


def not_ruled_out(reading: Reading, signature: Signature) -> np.ndarray:
    """The flat parameters that agree with what handlers fix."""
    every = np.arange(signature.num_parameters, dtype=np.int32)
    values = split(every, signature.parameter)
    agrees = np.ones(len(every), bool)
    for draw in reading.draws:
        if draw.kind == "parameter":
            for name, value in zip(draw.names, draw.fixed, strict=bool(draw.fixed)):
                agrees &= (values[name] == value) if value is not None else True
    return every[agrees]
