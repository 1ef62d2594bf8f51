"""A program whose sites are known: it is evaluated once with every site on an axis of its own, which gives the World.

The part that depends on neither belief nor horizon is evaluated once and kept; in a large world only what does not
depend on θ either, and :meth:`Program.bind` evaluates the rest for the θ that are asked for.
"""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.belief import Belief, check_numbers, check_shape
from npro_aif.errors import ModelError
from npro_aif.language import check_horizon
from npro_aif.numerics import is_concrete
from npro_aif.pickling import Portable
from npro_aif.program.assemble import assemble
from npro_aif.program.axes import CONTROL, THETA, TIME, enumerated_values, on_axis, site_axes
from npro_aif.program.checks import check_belief, check_carry, check_preferences, check_rows, find_signature
from npro_aif.program.indices import Watch
from npro_aif.program.jaxprs import content_name, depends_on_first
from npro_aif.program.lines import user_line
from npro_aif.program.memories import check_loop
from npro_aif.program.plain import Comparison, Found, assignments, run_plainly
from npro_aif.program.reader import RUNNING, Reading, empty_reading, read, takes_elapsed
from npro_aif.program.signature import Signature, join, split
from npro_aif.program.traced import (
    Outputs,
    Trace,
    check_finite,
    check_indices,
    check_steps,
    given_what_is_fixed,
    known_parts,
    not_ruled_out,
    take_out_numbers,
    with_numbers,
)
from npro_aif.sizes import MOST_FROZEN, SAMPLED_PARAMETERS
from npro_aif.tables.world import World

CHANGING = len(Belief._fields) + 2  # the first arguments of a program: belief, horizon and elapsed steps
MOST_KNOWN = 64  # programs that are remembered


class Fixed(NamedTuple):
    """What stays the same from plan to plan, handed to compiled code as arguments (XLA would fold constants)."""

    tables: World  # those that depend on neither belief nor horizon (nor θ, in a large world); None elsewhere
    values: dict[str, Array]  # every site's values on its axis
    t: Array  # the times on theirs
    elapsed: Any = np.int32(0)  # () the steps that have passed, for a model that asks for them
    numbers: tuple[Any, ...] = ()  # the numbers of the program that JAX was tracing when it was read


class Program(Portable):
    """A model whose sites are known: evaluates to a :class:`World` for any belief and horizon.

    Numbers of the model that JAX is tracing (inside ``jit``, ``grad``, ``vmap`` or a NumPyro program) are arguments:
    what was read and checked once, with others in their place, serves all of them.

    :param num_steps: the length of the time axis (the largest horizon).
    """

    transient = ("_bind", "base")

    def __init__(self, model: Callable[..., Any], signature: Signature, order: list[str], num_steps: int):
        self.model = model
        self.signature = signature
        self.order = order  # the sites' names as the program draws them
        self.num_steps = num_steps
        self.sizes = {
            site.name + suffix: site.size for sites, suffix in site_axes(signature).values() for site in sites
        }
        self.sample: np.ndarray | None = None  # the parameters at which a large world was checked; None for all
        self.content: str | None = None  # a name for what it computes, once it was read
        self.takes_elapsed = takes_elapsed(model)
        self.given = False  # whether a handler fixes a parameter or the present state
        self.looks_at_belief = False  # whether more than p(θ) and p(x0|θ) depends on the belief
        self.perceives_numbers = False  # whether what belief updates use depends on numbers that JAX is tracing
        self.equations: Trace | None = None  # of a program with such numbers

    def restore(self) -> None:
        self.base: Program = self  # the program that was read, whatever its numbers are that JAX is tracing
        self._bind = jax.jit(self.bind)

    # --- The world ---

    def bind(
        self,
        fixed: Fixed,
        belief: Belief,
        horizon: int | Array,
        theta: Array | None = None,
        valid: Array | None = None,
        control: Array | None = None,
    ) -> World:
        """The world at a belief and a horizon.

        :param theta: the flat parameter indices to keep, (K,); all by default.
        :param valid: which of them count; the others are padding and get probability zero.
        :param control: the only control that will be asked for, (), flat: tables that are evaluated here, as those of
            a large world are, then have no axis for it.
        """
        if fixed.numbers:
            return self._bind_numbers(fixed, belief, horizon, theta, valid)
        self._check_unchanged()
        values, tables = fixed.values, fixed.tables
        if theta is not None:
            values, tables = values | self._values(THETA, theta), tables.select(theta)
        if control is not None:
            values = values | self._values(CONTROL, control[None])
        world = self._outputs(belief, jnp.asarray(horizon), fixed.elapsed, values, fixed.t).world
        return self._finished(tables.filled(world), valid)

    def _finished(self, world: World, valid: Array | None) -> World:
        if valid is not None:
            world = world._replace(parameter=jnp.where(valid, world.parameter, -jnp.inf))
        return given_what_is_fixed(world) if self.given else world

    def _bind_numbers(
        self, fixed: Fixed, belief: Belief, horizon: int | Array, theta: Array | None, valid: Array | None
    ) -> World:
        """:meth:`bind` by the equations that were read, with the numbers in their places."""
        trace = self.equations
        assert trace is not None
        jaxpr, consts = trace.slice.jaxpr, list(trace.slice.consts)
        for slot, number in zip(trace.numbers.slots, fixed.numbers, strict=True):
            consts[slot] = number
        arguments = jax.tree.leaves((belief, horizon, fixed.elapsed, fixed.values, fixed.t))
        typed = [jnp.asarray(a, v.aval.dtype) for a, v in zip(arguments, jaxpr.invars, strict=True)]
        leaves = jax.core.eval_jaxpr(jaxpr, consts, *typed)
        outputs: Any = jax.tree.unflatten(jax.tree.structure(trace.outputs), leaves)
        world = fixed.tables.filled(outputs.world)
        if theta is not None:
            rows = {name: getattr(world, name)[theta] for name in ("parameter", "initial", "theta")}
            world = world.select(theta)._replace(**rows)
        return self._finished(world, valid)

    def given_numbers(self, numbers: tuple[Any, ...], model: Callable[..., Any]) -> Program:
        """The program with these numbers of a model in place of those that stood in for them."""
        own = object.__new__(Program)
        vars(own).update(vars(self), model=model, fixed=self.fixed._replace(numbers=numbers))
        return own

    def world(
        self,
        belief: Belief,
        horizon: int | Array,
        theta: Array | None = None,
        valid: Array | None = None,
        elapsed: Any = 0,
    ) -> World:
        """:meth:`bind` with this program's own fixed part, compiled."""
        return self._bind(self.at(elapsed), belief, jnp.asarray(horizon), theta, valid)

    def at(self, elapsed: Any = 0) -> Fixed:
        """The fixed part when so many steps have passed."""
        if isinstance(elapsed, int) and elapsed == 0:
            return self.fixed
        if not self.takes_elapsed:
            if is_concrete(elapsed) and np.any(np.asarray(elapsed)):
                raise ValueError(f"elapsed: found {elapsed}, expected 0 of a model that has no argument 'elapsed'")
            return self.fixed
        return self.fixed._replace(elapsed=np.int32(elapsed) if is_concrete(elapsed) else elapsed)

    def example(self) -> World:
        """The world at the uniform belief and the largest horizon; of a large one the parameters it was checked at."""
        return self._bind(self.base.fixed, self.uniform(), jnp.asarray(self.num_steps), self.sample)

    def uniform(self) -> Belief:
        """Every parameter, and every state, as probable as any other."""
        num_parameters, num_states = self.signature.num_parameters, self.signature.num_states
        shapes = (num_parameters,), (num_parameters, num_states)
        return Belief(*(jax.device_put(np.full(s, 1 / s[-1], jnp.result_type(float))) for s in shapes))

    def _values(self, axis: int, flat: Array) -> dict[str, Array]:
        """The values of an axis' sites at these flat indices, by full name."""
        sites, suffix = site_axes(self.signature)[axis]
        return {name + suffix: on_axis(value, axis) for name, value in split(flat, sites).items()}

    # --- Reading ---

    def trace(self) -> Trace:
        """Run the program abstractly: with every site on its axis, and as plain NumPyro would."""
        with jax.core.eval_context():  # even where a plan is being traced, these are numbers
            every = np.arange(self.signature.num_parameters, dtype=np.int32)
            values = jax.device_put(enumerated_values(self.signature, every))
            t = jnp.asarray(on_axis(np.arange(1, self.num_steps + 1, dtype=np.int32), TIME))
            arguments: tuple[Any, ...] = self.uniform(), jnp.asarray(self.num_steps), np.int32(0), values, t
            closed, shapes, reading = self._traced(arguments)
            sample = self.sample
            if self.content is None:  # it is read for the first time
                varies = jax.tree.unflatten(jax.tree.structure(shapes), depends_on_first(closed.jaxpr, CHANGING))
                world = zip(jax.tree.leaves(shapes.world), jax.tree.leaves(varies.world), strict=True)
                entries = sum(math.prod(a.shape) for a, v in world if not v)
                sample = _sample(not_ruled_out(reading, self.signature), entries)
            theta = every if sample is None else sample
            if sample is not None:
                arguments = *arguments[:3], values | self._values(THETA, jnp.asarray(theta)), t
                closed, shapes, reading = self._traced(arguments)
            assignment = assignments(self.signature, reading, theta, self.num_steps)
            plain, found = self._traced_plainly(arguments[0], assignment)
            closed, plain, numbers = take_out_numbers(closed, plain)
            if numbers.slots and sample is not None:
                raise ModelError(
                    "model: found a large table whose numbers are traced (inside jax.jit, grad or vmap), expected "
                    f"numbers where the tables have more than {MOST_FROZEN:,} entries"
                )
            content = f"{content_name((closed, plain))} {numbers.slots}"
            return Trace(closed, shapes, reading, arguments, sample, plain, found, assignment, content, numbers)

    def _traced(self, arguments: tuple[Any, ...]) -> tuple[Any, Any, Reading]:
        readings: list[Reading] = []
        outputs = functools.partial(self._outputs, readings=readings)
        closed, shapes = jax.make_jaxpr(outputs, return_shape=True)(*arguments)
        return closed, shapes, readings[0]

    def _traced_plainly(self, belief: Belief, assignment: dict[str, np.ndarray]) -> tuple[Any, Any]:
        def run(assignment: dict[str, Array]) -> dict[str, Found]:
            return run_plainly(self.model, belief, self.num_steps, assignment)

        try:
            return jax.make_jaxpr(jax.vmap(run), return_shape=True)(assignment)
        except ModelError:
            raise
        except Exception as error:  # of any kind: the program cannot be run as it was read
            text = str(error).strip().splitlines() or [""]
            raise ModelError(
                f"model: fails under plain NumPyro{user_line(error.__traceback__)} ({type(error).__name__}: {text[0]}),"
                " expected a program that runs there too"
            ) from error

    def freeze(self, trace: Trace) -> None:
        """Evaluate what was traced, check its numbers, and keep what depends on neither belief nor horizon."""
        self.content, self.sample = trace.content, trace.sample
        self.precision = str(jnp.result_type(float))
        with jax.core.eval_context():
            watch = Watch()

            def evaluate(arguments: Sequence[Any], assignment: Any) -> tuple[list[Any], list[Array], Any]:
                outputs = watch(trace.slice, arguments)
                plain = jax.core.eval_jaxpr(trace.plain.jaxpr, trace.plain.consts, *jax.tree.leaves(assignment))
                return outputs, watch.strays, jax.tree.unflatten(jax.tree.structure(trace.found), plain)

            arguments = jax.tree.leaves(trace.arguments)
            leaves, strays, found = jax.jit(evaluate)(arguments, trace.assignment)
            outputs: Any = jax.tree.unflatten(jax.tree.structure(trace.outputs), leaves)
            reading = with_numbers(trace.reading, outputs)
            check_steps(trace, self.num_steps)
            check_indices(trace, arguments, leaves, strays, watch)
            known = known_parts(trace, reading)
            check_preferences(known)
            check_rows(known)
            check_carry(reading, self.signature)
            every = np.arange(self.signature.num_parameters, dtype=np.int32)
            theta = every if self.sample is None else self.sample
            Comparison(self.signature, reading, found, theta).check(trace.assignment, self.num_steps)
            check_loop(outputs.world)
            self.given = any(draw.fixed for draw in reading.draws)
            slots = trace.numbers.slots
            varies = jax.tree.unflatten(
                jax.tree.structure(trace.outputs), depends_on_first(trace.slice.jaxpr, CHANGING, slots)
            )
            by_belief: Any = jax.tree.unflatten(
                jax.tree.structure(trace.outputs), depends_on_first(trace.slice.jaxpr, len(Belief._fields))
            )
            self.looks_at_belief = any(jax.tree.leaves(by_belief.world._replace(parameter=None, initial=None)))
            fixed = outputs.world.without(varies.world)
            fixed = fixed._replace(parameter=None, initial=None, theta=None)  # these have a row for every θ
            if self.sample is not None:
                fixed = fixed.without_parameters()
            values = jax.device_put(enumerated_values(self.signature, every))
            self.fixed = Fixed(fixed.prepared(), values, trace.arguments[-1], numbers=trace.numbers.stand_ins)
            if slots:
                self._keep(trace)
            self.restore()

    def _keep(self, trace: Trace) -> None:
        """Keep the equations, in which numbers can be replaced, in place of the model, whose own will soon be stale."""
        by_number: Any = jax.tree.unflatten(
            jax.tree.structure(trace.outputs), depends_on_first(trace.slice.jaxpr, 0, trace.numbers.slots)
        )
        world = by_number.world
        perceived = world.parameter, world.initial, world.state, world.observation, world.sensor
        self.perceives_numbers = any(jax.tree.leaves(perceived))
        self.equations = trace._replace(numbers=trace.numbers._replace(values=trace.numbers.stand_ins))
        self.model = _stale

    def _check_unchanged(self) -> None:
        """Refuse to mix what was read with a program that has changed since; called where code is compiled only."""
        if str(jnp.result_type(float)) == self.precision and self.trace().content != self.content:
            raise ModelError(
                "model: found that the program has changed since it was read (a global table, an attribute), expected "
                "the same; make a new Planner (or Filter), which reads it anew"
            )

    def check_at(self, belief: Belief, horizon: int | Array, elapsed: Any = 0) -> None:
        """Refuse a belief at which the program's tables are no numbers, where they depend on it."""
        if not self.looks_at_numbers or not is_concrete((belief, horizon, elapsed, self.fixed.numbers)):
            return
        with jax.core.eval_context():
            world = self.world(belief, horizon, elapsed=elapsed)
        if self.given and not np.isfinite(np.asarray(world.parameter)).any():
            raise ModelError("belief: found that what a handler fixes is impossible, expected a positive probability")
        for name, table in world.preference.items():
            check_finite(name, table)
        for name, tables in zip(
            self._observed_preferences(), jax.tree.leaves(world.observation_preference), strict=True
        ):
            check_finite(name, tables)

    @property
    def looks_at_numbers(self) -> bool:
        """Whether a belief's numbers decide if the program makes sense."""
        return self.looks_at_belief or self.given

    def _observed_preferences(self) -> list[str]:
        """The names of preferences on observations, in the world's order."""
        return [f"on '{site}'" for site, tables in self.fixed.tables.observation_preference.items() for _ in tables]

    def _theta(self, values: Mapping[str, Array]) -> Array:
        parameters = {site.name: values[site.name].reshape(-1) for site in self.signature.parameter}
        return jnp.atleast_1d(join(parameters, self.signature.parameter))

    def _outputs(
        self,
        belief: Belief,
        horizon: Array,
        elapsed: Any,
        values: dict[str, Array],
        t: Array,
        readings: list[Reading] | None = None,
    ) -> Outputs:
        reading = self._read(belief, horizon, elapsed, values, t)
        if readings is not None:
            readings.append(reading)
        world = assemble(reading, self.signature, self.num_steps, horizon, self._theta(values))
        return Outputs(
            [(d.log, d.index, d.faults) for d in reading.draws],
            [f.log for f in reading.factors],
            [m.value for m in reading.memories],
            reading.carries,
            reading.steps[0],
            world,
        )

    def _read(self, belief: Belief, horizon: Array, elapsed: Any, values: dict[str, Array], t: Array) -> Reading:
        reading = empty_reading()

        def value(kind: str, name: str, size: int) -> Array:
            if size != self.sizes[name]:  # the outcome's axis is not where it was for single values
                raise ValueError(f"found {size} categories, expected {self.sizes[name]}")
            return values[name]

        try:
            read(self.model, belief, horizon, value, t, elapsed, reading)
        except ModelError:
            raise
        except Exception as error:  # of any kind: it went well with single values
            site = self.order[min(len(reading.order), len(self.order) - 1)]
            text = str(error).splitlines() or [""]
            raise ModelError(
                f"site '{site}': its distribution can be built for single site values but not for arrays of them; an "
                "index broadcasts wrongly: expected TABLE[x, u] with the outcome last, not TABLE[:, x] "
                f"({type(error).__name__}: {text[0]})"
            ) from error
        check_carry(reading, self.signature)
        return reading


def _stale(belief: Belief, horizon: Any) -> None:
    raise ModelError("model: found a program whose numbers were traced, expected that its equations are evaluated")


def _sample(parameters: np.ndarray, entries: int) -> np.ndarray | None:
    """The parameters at which to check a world whose tables would have so many entries; None for all, if not large."""
    if entries <= MOST_FROZEN or len(parameters) <= 2:
        return None
    count = max(2, min(SAMPLED_PARAMETERS, MOST_FROZEN * len(parameters) // entries))  # two: with one, θ would not show
    drawn = np.random.default_rng(0).choice(len(parameters), count, replace=False)
    return parameters[np.sort(drawn)]


def read_program(model: Callable[..., Any], belief: Belief, horizon: int) -> tuple[Program, Trace]:
    """Find a model's sites, and trace the program.

    :param belief: any belief of the right shape; its numbers are checked where they are known.
    :param horizon: the largest horizon that will be asked for.
    """
    check_horizon(horizon)
    check_shape(belief)
    check_numbers(belief)
    signature, order = find_signature(model, belief, horizon)
    check_belief(belief, signature)
    program = Program(model, signature, order, int(horizon))
    return program, program.trace()


def compile_program(model: Callable[..., Any], belief: Belief, horizon: int) -> Program:
    """:func:`read_program`, with what does not change evaluated and checked."""
    program, trace = read_program(model, belief, horizon)
    program.freeze(trace)
    return program


_known: collections.OrderedDict[Any, Program] = collections.OrderedDict()  # the latest last


def program_of(model: Callable[..., Any], belief: Belief, horizon: int) -> Program:
    """A model as it is now: the program is read anew, and what was evaluated before is taken if it says the same.

    What is remembered goes by what a program computes, its tables included, and not by the function: a global table, or
    an attribute of an object, that has changed since makes another program. A model may read itself
    (``model.read_program(belief, horizon)``), as one with draws does.
    """
    own = getattr(model, "read_program", None)
    if own is not None:
        return own(belief, horizon)
    program, trace = read_program(model, belief, horizon)
    key = trace.content, program.signature, program.num_steps, str(jnp.result_type(float))
    with RUNNING:
        if key not in _known:
            program.freeze(trace)
            _known[key] = program
        _known.move_to_end(key)
        while len(_known) > MOST_KNOWN:
            _known.popitem(last=False)
        known = _known[key]
    return known.given_numbers(trace.numbers.values, model) if trace.numbers.slots else known
