"""From draws to plans: posterior draws of continuous numbers become a discrete parameter, the index of the draw.

A plan under parameter uncertainty, with novelty about the differences between draws, is then an ordinary plan: the
tables of all draws are evaluated at once and lie side by side on the axis of the parameters.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions.transforms import biject_to

from npro_aif._jax import eval_context
from npro_aif.belief import Belief, is_sparse
from npro_aif.errors import ModelError
from npro_aif.language import parameter
from npro_aif.numerics import normalize, safe_log
from npro_aif.program.blank import blank_belief
from npro_aif.program.find import Sites
from npro_aif.program.jaxprs import depends_on_first
from npro_aif.program.memories import class_members
from npro_aif.program.program import Fixed, Program, program_of
from npro_aif.program.signature import Site
from npro_aif.tables.joint import merge_certain
from npro_aif.tables.world import World

DRAW = "draw"  # the parameter's site


class Grid(NamedTuple):
    """A continuous distribution as a few values."""

    values: Array  # (n,)
    probs: Array  # (n,)


def discretize(distribution: dist.Distribution, num: int) -> Grid:
    """A continuous distribution of one number as ``num`` values of equal probability, with the same mean.

    Each value is the mean of its part of the distribution.

    >>> grid = discretize(dist.Beta(8, 2), 9)
    >>> grid.values.shape, round(float(grid.values @ grid.probs), 3)
    ((9,), 0.8)
    """
    if num < 1:
        raise ValueError(f"num: found {num}, expected at least 1")
    if distribution.batch_shape or distribution.event_shape or distribution.support.is_discrete:
        raise ValueError(f"distribution: found {distribution}, expected a continuous one of a single number")
    transform = biject_to(distribution.support)
    free = jnp.linspace(-15.0, 15.0, 60_001)
    value = transform(free)
    log = distribution.log_prob(value) + transform.log_abs_det_jacobian(free, value)
    mass = np.asarray(jax.nn.softmax(jnp.where(jnp.isfinite(log), log, -jnp.inf)), float)
    place = np.append(0.0, np.cumsum(mass))
    numbers = np.asarray(value, float)
    edges = np.linspace(0, place[-1], num + 1)
    moments = np.append(0.0, np.cumsum(mass * numbers))
    means = np.diff(np.interp(edges, place, moments)) / np.diff(edges)
    return Grid(jnp.asarray(means), jnp.full(num, 1 / num))


class Drawn:
    """A model whose numbers are those of one of several draws; made by :func:`with_draws`."""

    def __init__(self, model: Callable[..., Any], draws: dict[str, Array]):
        self.model, self.draws = model, draws
        self.num_draws = len(next(iter(draws.values())))
        signature = inspect.signature(model)
        self.__signature__ = signature.replace(
            parameters=[p for p in signature.parameters.values() if p.name not in draws]
        )
        self._programs: dict[Any, Program] = {}

    def __call__(self, belief: Belief, **settings: Any) -> None:
        """The program under plain NumPyro."""
        beliefs = _by_draw(belief, self.num_draws)
        draw: Any = parameter(DRAW, dist.Categorical(probs=_weights(belief, self.num_draws)))
        numbers = {name: table[draw] for name, table in self.draws.items()}
        self.model(jax.tree.map(lambda table: table[draw], beliefs), **settings, **numbers)

    def belief(self, belief: Belief, weights: Array | None = None) -> Belief:
        """A belief over (draw, parameter) from one over parameters; draws have equal weights, (D,), by default."""
        count = self.num_draws
        weights = jnp.full(count, 1 / count) if weights is None else jnp.asarray(weights)
        joint = weights[:, None] * jnp.asarray(belief.parameter)
        return Belief(joint.reshape(-1), jnp.tile(jnp.asarray(belief.state), (count, 1)))

    def weights(self, belief: Belief) -> Array:
        """The probability of each draw in a belief, (D,)."""
        return _weights(belief, self.num_draws)

    def read_program(self, belief: Belief, horizon: int) -> Program:
        """The program, read once for each length of the time axis."""
        key = horizon, str(jnp.result_type(float))
        if key not in self._programs:
            self._programs[key] = DrawnProgram(self, belief, horizon)
        return self._programs[key]


def with_draws(model: Callable[..., Any], draws: Mapping[str, Any], num: int | None = None) -> Drawn:
    """A model whose arguments have posterior draws, with the index of the right draw as a further parameter.

    Its beliefs run over (draw, parameter), with the draw slowest; ``drawn.belief(belief)`` makes one.

    :param model: a program with the draws' names among its keyword arguments.
    :param draws: by argument, (S, …), as ``mcmc.get_samples()`` has them.
    :param num: the number of draws to use, evenly spaced; all by default.

    >>> import npro_aif as aif
    >>> from npro_aif.models.tmaze import SOUTH, initial_belief, tmaze
    >>> maze = with_draws(tmaze, {"cue_accuracy": np.array([0.6, 0.7, 0.95])})
    >>> belief = maze.belief(initial_belief())
    >>> planner = aif.Planner(maze, solver=aif.CoordinateSolver(restarts=1), max_horizon=2)
    >>> int(planner(jax.random.key(0), belief, horizon=2).best_control()) == SOUTH
    True
    >>> belief = aif.update_belief(maze, belief, SOUTH, {"cue": 1})
    >>> maze.weights(belief).shape
    (3,)
    """
    if not draws:
        raise ValueError("draws: found none, expected a dict of arrays (S, …) by argument of the model")
    arguments = inspect.signature(model).parameters
    lengths = {name: jnp.shape(table)[:1] for name, table in draws.items()}
    for name in draws:
        if name not in arguments:
            raise ValueError(f"draws: found '{name}', expected arguments of the model: {list(arguments)}")
    if len(set(lengths.values())) != 1 or () in lengths.values():
        raise ValueError(f"draws: found lengths {lengths}, expected the same number of draws for each argument")
    count = next(iter(lengths.values()))[0]
    if num is not None and not 1 <= num <= count:
        raise ValueError(f"num: found {num}, expected 1 to {count}, the number of draws")
    place = np.arange(count) if num is None else np.linspace(0, count - 1, num).round().astype(int)
    return Drawn(model, {name: jnp.asarray(table)[place] for name, table in draws.items()})


def _weights(belief: Belief, count: int) -> Array:
    return jnp.asarray(belief.parameter).reshape(count, -1).sum(1)


def _by_draw(belief: Belief, count: int) -> Belief:
    """The belief given each draw, (D, Θ) and (D, Θ, X)."""
    rows = jnp.asarray(belief.parameter).reshape(count, -1)
    return Belief(normalize(rows), jnp.asarray(belief.state).reshape(*rows.shape, -1))


class DrawnProgram(Program):
    """The program of a model with draws: each table is that of every draw, side by side."""

    def __init__(self, drawn: Drawn, belief: Belief, horizon: int):
        count = drawn.num_draws
        if len(belief.parameter) % count:
            raise ModelError(
                f"belief: found {len(belief.parameter)} parameters, expected a multiple of the {count} draws: "
                "drawn.belief(belief) makes it"
            )
        inner: list[Program] = []

        def numbers(values: dict[str, Array], part: Belief) -> tuple[Any, ...]:
            program = program_of(functools.partial(drawn.model, **values), part, horizon)
            inner.append(program.base)
            return program.fixed.numbers

        with eval_context():
            uniform = jax.tree.map(lambda table: jnp.full_like(table, 1 / table.shape[-1]), _by_draw(belief, count))
            fixed_numbers = jax.vmap(numbers)(drawn.draws, uniform)
        self.inner = program = inner[0]
        if not program.fixed.numbers:
            raise ModelError(f"draws: found a model that does not use {list(drawn.draws)}, expected one that does")
        if program.given:
            raise ModelError("draws: found a model of which handlers fix a value, expected none")
        trace: Any = program.equations
        by_number = jax.tree.unflatten(
            jax.tree.structure(trace.outputs), depends_on_first(trace.slice.jaxpr, 0, trace.numbers.slots)
        ).world
        if any(jax.tree.leaves((by_number.control, by_number.loop))):
            raise ModelError("draws: found a control prior or a memory that depends on them, expected neither")
        signature = program.signature
        if DRAW in {site.name for site in signature.parameter}:
            raise ModelError(f"site '{DRAW}': found in the model, expected another name beside draws")
        with_draw = dataclasses.replace(signature, parameter=(Site(DRAW, count), *signature.parameter))
        sites = Sites(with_draw, (DRAW, *program.order), f"{count} draws of {program.content}")
        super().__init__(drawn, sites, horizon)
        self.looks_at_belief = program.looks_at_belief
        self.fixed = program.fixed._replace(numbers=fixed_numbers)
        self.restore()

    def bind(
        self,
        fixed: Fixed,
        belief: Belief | None,
        horizon: int | Array,
        theta: Array | None = None,
        valid: Array | None = None,
        control: Array | None = None,
    ) -> World:
        if belief is None:
            belief = blank_belief(self.signature)
        elif is_sparse(belief):
            raise ModelError("belief.state: found its entries (aif.SparseStates) with draws, expected a table (Θ, X)")
        count, num_parameters = self.signature.parameter[0].size, self.inner.signature.num_parameters

        def world_of(numbers: Any, part: Belief) -> World:
            return self.inner.bind(fixed._replace(numbers=numbers), part, horizon)

        worlds = jax.vmap(world_of)(fixed.numbers, _by_draw(belief, count))
        shared = fixed.tables  # tables that are the same for all draws

        def side_by_side(table: Array, same: Any) -> Array:
            """(D, T|1, Θ|1, …) → (T|1, D·Θ, …), or with one row where no row differs."""
            if same is not None and table.shape[2] == 1:
                return table[0]
            table = jnp.broadcast_to(table, (*table.shape[:2], num_parameters, *table.shape[3:]))
            table = jnp.moveaxis(table, 0, 1)
            return table.reshape(table.shape[0], count * num_parameters, *table.shape[3:])

        def kernel(table: Any, same: Any) -> Any:
            """A kernel from its basic tables; the tables derived from them are computed again."""
            fields = {
                field.name: side_by_side(value, same) if isinstance(value, Array) else value
                for field in dataclasses.fields(table)
                if field.default is dataclasses.MISSING
                for value in [getattr(table, field.name)]
            }
            return type(table)(**fields)

        observation = {name: kernel(own, shared.observation[name]) for name, own in worlds.observation.items()}
        num_states = worlds.initial.shape[-1]
        num_sights = next((k.likelihood(0).shape[2] for k in observation.values()), num_states)
        members = jnp.asarray(class_members(self.signature))
        log_weights = safe_log(_weights(belief, count))
        every = jnp.arange(count * num_parameters)
        world = World(
            parameter=(log_weights[:, None] + worlds.parameter).reshape(-1),
            initial=worlds.initial.reshape(-1, num_states),
            control=worlds.control[0],
            state=kernel(worlds.state, shared.state),
            observation=observation,
            sensor={name: kernel(own, shared.sensor[name]) for name, own in worlds.sensor.items()},
            preference={name: side_by_side(own, shared.preference[name]) for name, own in worlds.preference.items()},
            observation_preference={
                name: tuple(map(side_by_side, tables, shared.observation_preference[name]))
                for name, tables in worlds.observation_preference.items()
            },
            horizon=jnp.asarray(horizon),
            theta=every,
            loop=jax.tree.map(lambda table: table[0], worlds.loop),
            certain=merge_certain(observation, members, num_sights // num_states),
            signature=self.signature,
        ).prepared()
        if theta is not None:
            rows = {name: getattr(world, name)[theta] for name in ("parameter", "initial", "theta")}
            world = world.select(theta)._replace(**rows)
        return self._finished(world, valid)
