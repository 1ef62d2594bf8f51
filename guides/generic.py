"""An ordinary NumPyro guide in the form that planners expect: its parameters are found by running it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import constraints
from numpyro.handlers import seed, trace

from npro_aif.belief import Belief
from npro_aif.guides.base import Params, Table, TableGuide
from npro_aif.inference.generic import GenericPosterior, check_guide, enumerate_guide
from npro_aif.tables.world import World


class GenericGuide(TableGuide):
    """A user's guide, evaluated by enumeration.

    :param model: the program whose sites the guide draws.
    :param guide: the NumPyro function; its attribute ``scope`` may say "sequence".
    """

    def __init__(self, model: Callable[..., Any], guide: Callable[..., Any]):
        super().__init__(model)
        self.guide = guide
        self.scope = getattr(guide, "scope", "temporal")

    def tables(self, world: World, num_steps: int) -> dict[str, Table]:
        sites: dict[str, Any] = {}

        def run(key: Array) -> dict[str, Array]:
            every = trace(seed(self.guide, key)).get_trace(_belief(world), horizon=num_steps)
            sites.update({name: site for name, site in every.items() if site["type"] == "param"})
            return {name: jnp.asarray(site["value"]) for name, site in sites.items()}

        shapes = jax.eval_shape(run, jax.random.key(0))

        def first(name: str) -> Callable[[Array, Any], Array]:
            return lambda key, shape: run(key)[name]

        limits = {name: site["kwargs"].get("constraint", constraints.real) for name, site in sites.items()}
        return {
            name: Table("other", ("other",) * len(leaf.shape), leaf.shape, first(name), limits[name])
            for name, leaf in shapes.items()
        }

    def posterior(self, world: World, params: Params, num_steps: int) -> GenericPosterior:
        return enumerate_guide(self.model, self.guide, params, _belief(world), num_steps, world)

    def draw(self, world: World, posterior: Any, num_steps: int) -> None:
        self.guide(_belief(world), horizon=num_steps)

    def check(self, world: World, num_steps: int) -> None:
        check_guide(self.model, self.guide, _belief(world), num_steps)


def _belief(world: World) -> Belief:
    return Belief(jnp.exp(world.parameter), jnp.exp(world.initial))
