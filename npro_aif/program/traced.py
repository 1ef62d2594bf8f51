"""A program traced by JAX, before anything is computed: with every site on its axis, and as plain NumPyro runs it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif._jax import eval_context
from npro_aif.belief import Belief
from npro_aif.errors import ModelError
from npro_aif.program.axes import TIME, enumerated_values, on_axis
from npro_aif.program.blank import blank_shapes
from npro_aif.program.given import not_ruled_out
from npro_aif.program.jaxprs import depends_on_first
from npro_aif.program.lines import user_line
from npro_aif.program.numbers import Numbers, StandIns
from npro_aif.program.plain import PlainSite, assignments, full_names, run_plainly
from npro_aif.program.reading import Reading
from npro_aif.program.signature import Signature
from npro_aif.sizes import MOST_FROZEN, SAMPLED_PARAMETERS
from npro_aif.tables.world import World

ZERO = np.int32(0)
CHANGING = len(Belief._fields) + 2  # the number of leading arguments that change: belief, horizon and elapsed steps


class Plain(NamedTuple):
    """A plain run of a program, traced for any belief and any values of its sites."""

    equations: Any
    sites: Any  # the shapes of its :class:`PlainSite` values


class Trace(NamedTuple):
    """A traced program."""

    slice: Any  # the equations of one reading with every site on its axis; they give Outputs
    outputs: Any  # the shapes of the Outputs
    reading: Reading  # its static parts
    arguments: tuple[Any, ...]  # the shapes of a belief; horizon, elapsed, values and times at which it is checked
    theta: np.ndarray  # the parameters at which it is checked, flat indices
    sampled: bool  # whether these are only some of the parameters, as in a large world
    plain: Plain
    assignment: dict[str, np.ndarray]  # the values of the sites in plain runs, (n,) each
    numbers: Numbers  # the constants of the slice that JAX is tracing, and their stand-ins in the equations


class Outputs(NamedTuple):
    """The arrays of one reading."""

    draws: list[Any]  # log-rows, certain outcomes and faults of each
    factors: list[Array]
    memories: list[Array]
    carries: Any
    steps: Any  # the rollout's number of steps
    world: World

    @property
    def numbered(self) -> Outputs:
        """The same tree with each leaf replaced by its number."""
        leaves, structure = jax.tree.flatten(self)
        return jax.tree.unflatten(structure, range(len(leaves)))


class Traceable(Protocol):
    """The part of a program that is traced."""

    model: Callable[..., Any]
    signature: Signature
    num_steps: int

    def outputs(
        self, belief: Belief, horizon: Any, elapsed: Any, values: Any, t: Any, readings: list[Reading]
    ) -> Outputs: ...


def trace(program: Traceable, plain: Plain) -> Trace:
    """Run a program abstractly with every site on its axis.

    :param plain: the same program as plain NumPyro runs it.
    """
    with eval_context():  # computed at once, even where a plan is being traced
        every = np.arange(program.signature.num_parameters, dtype=np.int32)
        arguments = arguments_of(program, every)
        closed, shapes, reading = trace_slice(program, arguments)
        varies = jax.tree.unflatten(jax.tree.structure(shapes), depends_on_first(closed.jaxpr, CHANGING))
        world = zip(jax.tree.leaves(shapes.world), jax.tree.leaves(varies.world), strict=True)
        entries = sum(math.prod(a.shape) for a, v in world if not v)
        sample = _sample(not_ruled_out(reading, program.signature), entries)
        if sample is not None:
            arguments = arguments_of(program, sample)
            closed, shapes, reading = trace_slice(program, arguments)
        theta = every if sample is None else sample
        assignment = assignments(program.signature, reading, theta, program.num_steps)
        stand_ins = StandIns()
        closed, numbers = stand_ins.take_out(closed)
        plain = plain._replace(equations=stand_ins.take_out(plain.equations)[0])
        if numbers.slots and sample is not None:
            raise ModelError(
                "model: found a large table whose numbers are traced (inside jax.jit, grad or vmap), expected "
                f"numbers where the tables have more than {MOST_FROZEN:,} entries"
            )
        return Trace(closed, shapes, reading, arguments, theta, sample is not None, plain, assignment, numbers)


def arguments_of(program: Traceable, theta: np.ndarray) -> tuple[Any, ...]:
    """Belief, horizon, elapsed steps, values and times at which a program is read."""
    values = jax.device_put(enumerated_values(program.signature, theta))
    t = jnp.asarray(on_axis(np.arange(1, program.num_steps + 1, dtype=np.int32), TIME))
    return blank_shapes(program.signature), jnp.asarray(program.num_steps), np.int32(0), values, t


def trace_slice(program: Traceable, arguments: tuple[Any, ...]) -> tuple[Any, Any, Reading]:
    """The equations of one reading, the shapes of its outputs, and its static parts."""
    readings: list[Reading] = []
    outputs = functools.partial(program.outputs, readings=readings)
    closed, shapes = jax.make_jaxpr(outputs, return_shape=True)(*arguments)
    return closed, shapes, readings[0]


def trace_plainly(model: Callable[..., Any], signature: Signature, num_steps: int) -> Plain:
    """Run a program abstractly as plain NumPyro would, its first two steps and the last."""

    def run(belief: Belief, values: dict[str, Array]) -> dict[str, PlainSite]:
        return run_plainly(model, belief, num_steps, values)

    with eval_context():
        values = dict.fromkeys(full_names(signature, num_steps), ZERO)
        try:
            return Plain(*jax.make_jaxpr(run, return_shape=True)(blank_shapes(signature), values))
        except ModelError:
            raise
        except Exception as error:  # of any kind: the program cannot be run as it was read
            text = str(error).strip().splitlines() or [""]
            raise ModelError(
                f"model: fails under plain NumPyro{user_line(error.__traceback__)} ({type(error).__name__}: {text[0]}),"
                " expected a program that runs there too"
            ) from error


def _sample(parameters: np.ndarray, entries: int) -> np.ndarray | None:
    """The parameters at which to check a world with this many entries in its tables; None for all of a small one."""
    if entries <= MOST_FROZEN or len(parameters) <= 2:
        return None
    count = max(2, min(SAMPLED_PARAMETERS, MOST_FROZEN * len(parameters) // entries))  # two: with one, θ would not show
    drawn = np.random.default_rng(0).choice(len(parameters), count, replace=False)
    return parameters[np.sort(drawn)]
