"""Distributions of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist

import npro_aif as aif
from benchmarks.odd.parts import (
    LIKED,
    SENSOR,
    Program,
    plain,
)


def distributions() -> Iterator[tuple[str, Program]]:
    p = 0.1 + 0.2 * jnp.arange(3.0)
    kinds: dict[str, Callable[[Any], Any]] = {
        "Bernoulli": lambda x: dist.Bernoulli(probs=p[x]),
        "Bernoulli of logits": lambda x: dist.Bernoulli(logits=p[x]),
        "Binomial": lambda x: dist.Binomial(2, probs=p[x]),
        "Binomial of logits": lambda x: dist.Binomial(3, logits=p[x]),
        "BetaBinomial": lambda x: dist.BetaBinomial(1.0 + p[x], 2.0, 2),
        "DiscreteUniform(0, n)": lambda x: dist.DiscreteUniform(0, 2),
        "DiscreteUniform(1, n)": lambda x: dist.DiscreteUniform(1, 3),
        "DiscreteUniform(0, x)": lambda x: dist.DiscreteUniform(0, x),
        "Categorical of logits": lambda x: dist.Categorical(logits=LIKED[x]),
        "Categorical of logits with -inf": lambda x: dist.Categorical(
            logits=jnp.stack([0.0 * x, -jnp.inf + 0 * p[x]], -1)
        ),
        "Categorical with a zero": lambda x: dist.Categorical(
            probs=jnp.asarray([1.0, 0.0])[jnp.stack([x % 2, 1 - x % 2], -1)]
        ),
        "Categorical.mask(False)": lambda x: dist.Categorical(probs=SENSOR[0, x]).mask(False),
        "Categorical.mask(True)": lambda x: dist.Categorical(probs=SENSOR[0, x]).mask(True),
        "Categorical.expand(1)": lambda x: dist.Categorical(probs=SENSOR[0, x]).expand([1]),
        "Categorical.expand(2).to_event": lambda x: dist.Categorical(probs=SENSOR[0, x]).expand([2]).to_event(1),
        "to_event(0)": lambda x: dist.Categorical(probs=SENSOR[0, x]).to_event(0),
        "Categorical over all rows, to_event": lambda x: dist.Categorical(probs=SENSOR[:, x]).to_event(1),
        "OneHotCategorical": lambda x: dist.OneHotCategorical(probs=SENSOR[0, x]),
        "Multinomial": lambda x: dist.Multinomial(2, probs=SENSOR[0, x]),
        "Poisson": lambda x: dist.Poisson(p[x]),
        "Geometric": lambda x: dist.Geometric(probs=p[x]),
        "Normal": lambda x: dist.Normal(p[x], 1.0),
        "Delta": lambda x: dist.Delta(p[x]),
        "Delta of a whole number": lambda x: dist.Delta(x),
        "Unit": lambda x: dist.Unit(p[x]),
        "ZeroInflatedPoisson": lambda x: dist.ZeroInflatedPoisson(p[x], 1.0),
        "ZeroInflated Binomial": lambda x: dist.ZeroInflatedDistribution(dist.Binomial(2, probs=p[x]), gate=0.3),
        "OrderedLogistic": lambda x: dist.OrderedLogistic(p[x], jnp.asarray([-1.0, 1.0])),
        "MixtureSameFamily": lambda x: dist.MixtureSameFamily(
            dist.Categorical(probs=SENSOR[0, x]),
            dist.Categorical(probs=SENSOR[:, x].swapaxes(0, -2) if x.ndim else SENSOR[:, x]),
        ),
        "a certain one": lambda x: aif.DeterministicCategorical(x, 3),
        "a certain one of floats": lambda x: aif.DeterministicCategorical(1.0 * x, 3),
        "a certain one too far": lambda x: aif.DeterministicCategorical(x + 1, 3),
        "a certain one below": lambda x: aif.DeterministicCategorical(x - 1, 3),
        "no distribution": lambda x: SENSOR[0, x],
        "None": lambda x: None,
    }
    for name, make in kinds.items():
        yield f"y: {name}", plain(observation=lambda th, x, u, new, t, make=make: aif.observation("y", make(new)))
    for name in ("Bernoulli", "Binomial", "DiscreteUniform(0, n)", "Categorical.mask(False)", "Poisson", "to_event(0)"):
        make = kinds[name]
        yield f"u: {name}", plain(control=lambda th, x, t, make=make: aif.control("u", make(x)))
    yield "θ: Bernoulli", plain(theta=lambda b: aif.parameter("theta", dist.Bernoulli(probs=b.parameter[1])))
    yield "θ: its own numbers", plain(theta=lambda b: aif.parameter("theta", dist.Categorical(probs=SENSOR[0, 0])))
    yield "x_0: certain", plain(start=lambda b, th: aif.state("x", aif.DeterministicCategorical(th, 3)))
    yield "x_0: DiscreteUniform", plain(start=lambda b, th: aif.state("x", dist.DiscreteUniform(0, 2)))
    yield "x: Binomial", plain(state=lambda th, x, u, t: aif.state("x", dist.Binomial(2, probs=p[(x + u) % 3])))
