"""The base of table guides: a program over ``numpyro.param`` tables with known axes, and its exact free energy."""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
from jax import Array
from numpyro.distributions import constraints
from numpyro.handlers import seed, substitute, trace

from npro_aif.belief import Belief
from npro_aif.errors import GuideError
from npro_aif.inference.objectives import Objective
from npro_aif.inference.posterior import Posterior
from npro_aif.language import default_horizon
from npro_aif.program.program import program_of
from npro_aif.program.signature import Site
from npro_aif.tables.world import World


class Table(NamedTuple):
    """One parameter of a guide, with its role and axes, so that nothing has to be guessed from its name."""

    role: str  # "parameter", "control", "state", "observation", or "other"
    axes: tuple[str, ...]  # what each axis runs over: "time", "parameter", or anything else
    shape: tuple[int, ...]
    initial: Callable[[Array, tuple[int, ...]], Array]  # (key, shape) → its first value
    constraint: Any = constraints.real  # as for numpyro.param

    def first(self, key: Array) -> Array:
        """The first value."""
        return self.initial(key, self.shape)

    def shape_for(self, num_parameters: int) -> tuple[int, ...]:
        """The shape with this number of model parameters."""
        return tuple(
            num_parameters if axis == "parameter" else length
            for axis, length in zip(self.axes, self.shape, strict=True)
        )

    def axis(self, name: str) -> int | None:
        """The place of an axis; None if there is none of that name."""
        return self.axes.index(name) if name in self.axes else None


def zeros(key: Array, shape: tuple[int, ...]) -> Array:
    """A first value that does not depend on the key."""
    return jnp.zeros(shape)


FACTORS = ("parameter", "control", "state", "observation")


@dataclass(frozen=True)
class Start:
    """Where a guide's logits begin: ``scale`` · N(0,1), factor by factor.

    :param scale: by factor ("parameter", "control", "state", "observation"). Other factors begin as the guide says: the
        policy at N(0,1), everything else at the model.
    :param seed: draw from ``jax.random.PRNGKey(seed)`` for every plan, whatever the plan's key: the policy from this
        key itself, the other factors from keys folded out of it.

    >>> Start({"control": 0.01}).scale["control"], Start(seed=18).seed
    (0.01, 18)
    """

    scale: Mapping[str, float] | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.scale, Mapping | None):
            raise TypeError(f"scale: found {self.scale!r}, expected scales by factor, as in Start({{'control': 0.01}})")
        for factor, value in (self.scale or {}).items():
            if factor not in FACTORS:
                raise ValueError(f"scale: found the factor {factor!r}, expected some of {', '.join(FACTORS)}")
            if not isinstance(value, numbers.Real) or not 0 <= value < math.inf:
                raise ValueError(f"scale: found {value!r} for {factor!r}, expected a number that is not negative")
        if not isinstance(self.seed, numbers.Integral | None):
            raise TypeError(f"seed: found {self.seed!r}, expected a whole number, or None for the plan's own key")

    def of(self, tables: Mapping[str, Table]) -> dict[str, Table]:
        """The tables with these first values."""
        roles = dict.fromkeys(table.role for table in tables.values())
        for factor in self.scale or ():
            if factor not in roles:
                raise GuideError(
                    f"start: found a scale for {factor!r}, which this guide does not learn; expected some of "
                    f"{', '.join(roles)}"
                )
        return {name: self._begun(table, i) for i, (name, table) in enumerate(tables.items())}

    def _begun(self, table: Table, index: int) -> Table:
        scale = (self.scale or {}).get(table.role)
        if scale is None and self.seed is None:
            return table

        def initial(key: Array, shape: tuple[int, ...]) -> Array:
            if self.seed is not None:
                key = jax.random.PRNGKey(self.seed)
                key = key if table.role == "control" else jax.random.fold_in(key, index)
            return table.initial(key, shape) if scale is None else scale * jax.random.normal(key, shape)

        return table._replace(initial=initial)


START = Start()
Params = Mapping[str, Array]  # a guide's parameters by name, as numpyro.param holds them (constrained)


class TableGuide(ABC):
    """A guide whose factors are tables, laid out for one model.

    :param model: the program whose sites the guide draws.
    :param start: where its logits begin.
    """

    scope: str  # over what the epistemic priors run: "sequence" or "temporal"
    checks_beliefs: ClassVar[bool] = False  # whether :meth:`check` depends on the belief, so that every plan calls it
    any_horizon: ClassVar[bool] = False  # whether steps beyond a horizon can be masked, so that one function serves all
    recalls: ClassVar[bool] = False  # whether its policies remember everything, and are found by search
    closed_form: ClassVar[bool] = False  # whether coordinate updates know its factors (see TemporalGuide)

    def __init__(self, model: Callable[..., Any], start: Start = START):
        self.model = model
        self.start = start

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Take back the closed form where a class has another posterior and does not claim one."""
        super().__init_subclass__(**kwargs)
        if "posterior" in vars(cls) and "closed_form" not in vars(cls):
            cls.closed_form = False

    @abstractmethod
    def tables(self, world: World, num_steps: int) -> dict[str, Table]:
        """Every parameter by its name."""

    @abstractmethod
    def posterior(self, world: World, params: Params, num_steps: int) -> Posterior:
        """The posterior that the parameters stand for."""

    @abstractmethod
    def draw(self, world: World, posterior: Any, num_steps: int) -> None:
        """Draw every site of the model from the posterior, by the chain rule."""

    def check(self, world: World, num_steps: int) -> None:  # noqa: B027 - most guides have nothing to refuse
        """Refuse a world that this factorisation cannot describe."""

    def first_params(self, key: Array, world: World, num_steps: int) -> dict[str, Array]:
        """The first value of every parameter."""
        tables = self.start.of(self.tables(world, num_steps))
        keys = jax.random.split(key, len(tables))
        return {name: table.first(k) for k, (name, table) in zip(keys, tables.items(), strict=True)}

    def loss_function(self, objective: Objective, world: World, num_steps: int) -> Callable[[Params], Array]:
        """F as a function of the parameters alone."""
        return lambda params: objective.free_energy(world, self.posterior(world, params, num_steps))

    def sample(
        self, world: World, posterior: Any, params: Params, key: Array, num_samples: int, num_steps: int
    ) -> dict[str, Array]:
        """Draws by site, stacked over time, by running :meth:`draw` under NumPyro."""

        def run(key: Array) -> dict[str, Array]:
            with trace() as sites, seed(rng_seed=key), substitute(data=dict(params)):
                self.draw(world, posterior, num_steps)
            return _stacked(sites, world, num_steps)

        return jax.vmap(run)(jax.random.split(key, num_samples))

    def __call__(self, belief: Belief, horizon: int | None = None) -> None:
        horizon = default_horizon(self.model) if horizon is None else horizon
        world = program_of(self.model, belief, horizon).world(belief, horizon)
        self.check(world, int(horizon))
        params = {
            name: numpyro.param(name, table.first, constraint=table.constraint)
            for name, table in self.start.of(self.tables(world, int(horizon))).items()
        }
        self.draw(world, self.posterior(world, params, int(horizon)), int(horizon))

    def world_and_posterior(
        self, model: Callable[..., Any], params: Params, belief: Belief, horizon: int | None = None
    ) -> tuple[World, Posterior]:
        """What ``Objective.loss`` evaluates for this guide, in place of enumerating it."""
        horizon = default_horizon(model) if horizon is None else horizon
        world = program_of(model, belief, horizon).world(belief, horizon)
        self.check_params(world, params, int(horizon))
        return world, self.posterior(world, params, int(horizon))

    def check_params(self, world: World, params: Params, num_steps: int) -> None:
        """Refuse parameters that are missing or whose shape does not fit the model's sites."""
        for name, table in self.tables(world, num_steps).items():
            if name not in params:
                raise GuideError(f"guide: found no parameter '{name}', expected logits of shape {table.shape}")
            if jnp.shape(params[name]) != table.shape:
                raise GuideError(
                    f"guide: parameter '{name}' has shape {jnp.shape(params[name])}, expected {table.shape}"
                )


def named(sites: tuple[Site, ...], suffix: str = "") -> dict[str, Callable[[Any], Array]]:
    """One drawing function for each site, under its full name."""
    return {site.name: _drawer(site.name + suffix) for site in sites}


def _drawer(name: str) -> Callable[[Any], Array]:
    return lambda fn: numpyro.sample(name, fn)


def sizes(sites: tuple[Site, ...]) -> list[int]:
    return [site.size for site in sites]


def _stacked(sites: dict[str, Any], world: World, num_steps: int) -> dict[str, Array]:
    """A trace's values by site, over time."""
    signature = world.signature
    values = {site.name: sites[site.name]["value"] for site in signature.parameter}
    for role, first in (("state", 0), ("control", 1), ("observation", 1)):
        for site in signature.sites(role):
            values[site.name] = jnp.stack([sites[f"{site.name}_{t}"]["value"] for t in range(first, num_steps + 1)])
    return values
