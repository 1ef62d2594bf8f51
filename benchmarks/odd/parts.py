"""A program of parts, each of which a case may replace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif

NUM_THETA, NUM_X, NUM_U, NUM_Y = 2, 3, 2, 2
HORIZON = 2


def rows(*shape: int, seed: int = 0) -> jnp.ndarray:
    """A table of random rows; no two are alike, so that a wrong index shows."""
    table = np.random.default_rng((seed, *shape)).dirichlet(np.ones(shape[-1]), shape[:-1])
    return jnp.asarray(table, jnp.float32)


CONTROL, MOVES, SENSOR = rows(NUM_X, NUM_U), rows(NUM_X, NUM_U, NUM_X), rows(NUM_THETA, NUM_X, NUM_Y)
LIKED = jnp.asarray(np.random.default_rng(1).normal(size=(NUM_X, NUM_THETA)), jnp.float32)
BELIEF = aif.Belief(rows(NUM_THETA, seed=5), rows(NUM_THETA, NUM_X, seed=6))

Program = Callable[..., Any]


class Parts:
    """One step, one method for each site."""

    def theta(self, belief: aif.Belief) -> Any:
        return aif.parameter("theta", dist.Categorical(probs=belief.parameter))

    def start(self, belief: aif.Belief, theta: Any) -> Any:
        return aif.state("x", dist.Categorical(probs=belief.state[theta]))

    def control(self, theta: Any, x: Any, t: Any) -> Any:
        return aif.control("u", dist.Categorical(probs=CONTROL[x]))

    def state(self, theta: Any, x: Any, u: Any, t: Any) -> Any:
        return aif.state("x", dist.Categorical(probs=MOVES[x, u]))

    def observation(self, theta: Any, x: Any, u: Any, new: Any, t: Any) -> Any:
        return aif.observation("y", dist.Categorical(probs=SENSOR[theta, new]))

    def preference(self, theta: Any, x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
        aif.preference("goal", jnp.where(t == horizon, LIKED[new, theta], 0.0))

    def carry(self, x: Any, u: Any, new: Any, y: Any) -> Any:
        return new

    def steps(self, horizon: Any) -> Any:
        return horizon

    def program(self) -> Program:
        def model(belief: aif.Belief, horizon: int = HORIZON) -> None:
            theta = self.theta(belief)
            self.x0 = x = self.start(belief, theta)
            self.begin(belief)

            def step(x: Any, t: Any) -> Any:
                u = self.control(theta, x, t)
                new = self.state(theta, x, u, t)
                y = self.observation(theta, x, u, new, t)
                self.preference(theta, x, u, new, y, t, horizon)
                return self.carry(x, u, new, y)

            aif.rollout(step, x, self.steps(horizon))

        return model

    def begin(self, belief: aif.Belief) -> None:
        """Whatever a case does before the rollout."""


def odd(**methods: Callable[..., Any]) -> Program:
    """The program with some methods replaced; a replacement gets the parts as its first argument."""
    return type("Odd", (Parts,), methods)().program()


def plain(**methods: Callable[..., Any]) -> Program:
    """As :func:`odd`, for replacements that do not need the parts."""
    return odd(**{name: staticmethod(build) for name, build in methods.items()})


def liked(value: Callable[..., Any]) -> Program:
    """The program with a preference ``value(theta, x, u, new, t, horizon)``."""
    return plain(preference=lambda th, x, u, new, y, t, h: aif.preference("goal", value(th, x, u, new, t, h)))


def moves(row: Callable[..., Any]) -> Program:
    """The program with moves ``row(x, u, t)``."""
    return plain(state=lambda th, x, u, t: aif.state("x", dist.Categorical(probs=row(x, u, t))))


def carrying(wrap: Callable[..., Any], unwrap: Callable[[Any], Any]) -> Program:
    """The program whose carry is ``wrap(x, theta, t)``."""
    parts = Parts()

    def model(belief: aif.Belief, horizon: int = HORIZON) -> None:
        theta = parts.theta(belief)
        x = parts.start(belief, theta)

        def step(carry: Any, t: Any) -> Any:
            x = unwrap(carry)
            u = parts.control(theta, x, t)
            new = parts.state(theta, x, u, t)
            parts.observation(theta, x, u, new, t)
            parts.preference(theta, x, u, new, None, t, horizon)
            return wrap(new, theta, t)

        aif.rollout(step, wrap(x, theta, jnp.asarray(0)), horizon)

    return model
