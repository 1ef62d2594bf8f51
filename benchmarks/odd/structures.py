"""Closures, carries, horizons, sites in odd places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

import npro_aif as aif
from benchmarks.odd.parts import (
    CONTROL,
    HORIZON,
    LIKED,
    MOVES,
    NUM_U,
    NUM_X,
    NUM_Y,
    SENSOR,
    Parts,
    Program,
    carrying,
    odd,
    plain,
    rows,
)


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
    yield "a memory", with_memory(lambda m, y: jnp.maximum(m, y + 1))
    yield "a memory that counts", with_memory(lambda m, y: jnp.minimum(m + y, 2))
    yield "a memory that overflows", with_memory(lambda m, y: m + y)
    yield "two rollouts", _twice()
    yield "no rollout", lambda belief, horizon=2: Parts().theta(belief)
    yield "no parameter", _no_parameter()
    yield "a state of one value", _lonely()
    yield "parameters from one table", joint_program()
    yield "print in the step", plain(carry=lambda x, u, new, y: (str(t_) if (t_ := 0) else "", new)[1])
    yield "a deterministic site", plain(carry=lambda x, u, new, y: (numpyro.deterministic("twice", 2 * new), new)[1])


def _carried(wrap: Callable[[Any], Any], unwrap: Callable[[Any], Any]) -> Program:
    return carrying(lambda x, theta, t: wrap(x), unwrap)


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


def with_memory(update: Callable[[Any, Any], Any]) -> Program:
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


def joint_program() -> Program:
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
