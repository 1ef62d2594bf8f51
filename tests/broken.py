"""A sound little program whose slice a test can break, and a check of the planner's answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest

import npro_aif as aif

NUM_THETA, NUM_X, NUM_U, NUM_Y = 2, 3, 2, 2
KEY = jax.random.key(0)
UNIFORM = aif.Belief(jnp.full(NUM_THETA, 1 / NUM_THETA), jnp.full((NUM_THETA, NUM_X), 1 / NUM_X))
SOLVER = aif.SVISolver(optax.adam(0.05), 2)


def rows(*shape: int) -> jnp.ndarray:
    """A table of random rows; no two are alike, so that a wrong index shows."""
    return jnp.asarray(np.random.default_rng(len(shape)).dirichlet(np.ones(shape[-1]), shape[:-1]), jnp.float32)


CONTROL, SQUARE = rows(NUM_X, NUM_U), rows(NUM_X, NUM_X)
TRANSITION = rows(NUM_X, NUM_U, NUM_X)
SENSOR = rows(NUM_THETA, NUM_X, NUM_Y)
LIKING = jnp.arange(float(NUM_X))


class Slice:
    """One step, one method for each site; a test overrides what it gets wrong."""

    def start(self, belief: aif.Belief) -> tuple[Any, Any]:
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        return theta, aif.state("x", dist.Categorical(probs=belief.state[theta]))

    def control(self, theta: Any, x: Any, t: Any) -> Any:
        return aif.control("u", dist.Categorical(probs=CONTROL[x]))

    def state(self, theta: Any, x: Any, u: Any, t: Any) -> Any:
        return aif.state("x", dist.Categorical(probs=TRANSITION[x, u]))

    def observation(self, theta: Any, x: Any, u: Any, new: Any) -> Any:
        return aif.observation("y", dist.Categorical(probs=SENSOR[theta, new]))

    def preference(self, x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
        aif.preference("goal", jnp.where(t == horizon, LIKING[new], 0.0))

    def carry(self, x: Any, u: Any, new: Any, y: Any) -> Any:
        return new

    def program(self) -> Callable[..., None]:
        def model(belief: aif.Belief, horizon: int = 2) -> None:
            theta, x = self.start(belief)

            def step(x: Any, t: Any) -> Any:
                u = self.control(theta, x, t)
                new = self.state(theta, x, u, t)
                y = self.observation(theta, x, u, new)
                self.preference(x, u, new, y, t, horizon)
                return self.carry(x, u, new, y)

            aif.rollout(step, x, horizon)

        return model


def with_site(method: str, build: Callable[..., Any]) -> Callable[..., None]:
    """The program with one method of its slice replaced."""
    return type("Broken", (Slice,), {method: lambda self, *args: build(*args)})().program()


def planner(model: Callable[..., None], **settings: Any) -> aif.Planner:
    return aif.Planner(model, solver=settings.pop("solver", SOLVER), **settings)


def refuses(
    planner: aif.Planner, error: type[Exception], *parts: str, belief: aif.Belief = UNIFORM, horizon: Any = 2
) -> None:
    """The planner raises an error with all the parts, before anything of the plan is traced."""
    with pytest.raises(error) as caught:
        planner(KEY, belief, horizon=horizon)
    for part in parts:
        assert part in str(caught.value), (part, str(caught.value))
    assert planner.num_traces == 0
