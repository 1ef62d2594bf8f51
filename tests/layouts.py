"""A deterministic world with a dozen parameters, whose tables are small: for pruning, batches and warm starts.

A ring of eight places, walked by three controls; θ is (door, prize): the step over the door is refused, and the prize
lies at one place. What is seen is whether the door is ahead and whether the prize is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif

PLACES, DOORS, PRIZES, CONTROLS, HORIZON = 8, 4, 5, 3, 4
THETA = DOORS * PRIZES


def ring(dense: bool = False, noise: float = 0.0) -> Callable[..., None]:
    """The world's program.

    :param dense: the same transitions and observations as rows of probabilities, not as indices.
    :param noise: the probability of standing still instead; above zero the transitions are dense.
    """

    def certain(index: Any, size: int) -> Any:
        if dense:
            return dist.Categorical(probs=jnp.eye(size)[index])
        return aif.DeterministicCategorical(index, size)

    def model(belief: aif.Belief, horizon: Any = HORIZON) -> None:
        layout = aif.parameters({"door": DOORS, "prize": PRIZES}, belief.parameter)
        door, prize = 2 * layout["door"], layout["prize"] + 1
        x = aif.state("x", dist.Categorical(probs=belief.state[layout["door"] * PRIZES + layout["prize"]]))

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=jnp.array([0.5, 0.25, 0.25])))
            target = (x + u - 1) % PLACES
            target = jnp.where((u == 2) & (x == door), x, target)  # 0: back, 1: stay, 2: on, but for the door
            if noise:
                moved = (1 - noise) * jnp.eye(PLACES)[target] + noise * jnp.eye(PLACES)[x]
                x = aif.state("x", dist.Categorical(probs=moved))
            else:
                x = aif.state("x", certain(target, PLACES))
            aif.observation("ahead", certain((x == door).astype(jnp.int32), 2))
            aif.observation("here", certain((x == prize).astype(jnp.int32), 2))
            aif.preference("goal", jnp.where(x == prize, jnp.where(t == horizon, 2.0, 0.25), 0.0))
            return x

        aif.rollout(step, x, horizon)

    return model


def ring_belief(count: int, seed: int = 0) -> aif.Belief:
    """A random joint belief on ``count`` of the parameters, x with zeros of its own for each."""
    rng = np.random.default_rng(seed)
    possible = rng.permutation(THETA)[:count]  # drawn first: with one seed, fewer are among the more
    parameter = np.zeros(THETA)
    parameter[possible] = rng.dirichlet(np.ones(count))
    state = rng.dirichlet(np.ones(PLACES), THETA) * (rng.random((THETA, PLACES)) < 0.5)
    state[:, 0] += 0.1
    return aif.Belief(jnp.asarray(parameter), jnp.asarray(state / state.sum(1, keepdims=True)))
