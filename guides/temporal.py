"""The temporal guide q(θ) Π_t q(u_t|x_{t-1}) q(x_t|x_{t-1},u_t,θ) q(y_t|x_t,θ): linear in the horizon.

The policy does not see θ. Logits are relative to the generative model, so that a factor starts at the model
and keeps its support; factors that are not learned equal the model's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.errors import GuideError
from npro_aif.guides.base import FACTORS, START, Params, Start, Table, TableGuide, named, sizes, zeros
from npro_aif.inference.temporal import TemporalPosterior
from npro_aif.language import DeterministicCategorical, chain
from npro_aif.numerics import masked_log_softmax
from npro_aif.program.signature import Site, join, split
from npro_aif.tables.kernels import Kernel
from npro_aif.tables.world import World

PARAMETER, CONTROL, STATE = "parameter_logits", "control_logits", "state_logits"  # the guide's own names


def observation_logits(site: str) -> str:
    """The name of an observation site's table, which differs from the names above whatever the site is called."""
    return f"observation_{site}_logits"


class TemporalGuide(TableGuide):
    """A NumPyro program for the temporal factorisation.

    :param model: the program whose sites the guide draws.
    :param learn: which factors are learned, the policy by default; the others equal the generative model. (A
        deterministic state or observation has nothing to learn.) A learned parameter, state or observation is
        optimistic: it leans towards what is preferred. The paper learns all of them, ``FACTORS``.
    :param start: where its logits begin; by default the policy at N(0,1), the other factors at the model.

    >>> from numpyro.handlers import seed, trace
    >>> from npro_aif.models.tmaze import tmaze, initial_belief
    >>> guide = TemporalGuide(tmaze, learn=("control",))
    >>> list(trace(seed(guide, 0)).get_trace(initial_belief(), horizon=1))
    ['control_logits', 'theta', 'x_0', 'u_1', 'x_1', 'cue_1']
    """

    scope = "temporal"
    any_horizon = True
    closed_form = True

    def __init__(self, model: Callable[..., Any], learn: Sequence[str] = ("control",), start: Start = START):
        super().__init__(model, start)
        if isinstance(learn, str) or any(name not in FACTORS for name in learn):
            raise ValueError(f"learn: found {learn!r}, expected some of {FACTORS}")
        self.learn = tuple(learn)

    def learned(self, world: World) -> tuple[str, ...]:
        """The factors that are learned in a world."""
        return self.learn

    def check(self, world: World, num_steps: int) -> None:
        wrong = [name for name in self.learn if name in ("state", "observation")]
        if world.loop.closed and wrong:
            raise GuideError(
                f"TemporalGuide: found learn={self.learn!r} for a world with hidden states, memories or observations "
                f"of controls, expected 'control' and 'parameter' only (a learned {wrong[0]} would imagine what is "
                "remembered)"
            )

    def tables(self, world: World, num_steps: int) -> dict[str, Table]:
        (num_parameters, num_states), num_controls = world.initial.shape, world.num_controls
        tables: dict[str, Table] = {}
        learn = self.learn
        if "parameter" in learn:
            tables[PARAMETER] = Table("parameter", ("parameter",), (num_parameters,), zeros)
        if "control" in learn:  # a uniform policy is a saddle of symmetric worlds
            shape: tuple[int, ...] = (num_steps, world.loop.num_classes(num_states), num_controls)
            tables[CONTROL] = Table("control", ("time", "seen", "control"), shape, jax.random.normal)
        if "state" in learn and world.state.learnable:
            num_outcomes = world.state.entries()[1].shape[-1]  # as many as there are states, but for sparse moves
            shape = (num_steps, num_parameters, num_states, num_controls, num_outcomes)
            tables[STATE] = Table("state", ("time", "parameter", "state", "control", "outcome"), shape, zeros)
        if "observation" in learn:
            for name, kernel in world.observation.items():
                if kernel.learnable:
                    shape = (num_steps, num_parameters, num_states, kernel.size)
                    axes = ("time", "parameter", "state", "outcome")
                    tables[observation_logits(name)] = Table("observation", axes, shape, zeros)
        return tables

    def posterior(self, world: World, params: Params, num_steps: int) -> TemporalPosterior:
        parameter = world.parameter
        if PARAMETER in params:
            parameter = masked_log_softmax(params[PARAMETER] + parameter, parameter > -jnp.inf)
        prior = jax.vmap(world.loop.prior)(world.control)  # (T|1, P|1, U)
        shape = num_steps, world.loop.num_classes(world.initial.shape[1]), world.num_controls
        control = jnp.broadcast_to(prior, shape)
        if CONTROL in params:
            control = masked_log_softmax(params[CONTROL], control > -jnp.inf)

        def learned(kernel: Any, name: str) -> Any:
            return kernel.learned(params[name]) if name in params else kernel

        return TemporalPosterior(
            parameter=parameter,
            initial=world.initial,
            control=control,
            state=learned(world.state, STATE),
            observation={name: learned(k, observation_logits(name)) for name, k in world.observation.items()},
        )

    def params_of(self, world: World, posterior: TemporalPosterior) -> dict[str, Array]:
        """The logits that stand for a posterior, so that any solver can start from it and any plan can be completed."""

        def ratio(q: Array, p: Array) -> Array:
            return jnp.where(q > -jnp.inf, q - jnp.where(p > -jnp.inf, p, 0.0), -jnp.inf)

        params = {CONTROL: posterior.control} if "control" in self.learn else {}
        if "parameter" in self.learn:
            params[PARAMETER] = ratio(posterior.parameter, world.parameter)
        if posterior.state is not world.state:
            params[STATE] = ratio(posterior.state.entries()[1], world.state.entries()[1])
        for name, kernel in posterior.observation.items():
            if kernel is not world.observation[name] and kernel.learnable:
                logits = ratio(kernel.table(), world.observation[name].table())
                shape = (posterior.num_steps, world.initial.shape[0], *logits.shape[2:])
                params[observation_logits(name)] = jnp.broadcast_to(logits, shape)
        return params

    def draw(self, world: World, posterior: TemporalPosterior, num_steps: int) -> None:
        signature = world.signature
        theta = join(
            chain(named(signature.parameter), sizes(signature.parameter), jnp.exp(posterior.parameter)),
            signature.parameter,
        )
        start = jnp.exp(posterior.initial)[theta]
        values = chain(named(signature.state, "_0"), sizes(signature.state), start)
        x, shown = join(values, signature.state), world.loop.shown(join(values, signature.visible))
        memory = world.loop.first_memory(shown)
        for t in range(num_steps):
            loop = world.loop.at(t)
            policy = jnp.exp(posterior.control[t])[loop.look(shown, memory)]
            values = chain(named(signature.control, f"_{t + 1}"), sizes(signature.control), policy)
            u = join(values, signature.control)
            values = _draw_from(posterior.state.at(t), (theta, x, u), signature.state, t + 1)
            x, shown = join(values, signature.state), loop.shown(join(values, signature.visible))
            seen = {}
            for site in signature.observation:
                condition = theta, loop.sight(x, u)
                outcome = _draw_from(posterior.observation[site.name].at(t), condition, (site,), t + 1)
                seen[site.name] = outcome[site.name], site.size
            memory = loop.next_memory(memory, shown, u, seen)

    def sample(
        self, world: World, posterior: Any, params: Params, key: Array, num_samples: int, num_steps: int
    ) -> dict[str, Array]:
        """Draws by site along the time axis, from tables that may hold only some of the parameters.

        All noise is made at once: a generator inside the loop would take many times longer to compile.
        """
        noise = jax.random.uniform(key, (num_samples, 1 + num_steps, 2 + len(posterior.observation)))
        return jax.vmap(lambda noise: _along_time(posterior, world, noise))(noise)


def _along_time(posterior: TemporalPosterior, world: World, noise: Array) -> dict[str, Array]:
    """One draw, site by site along the chain; noise (1+T, 2 + the number of observation sites)."""
    row = _choose(jnp.exp(posterior.parameter), noise[0, 0])
    first = _choose(jnp.exp(posterior.initial[row]), noise[0, 1])

    def step(carry: tuple[Array, Array], inputs: tuple[Array, Array]) -> tuple[tuple[Array, Array], Any]:
        (x, memory), (t, noise) = carry, inputs
        loop = world.loop.at(t)
        u = _choose(jnp.exp(posterior.control[t, loop.look(x, memory)]), noise[0])
        x = _outcome(posterior.state.at(t), noise[1], row, x, u)
        seen = {
            name: _outcome(kernel.at(t), noise[2 + i], row, loop.sight(x, u))
            for i, (name, kernel) in enumerate(posterior.observation.items())
        }
        sized = {name: (value, posterior.observation[name].size) for name, value in seen.items()}
        memory = loop.next_memory(memory, x, u, sized)
        return (x, memory), (u, x, memory, seen)

    begin = first, world.loop.first_memory(first)
    _, (u, x, memory, seen) = jax.lax.scan(step, begin, (jnp.arange(len(noise) - 1), noise[1:]))
    signature = world.signature
    states = split(jnp.append(first, x), signature.state)
    remembered = split(jnp.append(begin[1], memory), signature.memory)
    parameters, controls = split(world.theta[row], signature.parameter), split(u, signature.control)
    return parameters | states | controls | seen | remembered


def _outcome(kernel: Kernel, noise: Array, *given: Array) -> Array:
    """Draw from one slice of a kernel; the flat value."""
    certain = kernel.certain(*given)
    return _choose(kernel.row(*given), noise) if certain is None else certain


def _choose(probs: Array, noise: Array) -> Array:
    """The category in which a uniform number falls: never one of probability zero."""
    cumulative = jnp.cumsum(probs)
    below_total = jnp.nextafter(cumulative[-1], jnp.zeros_like(cumulative[-1]))
    return jnp.argmax(cumulative > jnp.minimum(noise * cumulative[-1], below_total))


def _draw_from(kernel: Kernel, given: tuple[Array, ...], sites: tuple[Site, ...], t: int) -> dict[str, Array]:
    """Draw sites from one slice of a kernel under NumPyro; returns their values by site."""
    draws = named(sites, f"_{t}")
    certain = kernel.certain(*given)
    if certain is None:
        return chain(draws, sizes(sites), kernel.row(*given))
    outcome = split(certain, sites)
    for site in sites:
        draws[site.name](DeterministicCategorical(outcome[site.name], site.size))
    return outcome
