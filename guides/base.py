"""What the two table guides share: a program over ``numpyro.param`` logits, and its exact free energy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from jax import Array

from npro_aif.errors import GuideError
from npro_aif.inference.objectives import Objective
from npro_aif.inference.posterior import Posterior
from npro_aif.language import Belief, default_horizon
from npro_aif.program.program import World, program_of
from npro_aif.program.signature import Site

Initial = Callable[[Array], Array]  # key → the first value of a parameter


class TableGuide(ABC):
    """A guide whose factors are tables of logits, laid out for one model.

    :param model: the program whose sites the guide draws.
    """

    scope: str  # over what the epistemic priors run: "sequence" or "temporal"
    checks_beliefs = False  # whether :meth:`check` looks at the belief, so that it is called for every plan

    def __init__(self, model: Callable[..., Any]):
        self.model = model

    @abstractmethod
    def parameters(self, world: World, num_steps: int) -> dict[str, tuple[tuple[int, ...], Initial]]:
        """The shape and the first value of every table of logits."""

    @abstractmethod
    def posterior(self, world: World, params: Mapping[str, Array], num_steps: int) -> Posterior:
        """The tables that the logits stand for."""

    @abstractmethod
    def draw(self, world: World, posterior: Any, num_steps: int) -> None:
        """Draw every site of the model from the posterior, by the chain rule."""

    def check(self, world: World, num_steps: int) -> None:  # noqa: B027 - most guides have nothing to refuse
        """Refuse a world that this factorisation cannot describe."""

    def first_params(self, key: Array, world: World, num_steps: int) -> dict[str, Array]:
        """The first value of every table of logits."""
        parameters = self.parameters(world, num_steps)
        keys = jax.random.split(key, len(parameters))
        return {name: initial(k) for k, (name, (_, initial)) in zip(keys, parameters.items(), strict=True)}

    def loss_function(
        self, objective: Objective, world: World, num_steps: int
    ) -> Callable[[Mapping[str, Array]], Array]:
        """F as a function of the logits alone."""
        return lambda params: objective.free_energy(world, self.posterior(world, params, num_steps))

    def __call__(self, belief: Belief, horizon: int | None = None) -> None:
        horizon = default_horizon(self.model) if horizon is None else horizon
        world = self.world(self.model, belief, horizon)
        self.check(world, int(horizon))
        params = {
            name: numpyro.param(name, initial) for name, (_, initial) in self.parameters(world, int(horizon)).items()
        }
        self.draw(world, self.posterior(world, params, int(horizon)), int(horizon))

    def world(self, model: Callable[..., Any], belief: Belief, horizon: int) -> World:
        return program_of(model, belief, horizon).world(belief, horizon)

    def free_energy(
        self,
        objective: Objective,
        model: Callable[..., Any],
        params: Mapping[str, Array],
        belief: Belief,
        horizon: int | None = None,
    ) -> Array:
        """F with the given logits: what ``Objective.loss`` returns for this guide."""
        horizon = default_horizon(model) if horizon is None else horizon
        world = self.world(model, belief, horizon)
        self.check_params(world, params, int(horizon))
        return objective.free_energy(world, self.posterior(world, params, int(horizon)))

    def check_params(self, world: World, params: Mapping[str, Array], num_steps: int) -> None:
        """Refuse logits that are missing or have another shape than the model's sites ask for."""
        for name, (shape, _) in self.parameters(world, num_steps).items():
            if name not in params:
                raise GuideError(f"guide: found no parameter '{name}', expected logits of shape {shape}")
            if jnp.shape(params[name]) != shape:
                raise GuideError(f"guide: parameter '{name}' has shape {jnp.shape(params[name])}, expected {shape}")


def lookup(table: Array, *index: Any) -> Array:
    """table[index], where an axis of size 1 stands for all values."""
    return table[tuple(0 if size == 1 else i for size, i in zip(table.shape, index, strict=False))]


def named(sites: tuple[Site, ...], suffix: str = "") -> dict[str, Callable[[Any], Array]]:
    """One drawing function for each site, under its full name."""
    return {site.name: _drawer(site.name + suffix) for site in sites}


def _drawer(name: str) -> Callable[[Any], Array]:
    return lambda fn: numpyro.sample(name, fn)


def sizes(sites: tuple[Site, ...]) -> list[int]:
    return [site.size for site in sites]
