"""Odd but plausible programs: each is read as plain NumPyro would run it, or refused by name.

Every program is planned with, and its free energy is compared with a sum over all trajectories whose probabilities come
from plain NumPyro's trace. A program may instead be refused, by a ``ValueError`` (a ``ModelError`` or ``GuideError``
mostly) that names a site or an argument. Anything else is a fault:

    python benchmarks/fuzz_programs.py            # all of them
    python benchmarks/fuzz_programs.py handlers   # one family
"""

from __future__ import annotations

import collections
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions.distribution import Unit

import npro_aif as aif

NUM_THETA, NUM_X, NUM_U, NUM_Y = 2, 3, 2, 2
HORIZON = 2
TOLERANCE = 2e-4
ROLES = ("theta", "x", "u", "y", "goal", "m", "kind", "z", "v", "place")  # the sites' names in these programs


def rows(*shape: int, seed: int = 0) -> jnp.ndarray:
    """A table of random rows; no two are alike, so that a wrong index shows."""
    table = np.random.default_rng((seed, *shape)).dirichlet(np.ones(shape[-1]), shape[:-1])
    return jnp.asarray(table, jnp.float32)


CONTROL, MOVES, SENSOR = rows(NUM_X, NUM_U), rows(NUM_X, NUM_U, NUM_X), rows(NUM_THETA, NUM_X, NUM_Y)
LIKED = jnp.asarray(np.random.default_rng(1).normal(size=(NUM_X, NUM_THETA)), jnp.float32)
BELIEF = aif.Belief(rows(NUM_THETA, seed=5), rows(NUM_THETA, NUM_X, seed=6))

Program = Callable[..., Any]


class Case(NamedTuple):
    """One program, and from which belief to plan with it."""

    family: str
    name: str
    model: Program
    belief: aif.Belief = BELIEF
    horizon: int = HORIZON


class Verdict(NamedTuple):
    """What came of it."""

    kind: str  # "right", "refused", "wrong" or "crashed"
    text: str


# --- A program of parts, each of which a case may replace ---


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


# --- The families ---


def structures() -> Iterator[tuple[str, Program]]:
    def closes(what: str) -> Program:
        if what == "x0":
            return odd(state=lambda s, th, x, u, t: aif.state("x", dist.Categorical(probs=MOVES[s.x0, u])))
        if what == "x0 in control":
            return odd(control=lambda s, th, x, t: aif.control("u", dist.Categorical(probs=CONTROL[s.x0])))
        return odd(
            preference=lambda s, th, x, u, new, y, t, h: aif.preference("goal", LIKED[s.x0, th] + LIKED[new, th])
        )

    for what in ("x0", "x0 in control", "x0 in preference"):
        yield f"the step reads {what}", closes(what)

    def counter(self: Any, theta: Any, x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
        self.count = getattr(self, "count", 0) + 1
        aif.preference("goal", LIKED[new, theta] * self.count)

    def own_counter(self: Any, theta: Any, x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
        self.count += 1
        aif.preference("goal", LIKED[new, theta] * self.count)

    yield "a counter outside", odd(preference=counter)
    yield "a counter in the model", odd(begin=lambda s, b: setattr(s, "count", 0), preference=own_counter)

    def last(self: Any, theta: Any, x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
        aif.preference("goal", LIKED[new, theta] + 1.0 * self.last_y)
        self.last_y = y

    yield "the last y in a closure", odd(begin=lambda s, b: setattr(s, "last_y", 0), preference=last)

    def first_only(self: Any, theta: Any, x: Any, u: Any, new: Any, t: Any) -> Any:
        self.calls += 1
        return Parts.observation(self, theta, x, u, new, t) if self.calls == 1 else 0

    yield "a site of the first step only", odd(begin=lambda s, b: setattr(s, "calls", 0), observation=first_only)
    yield "horizon + 1", plain(steps=lambda h: h + 1)
    yield "horizon - 1", plain(steps=lambda h: h - 1)
    yield "min(horizon, 1)", plain(steps=lambda h: min(h, 1))
    yield "jnp.minimum(horizon, 1)", plain(steps=lambda h: jnp.minimum(h, 1))
    yield "jnp.minimum(horizon, 9)", plain(steps=lambda h: jnp.minimum(h, 9))
    yield "2 steps always", plain(steps=lambda h: 2)
    yield "twice the horizon", plain(steps=lambda h: 2 * h)
    yield "the carry is a dict", _carried(lambda x: {"x": x}, lambda c: c["x"])
    yield "the carry is a pair of the same", _carried(lambda x: (x, x), lambda c: c[1])
    yield "the carry is shifted", _carried(lambda x: x + 1, lambda c: c - 1)
    yield "the carry has a constant", _carried(lambda x: (x, jnp.asarray(3.0)), lambda c: c[0])
    yield "the carry is one-hot", _carried(lambda x: jax.nn.one_hot(x, NUM_X), lambda c: jnp.argmax(c, -1))
    yield "the carry forgets", plain(carry=lambda x, u, new, y: x)
    yield "the carry adds the control", plain(carry=lambda x, u, new, y: new + 0 * u)
    yield "the carry counts", plain(carry=lambda x, u, new, y: new + 1)
    yield "no preference", plain(preference=lambda *a: None)
    yield (
        "two preferences",
        plain(
            preference=lambda th, x, u, new, y, t, h: (
                aif.preference("goal", LIKED[new, th]),
                aif.preference("v", 1.0 * u),
            )
        ),
    )
    yield (
        "a preference on x, u and the new x",
        plain(preference=lambda th, x, u, new, y, t, h: aif.preference("goal", 1.0 * x + 2.0 * u * new)),
    )
    yield "a preference on y", plain(preference=lambda th, x, u, new, y, t, h: aif.preference("goal", 1.0 * y * new))
    yield (
        "a preference on y and u",
        plain(preference=lambda th, x, u, new, y, t, h: aif.preference("goal", 1.0 * y * u)),
    )
    yield (
        "a preference on the time",
        plain(preference=lambda th, x, u, new, y, t, h: aif.preference("goal", t * LIKED[new, th])),
    )
    yield (
        "a preference on the time left",
        plain(preference=lambda th, x, u, new, y, t, h: aif.preference("goal", (h - t) * LIKED[new, th])),
    )
    yield "no observation", plain(observation=lambda *a: 0)
    yield (
        "an observation of the control",
        plain(
            observation=lambda th, x, u, new, t: aif.observation(
                "y", dist.Categorical(probs=rows(NUM_U, NUM_X, NUM_Y)[u, new])
            )
        ),
    )
    yield (
        "an observation of the old state",
        plain(observation=lambda th, x, u, new, t: aif.observation("y", dist.Categorical(probs=SENSOR[th, x]))),
    )
    yield (
        "two observations",
        plain(
            observation=lambda th, x, u, new, t: (
                aif.observation("z", dist.Categorical(probs=SENSOR[1 - th, new])),
                aif.observation("y", dist.Categorical(probs=SENSOR[th, new])),
            )[1]
        ),
    )
    yield (
        "an observation given another",
        plain(
            observation=lambda th, x, u, new, t: aif.observation(
                "y", dist.Categorical(probs=SENSOR[aif.observation("z", dist.Categorical(probs=SENSOR[th, new])), new])
            )
        ),
    )
    yield (
        "a sensor",
        plain(
            observation=lambda th, x, u, new, t: (
                aif.observation("z", aif.DeterministicCategorical(new, NUM_X), plan=False),
                aif.observation("y", dist.Categorical(probs=SENSOR[th, new])),
            )[1]
        ),
    )
    yield (
        "moves that know θ",
        plain(state=lambda th, x, u, t: aif.state("x", dist.Categorical(probs=rows(2, 3, 2, 3)[th, x, u]))),
    )
    yield (
        "moves that know the time",
        plain(state=lambda th, x, u, t: aif.state("x", dist.Categorical(probs=rows(3, 3, 2, 3)[t % 3, x, u]))),
    )
    yield "certain moves", plain(state=lambda th, x, u, t: aif.state("x", aif.DeterministicCategorical((x + u) % 3, 3)))
    yield (
        "a control that knows θ",
        plain(control=lambda th, x, t: aif.control("u", dist.Categorical(probs=CONTROL[th]))),
    )
    yield (
        "a second control",
        plain(
            control=lambda th, x, t: (
                aif.control("v", dist.Categorical(probs=CONTROL[x])),
                aif.control("u", dist.Categorical(probs=CONTROL[(x + 1) % 3])),
            )[1]
        ),
    )
    yield "a second state", _second_state()
    yield "a hidden second state", _second_state(hidden=True)
    yield "a memory", _with_memory(lambda m, y: jnp.maximum(m, y + 1))
    yield "a memory that counts", _with_memory(lambda m, y: jnp.minimum(m + y, 2))
    yield "a memory that overflows", _with_memory(lambda m, y: m + y)
    yield "two rollouts", _twice()
    yield "no rollout", lambda belief, horizon=2: Parts().theta(belief)
    yield "no parameter", _no_parameter()
    yield "a state of one value", _lonely()
    yield "parameters from one table", _joint()
    yield "print in the step", plain(carry=lambda x, u, new, y: (str(t_) if (t_ := 0) else "", new)[1])
    yield "a deterministic site", plain(carry=lambda x, u, new, y: (numpyro.deterministic("twice", 2 * new), new)[1])


def _carried(wrap: Callable[[Any], Any], unwrap: Callable[[Any], Any]) -> Program:
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
            return wrap(new)

        aif.rollout(step, wrap(x), horizon)

    return model


def _second_state(*, hidden: bool = False) -> Program:
    moves = rows(NUM_X, 2, NUM_U, 2)

    def model(belief: aif.Belief, horizon: int = HORIZON) -> None:
        theta = Parts().theta(belief)
        start = aif.initial_state({"x": NUM_X, "z": 2}, belief.state[theta])

        def step(carry: Any, t: Any) -> Any:
            x, z = carry
            u = Parts().control(theta, x, t)
            new_z = aif.state("z", dist.Categorical(probs=moves[x, z, u]), hidden=hidden)
            new = aif.state("x", dist.Categorical(probs=MOVES[(x + new_z) % 3, u]))
            Parts().observation(theta, x, u, new, t)
            aif.preference("goal", LIKED[new, new_z])
            return new, new_z

        aif.rollout(step, (start["x"], start["z"]), horizon)

    return model


def _with_memory(update: Callable[[Any, Any], Any]) -> Program:
    def model(belief: aif.Belief, horizon: int = HORIZON) -> None:
        parts = Parts()
        theta = parts.theta(belief)
        x = parts.start(belief, theta)

        def step(carry: Any, t: Any) -> Any:
            x, m = carry
            u = parts.control(theta, x, t)
            new = parts.state(theta, x, u, t)
            y = parts.observation(theta, x, u, new, t)
            aif.preference("goal", LIKED[new, theta])
            return new, aif.memory("m", update(m, y), 3)

        aif.rollout(step, (x, aif.memory("m", 0, 3)), horizon)

    return model


def _twice() -> Program:
    def model(belief: aif.Belief, horizon: int = HORIZON) -> None:
        x = Parts().start(belief, Parts().theta(belief))
        for _ in range(2):
            x = aif.rollout(lambda x, t: Parts().state(0, x, Parts().control(0, x, t), t), x, horizon)

    return model


def _no_parameter() -> Program:
    def model(belief: aif.Belief, horizon: int = HORIZON) -> None:
        x = aif.state("x", dist.Categorical(probs=belief.state[0]))

        def step(x: Any, t: Any) -> Any:
            u = Parts().control(0, x, t)
            x = Parts().state(0, x, u, t)
            aif.preference("goal", LIKED[x, 0])
            return x

        aif.rollout(step, x, horizon)

    return model


def _lonely() -> Program:
    def model(belief: aif.Belief, horizon: int = HORIZON) -> None:
        theta = Parts().theta(belief)
        x = aif.state("x", dist.Categorical(probs=jnp.ones(1)))

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=CONTROL[x]))
            x = aif.state("x", dist.Categorical(probs=jnp.ones(1)))
            aif.observation("y", dist.Categorical(probs=SENSOR[theta, u]))
            aif.preference("goal", 1.0 * u)
            return x

        aif.rollout(step, x, horizon)

    return model


def _joint() -> Program:
    def model(belief: aif.Belief, horizon: int = HORIZON) -> None:
        theta = aif.parameters({"kind": 2, "place": 2}, belief.parameter)
        x = aif.state("x", dist.Categorical(probs=rows(2, 2, 3)[theta["kind"], theta["place"]]))

        def step(x: Any, t: Any) -> Any:
            u = Parts().control(0, x, t)
            x = Parts().state(0, x, u, t)
            aif.observation("y", dist.Categorical(probs=SENSOR[theta["place"], x]))
            aif.preference("goal", LIKED[x, theta["kind"]])
            return x

        aif.rollout(step, x, horizon)

    return model


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
    yield "condition a joint table's site", handlers.condition(_joint(), data={"place": jnp.asarray(1)})
    yield "substitute a joint table's site", handlers.substitute(_joint(), data={"kind": jnp.asarray(0)})
    yield "substitute a memory", handlers.substitute(_with_memory(lambda m, y: y), data={"m_1": jnp.asarray(2)})
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


def distributions() -> Iterator[tuple[str, Program]]:
    p = 0.1 + 0.2 * jnp.arange(3.0)
    made: dict[str, Callable[[Any], Any]] = {
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
        "Unit": lambda x: Unit(p[x]),
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
    for name, make in made.items():
        yield f"y: {name}", plain(observation=lambda th, x, u, new, t, make=make: aif.observation("y", make(new)))
    for name in ("Bernoulli", "Binomial", "DiscreteUniform(0, n)", "Categorical.mask(False)", "Poisson", "to_event(0)"):
        make = made[name]
        yield f"u: {name}", plain(control=lambda th, x, t, make=make: aif.control("u", make(x)))
    yield "θ: Bernoulli", plain(theta=lambda b: aif.parameter("theta", dist.Bernoulli(probs=b.parameter[1])))
    yield "θ: its own numbers", plain(theta=lambda b: aif.parameter("theta", dist.Categorical(probs=SENSOR[0, 0])))
    yield "x_0: certain", plain(start=lambda b, th: aif.state("x", aif.DeterministicCategorical(th, 3)))
    yield "x_0: DiscreteUniform", plain(start=lambda b, th: aif.state("x", dist.DiscreteUniform(0, 2)))
    yield "x: Binomial", plain(state=lambda th, x, u, t: aif.state("x", dist.Binomial(2, probs=p[(x + u) % 3])))


def names() -> Iterator[tuple[str, Program]]:
    base = "goal"
    for name in (
        "t",
        "y_t",
        "y_0",
        "y_1",
        "x_1",
        "x_t",
        "u_0",
        "theta_0",
        "",
        "ein Name",
        "ü",
        "a/b",
        "y__CF",
        "0",
        "u",
        "x",
    ):
        yield (
            f"an observation '{name}'",
            plain(
                observation=lambda th, x, u, new, t, name=name: aif.observation(
                    name, dist.Categorical(probs=SENSOR[th, new])
                )
            ),
        )
    for name in ("x", "u", "y", "theta", "t", "goal_t", "y_t", ""):
        yield (
            f"a preference '{name}'",
            plain(preference=lambda th, x, u, new, y, t, h, name=name: aif.preference(name, LIKED[new, th])),
        )
    for name in ("x_0", "x", "u", "y_1", "x_t"):
        yield (
            f"a parameter '{name}'",
            plain(theta=lambda b, name=name: aif.parameter(name, dist.Categorical(probs=b.parameter))),
        )
    for name in (base, "goal_t", "goal_1", "bonus_t", "bonus"):
        yield (
            f"a factor '{name}'",
            plain(preference=lambda th, x, u, new, y, t, h, name=name: numpyro.factor(name, LIKED[new, th])),
        )
    yield (
        "a factor named by the time",
        plain(preference=lambda th, x, u, new, y, t, h: numpyro.factor(f"bonus_{t}", LIKED[new, th])),
    )
    yield "a factor before the rollout", odd(begin=lambda s, b: numpyro.factor("bonus_t", 1.0))
    yield "a preference before the rollout", odd(begin=lambda s, b: aif.preference("bonus", 1.0))
    yield (
        "an unmarked sample",
        plain(carry=lambda x, u, new, y: (numpyro.sample("w", dist.Categorical(probs=CONTROL[new])), new)[1]),
    )
    yield (
        "a number as a name",
        plain(
            observation=lambda th, x, u, new, t: aif.observation(7, dist.Categorical(probs=SENSOR[th, new]))  # type: ignore[arg-type]
        ),
    )
    for labels in (("a", "a"), ("a",), ("a", "b"), "ab", (1, 2)):
        yield (
            f"labels {labels!r}",
            plain(
                observation=lambda th, x, u, new, t, labels=labels: aif.observation(
                    "y", dist.Categorical(probs=SENSOR[th, new]), labels=labels
                )
            ),
        )


def indices() -> Iterator[tuple[str, Program]]:
    def liked(table: Callable[[Any, Any, Any], Any]) -> Program:
        return plain(preference=lambda th, x, u, new, y, t, h: aif.preference("goal", table(new, u, th)))

    line = jnp.asarray([0.5, -1.0, 2.0])
    yield "R[x + 1]", liked(lambda x, u, th: line[x + 1])
    yield "R[x - 1]", liked(lambda x, u, th: line[x - 1])
    yield "R[(x + 1) % n]", liked(lambda x, u, th: line[(x + 1) % 3])
    yield "R[x + 1], guarded", liked(lambda x, u, th: jnp.where(x < 2, line[x + 1], 0.0))
    yield "R[x - 1], guarded", liked(lambda x, u, th: jnp.where(x > 0, line[x - 1], 0.0))
    yield "R[x + 1], guarded wrongly", liked(lambda x, u, th: jnp.where(x > 0, line[x + 1], 0.0))
    yield "R[x + 1], clipped", liked(lambda x, u, th: line.at[x + 1].get(mode="clip"))
    yield "R[x + 1], filled", liked(lambda x, u, th: line.at[x + 1].get(mode="fill", fill_value=0.0))
    yield "jnp.take(R, x + 1)", liked(lambda x, u, th: jnp.take(line, x + 1))
    yield "jnp.take(R, x + 1, mode=clip)", liked(lambda x, u, th: jnp.take(line, x + 1, mode="clip"))
    yield "jnp.take(R, x - 1, mode=wrap)", liked(lambda x, u, th: jnp.take(line, x - 1, mode="wrap"))
    yield "R[-1 - x]", liked(lambda x, u, th: line[-1 - x])
    yield "R[2 - x]", liked(lambda x, u, th: line[2 - x])
    yield "R[x][:2]", liked(lambda x, u, th: jnp.stack([line[x], line[2 - x]]).sum(0))
    yield "R[x, θ] of swapped axes", liked(lambda x, u, th: LIKED.T[x, th])
    yield "R[x, u] too short", liked(lambda x, u, th: jnp.ones((3, 1))[x, u] * line[x])
    yield "R[-1]", liked(lambda x, u, th: line[-1] * x)
    yield "R[x.astype(int8)]", liked(lambda x, u, th: line[x.astype(jnp.int8)])
    yield "R[x] with x of float", liked(lambda x, u, th: line[x * 1.0])
    yield "R[:, x]", liked(lambda x, u, th: LIKED.T[:, x].sum(0))
    yield "R[x == 1]", liked(lambda x, u, th: jnp.where(x == 1, line[1], line[0]))
    yield "R @ onehot", liked(lambda x, u, th: jax.nn.one_hot(x, 3) @ line)
    yield "lax.dynamic_slice", liked(lambda x, u, th: jax.lax.dynamic_slice(line, (x + 1,), (1,))[0])
    yield "lax.switch", liked(lambda x, u, th: jax.lax.switch(x, [lambda: 0.0, lambda: 1.0, lambda: 2.0]))
    yield "lax.cond", liked(lambda x, u, th: jax.lax.cond(x > 0, lambda: 1.0, lambda: 0.0))
    yield "jnp.select", liked(lambda x, u, th: jnp.select([x == 0, x == 1], [1.0, 2.0], 3.0))
    yield "numpy table", liked(lambda x, u, th: np.asarray(line)[x])
    yield "a list", liked(lambda x, u, th: [0.0, 1.0, 2.0][x])
    yield "an if", liked(lambda x, u, th: 1.0 if x == 0 else 0.0)
    yield "vmap inside", liked(lambda x, u, th: jax.vmap(lambda r: r * x)(line).sum(0))
    yield "jit inside", liked(lambda x, u, th: jax.jit(lambda i: line[i])(x))
    yield "jit inside, x + 1", liked(lambda x, u, th: jax.jit(lambda i: line[i])(x + 1))
    moves = {
        "T[x - 1, u]": lambda th, x, u, t: MOVES[x - 1, u],
        "T[x + 1, u]": lambda th, x, u, t: MOVES[x + 1, u],
        "T[u, x]": lambda th, x, u, t: MOVES[u, x],
        "T[x]": lambda th, x, u, t: MOVES[x],
        "T[x, u, 0]": lambda th, x, u, t: MOVES[x, u, 0],
        "T[t]": lambda th, x, u, t: rows(2, 3, 2, 3)[t, x, u],
        "T[t - 1]": lambda th, x, u, t: rows(2, 3, 2, 3)[t - 1, x, u],
        "T[:, x]": lambda th, x, u, t: rows(3, 3).T[:, x],
        "two dimensions too many": lambda th, x, u, t: MOVES[x, u, 0, 0],
    }
    for name, row in moves.items():
        yield name, plain(state=lambda th, x, u, t, row=row: aif.state("x", dist.Categorical(probs=row(th, x, u, t))))
    yield (
        "θ on a short table",
        plain(observation=lambda th, x, u, new, t: aif.observation("y", dist.Categorical(probs=SENSOR[:1][th, new]))),
    )
    yield (
        "certain moves from a short table",
        plain(
            state=lambda th, x, u, t: aif.state(
                "x", aif.DeterministicCategorical(jnp.asarray([[1, 2], [0, 2]])[x, u], 3)
            )
        ),
    )
    yield (
        "certain moves by x - 1, guarded",
        plain(
            state=lambda th, x, u, t: aif.state(
                "x", aif.DeterministicCategorical(jnp.where(x > 0, jnp.arange(3)[x - 1], 0), 3)
            )
        ),
    )


def numbers() -> Iterator[tuple[str, Program]]:
    for factor in (1.0, 1.0005, 0.9995, 1.005, 0.0, float("nan"), -1.0):
        yield (
            f"rows that sum to {factor}",
            plain(state=lambda th, x, u, t, f=factor: aif.state("x", dist.Categorical(probs=f * MOVES[x, u]))),
        )
    for value in (float("nan"), float("inf"), -float("inf"), -1e9, 1e30, 3, True):
        yield (
            f"a preference of {value}",
            plain(preference=lambda th, x, u, new, y, t, h, v=value: aif.preference("goal", jnp.where(new == 1, v, 0))),
        )
    yield "a preference of a Python number", plain(preference=lambda *a: aif.preference("goal", 2.0))
    yield "a preference of a row", plain(preference=lambda th, x, u, new, y, t, h: aif.preference("goal", LIKED[new]))
    yield "a preference of None", plain(preference=lambda *a: aif.preference("goal", None))  # type: ignore[arg-type]
    yield (
        "1 / (h - t)",
        plain(preference=lambda th, x, u, new, y, t, h: aif.preference("goal", LIKED[new, th] / (h - t))),
    )
    yield (
        "float16 tables",
        plain(state=lambda th, x, u, t: aif.state("x", dist.Categorical(probs=MOVES.astype(jnp.float16)[x, u]))),
    )
    yield (
        "bfloat16 preferences",
        plain(preference=lambda th, x, u, new, y, t, h: aif.preference("goal", LIKED.astype(jnp.bfloat16)[new, th])),
    )
    yield (
        "integer probabilities",
        plain(state=lambda th, x, u, t: aif.state("x", dist.Categorical(probs=jnp.eye(3, dtype=int)[(x + u) % 3]))),
    )
    yield (
        "float64 NumPy rows",
        plain(control=lambda th, x, t: aif.control("u", dist.Categorical(probs=np.asarray([0.25, 0.75])))),
    )
    yield (
        "rows of a Python list",
        plain(control=lambda th, x, t: aif.control("u", dist.Categorical(probs=[0.25, 0.75]))),
    )
    yield "complex numbers", plain(preference=lambda th, x, u, new, y, t, h: aif.preference("goal", 1j * new))
    yield (
        "a random table",
        odd(
            state=lambda s, th, x, u, t: aif.state(
                "x",
                dist.Categorical(
                    probs=jnp.asarray(np.random.default_rng().dirichlet(np.ones(3), (3, 2)), jnp.float32)[x, u]
                ),
            )
        ),
    )
    yield (
        "log of the belief",
        odd(
            begin=lambda s, b: setattr(s, "belief", b),
            preference=lambda s, th, x, u, new, y, t, h: aif.preference("goal", jnp.log(s.belief.parameter[th])),
        ),
    )


def cases(family: str | None = None) -> list[Case]:
    """Every program."""
    families = {
        "structures": structures,
        "handlers": handled,
        "distributions": distributions,
        "names": names,
        "indices": indices,
        "numbers": numbers,
    }
    made = [
        Case(kind, name, model) for kind, build in families.items() if family in (None, kind) for name, model in build()
    ]
    four = aif.Belief(rows(4, seed=7), rows(4, NUM_X, seed=8))
    one = aif.Belief(jnp.ones(1), rows(1, NUM_X, seed=8))
    fitting = {
        "parameters from one table": four,
        "condition a joint table's site": four,
        "substitute a joint table's site": four,
        "no parameter": one,
        "a state of one value": aif.Belief(BELIEF.parameter, jnp.ones((2, 1))),
        "a second state": aif.Belief(BELIEF.parameter, jnp.full((2, 6), 1 / 6)),
        "a hidden second state": aif.Belief(BELIEF.parameter, jnp.full((2, 6), 1 / 6)),
        "log of the belief": aif.Belief(jnp.asarray([0.0, 1.0]), BELIEF.state),
    }
    made = [case._replace(belief=fitting.get(case.name, BELIEF)) for case in made]
    if family in (None, "indices"):
        three = aif.Belief(rows(3, seed=7), rows(3, NUM_X, seed=8))
        made.append(Case("indices", "three parameters, tables for two", Parts().program(), three))
    if family in (None, "structures"):
        made += [
            Case("structures", f"{c.name}, 3 steps", c.model, c.belief, 3) for c in made if c.name.startswith("the ")
        ]
    return made


# --- What plain NumPyro says ---


class Sums(NamedTuple):
    """All trajectories of a program under plain NumPyro."""

    log_prior: np.ndarray  # (N,) Σ log p of all sites but controls
    log_control: np.ndarray  # (N,) Σ log p(u)
    preference: np.ndarray  # (N,)
    values: dict[str, np.ndarray]  # by full name, (N,)


def trajectories(model: Program, belief: aif.Belief, horizon: int) -> Sums:
    """Enumerate a program by running it under plain NumPyro, all latent values substituted."""
    with handlers.seed(rng_seed=0):
        first = handlers.trace(model).get_trace(belief, horizon=horizon)
    latent = {
        name: np.asarray(site["fn"].enumerate_support(expand=False)).ravel()
        for name, site in first.items()
        if site["type"] == "sample" and not site["is_observed"]
    }
    for end in (0, -1):  # what a handler in the model fixes does not take another value
        chosen = _choose({name: jnp.asarray(values[end]) for name, values in latent.items()})
        with handlers.seed(rng_seed=0), handlers.substitute(substitute_fn=chosen):
            sites = handlers.trace(model).get_trace(belief, horizon=horizon)
        latent = {name: values for name, values in latent.items() if int(sites[name]["value"]) == int(values[end])}
    grid = np.meshgrid(*latent.values(), indexing="ij")
    values = {name: jnp.asarray(axis.ravel()) for name, axis in zip(latent, grid, strict=True)}
    kinds = {name: kind(name, site) for name, site in first.items() if site["type"] == "sample"}

    def run(assignment: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        with handlers.seed(rng_seed=0), handlers.substitute(substitute_fn=_choose(assignment)):
            sites = handlers.trace(model).get_trace(belief, horizon=horizon)
        total = {"prior": jnp.zeros(()), "control": jnp.zeros(()), "preference": jnp.zeros(())}
        seen = {}
        for name, site in sites.items():
            if site["type"] == "sample":
                log = jnp.sum(site["fn"].log_prob(site["value"])) * (1.0 if site["scale"] is None else site["scale"])
                total[kinds[name]] += log
            if site["type"] in ("sample", "deterministic") and jnp.ndim(site["value"]) == 0:
                seen[name] = site["value"]
        return total, seen

    total, seen = jax.vmap(run)(values)
    numbers = {name: np.asarray(value, float) for name, value in total.items()}
    return Sums(
        numbers["prior"], numbers["control"], numbers["preference"], {k: np.asarray(v) for k, v in seen.items()}
    )


def _choose(assignment: dict[str, Any]) -> Callable[[Any], Any]:
    """Values for the sites that have none yet."""
    return lambda site: assignment.get(site["name"]) if site["value"] is None else None


def kind(name: str, site: dict[str, Any]) -> str:
    if isinstance(site["fn"], Unit):
        return "preference"
    return "control" if name.rsplit("_", 1)[0] in ("u", "v") else "prior"


def free_energy(plan: aif.Plan, sums: Sums, horizon: int) -> float:
    """F_planning of a plan's policy, from plain NumPyro's probabilities: E_q[−log p(u) − log p̂]."""
    signature, policy = plan.signature, np.asarray(plan.policy, float)
    log_policy = np.zeros_like(sums.log_prior)
    for t in range(1, horizon + 1):
        seen = flat([(s, sums.values[f"{s.name}_{t - 1}"]) for s in signature.policy], len(log_policy))
        done = flat([(s, sums.values[f"{s.name}_{t}"]) for s in signature.control], len(log_policy))
        with np.errstate(divide="ignore"):
            log_policy = log_policy + np.log(policy[t - 1][seen, done])
    weight = np.exp(sums.log_prior + log_policy)
    weight = weight / weight.sum()  # what a condition fixes is given
    live = weight > 0
    return float((weight[live] * (-sums.log_control - sums.preference)[live]).sum())


def flat(parts: list[tuple[Any, np.ndarray]], count: int) -> np.ndarray:
    index = np.zeros(count, int)
    for site, value in parts:
        index = index * site.size + value
    return index


def judge(case: Case) -> Verdict:
    """Plan with a program, and compare."""
    try:
        guide = aif.guides.TemporalGuide(case.model, learn=("control",))
        planner = aif.Planner(case.model, guide, aif.Planning(), aif.CoordinateSolver(max_sweeps=5))
        plan = planner(jax.random.key(0), case.belief, horizon=case.horizon)
        found = float(plan.free_energy[-1])
    except ValueError as error:
        text = str(error)
        named = any(f"'{name}" in text for name in ROLES) or "'" in text
        named |= any(
            what in text for what in ("rollout", "horizon", "belief", "model", "t:", "DeterministicCategorical")
        )
        return Verdict("refused" if named else "crashed", f"{type(error).__name__}: {text}")
    except Exception as error:
        return Verdict("crashed", f"{type(error).__name__}: {str(error)[:200]}")
    try:
        with numpyro.validation_enabled(False):  # it refuses logits of -inf
            expected = free_energy(plan, trajectories(case.model, case.belief, case.horizon), case.horizon)
    except Exception as error:  # plain NumPyro cannot run what was planned with
        return Verdict("wrong", f"F = {found:.4f}, but plain NumPyro: {type(error).__name__}: {str(error)[:120]}")
    right = abs(found - expected) <= TOLERANCE * max(1.0, abs(expected))
    return Verdict("right" if right else "wrong", f"F = {found:.4f}, by plain NumPyro {expected:.4f}")


def main() -> None:
    jax.config.update("jax_disable_most_optimizations", True)  # they run once
    chosen = cases(*sys.argv[1:2])
    start, counts = time.time(), collections.Counter()
    for case in chosen:
        verdict = judge(case)
        counts[verdict.kind] += 1
        print(
            f"{verdict.kind:8} {case.family}: {case.name}\n           {verdict.text.splitlines()[0][:230]}", flush=True
        )
    print(f"\n{len(chosen)} programs in {time.time() - start:.0f} s: {dict(counts)}")
    if counts["wrong"] or counts["crashed"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
