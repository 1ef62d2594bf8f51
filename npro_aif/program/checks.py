"""Checks of a program before anything is compiled: its sites, its use of values, its carry, its numbers, its belief.

The program runs with scalars, abstractly, to find the sites; that its tables are what plain NumPyro says is seen in
:mod:`npro_aif.program.plain`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from npro_aif._jax import eval_context
from npro_aif.belief import ROW_SUM_TOLERANCE, Belief, check_numbers, check_shape
from npro_aif.errors import ModelError
from npro_aif.numerics import is_concrete
from npro_aif.program.axes import MEMORY, NEXT, NEXT_MEMORY, STATE, THETA, axis_name
from npro_aif.program.lines import user_line
from npro_aif.program.reader import Reading, empty_reading, read
from npro_aif.program.signature import Signature, Site

STEERING = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.TracerArrayConversionError,
)


def find_signature(model: Callable[..., Any], belief: Belief, horizon: Any) -> tuple[Signature, list[str]]:
    """Run the program abstractly, every site's value unknown, and collect its sites by role."""
    reading = empty_reading()
    times = range(1, int(horizon) + 1)

    def run(belief: Belief, horizon: Any, token: Any) -> None:
        read(model, belief, horizon, lambda kind, name, size: token, token, token, reading, times, tables=False)

    try:
        jax.eval_shape(run, belief, jnp.asarray(horizon), jnp.asarray(1))
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
    return _collect(reading), reading.order


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
    """A state site from what is said of it before the rollout and in the step."""
    said = {hidden for hidden in (before.hidden, after.hidden) if hidden is not None}
    if len(said) > 1:
        raise ModelError(
            f"site '{before.name}': found hidden={before.hidden} before the rollout and hidden={after.hidden} in the "
            "step, expected the same"
        )
    return Site(before.name, before.size, before.labels or after.labels, said.pop() if said else None)


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
    """Find which value steers Python code, by running with one unknown at a time."""
    names: list[str] = []
    # Inside vmap what does not depend on the unknown stays a number; inside eval_shape nothing would.
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
        belief = jax.tree.map(lambda a: jnp.full(jnp.shape(a), 1 / jnp.shape(a)[-1]), belief)
        with contextlib.suppress(Exception):  # zeros may fail for other reasons; the first error is reported
            run("", None)
        for candidate in [*dict.fromkeys(names), "t", "horizon", "elapsed"]:
            try:
                jax.vmap(functools.partial(run, candidate))(unknown)
            except STEERING:
                what = candidate if candidate in ("t", "horizon", "elapsed") else f"site '{candidate}'"
                break
            except Exception:  # another failure: not the one looked for
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


def check_carry(reading: Reading, signature: Signature) -> None:
    """The carry must be the same function of the new state as it was of the present one."""
    before, after = reading.carries[0]
    first, returned = str(jax.tree.structure(before)), str(jax.tree.structure(after))
    if first != returned:
        raise ModelError(f"rollout: the step returned a carry of structure {returned}, expected the first's, {first}")
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        ndim = max(jnp.ndim(old), jnp.ndim(new), -NEXT_MEMORY)
        old, new = (jnp.reshape(a, (1,) * (ndim - jnp.ndim(a)) + jnp.shape(a)) for a in (old, new))
        for axis in range(-ndim, 0):
            if new.shape[axis] > 1 and axis not in (NEXT, THETA, NEXT_MEMORY):
                raise ModelError(
                    f"rollout: the step's carry depends on {axis_name(axis, signature)}, expected a function of the "
                    "new states; put what the next step needs into a state site"
                )
        if is_concrete(old, new) and not np.allclose(
            old, np.swapaxes(np.swapaxes(np.asarray(new), NEXT, STATE), NEXT_MEMORY, MEMORY)
        ):
            raise ModelError(
                "rollout: the step returned a carry that is not the same function of the new states as the first "
                f"carry was of the initial states ({', '.join(s.name for s in signature.state)})"
            )


def check_rows(reading: Reading) -> None:
    """Refuse what is no distribution, in a reading whose values are known.

    Probabilities that are negative or do not sum to one, and certain outcomes that are out of range.
    """
    for draw in reading.draws:
        lowest, highest, least = (float(fault) for fault in draw.faults)
        total = lowest if not abs(lowest - 1) <= abs(highest - 1) else highest
        name = ", ".join(draw.names)
        if draw.index is not None:
            low, high, last = int(draw.index.min()), int(draw.index.max()), draw.sizes[0] - 1
            if low < 0 or high > last:
                raise ModelError(f"site '{name}': found an index that runs over {low}..{high}, expected 0..{last}")
        if not abs(total - 1) <= ROW_SUM_TOLERANCE:
            raise ModelError(f"site '{name}': found a probability row that sums to {total:.6g}, expected 1")
        if least < 0:
            raise ModelError(f"site '{name}': found a negative probability {least:.6g}, expected at least 0")
    for memory in reading.memories:
        low, high = int(memory.value.min()), int(memory.value.max())
        if low < 0 or high >= memory.size:
            raise ModelError(
                f"memory '{memory.name}': found contents that run over {low}..{high}, expected 0..{memory.size - 1} "
                f"(its size is {memory.size})"
            )


def check_preferences(reading: Reading) -> None:
    """Refuse preferences that are infinite or not a number (in a reading whose values are known)."""
    for factor in reading.factors:
        table = np.asarray(factor.log)
        if not np.isfinite(table).all():
            raise ModelError(
                f"preference '{factor.name}': found {table[~np.isfinite(table)].flat[0]}, expected finite numbers (use "
                "a large negative one for what must not be)"
            )


def check_belief(belief: Belief, signature: Signature, name: str = "belief") -> None:
    """Refuse a belief that does not fit the program, or (where its numbers are known) that does not sum to one."""
    check_shape(belief, name)
    if jnp.shape(belief.state) != (signature.num_parameters, signature.num_states):
        raise ModelError(
            f"{name}: found state of shape {jnp.shape(belief.state)}, expected ({signature.num_parameters}, "
            f"{signature.num_states}) for the parameters {[s.name for s in signature.parameter]} and the states "
            f"{[s.name for s in signature.state]}"
        )
    check_numbers(belief, name)


def check_beliefs(beliefs: Belief, signature: Signature) -> None:
    """Refuse a batch of beliefs, (B, Θ) and (B, Θ, X), in which one is wrong, and say which."""
    parameter, state = np.asarray(beliefs.parameter), np.asarray(beliefs.state)
    if state.shape[1:] == (signature.num_parameters, signature.num_states):
        sums = np.concatenate([parameter.sum(-1).ravel(), state.sum(-1).ravel()])
        if (np.abs(sums - 1) <= ROW_SUM_TOLERANCE).all() and parameter.min() >= 0 and state.min() >= 0:
            return
    for i, row in enumerate(zip(parameter, state, strict=True)):
        check_belief(Belief(*row), signature, f"beliefs[{i}]")
