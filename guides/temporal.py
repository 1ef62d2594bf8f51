"""The temporal guide q(θ) Π_t q(u_t|x_{t-1}) q(x_t|x_{t-1},u_t,θ) q(y_t|x_t,θ): linear in the horizon.

The policy does not see θ. Logits are relative to the generative model, so that a factor starts at the model
and keeps its support; what is not learned is the model itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.guides.base import Initial, TableGuide, lookup, named, sizes
from npro_aif.inference.temporal import TemporalPosterior
from npro_aif.language import DeterministicCategorical, chain
from npro_aif.program.program import World
from npro_aif.program.signature import Site, join, split
from npro_aif.tables.kernels import Dense, Index, Kernel
from npro_aif.tables.numerics import masked_log_softmax

FACTORS = ("parameter", "control", "state", "observation")


class TemporalGuide(TableGuide):
    """A NumPyro program for the temporal factorisation.

    :param model: the program whose sites the guide draws.
    :param learn: which factors are learned; the others equal the generative model. (A deterministic state or
        observation has nothing to learn.)

    >>> from numpyro.handlers import seed, trace
    >>> from npro_aif.models.tmaze import tmaze, initial_belief
    >>> guide = TemporalGuide(tmaze, learn=("control",))
    >>> list(trace(seed(guide, 0)).get_trace(initial_belief(), horizon=1))
    ['control_logits', 'theta', 'x_0', 'u_1', 'x_1', 'cue_1']
    """

    scope = "temporal"

    def __init__(self, model: Callable[..., Any], learn: Sequence[str] = FACTORS):
        super().__init__(model)
        unknown = [name for name in learn if name not in FACTORS]
        if isinstance(learn, str) or unknown:
            raise ValueError(f"learn: found {learn!r}, expected some of {FACTORS}")
        self.learn = tuple(learn)

    def parameters(self, world: World, num_steps: int) -> dict[str, tuple[tuple[int, ...], Initial]]:
        num_parameters, num_states = world.initial.shape
        shapes: dict[str, tuple[int, ...]] = {}
        if "parameter" in self.learn:
            shapes["parameter_logits"] = (num_parameters,)
        if "control" in self.learn:
            shapes["control_logits"] = (num_steps, num_states, world.control.shape[-1])
        if "state" in self.learn and isinstance(world.state, Dense):
            shapes["state_logits"] = (num_steps, num_parameters, num_states, world.control.shape[-1], world.state.size)
        if "observation" in self.learn:
            for name, kernel in world.observation.items():
                if isinstance(kernel, Dense):
                    shapes[f"{name}_logits"] = (num_steps, num_parameters, num_states, kernel.size)

        def first(name: str, shape: tuple[int, ...]) -> Initial:
            if name == "control_logits":  # a uniform policy is a saddle of symmetric worlds
                return lambda key: jax.random.normal(key, shape)
            return lambda key: jnp.zeros(shape)

        return {name: (shape, first(name, shape)) for name, shape in shapes.items()}

    def posterior(self, world: World, params: Mapping[str, Array], num_steps: int) -> TemporalPosterior:
        parameter = world.parameter
        if "parameter_logits" in params:
            parameter = masked_log_softmax(params["parameter_logits"] + parameter, parameter > -jnp.inf)
        shape = (num_steps, world.initial.shape[1], world.control.shape[-1])
        control = jnp.broadcast_to(world.control, shape)
        if "control_logits" in params:
            control = masked_log_softmax(params["control_logits"], control > -jnp.inf)
        return TemporalPosterior(
            parameter=parameter,
            initial=world.initial,
            control=control,
            state=_learned(world.state, params.get("state_logits")),
            observation={
                name: _learned(kernel, params.get(f"{name}_logits")) for name, kernel in world.observation.items()
            },
        )

    def draw(self, world: World, posterior: TemporalPosterior, num_steps: int) -> None:
        signature = world.signature
        theta = join(
            chain(named(signature.parameter), sizes(signature.parameter), jnp.exp(posterior.parameter)),
            signature.parameter,
        )
        start = jnp.exp(posterior.initial)[theta]
        x = join(chain(named(signature.state, "_0"), sizes(signature.state), start), signature.state)
        for t in range(num_steps):
            policy = jnp.exp(posterior.control[t])[x]
            values = chain(named(signature.control, f"_{t + 1}"), sizes(signature.control), policy)
            u = join(values, signature.control)
            x = _draw_from(posterior.state.at(t), (theta, x, u), signature.state, t + 1)
            for site in signature.observation:
                _draw_from(posterior.observation[site.name].at(t), (theta, x), (site,), t + 1)


def _learned(kernel: Kernel, logits: Array | None) -> Kernel:
    """The kernel p tilted by logits: q ∝ p exp(logits) on p's support; p itself where there are none."""
    if logits is None or isinstance(kernel, Index):
        return kernel
    return Dense(masked_log_softmax(kernel.log + logits, kernel.support))


def _draw_from(kernel: Kernel, given: tuple[Array, ...], sites: tuple[Site, ...], t: int) -> Array:
    """Draw sites from one slice of a kernel; returns their flat value."""
    draws = named(sites, f"_{t}")
    if isinstance(kernel, Index):
        outcome = split(lookup(kernel.index, *given), sites)
        for site in sites:
            draws[site.name](DeterministicCategorical(outcome[site.name], site.size))
        return join(outcome, sites)
    return join(chain(draws, sizes(sites), jnp.exp(lookup(kernel.log, *given))), sites)
