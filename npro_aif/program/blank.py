"""Programs that are evaluated without a belief: p(θ) and p(x0|θ) are filled in afterwards, row by row.

For a belief that is laid over devices, or kept by its entries, no whole table p(x0|θ) is then needed anywhere.
"""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif._jax import eval_context
from npro_aif.belief import ROW_SUM_TOLERANCE, Belief
from npro_aif.program.signature import Signature


class Readable(Protocol):
    """The part of :class:`npro_aif.program.program.Program` that is used here."""

    signature: Signature
    fixed: Any
    given: bool
    looks_at_belief: bool
    sample: np.ndarray | None

    def bind(self, fixed: Any, belief: Belief | None, horizon: int | Array, theta: Array | None = None) -> Any: ...


def blank_belief(signature: Signature) -> Belief:
    """The uniform belief; inside compiled code it takes no memory."""
    shapes = (signature.num_parameters,), (signature.num_parameters, signature.num_states)
    return Belief(*(jnp.full(shape, 1 / shape[-1], jnp.result_type(float)) for shape in shapes))


def blank_shapes(signature: Signature) -> Belief:
    """The shapes of a belief of this program."""
    return jax.eval_shape(lambda: blank_belief(signature))


def check_blank(program: Readable, name: str) -> None:
    """Refuse a program whose tables cannot be made without the belief.

    :param name: the feature that needs such tables, for the message.
    """
    if program.fixed.numbers:
        raise ValueError(f"{name}: found a model whose numbers are traced (inside jit, grad or vmap), expected numbers")
    if program.given:
        raise ValueError(
            f"{name}: found a model in which a handler fixes a parameter or the present state, expected none"
        )
    if program.looks_at_belief or not _draws_plainly(program):
        raise ValueError(
            f"{name}: found a model that uses the belief for more than p(θ) and p(x0|θ), expected "
            "aif.parameter(…, Categorical(belief.parameter)) and aif.state(…, Categorical(belief.state[theta]))"
        )


def _draws_plainly(program: Readable) -> bool:
    """Whether p(θ) and p(x0|θ) are the belief's own: tried at some parameters, with a belief of distinct numbers."""
    num_parameters, num_states = program.signature.num_parameters, program.signature.num_states
    every = np.arange(num_parameters, dtype=np.int32)
    theta = jnp.asarray(every[:: max(1, num_parameters // 8)] if program.sample is None else program.sample[:8])

    def probabilities(theta: Array, x: Array) -> Belief:
        share = 1 + (theta * 7 % 11) / 11
        state = 1 + ((theta[:, None] * 13 + x * 5) % 17) / 17
        return Belief(share, state / state.sum(-1, keepdims=True))

    @jax.jit
    def gap(fixed: Any) -> Array:
        x = jnp.arange(num_states)
        belief = probabilities(jnp.arange(num_parameters), x)
        total = belief.parameter.sum()
        world = program.bind(fixed, Belief(belief.parameter / total, belief.state), 1, theta)
        share, state = probabilities(theta, x)
        return jnp.maximum(
            jnp.abs(jnp.exp(world.parameter) * total - share).max(), jnp.abs(jnp.exp(world.initial) - state).max()
        )

    with eval_context():
        return float(gap(program.fixed)) < ROW_SUM_TOLERANCE
