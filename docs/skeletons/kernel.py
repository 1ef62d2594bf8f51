"""A kernel: a class for transitions (or emissions) with the methods of ``npro_aif/tables/kernels.py``; no caller asks
what it is. What it does not say for itself it inherits from ``PlainTransition``.

The world is a ring on which one goes round by the control, and slips with a probability that θ decides; the kernel
keeps these probabilities alone and no table over the states.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

import npro_aif as aif
from npro_aif.numerics import neg_entropy, safe_log
from npro_aif.program.program import program_of
from npro_aif.tables.kernels import PlainTransition

PLACES, CONTROLS = 5, 3
SLIPS = (0.1, 0.4)  # by θ: the probability of standing still


def ring(belief: aif.Belief, horizon: int = 3) -> None:
    theta = aif.parameter("theta", dist.Categorical(belief.parameter))
    x = aif.state("x", dist.Categorical(belief.state[theta]))
    slip = jnp.asarray(SLIPS)[theta]

    def step(x: Array, t: Array) -> Array:
        u = aif.control("u", dist.Categorical(probs=jnp.ones(CONTROLS) / CONTROLS))
        to = (x + u) % PLACES
        places = jnp.arange(PLACES)
        probs = (1 - slip)[..., None] * (to[..., None] == places) + slip[..., None] * (x[..., None] == places)
        x = aif.state("x", dist.Categorical(probs=probs))
        aif.observation("y", dist.Categorical(probs=jnp.where((x == 0)[..., None], jnp.eye(2)[theta], 0.5)))
        aif.preference("goal", jnp.where(x == 3, 2.0, 0.0))
        return x

    aif.rollout(step, x, horizon)


@functools.partial(jax.tree_util.register_dataclass, data_fields=("slip",), meta_fields=())
@dataclass(frozen=True)
class Ring(PlainTransition):
    """p(x'|x,u,θ) as one number for each θ."""

    slip: Array  # (Θ,)

    size = PLACES
    num_times = 1
    sees_parameters = True
    learnable = False

    def at(self, t: Any) -> Ring:
        return self

    def select(self, theta: Array) -> Ring:
        return Ring(self.slip[theta])

    def prepared(self) -> Ring:
        return self

    guarded = prepared

    def routed(self, num_parameters: int, num_states: int) -> Ring:
        return self

    def push(self, before: Array, policy: Array) -> Array:
        moved = sum(jnp.roll(policy[:, u, None] * before, u, axis=0) for u in range(CONTROLS))
        return (1 - self.slip) * moved + self.slip * before

    def pull(self, value: Array) -> Array:
        moved = jnp.stack([jnp.roll(value, -u, axis=0) for u in range(CONTROLS)])
        return (1 - self.slip) * moved + self.slip * value

    def spread(self, weight: Array) -> Array:
        mass, slipped = weight.sum(-1), (weight * self.slip).sum(-1)
        entropy = neg_entropy(mass) - neg_entropy(slipped) - neg_entropy(mass - slipped)
        return jnp.where(jnp.arange(CONTROLS)[:, None] == 0, 0.0, entropy)  # standing still is certain

    def table(self) -> Array:
        """For callers that must have it."""
        x, u, to = np.ix_(range(PLACES), range(CONTROLS), range(PLACES))
        go, stay = jnp.asarray((x + u) % PLACES == to, float), jnp.asarray((x == to) & (u >= 0), float)
        slip = self.slip[:, None, None, None]
        return safe_log((1 - slip) * go + slip * stay)

    def certain(self, *given: Array) -> None:
        return None

    def row(self, theta: Array, x: Array, u: Array) -> Array:
        return jnp.exp(self.table())[theta, x, u]

    def given(self, control: Any) -> Any:
        return self

    def expect(self, cost: Array) -> Array:
        return (jnp.exp(self.table()) * cost).sum(-1)

    def divergence(self, other: Any) -> Array:
        return jnp.zeros((1, 1, 1))  # as nothing is learned


if __name__ == "__main__":
    belief = aif.Belief(jnp.array([0.3, 0.7]), jnp.full((2, PLACES), 1 / PLACES))
    world = program_of(ring, belief, 3).world(belief, 3)  # as it is read: a row of probabilities for each (θ, x, u)
    kernel = Ring(jnp.asarray(SLIPS))
    np.testing.assert_allclose(jnp.exp(kernel.table()), jnp.exp(world.state.at(0).table()), atol=1e-6)
    before, policy = jnp.full((PLACES, 2), 0.1), jnp.full((PLACES, CONTROLS), 1 / CONTROLS)
    np.testing.assert_allclose(kernel.push(before, policy), world.state.at(0).push(before, policy), atol=1e-6)
    print("the same flows without a table over states")
