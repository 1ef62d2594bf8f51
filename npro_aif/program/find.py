"""The sites of a program, found by running it abstractly with scalars whose values are unknown.

The run also names what the program computes: equal equations and tables give equal names.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from npro_aif._jax import eval_context
from npro_aif.belief import Belief
from npro_aif.errors import ModelError
from npro_aif.program.checks import check_structure
from npro_aif.program.lines import user_line
from npro_aif.program.numbers import name_of
from npro_aif.program.reader import read, takes_elapsed
from npro_aif.program.reading import Reading, empty_reading
from npro_aif.program.signature import Signature, Site

STEERING = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.TracerArrayConversionError,
)


class Sites(NamedTuple):
    """The sites of a program, and a name for what it computes."""

    signature: Signature
    order: tuple[str, ...]  # the sites' names as the program draws them
    content: str  # a name for what it computes


def find_sites(model: Callable[..., Any], belief: Belief, horizon: int) -> Sites:
    """Run the program abstractly, every site's value unknown, and collect its sites by role.

    :param belief: any belief of the right shape; its numbers do not matter.
    """
    reading = empty_reading()
    times = range(1, int(horizon) + 1)
    dtype = jnp.result_type(float)
    shapes = Belief(*(jax.ShapeDtypeStruct(np.shape(table), dtype) for table in belief))

    def run(belief: Belief, horizon: Any, t: Any, elapsed: Any, unknown: Any) -> Any:
        number = itertools.count()  # each site is its own unknown, so that the name tells which is used where

        def value(kind: str, name: str, size: int) -> Any:
            return unknown + next(number)

        read(model, belief, horizon, value, t, elapsed, reading, times)
        draws = [(draw.log, draw.index, draw.faults) for draw in reading.draws]
        factors, memories = [f.log for f in reading.factors], [m.value for m in reading.memories]
        return draws, factors, memories, reading.carries, reading.steps

    try:
        one = jnp.asarray(1)
        closed = jax.make_jaxpr(run)(shapes, jnp.asarray(horizon), one, one, one)
    except ModelError:
        raise
    except STEERING as error:
        raise ModelError(_diagnose(model, belief, horizon, error)) from error
    except Exception as error:  # a mistake of any kind in a user's function
        after = f" after the site '{reading.order[-1]}'" if reading.order else ""
        text = str(error).strip().splitlines() or [""]
        raise ModelError(
            f"model: fails{after}{user_line(error.__traceback__)} ({type(error).__name__}: {text[0]})"
        ) from error
    _check_scalar_shapes(reading)
    check_structure(reading)
    return Sites(_collect(reading), tuple(reading.order), f"{name_of(closed)}{takes_elapsed(model):d}")


def _check_scalar_shapes(reading: Reading) -> None:
    for draw in reading.draws:
        if draw.batch != ():
            raise ModelError(
                f"site '{draw.names[0]}': found a batch of distributions of shape {draw.batch} for scalar site values, "
                "expected a single row (index the table by every site it depends on)"
            )
    for factor in reading.factors:
        if factor.log.shape != ():
            raise ModelError(
                f"preference '{factor.name}': found shape {factor.log.shape} for scalar site values, expected a number"
            )
    for memory in reading.memories:
        if memory.value.shape != ():
            raise ModelError(
                f"memory '{memory.name}': found shape {memory.value.shape} for scalar site values, expected a number"
            )


def _collect(reading: Reading) -> Signature:
    sites: dict[str, list[Site]] = {
        kind: [] for kind in ("parameter", "initial", "state", "control", "observation", "sensor")
    }
    for draw in reading.draws:
        kind = "initial" if draw.initial else draw.kind
        for name, size, labels in zip(draw.names, draw.sizes, draw.labels, strict=True):
            sites[kind].append(Site(name, size, labels, draw.hidden))
    initial, step = {s.name: s for s in sites["initial"]}, {s.name: s for s in sites["state"]}
    if not step:
        raise ModelError("model: found no aif.state in the rollout's step, expected at least one")
    if not sites["control"]:
        raise ModelError("model: found no aif.control in the rollout's step, expected at least one")
    for name in initial.keys() ^ step.keys():
        where = ("before the rollout", "in the step") if name in initial else ("in the step", "before the rollout")
        raise ModelError(
            f"site '{name}': found a state {where[0]} but not {where[1]}, expected it in both (x_0 and x_t)"
        )
    for name, site in initial.items():
        if site.size != step[name].size:
            raise ModelError(
                f"site '{name}': found {site.size} categories before the rollout and {step[name].size} in the step, "
                "expected the same number"
            )
    memories = _collect_memories(reading)
    names = [s.name for kind in ("parameter", "state", "control", "observation", "sensor") for s in sites[kind]]
    names += [site.name for site in memories]
    for name in names:
        if names.count(name) > 1:
            raise ModelError(f"site '{name}': found in two roles, expected a name of its own for each site")
    timed = set(names) - {site.name for site in sites["parameter"]} | {factor.name for factor in reading.factors}
    for name in (site.name for site in sites["parameter"]):
        stem, _, time = name.rpartition("_")
        if stem in timed and time.isdigit():
            raise ModelError(f"site '{name}': found the name that '{stem}' has at time {time}, expected another")
    labelled = tuple(_merged(site, step[name]) for name, site in initial.items())
    return Signature(
        parameter=tuple(sites["parameter"]),
        state=labelled,
        control=tuple(sites["control"]),
        observation=tuple(sites["observation"]),
        sensor=tuple(sites["sensor"]),
        preference=tuple(factor.name for factor in reading.factors),
        memory=memories,
    )


def _merged(before: Site, after: Site) -> Site:
    """A state site from its two declarations, before the rollout and in the step."""
    marks = {hidden for hidden in (before.hidden, after.hidden) if hidden is not None}
    if len(marks) > 1:
        raise ModelError(
            f"site '{before.name}': found hidden={before.hidden} before the rollout and hidden={after.hidden} in the "
            "step, expected the same"
        )
    return Site(before.name, before.size, before.labels or after.labels, marks.pop() if marks else None)


def _collect_memories(reading: Reading) -> tuple[Site, ...]:
    first = {m.name: Site(m.name, m.size, m.labels) for m in reading.memories if m.initial}
    step = {m.name: m for m in reading.memories if not m.initial}
    for name in first.keys() ^ step.keys():
        where = ("before the rollout", "in the step") if name in first else ("in the step", "before the rollout")
        raise ModelError(f"memory '{name}': found {where[0]} but not {where[1]}, expected it in both")
    for name, site in first.items():
        if site.size != step[name].size:
            raise ModelError(
                f"memory '{name}': found a size of {site.size} before the rollout and of {step[name].size} in the "
                "step, expected the same"
            )
    return tuple(first.values())


def _diagnose(model: Callable[..., Any], belief: Belief, horizon: Any, error: Exception) -> str:
    """Find the value that steers Python code, by running with one unknown at a time."""
    names: list[str] = []
    # Inside vmap, values that do not depend on the unknown stay numbers; inside eval_shape none would.
    unknown = np.arange(1, 3)

    def run(culprit: str, token: Any) -> None:
        def value(kind: str, name: str, size: int) -> Any:
            names.append(name)
            return token if name == culprit else jnp.asarray(0)

        steps = token if culprit == "horizon" else jnp.asarray(horizon)
        elapsed = token if culprit == "elapsed" else jnp.asarray(0)
        read(model, belief, steps, value, token if culprit == "t" else jnp.asarray(1), elapsed)

    what = "model"
    with eval_context():
        belief = Belief(*(jnp.full(np.shape(table), 1 / np.shape(table)[-1]) for table in belief))
        with contextlib.suppress(Exception):  # zeros may fail for other reasons; the first error is reported
            run("", None)
        for candidate in [*dict.fromkeys(names), "t", "horizon", "elapsed"]:
            try:
                jax.vmap(functools.partial(run, candidate))(unknown)
            except STEERING:
                what = candidate if candidate in ("t", "horizon", "elapsed") else f"site '{candidate}'"
                break
            except Exception:  # another failure, not the one that is looked for
                continue
    where = user_line(error.__traceback__)
    if isinstance(error, jax.errors.TracerArrayConversionError):
        return (
            f"{what}: its value indexes a NumPy array or enters a NumPy function{where}; expected JAX arrays: wrap the "
            "table in jnp.asarray"
        )
    return (
        f"{what}: its value steers Python code (an `if`, `int()` or loop){where}; expected array code, as in "
        "jnp.where(t == horizon, a, b)"
    )
