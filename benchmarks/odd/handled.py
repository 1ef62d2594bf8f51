"""Handlers around a model, and in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro import handlers

import npro_aif as aif
from benchmarks.odd.parts import (
    CONTROL,
    LIKED,
    Parts,
    Program,
    odd,
    plain,
)
from benchmarks.odd.structures import joint_program, with_memory


def handled() -> Iterator[tuple[str, Program]]:
    """Handlers around the model, on every site."""
    base = Parts().program()
    values = {"theta": 1, "x_0": 2, "u_1": 1, "x_1": 0, "y_1": 1, "u_2": 0, "x_2": 1, "y_2": 0, "z_9": 1}
    for (name, value), handler in itertools.product(values.items(), ("condition", "substitute", "do")):
        yield f"{handler} {name}", getattr(handlers, handler)(base, data={name: jnp.asarray(value)})
    yield "condition theta and x_0", handlers.condition(base, data={"theta": 0, "x_0": 1})
    yield "substitute theta twice", handlers.substitute(handlers.substitute(base, data={"theta": 0}), data={"theta": 1})
    yield "condition theta out of range", handlers.condition(base, data={"theta": jnp.asarray(7)})
    yield "condition theta by a vector", handlers.condition(base, data={"theta": jnp.asarray([0, 1])})
    yield "condition goal_1", handlers.condition(base, data={"goal_1": jnp.zeros(0)})
    yield "condition a joint table's site", handlers.condition(joint_program(), data={"place": jnp.asarray(1)})
    yield "substitute a joint table's site", handlers.substitute(joint_program(), data={"kind": jnp.asarray(0)})
    yield "substitute a memory", handlers.substitute(with_memory(lambda m, y: y), data={"m_1": jnp.asarray(2)})
    yield "scale 2", handlers.scale(base, scale=2.0)
    yield "scale 1", handlers.scale(base, scale=1.0)
    yield "mask False", handlers.mask(base, mask=False)
    yield "mask True", handlers.mask(base, mask=True)
    yield "scope", handlers.scope(base, prefix="a")
    yield "block", handlers.block(base)
    yield "seed", handlers.seed(base, rng_seed=0)
    yield "trace", handlers.trace(base)
    yield "infer_config", handlers.infer_config(base, config_fn=lambda site: {"note": 1})
    yield "lift", handlers.lift(base, prior=dist.Normal(0.0, 1.0))
    yield "replay", handlers.replay(base, trace={})
    for hidden in ("theta", "x_0", "u_1", "x_2", "y_1", "goal_1"):
        yield f"block {hidden}", handlers.block(base, hide=[hidden])
    yield "block, seeded", handlers.seed(handlers.block(base), rng_seed=0)
    yield "block y_1, seeded", handlers.seed(handlers.block(base, hide=["y_1"]), rng_seed=0)
    for site, method in (("u", "control"), ("x", "state"), ("y", "observation"), ("goal", "preference")):
        for what, handler in (
            ("scale", lambda: handlers.scale(scale=0.5)),
            ("mask", lambda: handlers.mask(mask=False)),
            ("scope", lambda: handlers.scope(prefix="b")),
            ("block", lambda: handlers.block()),
            ("plate", lambda: numpyro.plate("many", 2)),
            ("condition", lambda: handlers.condition(data={"u_2": 1, "x_2": 1, "y_2": 1})),
            ("substitute", lambda: handlers.substitute(data={"u_1": 1, "x_1": 1, "y_1": 1})),
            ("do", lambda: handlers.do(data={"u_2": 1, "x_2": 1, "y_2": 1})),
        ):
            yield f"{what} around {site} in the step", odd(**{method: _under(handler, method)})

    def learned(self: Any, theta: Any, x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
        aif.preference("goal", numpyro.param("w", jnp.asarray(2.0)) * LIKED[new, theta])

    yield "numpyro.param", odd(preference=learned)
    yield "numpyro.param, substituted", handlers.substitute(odd(preference=learned), data={"w": jnp.asarray(0.5)})
    yield (
        "numpyro.prng_key",
        plain(control=lambda th, x, t: (numpyro.prng_key(), aif.control("u", dist.Categorical(probs=CONTROL[x])))[1]),
    )


def _under(handler: Callable[[], Any], method: str) -> Callable[..., Any]:
    def build(self: Any, *args: Any) -> Any:
        with handler():
            return getattr(Parts, method)(self, *args)

    return build
