"""A program whose sites are known: one evaluation with every site on an axis of its own gives its tables, the World.

Tables that depend on neither belief nor horizon are evaluated once and kept (in a large world only those that do not
depend on θ either); :meth:`Program.bind` evaluates the others, for all θ or for some.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif._jax import eval_context, eval_jaxpr
from npro_aif.belief import Belief, check_numbers, check_shape, is_sparse
from npro_aif.errors import ModelError
from npro_aif.language import check_horizon
from npro_aif.numerics import is_concrete, safe_log
from npro_aif.pickling import Portable
from npro_aif.program.assemble import assemble
from npro_aif.program.axes import CONTROL, THETA, enumerated_values, on_axis, site_axes
from npro_aif.program.blank import blank_belief, blank_shapes, check_blank
from npro_aif.program.checks import check_belief, check_carry
from npro_aif.program.evaluated import check_finite, evaluate
from npro_aif.program.find import Sites, find_sites
from npro_aif.program.given import given_what_is_fixed
from npro_aif.program.jaxprs import Part, depends_on_first
from npro_aif.program.numbers import name_of
from npro_aif.program.reader import RUNNING, read, takes_elapsed
from npro_aif.program.reading import Reading, empty_reading
from npro_aif.program.signature import Signature, join, split
from npro_aif.program.traced import CHANGING, Outputs, Plain, Trace, trace, trace_plainly
from npro_aif.shards import are_apart
from npro_aif.tables.world import World

MOST_KNOWN = 64  # programs that are remembered


class Fixed(NamedTuple):
    """What stays the same from plan to plan, handed to compiled code as arguments (XLA would fold constants)."""

    tables: World  # those that depend on neither belief nor horizon (nor θ, in a large world); None elsewhere
    values: dict[str, Array]  # every site's values on its axis
    t: Array  # the times on theirs
    elapsed: Any = np.int32(0)  # () the steps that have passed, for a model that asks for them
    numbers: tuple[Any, ...] = ()  # the numbers of the program that JAX was tracing when it was read


class VaryingTables:
    """The tables that are not fixed, by the equations that were read; a later change of the function does not matter.

    :param fixed: the tables that are fixed.
    :param places: a world with the numbers of the outputs in place of arrays.
    """

    def __init__(self, traced: Trace, fixed: World, places: World):
        fixed_numbers = set(jax.tree.leaves(fixed))
        self.leaves, self.structure = jax.tree.flatten(places)
        self.wanted = [number for number in self.leaves if number not in fixed_numbers]
        self.part = Part(traced.slice, self.wanted)

    def world(self, belief: Belief, horizon: Array, fixed: Fixed) -> World:
        """The varying tables at a belief and a horizon, with None in place of the others."""
        arguments = jax.tree.leaves((belief, horizon, fixed.elapsed, fixed.values, fixed.t))
        tables = dict(zip(self.wanted, self.part(arguments), strict=True))
        return jax.tree.unflatten(self.structure, [tables.get(number) for number in self.leaves])


class Program(Portable):
    """A model whose sites are known; it evaluates to a :class:`World` for any belief and horizon.

    Numbers of the model that JAX is tracing (inside ``jit``, ``grad``, ``vmap`` or a NumPyro program) are arguments:
    the program is read and checked once, with stand-ins in their place, and serves all of them.

    :param num_steps: the length of the time axis (the largest horizon).
    """

    transient = ("_bind", "base", "_varying", "_rows_vary", "_example", "_goes_blank")

    def __init__(self, model: Callable[..., Any], sites: Sites, num_steps: int):
        self.model = model
        self.signature: Signature = sites.signature
        self.order, self.content = sites.order, sites.content
        self.num_steps = num_steps
        self.sizes = {
            site.name + suffix: site.size for role, suffix in site_axes(self.signature).values() for site in role
        }
        self.sample: np.ndarray | None = None  # the parameters at which a large world was checked; None for all
        self.takes_elapsed = takes_elapsed(model)
        self.given = False  # whether a handler fixes a parameter or the present state
        self.reads_control: frozenset[str] = frozenset()  # observations that depend on the control
        self.looks_at_belief = False  # whether more than p(θ) and p(x0|θ) depends on the belief
        self.perceives_numbers = False  # whether what belief updates use depends on numbers that JAX is tracing
        self.equations: Trace | None = None  # of a program with such numbers

    def restore(self) -> None:
        self.base: Program = self  # the program that was read, whatever its numbers are that JAX is tracing
        self._bind = jax.jit(self.bind)
        self._varying: VaryingTables | None = None
        self._rows_vary = True  # whether some of them, beside p(θ) and p(x0|θ), have a row for each parameter
        self._example: World | None = None
        self._goes_blank = False  # whether it is known to make its tables without a belief

    # --- The world ---

    def bind(
        self,
        fixed: Fixed,
        belief: Belief | None,
        horizon: int | Array,
        theta: Array | None = None,
        valid: Array | None = None,
        control: Array | None = None,
    ) -> World:
        """The world at a belief and a horizon.

        :param belief: None for a uniform belief.
        :param theta: the flat parameter indices to keep, (K,); all by default.
        :param valid: which of them count, (K,); the others are padding and get probability zero.
        :param control: the only control that will be needed, (), flat: tables that are evaluated here, as in a large
            world, then have no axis of controls.
        """
        if belief is None:
            belief = blank_belief(self.signature)
        elif is_sparse(belief):
            return self._bind_sparse(fixed, belief, horizon, theta, valid, control)
        if fixed.numbers:
            return self._bind_numbers(fixed, belief, horizon, theta, valid)
        values, tables, steps = fixed.values, fixed.tables, jnp.asarray(horizon)
        if self._varying is not None and self._serves(theta):
            world = self._varying.world(belief, steps, fixed)
            if theta is not None:
                world, tables = world.rows(theta), tables.select(theta)
        else:
            if not are_apart():  # on a device by itself the equations differ; they were compared before that
                self.check_unchanged()
            if theta is not None:
                values, tables = values | self._values(THETA, theta), tables.select(theta)
            if control is not None:
                values = values | self._values(CONTROL, control[None])
            world = self.outputs(belief, steps, fixed.elapsed, values, fixed.t).world
        return self._finished(tables.filled(world), valid)

    def _serves(self, theta: Array | None) -> bool:
        """Whether the equations of the varying tables, which are for all parameters, are taken for these too.

        They are where only p(θ) and p(x0|θ) have rows to choose from: these are as large as the belief itself, and
        choosing takes no time, while running the program again for another number of parameters takes long to trace.
        """
        if self.precision != str(jnp.result_type(float)):
            return False
        return theta is None or not self._rows_vary

    def _bind_sparse(
        self,
        fixed: Fixed,
        belief: Belief,
        horizon: int | Array,
        theta: Array | None,
        valid: Array | None,
        control: Array | None,
    ) -> World:
        """:meth:`bind` with the rows of a belief that keeps p(x|θ) by its entries."""
        self.check_sparse()
        world = self.bind(fixed, None, horizon, theta, None, control)
        parameter = jnp.asarray(belief.parameter)
        if theta is not None:
            parameter = parameter[theta]
        state = belief.state.dense() if theta is None else belief.state[theta]
        return self._finished(world._replace(parameter=safe_log(parameter), initial=safe_log(state)), valid)

    def check_sparse(self) -> None:
        """Refuse a program that cannot take a belief that keeps p(x|θ) by its entries."""
        if not self._goes_blank:
            check_blank(self, "belief.state (aif.SparseStates)")
            self._goes_blank = True

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
        leaves = eval_jaxpr(jaxpr, consts, *typed)
        outputs: Any = jax.tree.unflatten(jax.tree.structure(trace.outputs), leaves)
        world = fixed.tables.filled(outputs.world)
        if theta is not None:
            world = world.select(theta).rows(theta)
        return self._finished(world, valid)

    def given_numbers(self, numbers: tuple[Any, ...], model: Callable[..., Any]) -> Program:
        """The program with these numbers of a model in place of their stand-ins."""
        program = object.__new__(Program)
        vars(program).update(vars(self), model=model, fixed=self.fixed._replace(numbers=numbers))
        return program

    def world(
        self,
        belief: Belief | None,
        horizon: int | Array,
        theta: Array | None = None,
        valid: Array | None = None,
        elapsed: Any = 0,
    ) -> World:
        """:meth:`bind` with this program's own fixed part, compiled."""
        return self._bind(self.at(elapsed), belief, jnp.asarray(horizon), theta, valid)

    def at(self, elapsed: Any = 0) -> Fixed:
        """The fixed part when this many steps have passed."""
        if isinstance(elapsed, int) and elapsed == 0:
            return self.fixed
        if not self.takes_elapsed:
            if is_concrete(elapsed) and np.any(np.asarray(elapsed)):
                raise ValueError(f"elapsed: found {elapsed}, expected 0 of a model that has no argument 'elapsed'")
            return self.fixed
        return self.fixed._replace(elapsed=np.int32(elapsed) if is_concrete(elapsed) else elapsed)

    def example(self) -> World:
        """The world at the uniform belief and the largest horizon; of a large one only the parameters checked."""
        if self._example is None:
            return self._bind(self.base.fixed, None, jnp.asarray(self.num_steps), self.sample)
        return self._example

    def _values(self, axis: int, flat: Array) -> dict[str, Array]:
        """The values of an axis' sites at these flat indices, by full name."""
        sites, suffix = site_axes(self.signature)[axis]
        return {name + suffix: on_axis(value, axis) for name, value in split(flat, sites).items()}

    # --- Reading ---

    def freeze(self, traced: Trace) -> None:
        """Evaluate what was traced, check its numbers, and keep what depends on neither belief nor horizon."""
        self.sample = traced.theta if traced.sampled else None
        self.precision = str(jnp.result_type(float))
        self.restore()
        with eval_context():
            outputs, reading = evaluate(traced, self.signature, self.num_steps)
            self.given = any(draw.fixed for draw in reading.draws)
            self.reads_control = frozenset(draw.names[0] for draw in reading.draws if draw.reads_control)
            slots = traced.numbers.slots
            structure, jaxpr = jax.tree.structure(traced.outputs), traced.slice.jaxpr
            varies: Any = jax.tree.unflatten(structure, depends_on_first(jaxpr, CHANGING, slots))
            by_belief: Any = jax.tree.unflatten(structure, depends_on_first(jaxpr, len(Belief._fields)))
            self.looks_at_belief = any(jax.tree.leaves(by_belief.world._replace(parameter=None, initial=None)))

            def constant(world: World) -> World:
                fixed: Any = world.without(varies.world)
                fixed = fixed._replace(parameter=None, initial=None, theta=None)  # these have a row for every θ
                return fixed if self.sample is None else fixed.without_parameters()

            every = np.arange(self.signature.num_parameters, dtype=np.int32)
            values = jax.device_put(enumerated_values(self.signature, every))
            self.fixed = Fixed(
                constant(outputs.world).prepared(), values, traced.arguments[-1], numbers=traced.numbers.stand_ins
            )
            if slots:
                self._keep(traced)
            elif self.sample is None:
                places = traced.outputs.numbered.world
                self._varying = VaryingTables(traced, constant(places), places)
                self._rows_vary = outputs.world.rows_vary(varies.world)
                if not self.given and not any(jax.tree.leaves(varies.world.kernels)):
                    self._example = self.fixed.tables.filled(outputs.world)

    def _keep(self, trace: Trace) -> None:
        """Keep the equations, in which traced numbers can be replaced; the model's own tracers soon become invalid."""
        by_number: Any = jax.tree.unflatten(
            jax.tree.structure(trace.outputs), depends_on_first(trace.slice.jaxpr, 0, trace.numbers.slots)
        )
        world = by_number.world
        perceived = world.parameter, world.initial, world.state, world.observation, world.sensor
        self.perceives_numbers = any(jax.tree.leaves(perceived))
        self.equations = trace._replace(numbers=trace.numbers._replace(values=trace.numbers.stand_ins))
        self.model = _stale

    def check_unchanged(self) -> None:
        """Refuse a program that has changed since it was read; called only where code is compiled."""
        same = str(jnp.result_type(float)) == self.precision
        if same and _contents(self.model, blank_shapes(self.signature), self.num_steps)[0].content != self.content:
            raise ModelError(
                "model: found that the program has changed since it was read (a global table, an attribute), expected "
                "the same; make a new Planner (or Filter), which reads it anew"
            )

    def check_at(self, belief: Belief, horizon: int | Array, elapsed: Any = 0) -> None:
        """Refuse a belief at which tables that depend on it are not finite numbers."""
        if not self.looks_at_numbers or not is_concrete((belief, horizon, elapsed, self.fixed.numbers)):
            return
        with eval_context():
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
        """Whether the belief's numbers decide if the program is valid."""
        return self.looks_at_belief or self.given

    def _observed_preferences(self) -> list[str]:
        """The names of preferences on observations, in the world's order."""
        return [f"on '{site}'" for site, tables in self.fixed.tables.observation_preference.items() for _ in tables]

    def _theta(self, values: Mapping[str, Array]) -> Array:
        parameters = {site.name: values[site.name].reshape(-1) for site in self.signature.parameter}
        return jnp.atleast_1d(join(parameters, self.signature.parameter))

    def outputs(
        self,
        belief: Belief,
        horizon: Array,
        elapsed: Any,
        values: dict[str, Array],
        t: Array,
        readings: list[Reading] | None = None,
    ) -> Outputs:
        """The outputs of one run with every site on its axis.

        :param readings: a list to which the static parts of the run are added.
        """
        reading = self.read(belief, horizon, elapsed, values, t)
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

    def read(self, belief: Belief, horizon: Array, elapsed: Any, values: dict[str, Array], t: Array) -> Reading:
        """One run with these values for the sites."""
        reading = empty_reading()

        def value(kind: str, name: str, size: int) -> Array:
            if size != self.sizes[name]:  # the outcome axis is not where it was for scalar values
                raise ValueError(f"found {size} categories, expected {self.sizes[name]}")
            return values[name]

        try:
            read(self.model, belief, horizon, value, t, elapsed, reading)
        except ModelError:
            raise
        except Exception as error:  # of any kind: the run with scalar values succeeded
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


def new_program(model: Callable[..., Any], belief: Belief, horizon: int) -> Program:
    """A model as a program, read and checked without the memory of :func:`program_of`.

    :param belief: any belief of the right shape; its numbers are checked where they are known.
    :param horizon: the largest horizon that will be asked for.
    """
    return _frozen(model, *_look(model, belief, horizon), int(horizon))


def _look(model: Callable[..., Any], belief: Belief, horizon: int) -> tuple[Sites, Plain]:
    """The sites of a model as it is now, and its run under plain NumPyro.

    Together they identify what the model computes: the first at any time, belief and horizon, the second from step to
    step.
    """
    check_horizon(horizon)
    check_shape(belief)
    check_numbers(belief)
    sites, plain = _contents(model, belief, horizon)
    check_belief(belief, sites.signature)
    return sites, plain


def _contents(model: Callable[..., Any], belief: Belief, horizon: int) -> tuple[Sites, Plain]:
    """The same, from the belief's shapes alone."""
    sites = find_sites(model, belief, horizon)
    plain = trace_plainly(model, sites.signature, int(horizon))
    return sites._replace(content=sites.content + name_of(plain.equations)), plain


def _frozen(model: Callable[..., Any], sites: Sites, plain: Plain, horizon: int) -> Program:
    program = Program(model, sites, horizon)
    program.freeze(trace(program, plain))
    return program


_known: collections.OrderedDict[Any, Program] = collections.OrderedDict()  # the latest last


def program_of(model: Callable[..., Any], belief: Belief, horizon: int) -> Program:
    """The program of a model as it is now: the model is run anew, and an evaluation of an equal one is reused.

    Programs are remembered by what they compute, tables included, and not by their function: a changed global table or
    attribute makes another program. A model may read itself (``model.read_program(belief, horizon)``), as a model with
    draws does.
    """
    read_program = getattr(model, "read_program", None)
    if read_program is not None:
        return read_program(belief, horizon)
    sites, plain = _look(model, belief, horizon)
    key = sites, int(horizon), str(jnp.result_type(float))
    with RUNNING:
        if key not in _known:
            _known[key] = _frozen(model, sites, plain, int(horizon))
        _known.move_to_end(key)
        while len(_known) > MOST_KNOWN:
            _known.popitem(last=False)
        program = _known[key]
    if not program.fixed.numbers:
        return program
    return program.given_numbers(trace(Program(model, sites, int(horizon)), plain).numbers.values, model)
