"""The numbers of a traced program: evaluated once, with every site on its axis and as plain NumPyro, and compared."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from npro_aif._jax import eval_jaxpr
from npro_aif.belief import Belief
from npro_aif.errors import ModelError
from npro_aif.program import kept
from npro_aif.program.blank import blank_belief
from npro_aif.program.checks import check_carry, check_preferences, check_rows
from npro_aif.program.indices import Watch, find_stray, where_written
from npro_aif.program.jaxprs import depends_on_first
from npro_aif.program.memories import check_loop
from npro_aif.program.once import run_once
from npro_aif.program.plain import Comparison
from npro_aif.program.reading import Reading
from npro_aif.program.signature import Signature
from npro_aif.program.traced import Outputs, Trace


def evaluate(trace: Trace, signature: Signature, num_steps: int) -> tuple[Outputs, Reading]:
    """The numbers of a program at the uniform belief and the largest horizon; faults in them are refused."""
    check_steps(trace, signature, num_steps)
    place = kept.place_of(trace)
    shapes = trace.outputs, _in_all_runs(trace)
    leaves, structure = jax.tree.flatten(shapes)
    numbers = kept.read(place, leaves)
    known = numbers is not None
    if numbers is None:
        numbers = compute(trace, signature)
    outputs, plain_sites = jax.tree.unflatten(structure, numbers)
    reading = with_numbers(trace.reading, outputs)
    parts = known_parts(trace, reading)
    check_preferences(parts)
    check_rows(parts)
    check_carry(reading, signature)
    Comparison(signature, reading, plain_sites, trace.theta).check(trace.assignment, num_steps)
    check_loop(outputs.world)
    if not known:
        kept.write(place, numbers)
    return outputs, reading


def _in_all_runs(trace: Trace) -> Any:
    """The shapes of the sites of all plain runs together."""
    runs = len(next(iter(trace.assignment.values())))
    return jax.tree.map(lambda site: jax.ShapeDtypeStruct((runs, *site.shape), site.dtype), trace.plain.sites)


def compute(trace: Trace, signature: Signature) -> list[Array]:
    """The leaves of the outputs and of the plain runs' sites; an index that leaves its table is refused."""
    watch = Watch()

    def run(others: Sequence[Any], assignment: Any) -> tuple[list[Array], list[Array], list[Array]]:
        belief = blank_belief(signature)  # made inside compiled code it takes no memory
        outputs = watch(trace.slice, jax.tree.leaves((belief, others)))
        plain = jax.vmap(functools.partial(run_plainly, belief))(assignment)
        return list(map(_typed, outputs)), watch.strays, plain

    def run_plainly(belief: Belief, assignment: Any) -> list[Array]:
        closed = trace.plain.equations
        return eval_jaxpr(closed.jaxpr, closed.consts, *jax.tree.leaves((belief, assignment)))

    outputs, strays, plain = run_once(run, trace.arguments[1:], trace.assignment)
    check_indices(trace, signature, outputs, strays, watch)
    return [*outputs, *plain]


def _typed(array: Array) -> Array:
    """The same numbers, of their type for good, as those that were kept are."""
    return array if jnp.issubdtype(array.dtype, jax.dtypes.extended) else lax.convert_element_type(array, array.dtype)


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


def check_steps(trace: Trace, signature: Signature, num_steps: int) -> None:
    """Refuse a rollout of another length than the horizon, at any horizon."""
    jaxpr = trace.slice.jaxpr
    place = jax.tree.unflatten(jax.tree.structure(trace.outputs), range(len(jaxpr.outvars))).steps
    if jaxpr.outvars[place] is jaxpr.invars[len(Belief._fields)]:
        return
    belief = blank_belief(signature)
    for horizon in range(1, num_steps + 1):
        leaves = jax.tree.leaves((belief, jnp.asarray(horizon), *trace.arguments[2:]))
        steps = eval_jaxpr(jaxpr, trace.slice.consts, *leaves)[place]
        if int(steps) != horizon:
            raise ModelError(
                f"rollout: found {int(steps)} steps for a horizon of {horizon}, expected the model's argument 'horizon'"
            )


def check_indices(
    trace: Trace, signature: Signature, outputs: Sequence[Any], strays: Sequence[Any], watch: Watch
) -> None:
    """Refuse an index that leaves its table, where a table of the program depends on it."""
    if not any(map(bool, strays)):
        return
    arguments = jax.tree.leaves((blank_belief(signature), trace.arguments[1:]))
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


def check_finite(name: str, table: Any) -> None:
    if not np.isfinite(np.asarray(table)).all():
        raise ModelError(
            f"preference '{name}': found what is not a finite number at this belief, expected finite numbers (use a "
            "large negative one for what must not be)"
        )
