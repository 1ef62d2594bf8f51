"""Episodes drawn from a program: parameters and first states come from the belief, everything else from the program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.acting.filter import Tracked
from npro_aif.acting.sparse import UNMOVED, UNSEEN
from npro_aif.belief import Belief
from npro_aif.language import check_horizon
from npro_aif.learning.evidence import Follower
from npro_aif.learning.records import Records, arrays
from npro_aif.numerics import safe_log
from npro_aif.planning.choose import check_key
from npro_aif.program.checks import check_belief
from npro_aif.program.program import Fixed, Program, program_of
from npro_aif.program.signature import Site, split
from npro_aif.tables.kernels import Kernel
from npro_aif.tables.layout import time_slice
from npro_aif.tables.world import World

Policy = Callable[..., Array]  # from the belief, the time (from 0 on) and further numbers to probabilities (U,)


def simulate(
    rng_key: Array,
    model: Callable[..., Any],
    belief: Belief,
    num_episodes: int,
    num_steps: int,
    *,
    controls: Any = None,
    policy: Policy | None = None,
    numbers: Any = (),
    truth: Belief | None = None,
    look: bool = False,
) -> Records:
    """Draw episodes of a model: θ and x_0 from the belief, then each step from the model.

    :param belief: the belief before the first control (and before the first look).
    :param controls: (N, T) or (T,) the controls; by default they are drawn from the program's own p(u|x).
    :param policy: draws the controls instead: a function, traced by JAX, of the filtered belief and the number of steps
        done, which returns probabilities (U,).
    :param numbers: further arguments of the policy, so that code compiled for one agent serves others.
    :param truth: a belief from which θ and x_0 are drawn in place of ``belief``.
    :param look: whether something is observed before the first control.

    >>> from npro_aif.models.tmaze import initial_belief, tmaze
    >>> data = simulate(jax.random.key(0), tmaze, initial_belief(), num_episodes=3, num_steps=2)
    >>> data.controls.shape, data.observations["cue"].shape, data.truth["x"].shape
    ((3, 2), (3, 2), (3, 3))
    """
    check_key(rng_key)
    check_horizon(num_steps, "num_steps")
    if controls is not None and policy is not None:
        raise ValueError("policy: found one beside controls, expected one or the other")
    program = program_of(model, belief, 1)
    check_belief(belief, program.signature)
    check_belief(belief if truth is None else truth, program.signature, "truth")
    shape = num_episodes, num_steps
    moves = jnp.full(shape, UNMOVED) if controls is None else jnp.broadcast_to(jnp.asarray(arrays(controls)), shape)
    draw = _draws_of(program.base, policy, controls is not None, look)
    keys = jax.random.split(rng_key, num_episodes)
    drawn = draw(program.fixed, belief, belief if truth is None else truth, numbers, moves, keys)
    return jax.tree.map(np.asarray, drawn)


@functools.lru_cache(maxsize=16)
def _draws_of(program: Program, policy: Policy | None, controlled: bool, look: bool) -> Callable[..., Records]:
    """Episodes drawn with a program and a policy, one for each key."""
    follow, signature = Follower(program), program.signature
    sites = signature.observation + signature.sensor

    def one(fixed: Fixed, belief: Belief, truth: Belief, numbers: Any, controls: Array, key: Array) -> Records:
        hidden_key, look_key, key = jax.random.split(key, 3)
        world = program.bind(fixed, belief, 1)
        theta = jax.random.categorical(hidden_key, safe_log(truth.parameter))
        x = jax.random.categorical(jax.random.fold_in(hidden_key, 1), safe_log(truth.state[theta]))
        first = jnp.full(len(sites), UNSEEN)
        if look:
            first = _seen(look_key, world, sites, theta, x, jnp.asarray(UNMOVED))
        tracked = follow.begin(world, first)

        def step(carry: tuple[Array, Tracked], inputs: tuple[Array, Array, Array]) -> Any:
            (x, tracked), (t, control, key) = carry, inputs
            here = follow.world(fixed, world, tracked, t)
            control_key, move_key, look_key = jax.random.split(key, 3)
            if policy is not None:
                control = jax.random.categorical(control_key, safe_log(policy(tracked.belief(), t, *numbers)))
            elif not controlled:
                prior = time_slice(here.control, 0)
                control = jax.random.categorical(control_key, prior[jnp.where(len(prior) == 1, 0, x)])
            x = _outcome(move_key, here.state.at(0), theta, x, control)
            seen = _seen(look_key, here, sites, theta, x, control)
            tracked = follow.filter.follow(here, tracked, control, seen)
            return (x, tracked), (control, x, seen)

        inputs = jnp.arange(len(controls)), controls, jax.random.split(key, len(controls))
        _, (done, states, seen) = jax.lax.scan(step, (x, tracked), inputs)
        states = split(jnp.append(x, states), signature.state)
        return Records(
            controls=done,
            observations={site.name: seen[:, i] for i, site in enumerate(sites)},
            first={site.name: first[i] for i, site in enumerate(sites)} if look else None,
            truth=split(theta, signature.parameter) | states,
        )

    return jax.jit(jax.vmap(one, (None, None, None, None, 0, 0)))


def _seen(key: Array, world: World, sites: tuple[Site, ...], theta: Array, x: Array, control: Array) -> Array:
    """The observation at each site, (sites,); before the first move, none at a site that depends on the control."""
    kernels = world.observation | world.sensor
    values = []
    for i, site in enumerate(sites):
        kernel = kernels[site.name].at(0)
        num_sights, num_states = kernel.likelihood(0).shape[1], world.initial.shape[1]
        reads = num_sights > num_states
        sight = x * (num_sights // num_states) + jnp.maximum(control, 0) if reads else x
        value = _outcome(jax.random.fold_in(key, i), kernel, theta, sight)
        values.append(jnp.where((control == UNMOVED) & reads, UNSEEN, value))
    return jnp.stack(values) if values else jnp.zeros(0, jnp.int32)


def _outcome(key: Array, kernel: Kernel, *given: Array) -> Array:
    certain = kernel.certain(*given)
    return jax.random.categorical(key, safe_log(kernel.row(*given))) if certain is None else certain
