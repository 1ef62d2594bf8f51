"""A program whose sites are known: it is evaluated once with every site on an axis of its own, which gives the World.

The part that depends on neither belief nor horizon is evaluated once and kept; in a large world only what does not
depend on θ either, and :meth:`Program.bind` evaluates the rest for the θ that are asked for.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.belief import Belief, check_numbers, check_shape, check_type
from npro_aif.errors import ModelError
from npro_aif.language import check_horizon
from npro_aif.pickling import Portable
from npro_aif.program.assemble import assemble
from npro_aif.program.axes import CONTROL, THETA, TIME, enumerated_values, on_axis, site_axes
from npro_aif.program.checks import (
    check_against_scalars,
    check_belief,
    check_carry,
    find_signature,
    run_scalars,
    scalar_runs,
)
from npro_aif.program.memories import check_loop
from npro_aif.program.reader import Reading, check_preferences, check_rows, read
from npro_aif.program.signature import Signature, join, split
from npro_aif.sizes import MOST_FROZEN, SAMPLED_PARAMETERS
from npro_aif.tables.world import World


class Fixed(NamedTuple):
    """What stays the same from plan to plan, handed to compiled code as arguments (XLA would fold constants)."""

    tables: World  # those that depend on neither belief nor horizon (nor θ, in a large world); None elsewhere
    values: dict[str, Array]  # every site's values on its axis
    t: Array  # the times on theirs


class Program(Portable):
    """A model whose sites are known: evaluates to a :class:`World` for any belief and horizon.

    :param num_steps: the length of the time axis (the largest horizon).
    """

    transient = ("_bind",)

    def __init__(self, model: Callable[..., Any], signature: Signature, order: list[str], num_steps: int):
        self.model = model
        self.signature = signature
        self.order = order  # the sites' names as the program draws them
        self.num_steps = num_steps
        self.sizes = {
            site.name + suffix: site.size for sites, suffix in site_axes(signature).values() for site in sites
        }
        self.sample: np.ndarray | None = None  # the parameters at which a large world was checked; None for all
        self.fixed = self._freeze()
        self.restore()

    def restore(self) -> None:
        self._bind = jax.jit(self.bind)

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
        values, tables = fixed.values, fixed.tables
        if theta is not None:
            values, tables = values | self._values(THETA, theta), tables.select(theta)
        if control is not None:
            values = values | self._values(CONTROL, control[None])
        world = self._world(belief, jnp.asarray(horizon), values, fixed.t)
        world = tables.filled(world)
        return world if valid is None else world._replace(parameter=jnp.where(valid, world.parameter, -jnp.inf))

    def world(
        self, belief: Belief, horizon: int | Array, theta: Array | None = None, valid: Array | None = None
    ) -> World:
        """:meth:`bind` with this program's own fixed part, compiled."""
        return self._bind(self.fixed, belief, jnp.asarray(horizon), theta, valid)

    def example(self) -> World:
        """The world at the uniform belief and the largest horizon; of a large one the parameters it was checked at."""
        return self._bind(self.fixed, self.uniform(), jnp.asarray(self.num_steps), self.sample)

    def uniform(self) -> Belief:
        """Every parameter, and every state, as probable as any other."""
        num_parameters, num_states = self.signature.num_parameters, self.signature.num_states
        shapes = (num_parameters,), (num_parameters, num_states)
        return Belief(*(jax.device_put(np.full(s, 1 / s[-1], jnp.result_type(float))) for s in shapes))

    def _values(self, axis: int, flat: Array) -> dict[str, Array]:
        """The values of an axis' sites at these flat indices, by full name."""
        sites, suffix = site_axes(self.signature)[axis]
        return {name + suffix: on_axis(value, axis) for name, value in split(flat, sites).items()}

    def _freeze(self) -> Fixed:
        """Evaluate the program once, check its numbers, and keep what depends on neither belief nor horizon."""
        with jax.core.eval_context():  # even where a plan is being traced, these are numbers
            every = np.arange(self.signature.num_parameters, dtype=np.int32)
            values = jax.device_put(enumerated_values(self.signature, every))
            t = jnp.asarray(on_axis(np.arange(1, self.num_steps + 1, dtype=np.int32), TIME))
            arguments = self.uniform(), jnp.asarray(self.num_steps), values, t
            changing = len(jax.tree.leaves(arguments[:2]))
            abstract = jax.make_jaxpr(self._world)(*arguments)
            varies = depends_on_first(abstract.jaxpr, changing)
            entries = sum(math.prod(a.shape) for a, v in zip(abstract.out_avals, varies, strict=True) if not v)
            self.sample = _sample(len(every), entries)
            theta = every if self.sample is None else self.sample
            if self.sample is not None:
                arguments = *arguments[:2], values | self._values(THETA, jnp.asarray(theta)), t
            runs = scalar_runs(self.signature, self.num_steps, theta)
            readings: list[Reading] = []  # its static parts; the arrays come out of the compiled function

            def evaluate(*arguments: Any) -> tuple[Any, World, Any]:
                reading = self._read(*arguments[:4])
                readings.append(reading)
                draws = [(d.log, d.index, d.faults) for d in reading.draws]
                arrays = draws, [f.log for f in reading.factors], reading.carries, [m.value for m in reading.memories]
                world = assemble(reading, self.signature, self.num_steps, arguments[1], self._theta(arguments[2]))
                return arrays, world, run_scalars(self.model, *arguments[:2], *arguments[4:])

            (draws, factors, carries, memories), world, scalars = jax.jit(evaluate)(*arguments, runs.values, runs.t)
            reading = Reading(
                [d._replace(log=a[0], index=a[1], faults=a[2]) for d, a in zip(readings[0].draws, draws, strict=True)],
                [f._replace(log=a) for f, a in zip(readings[0].factors, factors, strict=True)],
                carries,
                [],
                [m._replace(value=a) for m, a in zip(readings[0].memories, memories, strict=True)],
            )
            check_preferences(reading)
            check_against_scalars(reading, scalars, runs.flat)
            check_rows(reading)
            check_carry(reading, self.signature)
            check_loop(world)
            fixed = world.without(jax.tree.unflatten(jax.tree.structure(world), varies))
            fixed = fixed._replace(parameter=None, initial=None, theta=None)  # these have a row for every θ
            if self.sample is not None:
                fixed = fixed.without_parameters()
            return Fixed(fixed.prepared(), values, t)

    def _theta(self, values: Mapping[str, Array]) -> Array:
        parameters = {site.name: values[site.name].reshape(-1) for site in self.signature.parameter}
        return jnp.atleast_1d(join(parameters, self.signature.parameter))

    def _world(self, belief: Belief, horizon: Array, values: dict[str, Array], t: Array) -> World:
        reading = self._read(belief, horizon, values, t)
        return assemble(reading, self.signature, self.num_steps, horizon, self._theta(values))

    def _read(self, belief: Belief, horizon: Array, values: dict[str, Array], t: Array) -> Reading:
        reading = Reading([], [], [], [], [])

        def value(kind: str, name: str, size: int) -> Array:
            if size != self.sizes[name]:  # the outcome's axis is not where it was for single values
                raise ValueError(f"found {size} categories, expected {self.sizes[name]}")
            return values[name]

        try:
            read(self.model, belief, horizon, value, t, reading)
        except ModelError:
            raise
        except (TypeError, ValueError, IndexError, NotImplementedError) as error:
            site = self.order[min(len(reading.order), len(self.order) - 1)]
            raise ModelError(
                f"site '{site}': its distribution can be built for single site values but not for arrays of them; an "
                "index broadcasts wrongly: expected TABLE[x, u] with the outcome last, not TABLE[:, x] "
                f"({type(error).__name__}: {str(error).splitlines()[0]})"
            ) from error
        check_carry(reading, self.signature)
        return reading


def _sample(num_parameters: int, entries: int) -> np.ndarray | None:
    """The parameters at which to check a world whose tables would have so many entries; None for all, if not large."""
    if entries <= MOST_FROZEN or num_parameters <= 2:
        return None
    count = max(2, min(SAMPLED_PARAMETERS, MOST_FROZEN * num_parameters // entries))  # two: with one, θ would not show
    drawn = np.random.default_rng(0).choice(num_parameters, count, replace=False)
    return np.sort(drawn).astype(np.int32)


def compile_program(model: Callable[..., Any], belief: Belief, horizon: int) -> Program:
    """Find a model's sites, check the program, and evaluate what does not change.

    :param belief: any belief of the right shape; its numbers are checked where they are known.
    :param horizon: the largest horizon that will be asked for.
    """
    check_horizon(horizon)
    check_shape(belief)
    check_numbers(belief)
    signature, order = find_signature(model, belief, horizon)
    check_belief(belief, signature)
    return Program(model, signature, order, int(horizon))


@functools.lru_cache(maxsize=64)
def _slot(*key: Any) -> list[Program]:
    return []


def program_of(model: Callable[..., Any], belief: Belief, horizon: int) -> Program:
    """:func:`compile_program`, remembered by model, shapes, precision and horizon."""
    check_horizon(horizon)
    check_type(belief)
    slot = _slot(model, jnp.shape(belief.parameter), jnp.shape(belief.state), jnp.result_type(float), int(horizon))
    if not slot:
        slot.append(compile_program(model, belief, horizon))
    return slot[0]


def depends_on_first(jaxpr: Any, count: int) -> list[bool]:
    """For each output of a jaxpr, whether it depends on any of the first ``count`` inputs."""
    varying = set(jaxpr.invars[:count])
    for equation in jaxpr.eqns:
        if any(isinstance(v, jax.extend.core.Var) and v in varying for v in equation.invars):
            varying.update(equation.outvars)
    return [isinstance(v, jax.extend.core.Var) and v in varying for v in jaxpr.outvars]
