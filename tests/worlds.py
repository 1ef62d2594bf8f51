"""Random small worlds, each as a NumPyro program and, independently of it, as dense tables for the oracle.

A recipe names what is special about a world; the seed draws sizes and numbers. Every number is a dyadic
fraction, so that float32 and float64 programs hold exactly the numbers of the tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif
from tests.oracle import Tables

GRAIN = 64  # probabilities are multiples of 1/GRAIN
STEPS_PER_NAT = 8  # preferences are multiples of 1/STEPS_PER_NAT
MAX_JOINT = 60_000  # entries of the oracle's dense joint

TIME = "t"
NEW = "'"  # marks a state's new value: "x" is x_{t-1}, "x'" is x_t

Filling = Literal["dense", "sparse", "deterministic"]
Sizes = dict[str, int]


class Shapes(NamedTuple):
    """The number of categories of each site, by role and in program order."""

    parameter: Sizes
    state: Sizes
    control: Sizes
    observation: Sizes

    def joint_size(self, horizon: int) -> int:
        """The entries of the dense joint q(θ, x_0, u_1, x_1, y_1, …)."""
        theta, x, u, y = (math.prod(sizes.values()) for sizes in self)
        return theta * x * (u * x * y) ** horizon


class RandomWorld(NamedTuple):
    model: Callable[..., None]  # model(belief, horizon=T)
    tables: Tables
    horizon: int
    shapes: Shapes
    description: str
    sequence_ok: bool  # the support of x_0 and of the dynamics is the same for all θ with p(θ) > 0

    def belief(self) -> aif.Belief:
        """p(θ) and p(x_0|θ), the program's argument."""
        return aif.Belief(jnp.asarray(self.tables.parameter), jnp.asarray(self.tables.initial))


class TemporalTables(NamedTuple):
    """q of the temporal factorisation: `temporal_joint(tables, *q)`."""

    parameter: np.ndarray  # (Θ,)
    control: np.ndarray  # (T, X, U)
    state: np.ndarray  # (T, Θ, X, U, X)
    observations: tuple[np.ndarray, ...]  # per site (T, Θ, X, Y_k)


class SequenceTables(NamedTuple):
    """q of the sequence factorisation: `sequence_joint(tables, *q)`."""

    control: np.ndarray  # (U**T,)
    state: np.ndarray  # (U**T, X**T)
    observation_parameter: np.ndarray  # (X**T, Y**T, Θ)


class Kernel(NamedTuple):
    """A site's conditional: rows of probabilities, or one integer per row where it is deterministic."""

    name: str
    size: int
    parents: tuple[str, ...]
    table: np.ndarray  # (*parents, size) of floats, or (*parents,) of integers

    @property
    def rows(self) -> np.ndarray:
        """Probabilities in any case, (*parents, size)."""
        return np.eye(self.size)[self.table] if self.table.dtype.kind == "i" else self.table


class Preference(NamedTuple):
    name: str
    parents: tuple[str, ...]
    table: np.ndarray  # (*parents,)
    at_end: bool = False  # only where t = horizon


class Recipe(NamedTuple):
    """What is special about a world."""

    description: str
    parameters: tuple[int, ...] = ()  # the sizes of the sites; drawn where not given
    states: tuple[int, ...] = ()
    controls: tuple[int, ...] = ()
    observations: tuple[int, ...] = ()
    horizon: int = 3  # lowered where the joint would be too large
    zero_parameter: bool = False  # p(θ) has exact zeros
    initial: Filling = "dense"
    initial_support: Literal["shared", "own"] = "shared"  # of x_0, among the values of θ
    dynamics: Filling = "dense"
    dynamics_parents: tuple[str, ...] = ("theta", "x", "u")  # roles; "t" for time
    dynamics_support: Literal["shared", "own"] = "own"  # of x_t, among the values of θ
    chained: bool = False  # the second state looks at the new value of the first
    control: Filling = "dense"
    control_parents: tuple[str, ...] = ()
    sensing: Filling = "dense"
    sensing_parents: tuple[str, ...] = ("theta", "x'")
    preferences: tuple[str, ...] = ("end",)
    sequence_ok: bool = True  # numbers are drawn again until RandomWorld.sequence_ok is this


# The parents of each kind of preference: roles, or the last site of a role ("last_x'").
PREFERENCE_PARENTS: Mapping[str, tuple[str, ...]] = {
    "end": ("theta", "x'"),
    "state": ("last_x'",),
    "control": ("u",),
    "move": ("x", "u"),
    "change": ("theta", "x", "u", "x'"),
    "parameter": ("theta",),
    "observation": ("last_y",),
    "reading": ("theta", "x'", "last_y"),
    "season": ("t", "x'"),
    "schedule": ("t", "u"),
    "late_observation": ("t", "last_y"),
}

RECIPES: tuple[Recipe, ...] = (
    Recipe("the dynamics and the observations depend on θ; preference at the end"),
    Recipe("the dynamics do not depend on θ", dynamics_parents=("x", "u"), preferences=("state",)),
    Recipe(
        "zeros in transitions, the same for all θ; zeros in observations",
        dynamics="sparse",
        dynamics_support="shared",
        sensing="sparse",
        preferences=("end", "move"),
    ),
    Recipe(
        "zeros in transitions, different for each θ",
        dynamics="sparse",
        preferences=("end", "control"),
        sequence_ok=False,
    ),
    Recipe(
        "zeros in p(x_0|θ), the same for all θ; dynamics without θ, with zeros",
        initial="sparse",
        dynamics="sparse",
        dynamics_parents=("x", "u"),
        preferences=("change",),
    ),
    Recipe(
        "zeros in p(x_0|θ), different for each θ",
        initial="sparse",
        initial_support="own",
        dynamics_parents=("x", "u"),
        preferences=("end",),
        sequence_ok=False,
    ),
    Recipe(
        "a zero in p(θ); dynamics depend on θ; control prior depends on x",
        parameters=(3,),
        states=(3,),
        zero_parameter=True,
        control_parents=("x",),
        preferences=("end", "parameter"),
    ),
    Recipe(
        "deterministic dynamics without θ; x_0 known; observations have zeros",
        initial="deterministic",
        dynamics="deterministic",
        dynamics_parents=("x", "u"),
        sensing="sparse",
        preferences=("end",),
    ),
    Recipe(
        "deterministic dynamics without θ; deterministic observations of x and θ",
        dynamics="deterministic",
        dynamics_parents=("x", "u"),
        sensing="deterministic",
        preferences=("end", "control"),
    ),
    Recipe(
        "deterministic dynamics that depend on θ",
        dynamics="deterministic",
        preferences=("state", "observation"),
        sequence_ok=False,
    ),
    Recipe(
        "deterministic dynamics that depend on θ; deterministic observations of x only; x_0 known for each θ",
        initial="deterministic",
        initial_support="own",
        dynamics="deterministic",
        sensing="deterministic",
        sensing_parents=("x'",),
        preferences=("reading",),
        sequence_ok=False,
    ),
    Recipe(
        "θ is known (p(θ) has one place), so that deterministic dynamics that depend on it are no obstacle",
        parameters=(2,),
        zero_parameter=True,
        dynamics="deterministic",
        preferences=("end", "observation"),
    ),
    Recipe(
        "deterministic observations of θ alone; stochastic dynamics without θ",
        dynamics_parents=("x", "u"),
        sensing="deterministic",
        sensing_parents=("theta",),
        preferences=("state",),
    ),
    Recipe(
        "two state sites",
        states=(2, 2),
        controls=(2,),
        dynamics_parents=("x", "u"),
        preferences=("end", "state"),
    ),
    Recipe(
        "two state sites, the second looks at the new value of the first; θ in the dynamics",
        states=(2, 2),
        controls=(2,),
        observations=(2,),
        chained=True,
        preferences=("move",),
    ),
    Recipe(
        "two deterministic state sites, the second looks at the new value of the first; zeros in p(x_0|θ)",
        states=(2, 2),
        initial="sparse",
        dynamics="deterministic",
        dynamics_parents=("x", "u"),
        chained=True,
        preferences=("end",),
    ),
    Recipe(
        "two control sites",
        controls=(2, 2),
        states=(2,),
        observations=(2,),
        preferences=("control", "end"),
    ),
    Recipe(
        "two control sites, priors depend on x; deterministic dynamics without θ",
        controls=(2, 2),
        states=(3,),
        observations=(2,),
        horizon=2,
        control_parents=("x",),
        dynamics="deterministic",
        dynamics_parents=("x", "u"),
        preferences=("move",),
    ),
    Recipe(
        "two observation sites; preference on the second",
        observations=(2, 2),
        states=(2,),
        dynamics_parents=("x", "u"),
        preferences=("end", "observation"),
    ),
    Recipe(
        "two observation sites with zeros; preference on (θ, x, y)",
        observations=(2, 2),
        states=(3,),
        horizon=2,
        sensing="sparse",
        preferences=("reading", "state"),
    ),
    Recipe(
        "two parameter sites",
        parameters=(2, 2),
        states=(3,),
        controls=(2,),
        observations=(2,),
        preferences=("end",),
    ),
    Recipe(
        "two parameter sites, zeros in their joint belief; deterministic dynamics and observations",
        parameters=(2, 2),
        states=(3,),
        controls=(2,),
        observations=(2,),
        zero_parameter=True,
        dynamics="deterministic",
        dynamics_parents=("x", "u"),
        sensing="deterministic",
        preferences=("end", "parameter"),
    ),
    Recipe(
        "time-dependent transitions, control prior and preferences",
        dynamics_parents=("t", "theta", "x", "u"),
        control_parents=("t", "x"),
        preferences=("season",),
    ),
    Recipe(
        "time-dependent deterministic transitions; time-dependent observations",
        dynamics="deterministic",
        dynamics_parents=("t", "x", "u"),
        sensing_parents=("t", "theta", "x'"),
        preferences=("schedule", "late_observation"),
    ),
    Recipe(
        "controls that some states forbid (zeros in p(u|x)); dynamics without θ",
        controls=(3,),
        control="sparse",
        control_parents=("x",),
        dynamics_parents=("x", "u"),
        preferences=("end",),
    ),
    Recipe(
        "one value of θ; one step",
        parameters=(1,),
        horizon=1,
        states=(4,),
        preferences=("change",),
    ),
    Recipe(
        "a single control; no preference",
        controls=(1,),
        preferences=(),
    ),
    Recipe(
        "two sites in every role; zeros in the transitions, the same for all θ",
        parameters=(2, 2),
        states=(2, 2),
        controls=(2, 2),
        observations=(2, 2),
        horizon=1,
        dynamics="sparse",
        dynamics_support="shared",
        chained=True,
        control_parents=("x",),
        preferences=("end", "move", "reading"),
    ),
)

NUM_WORLDS = 40  # every recipe, and the first ones again with other sizes and numbers


def random_world(seed: int) -> RandomWorld:
    """The world of a seed: 0 … NUM_WORLDS − 1 go through all recipes, larger seeds draw further worlds."""
    recipe = RECIPES[seed % len(RECIPES)]
    rng = np.random.default_rng(seed)
    while True:
        world = _draw_world(recipe, rng)
        if world.sequence_ok == recipe.sequence_ok:
            return world._replace(description=f"seed {seed}: {recipe.description}")


def _draw_world(recipe: Recipe, rng: np.random.Generator) -> RandomWorld:
    shapes = _draw_shapes(recipe, rng)
    horizon = next(t for t in range(recipe.horizon, 0, -1) if shapes.joint_size(t) <= MAX_JOINT)
    sites = _Sites(shapes, horizon)
    filling: Filling = "sparse" if recipe.zero_parameter else "dense"
    parameter = _rows(rng, _support(rng, (sites.size("theta"),), filling))
    initial = _rows(rng, _initial_support(rng, recipe, sites))
    controls = _control_kernels(rng, recipe, sites)
    states = _state_kernels(rng, recipe, sites)
    seen = sites.parents(recipe.sensing_parents)
    observations = [_kernel(rng, sites, name, seen, recipe.sensing) for name in shapes.observation]
    preferences = [_preference(rng, sites, kind) for kind in recipe.preferences]
    tables = _dense_tables(sites, parameter, initial, controls, states, observations, preferences)
    dynamics = tables.state.swapaxes(0, 1)  # θ first
    return RandomWorld(
        model=_program(shapes, horizon, controls, states, observations, preferences),
        tables=tables,
        horizon=horizon,
        shapes=shapes,
        description=recipe.description,
        sequence_ok=_same_support(dynamics, parameter) and _same_support(initial, parameter),
    )


# The program


def _program(
    shapes: Shapes,
    default_horizon: int,
    controls: Sequence[Kernel],
    states: Sequence[Kernel],
    observations: Sequence[Kernel],
    preferences: Sequence[Preference],
) -> Callable[..., None]:
    """The world in the modelling language; every lookup is TABLE[t - 1, theta, x, u] on the sites' values."""

    def model(belief: aif.Belief, horizon: int = default_horizon) -> None:
        theta, flat_theta = draw_parameter(belief)
        carry = draw_initial_state(belief.state[flat_theta])

        def step(carry: Any, t: Any) -> Any:
            before = carry if isinstance(carry, dict) else {states[0].name: carry}
            values = {TIME: t - 1, **theta, **before}
            for kernel in controls:
                values[kernel.name] = aif.control(kernel.name, distribution(kernel, values))
            for kernel in states:
                values[kernel.name + NEW] = aif.state(kernel.name, distribution(kernel, values))
            for kernel in observations:
                values[kernel.name] = aif.observation(kernel.name, distribution(kernel, values))
            for preference in preferences:
                log_factor = lookup(preference.table, preference.parents, values)
                if preference.at_end:
                    log_factor = jnp.where(t == horizon, log_factor, 0.0)
                aif.preference(preference.name, log_factor)
            after = {kernel.name: values[kernel.name + NEW] for kernel in states}
            return after if len(after) > 1 else after[states[0].name]

        aif.rollout(step, carry, horizon)

    def draw_parameter(belief: aif.Belief) -> tuple[dict[str, Any], Any]:
        names = tuple(shapes.parameter)
        if len(names) == 1:
            value = aif.parameter(names[0], dist.Categorical(probs=belief.parameter))
            return {names[0]: value}, value
        values = aif.parameters(shapes.parameter, belief.parameter)
        flat: Any = 0
        for name, size in shapes.parameter.items():
            flat = flat * size + values[name]
        return dict(values), flat

    def draw_initial_state(probs: Any) -> Any:
        if len(shapes.state) == 1:
            return aif.state(states[0].name, dist.Categorical(probs=probs))
        return aif.initial_state(shapes.state, probs)

    def distribution(kernel: Kernel, values: Mapping[str, Any]) -> dist.Distribution:
        table = lookup(kernel.table, kernel.parents, values)
        if kernel.table.dtype.kind == "i":
            return aif.DeterministicCategorical(table, kernel.size)
        return dist.Categorical(probs=table)

    def lookup(table: np.ndarray, parents: tuple[str, ...], values: Mapping[str, Any]) -> Any:
        return jnp.asarray(table)[tuple(values[name] for name in parents)]

    return model


# The dense tables


class _Sites:
    """The names and sizes of everything a table may look at in one time slice."""

    def __init__(self, shapes: Shapes, horizon: int) -> None:
        self.roles: dict[str, Sizes] = {
            "t": {TIME: horizon},
            "theta": shapes.parameter,
            "x": shapes.state,
            "u": shapes.control,
            "x'": {name + NEW: size for name, size in shapes.state.items()},
            "y": shapes.observation,
        }
        self.sizes: Sizes = {name: size for sites in self.roles.values() for name, size in sites.items()}

    def parents(self, roles: Iterable[str]) -> tuple[str, ...]:
        """The sites of some roles; "last_x'" is the last site of the role x'."""
        names: list[str] = []
        for role in roles:
            sites = list(self.roles[role.removeprefix("last_")])
            names += sites[-1:] if role.startswith("last_") else sites
        return tuple(names)

    def size(self, role: str) -> int:
        return math.prod(self.roles[role].values())

    def shape(self, names: Iterable[str]) -> tuple[int, ...]:
        return tuple(self.sizes[name] for name in names)

    def dense(self, table: np.ndarray, names: tuple[str, ...], *roles: str) -> np.ndarray:
        """A table that looks at some sites, as one that looks at all of the roles, one flat axis per role."""
        axes = self.parents(roles)
        grid = dict(zip(axes, np.indices(self.shape(axes)), strict=True))
        return table[tuple(grid[name] for name in names)].reshape([self.size(role) for role in roles])

    def dense_observation(self, table: np.ndarray, names: tuple[str, ...], site: str) -> np.ndarray:
        """The same over (t, θ, x_t) and one observation site, (T, Θ, X, Y_k)."""
        axes = (*self.parents(("t", "theta", "x'")), site)
        grid = dict(zip(axes, np.indices(self.shape(axes)), strict=True))
        shape = [self.size("t"), self.size("theta"), self.size("x'"), self.sizes[site]]
        return table[tuple(grid[name] for name in names)].reshape(shape)


def _dense_tables(
    sites: _Sites,
    parameter: np.ndarray,
    initial: np.ndarray,
    controls: Sequence[Kernel],
    states: Sequence[Kernel],
    observations: Sequence[Kernel],
    preferences: Sequence[Preference],
) -> Tables:
    transition = ("t", "theta", "x", "u", "x'")
    control = np.ones([sites.size(role) for role in ("t", "x", "u")])
    for kernel in controls:
        control = control * sites.dense(kernel.rows, (*kernel.parents, kernel.name), "t", "x", "u")
    state = np.ones([sites.size(role) for role in transition])
    for kernel in states:
        state = state * sites.dense(kernel.rows, (*kernel.parents, kernel.name + NEW), *transition)
    emissions = {k.name: sites.dense_observation(k.rows, (*k.parents, k.name), k.name) for k in observations}
    goal = np.zeros(state.shape)
    readings = {name: np.zeros(table.shape) for name, table in emissions.items()}
    for preference in preferences:
        seen = [name for name in emissions if name in preference.parents]
        if seen:
            dense = sites.dense_observation(preference.table, preference.parents, seen[0])
        else:
            dense = sites.dense(preference.table, preference.parents, *transition)
        if preference.at_end:
            dense[:-1] = 0.0
        if seen:
            readings[seen[0]] += dense
        else:
            goal += dense
    observed, preferred = tuple(emissions.values()), tuple(readings.values())
    return Tables(parameter, initial, control, state, observed, goal, preferred)


def _same_support(table: np.ndarray, parameter: np.ndarray) -> bool:
    """Whether (Θ, …) tables have their zeros in the same places for all θ with p(θ) > 0."""
    support = table[parameter > 0] > 0
    return bool((support == support[0]).all())


# Drawing sizes and numbers


def _draw_shapes(recipe: Recipe, rng: np.random.Generator) -> Shapes:
    def sizes(names: tuple[str, str], given: tuple[int, ...], low: int, high: int) -> Sizes:
        return dict(zip(names, given or (int(rng.integers(low, high + 1)),), strict=False))

    parameter = sizes(("theta", "eta"), recipe.parameters, 2, 3)
    state = sizes(("x", "z"), recipe.states, 2, 4)
    control = sizes(("u", "v"), recipe.controls, 2, 3)
    return Shapes(parameter, state, control, sizes(("y", "w"), recipe.observations, 2, 3))


def _rows(rng: np.random.Generator, support: np.ndarray) -> np.ndarray:
    """Random rows of multiples of 1/GRAIN, positive exactly on the support, each adding up to one."""
    rows = np.zeros(support.shape)
    for index in np.ndindex(*support.shape[:-1]):
        places = np.flatnonzero(support[index])
        extra = rng.multinomial(GRAIN - places.size, rng.dirichlet(np.ones(places.size)))
        rows[index][places] = (1 + extra) / GRAIN
    return rows


def _support(rng: np.random.Generator, shape: tuple[int, ...], filling: Filling) -> np.ndarray:
    """Where rows are positive: everywhere, in all but some random places, or in one place."""
    if filling == "dense":
        return np.ones(shape, dtype=bool)
    size = shape[-1]
    support = np.zeros(shape, dtype=bool)
    for index in np.ndindex(*shape[:-1]):
        most = max(size - 1, 1)  # at least one zero, and two places where there is room
        count = 1 if filling == "deterministic" else int(rng.integers(min(2, most), most + 1))
        support[index][rng.choice(size, count, replace=False)] = True
    return support


def _initial_support(rng: np.random.Generator, recipe: Recipe, sites: _Sites) -> np.ndarray:
    shape = (sites.size("theta"), sites.size("x"))
    if recipe.initial_support == "own":
        return _support(rng, shape, recipe.initial)
    return np.broadcast_to(_support(rng, shape[1:], recipe.initial), shape)


def _kernel(
    rng: np.random.Generator,
    sites: _Sites,
    name: str,
    parents: tuple[str, ...],
    filling: Filling,
    without: tuple[str, ...] = (),
) -> Kernel:
    """A random conditional; its zeros do not look at the parents in `without`."""
    size = sites.sizes[name]
    if filling == "deterministic":
        return Kernel(name, size, parents, rng.integers(size, size=sites.shape(parents)))
    looked_at = [1 if parent in without else sites.sizes[parent] for parent in parents]
    support = np.broadcast_to(_support(rng, (*looked_at, size), filling), (*sites.shape(parents), size))
    return Kernel(name, size, parents, _rows(rng, support))


def _control_kernels(rng: np.random.Generator, recipe: Recipe, sites: _Sites) -> list[Kernel]:
    parents = sites.parents(recipe.control_parents)
    return [_kernel(rng, sites, name, parents, recipe.control) for name in sites.roles["u"]]


def _state_kernels(rng: np.random.Generator, recipe: Recipe, sites: _Sites) -> list[Kernel]:
    without = sites.parents(("theta",)) if recipe.dynamics_support == "shared" else ()
    kernels: list[Kernel] = []
    for name in sites.roles["x"]:
        parents = sites.parents(recipe.dynamics_parents)
        if recipe.chained and kernels:
            # The new value of the first site takes the place of its old one.
            first = kernels[0].name
            parents = tuple(first + NEW if parent == first else parent for parent in parents)
        kernels.append(_kernel(rng, sites, name, parents, recipe.dynamics, without))
    return kernels


def _preference(rng: np.random.Generator, sites: _Sites, kind: str) -> Preference:
    parents = sites.parents(PREFERENCE_PARENTS[kind])
    steps = rng.integers(-2 * STEPS_PER_NAT, 2 * STEPS_PER_NAT + 1, size=sites.shape(parents))
    return Preference(kind, parents, steps / STEPS_PER_NAT, at_end=kind == "end")


# Random posteriors


def _random_rows(rng: np.random.Generator, support: np.ndarray, zeros: float) -> np.ndarray:
    """Rows uniform on the simplex over the support, each place dropped with probability `zeros`.

    A whole row is never dropped. A row without support is uniform over all places: it has to
    be something, and nothing reaches it.
    """
    kept = support & (rng.random(support.shape) >= zeros)
    kept = np.where(kept.any(axis=-1, keepdims=True), kept, support)
    kept = np.where(kept.any(axis=-1, keepdims=True), kept, True)
    weights = np.where(kept, rng.exponential(size=support.shape), 0.0)
    return weights / weights.sum(axis=-1, keepdims=True)


def random_temporal(world: RandomWorld, rng: np.random.Generator, zeros: float = 0.0) -> TemporalTables:
    """A random q of the temporal factorisation, absolutely continuous with respect to the model.

    With `zeros` > 0 some of q's own entries are exactly zero too, so that states and controls without mass
    occur.
    """
    tables = world.tables
    return TemporalTables(
        parameter=_random_rows(rng, tables.parameter > 0, zeros),
        control=_random_rows(rng, tables.control > 0, zeros),
        state=_random_rows(rng, tables.state > 0, zeros),
        observations=tuple(_random_rows(rng, table > 0, zeros) for table in tables.observations),
    )


def random_sequence(
    world: RandomWorld,
    rng: np.random.Generator,
    support: Literal["model", "all"] = "model",
    zeros: float = 0.0,
) -> SequenceTables:
    """A random q of the sequence factorisation.

    With support "model": q(u) on p(u) > 0, q(x|u) on p(x,u) = Σ_θ p(θ) p(x,u|θ) > 0, and q(y,θ|x) on
    p(θ) p(y|x,θ) > 0 (F is finite if `world.sequence_ok`). With "all" strictly positive, but for `zeros`.
    """
    p_ux, p_y_theta = _sequence_model(world.tables)
    if support == "all":
        p_ux, p_y_theta = np.ones_like(p_ux), np.ones_like(p_y_theta)
    pairs = p_y_theta.reshape(p_y_theta.shape[0], -1)
    return SequenceTables(
        control=_random_rows(rng, p_ux.sum(axis=1) > 0, zeros),
        state=_random_rows(rng, p_ux > 0, zeros),
        observation_parameter=_random_rows(rng, pairs > 0, zeros).reshape(p_y_theta.shape),
    )


def _sequence_model(tables: Tables) -> tuple[np.ndarray, np.ndarray]:
    """Σ_θ p(θ) p(u,x|θ) as (U**T, X**T), and p(θ) p(y|x,θ) as (X**T, Y**T, Θ), one sequence at a time."""
    horizon, num_x, num_u = tables.control.shape
    num_theta = tables.parameter.size
    emission = np.ones((horizon, num_theta, num_x, 1))  # all sites of one t jointly, (T, Θ, X, Y)
    for table in tables.observations:
        emission = (emission[..., :, None] * table[..., None, :]).reshape(horizon, num_theta, num_x, -1)
    plans = list(np.ndindex(*[num_u] * horizon))
    paths = list(np.ndindex(*[num_x] * horizon))
    p_ux = np.zeros((len(plans), len(paths)))
    for i, plan in enumerate(plans):
        for j, path in enumerate(paths):
            first = tables.control[0, :, plan[0]] * tables.state[0, :, :, plan[0], path[0]]  # (Θ, X_0)
            weight = tables.parameter * (tables.initial * first).sum(axis=1)
            for t in range(1, horizon):
                before, u, x = path[t - 1], plan[t], path[t]
                weight = weight * tables.control[t, before, u] * tables.state[t, :, before, u, x]
            p_ux[i, j] = weight.sum()
    p_y_theta = np.zeros((len(paths), emission.shape[-1] ** horizon, num_theta))
    for j, path in enumerate(paths):
        likelihood = tables.parameter[None, :]  # (y sequences so far, Θ)
        for t, x in enumerate(path):
            likelihood = (likelihood[:, None, :] * emission[t, :, x].T[None]).reshape(-1, num_theta)
        p_y_theta[j] = likelihood
    return p_ux, p_y_theta
