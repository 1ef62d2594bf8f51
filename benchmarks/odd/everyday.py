"""What people who know NumPyro write: objects, partials, jitted helpers, tables that change, types, time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.contrib.control_flow import scan

import npro_aif as aif
from benchmarks.odd.parts import (
    BELIEF,
    CONTROL,
    HORIZON,
    LIKED,
    MOVES,
    SENSOR,
    Parts,
    Program,
    carrying,
    liked,
    plain,
    rows,
)


def everyday() -> Iterator[tuple[str, Program]]:
    yield from models()
    yield from steps()
    yield from changes()
    yield from own_distributions()


# --- How a model is given ---


class World:
    """A model that is an object."""

    def __init__(self) -> None:
        self.goal = LIKED

    def step(self, x: Any, t: Any) -> Any:
        u = aif.control("u", dist.Categorical(probs=CONTROL[x]))
        x = aif.state("x", dist.Categorical(probs=MOVES[x, u]))
        aif.preference("goal", self.goal[x, 0])
        return x

    def __call__(self, belief: aif.Belief, horizon: int = HORIZON) -> None:
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        x = aif.state("x", dist.Categorical(probs=belief.state[theta]))
        aif.rollout(self.step, x, horizon)

    def model(self, belief: aif.Belief, horizon: int = HORIZON) -> None:
        self(belief, horizon)


def models() -> Iterator[tuple[str, Program]]:
    base = Parts().program()

    def with_table(belief: aif.Belief, horizon: int = HORIZON, table: Any = LIKED) -> None:
        liked(lambda th, x, u, new, t, h: table[new, th])(belief, horizon=horizon)

    def with_scale(belief: aif.Belief, horizon: int = HORIZON, *, scale: float = 2.0) -> None:
        with_table(belief, horizon, scale * LIKED)

    def any_arguments(*args: Any, **kwargs: Any) -> None:
        base(*args, **kwargs)

    @functools.wraps(base)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        base(*args, **kwargs)
        return "done"

    yield "an object", World()
    yield "a method", World().model
    yield "a partial with a table", functools.partial(with_table, table=-LIKED)
    yield "a partial of an object", functools.partial(World())
    yield "a default argument with a table", with_table
    yield "a keyword with a default", with_scale
    yield "a partial with a keyword", functools.partial(with_scale, scale=-1.0)
    yield "any arguments", any_arguments
    yield "a wrapped function that returns something", wrapped
    yield "a lambda", lambda belief, horizon=HORIZON: base(belief, horizon=horizon)
    yield "no horizon", lambda belief: base(belief)
    yield "other names of the arguments", lambda b, horizon=HORIZON: base(b, horizon=horizon)
    yield "a jitted model", jax.jit(base, static_argnames="horizon")
    yield "a seeded partial", handlers.seed(functools.partial(with_table, table=2 * LIKED), rng_seed=1)
    yield "its own belief", lambda belief, horizon=HORIZON: base(BELIEF, horizon=horizon)
    yield "a sharper belief", plain(theta=lambda b: aif.parameter("theta", dist.Categorical(logits=2 * jnp.log(b[0]))))
    yield (
        "a belief that was moved on",
        plain(start=lambda b, th: aif.state("x", dist.Categorical(probs=jnp.asarray(b.state[th]) @ MOVES[:, 0]))),
    )
    yield "a mean belief", plain(start=lambda b, th: aif.state("x", dist.Categorical(probs=b.state.mean(0))))
    yield (
        "a plate around the rollout",
        lambda belief, horizon=HORIZON: _within(numpyro.plate("agents", 2), base, belief, horizon),
    )
    yield (
        "a mask around the rollout",
        lambda belief, horizon=HORIZON: _within(handlers.mask(mask=False), base, belief, horizon),
    )
    yield (
        "a condition in the model",
        lambda belief, horizon=HORIZON: _within(handlers.condition(data={"theta": 1}), base, belief, horizon),
    )
    yield (
        "a condition on a later control in the model",
        lambda belief, horizon=HORIZON: _within(handlers.condition(data={"u_2": 1}), base, belief, horizon),
    )


def _within(handler: Any, base: Program, belief: aif.Belief, horizon: Any) -> None:
    with handler:
        base(belief, horizon=horizon)


# --- What a step does ---


def steps() -> Iterator[tuple[str, Program]]:
    def deterministic(th: Any, x: Any, u: Any, new: Any, y: Any, t: Any, h: Any) -> None:
        numpyro.deterministic(f"twice_{t}", 2 * new)
        aif.preference("goal", LIKED[new, th])

    yield "a deterministic site named by the time", plain(preference=deterministic)
    yield (
        "a preference named by the time",
        plain(preference=lambda th, x, u, new, y, t, h: aif.preference(f"goal{t}", LIKED[new, th])),
    )
    yield "lax.cond on t", liked(lambda th, x, u, new, t, h: jax.lax.cond(t == h, lambda: 1.0, lambda: 0.0))
    yield "an if on t", liked(lambda th, x, u, new, t, h: LIKED[new, th] if t == h else 0.0)
    yield "an if on the horizon", liked(lambda th, x, u, new, t, h: LIKED[new, th] if h > 1 else 0.0)
    yield "int(t)", liked(lambda th, x, u, new, t, h: int(t) * LIKED[new, th])
    yield "range(horizon)", liked(lambda th, x, u, new, t, h: sum(LIKED[new, th] for _ in range(h)))
    yield "a discount", liked(lambda th, x, u, new, t, h: 0.9**t * LIKED[new, th])
    yield "a discount by jnp", liked(lambda th, x, u, new, t, h: jnp.exp(-0.1 * t) * LIKED[new, th])
    yield "the horizon as a factor", liked(lambda th, x, u, new, t, h: h * LIKED[new, th] * (u + 1))
    yield "t in a table", liked(lambda th, x, u, new, t, h: jnp.asarray([5.0, -1.0, 2.0])[t] * new)
    yield "t in a table that is too short", liked(lambda th, x, u, new, t, h: jnp.asarray([5.0, -1.0])[t] * new)
    yield "a control that knows the time", plain(control=lambda th, x, t: _control(rows(3, 3, 2)[t, x]))
    yield (
        "a control after the state",
        plain(
            control=lambda th, x, t: None,
            state=lambda th, x, u, t: (aif.state("x", dist.Categorical(probs=MOVES[x, 0])), _control(CONTROL[x]))[0],
        ),
    )
    yield (
        "a control that knows the new state",
        plain(control=lambda th, x, t: None, state=_state_first),
    )
    yield (
        "an observation before the move",
        plain(
            control=lambda th, x, t: (
                aif.observation("y", dist.Categorical(probs=SENSOR[th, x])),
                _control(CONTROL[x]),
            )[1],
            observation=lambda *a: 0,
        ),
    )
    yield "the carry has θ", carrying(lambda x, th, t: (x, th), lambda c: c[0])
    yield "the carry has the time", carrying(lambda x, th, t: (x, t), lambda c: c[0])
    yield "the carry is int8", carrying(lambda x, th, t: x.astype(jnp.int8), lambda c: c)
    yield "the carry is float", carrying(lambda x, th, t: x * 1.0, lambda c: c.astype(int))
    yield "the carry is a list of a tuple", carrying(lambda x, th, t: [(x,)], lambda c: c[0][0])
    yield "the carry has None", carrying(lambda x, th, t: (None, x), lambda c: c[1])
    yield "the carry has a string", carrying(lambda x, th, t: ("here", x), lambda c: c[1])
    yield "a preference that reads the memory", _remembering()
    yield "a scan in the step", plain(carry=lambda x, u, new, y: (scan(lambda c, _: (c, c), 0, None, 2), new)[1])
    yield "a jitted step", _jitted()
    yield "a rollout by keywords", lambda belief, horizon=HORIZON: _keywords(belief, horizon)
    yield "a seed in the step", plain(carry=lambda x, u, new, y: _seeded(new))
    yield "a subsample", plain(carry=lambda x, u, new, y: (numpyro.subsample(jnp.arange(3), 0), new)[1])
    yield "numpyro.get_mask", liked(lambda th, x, u, new, t, h: LIKED[new, th] * (numpyro.get_mask() is not False))


def _control(probs: Any) -> Any:
    return aif.control("u", dist.Categorical(probs=probs))


def _state_first(th: Any, x: Any, u: Any, t: Any) -> Any:
    new = aif.state("x", dist.Categorical(probs=MOVES[x, 0]))
    _control(CONTROL[new])
    return new


def _seeded(new: Any) -> Any:
    with handlers.seed(rng_seed=3):
        numpyro.sample("noise", dist.Categorical(probs=CONTROL[0]))
    return new


def _remembering() -> Program:
    def model(belief: aif.Belief, horizon: int = HORIZON) -> None:
        parts = Parts()
        theta = parts.theta(belief)
        x = parts.start(belief, theta)

        def step(carry: Any, t: Any) -> Any:
            x, m = carry
            u = parts.control(theta, x, t)
            new = parts.state(theta, x, u, t)
            y = parts.observation(theta, x, u, new, t)
            aif.preference("goal", 1.0 * m)
            return new, aif.memory("m", y, 2)

        aif.rollout(step, (x, aif.memory("m", 0, 2)), horizon)

    return model


def _jitted() -> Program:
    def model(belief: aif.Belief, horizon: int = HORIZON) -> None:
        parts = Parts()
        x = parts.start(belief, parts.theta(belief))
        step = jax.jit(lambda x, t: parts.state(0, x, parts.control(0, x, t), t))
        aif.rollout(step, x, horizon)

    return model


def _keywords(belief: aif.Belief, horizon: Any) -> None:
    parts = Parts()
    theta = parts.theta(belief)

    def step(x: Any, t: Any, table: Any = LIKED) -> Any:
        new = parts.state(theta, x, parts.control(theta, x, t), t)
        aif.preference(name="goal", log_factor=table[new, theta])
        return new

    aif.rollout(carry=parts.start(belief, theta), step=step, horizon=horizon)


# --- Programs that change after a first plan: what plain NumPyro says now counts ---


def changes() -> Iterator[tuple[str, Program]]:
    array, box, world = np.asarray(LIKED).copy(), [LIKED], World()
    in_place = liked(lambda th, x, u, new, t, h: jnp.asarray(array)[new, th])
    in_list = liked(lambda th, x, u, new, t, h: box[0][new, th])
    yield "an array changed in place", Changed(in_place, lambda: array.__imul__(-1))
    yield "a list whose table changed", Changed(in_list, lambda: box.__setitem__(0, -LIKED))
    yield "an attribute that changed", Changed(world, lambda: setattr(world, "goal", -LIKED))
    yield "read in float64 before", Changed(Parts().program(), lambda: None, x64=True)


class Changed:
    """A model that is planned with once, and then changes, before it is judged."""

    def __init__(self, model: Program, change: Callable[[], Any], *, x64: bool = False):
        self.model, self.change, self.x64 = model, change, x64

    def prepare(self) -> None:
        with jax.enable_x64(self.x64):
            guide = aif.guides.TemporalGuide(self.model, learn=("control",))
            first = aif.Planner(self.model, guide, aif.Planning(), aif.CoordinateSolver(max_sweeps=5), HORIZON)
            first(jax.random.key(0), BELIEF, horizon=HORIZON)
        self.change()

    def __call__(self, belief: aif.Belief, horizon: int = HORIZON) -> None:
        self.model(belief, horizon=horizon)


# --- Distributions of a user's own ---


class Sticky(dist.CategoricalProbs):
    """Says something else than its ``probs``."""

    def log_prob(self, value: Any) -> Any:
        return jnp.log(0.5 * jnp.exp(super().log_prob(value)) + 0.5 / self.probs.shape[-1])


class Improper(dist.CategoricalProbs):
    """Does not sum to one."""

    def log_prob(self, value: Any) -> Any:
        return super().log_prob(value) + 0.3


class Certain(aif.DeterministicCategorical):
    """Not as certain as it looks."""

    def log_prob(self, value: Any) -> Any:
        return jnp.where(jnp.asarray(value) == self.index, jnp.log(0.8), jnp.log(0.2 / (self.num_categories - 1)))


def own_distributions() -> Iterator[tuple[str, Program]]:
    for kind in (Sticky, Improper):
        yield f"moves by {kind.__name__}", plain(state=lambda th, x, u, t, kind=kind: aif.state("x", kind(MOVES[x, u])))
        yield (
            f"an observation by {kind.__name__}",
            plain(observation=lambda th, x, u, new, t, kind=kind: aif.observation("y", kind(SENSOR[th, new]))),
        )
    yield "moves by Certain", plain(state=lambda th, x, u, t: aif.state("x", Certain((x + u) % 3, 3)))
