"""A program as JAX sees it, before anything is computed, and what can be told of it then or once it was evaluated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.belief import Belief
from npro_aif.errors import ModelError
from npro_aif.program.indices import Watch, find_stray, where_written
from npro_aif.program.jaxprs import depends_on_first
from npro_aif.program.reader import Reading
from npro_aif.program.signature import Signature, split
from npro_aif.tables.world import World


class Trace(NamedTuple):
    """A program as JAX sees it, before anything is computed."""

    slice: Any  # the equations of one reading with every site on its axis, which give Outputs
    outputs: Any  # the shapes of the Outputs
    reading: Reading  # its static parts
    arguments: tuple[Any, ...]  # belief, horizon, elapsed, values and times, at which it is checked
    sample: np.ndarray | None  # the parameters at which a large world is checked; None for all
    plain: Any  # the equations of plain runs of the program, for arrays of assignments
    found: Any  # the shapes of what they find
    assignment: dict[str, np.ndarray]  # the values of the sites in the plain runs
    content: str  # a name for all of it
    numbers: Numbers  # the constants that JAX is tracing; in the equations others stand in for them


class Numbers(NamedTuple):
    """The constants of a program that JAX is tracing, as inside ``jit``, ``grad`` or a NumPyro program."""

    slots: tuple[int, ...]  # which constants of the slice they are
    values: tuple[Any, ...]  # they themselves
    stand_ins: tuple[Any, ...]  # numbers of the same shapes, at which the program is checked


class Outputs(NamedTuple):
    """What one reading gives."""

    draws: list[Any]  # log-rows, certain outcomes and faults of each
    factors: list[Array]
    memories: list[Array]
    carries: Any
    steps: Any  # the rollout's number of steps
    world: World


def take_out_numbers(closed: Any, plain: Any) -> tuple[Any, Any, Numbers]:
    """The equations of a slice and of plain runs with numbers in place of those that JAX is tracing.

    Probabilities serve as stand-ins of whatever it is: what is compared at them are two ways to compute the same.
    """
    known: dict[int, Any] = {}

    def stand_in(const: Any) -> Any:
        if not isinstance(const, jax.core.Tracer):
            return const
        if id(const) not in known:
            rng = np.random.default_rng(len(known))
            is_float = jnp.issubdtype(const.dtype, jnp.floating)
            drawn = rng.uniform(0.05, 0.95, const.shape) if is_float else np.zeros(const.shape)
            known[id(const)] = drawn.astype(const.dtype)
        return known[id(const)]

    slots = tuple(i for i, const in enumerate(closed.consts) if isinstance(const, jax.core.Tracer))
    values = tuple(closed.consts[i] for i in slots)
    own, other = (
        jax.extend.core.ClosedJaxpr(each.jaxpr, [stand_in(const) for const in each.consts]) for each in (closed, plain)
    )
    return own, other, Numbers(slots, values, tuple(own.consts[i] for i in slots))


def known_parts(trace: Trace, reading: Reading) -> Reading:
    """Draws and preferences whose numbers do not depend on those that JAX is tracing."""
    if not trace.numbers.slots:
        return reading
    varies: Any = jax.tree.unflatten(
        jax.tree.structure(trace.outputs), depends_on_first(trace.slice.jaxpr, 0, trace.numbers.slots)
    )
    draws = [d for d, v in zip(reading.draws, varies.draws, strict=True) if not any(jax.tree.leaves(v))]
    factors = [f for f, v in zip(reading.factors, varies.factors, strict=True) if not v]
    return reading._replace(draws=draws, factors=factors)


def check_steps(trace: Trace, num_steps: int) -> None:
    """Refuse a rollout of another length than the horizon, at any horizon."""
    jaxpr = trace.slice.jaxpr
    place = jax.tree.unflatten(jax.tree.structure(trace.outputs), range(len(jaxpr.outvars))).steps
    if jaxpr.outvars[place] is jaxpr.invars[len(Belief._fields)]:
        return
    for horizon in range(1, num_steps + 1):
        belief, _, *rest = trace.arguments
        leaves = jax.tree.leaves((belief, jnp.asarray(horizon), *rest))
        steps = jax.core.eval_jaxpr(jaxpr, trace.slice.consts, *leaves)[place]
        if int(steps) != horizon:
            raise ModelError(
                f"rollout: found {int(steps)} steps for a horizon of {horizon}, expected the model's argument 'horizon'"
            )


def check_indices(
    trace: Trace, arguments: Sequence[Any], outputs: Sequence[Any], strays: Sequence[Any], watch: Watch
) -> None:
    """Refuse an index that leaves its table, where a table of the program depends on it."""
    if not any(map(bool, strays)):
        return
    stray = find_stray(trace.slice, arguments, outputs, strays, watch)
    if stray is None:
        return
    lookup, number = stray
    names = [f"site '{d.names[0]}'" for d in trace.reading.draws for _ in jax.tree.leaves((d.log, d.index, d.faults))]
    names += [f"preference '{f.name}'" for f in trace.reading.factors]
    names += [f"memory '{m.name}'" for m in trace.reading.memories]
    what = names[number] if number < len(names) else "rollout"
    raise ModelError(
        f"{what}: found an index that leaves its table of shape {lookup.shape}{where_written(lookup)}; expected "
        "indices in range, or jnp.where around what must not be looked up, or a mode= of its own"
    )


def given_what_is_fixed(world: World) -> World:
    """p(θ) and p(x0|θ) given the values that handlers fix, by Bayes: their tables have only those outcomes."""
    joint = world.parameter[:, None] + world.initial  # (Θ, X) log p(θ, x0, what is fixed)
    parameter = jax.nn.logsumexp(joint, axis=1)
    possible = parameter[:, None] > -jnp.inf
    uniform = jnp.full_like(joint, -math.log(joint.shape[1]))
    initial = jnp.where(possible, joint - jnp.where(possible, parameter[:, None], 0.0), uniform)
    total = jax.nn.logsumexp(parameter)
    return world._replace(parameter=parameter - jnp.where(total > -jnp.inf, total, 0.0), initial=initial)


def with_numbers(reading: Reading, outputs: Outputs) -> Reading:
    """A reading's static parts with the arrays that came out of compiled code."""
    return reading._replace(
        draws=[
            d._replace(log=a[0], index=a[1], faults=a[2]) for d, a in zip(reading.draws, outputs.draws, strict=True)
        ],
        factors=[f._replace(log=a) for f, a in zip(reading.factors, outputs.factors, strict=True)],
        memories=[m._replace(value=a) for m, a in zip(reading.memories, outputs.memories, strict=True)],
        carries=outputs.carries,
    )


def check_finite(name: str, table: Any) -> None:
    if not np.isfinite(np.asarray(table)).all():
        raise ModelError(
            f"preference '{name}': found what is not a finite number at this belief, expected finite numbers (use a "
            "large negative one for what must not be)"
        )


def not_ruled_out(reading: Reading, signature: Signature) -> np.ndarray:
    """The flat parameters that agree with what handlers fix."""
    every = np.arange(signature.num_parameters, dtype=np.int32)
    values = split(every, signature.parameter)
    kept = np.ones(len(every), bool)
    for draw in reading.draws:
        if draw.kind == "parameter":
            for name, value in zip(draw.names, draw.fixed, strict=bool(draw.fixed)):
                kept &= (values[name] == value) if value is not None else True
    return every[kept]
