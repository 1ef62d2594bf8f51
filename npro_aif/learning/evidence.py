"""The exact evidence of episodes, log p(y_1:T | u_1:T): states and parameters are summed out by the filter.

    log p(y_1:T|u_1:T) = log Σ_θ p(θ) Π_t p(y_t | y_<t, u_≤t, θ)

One ``scan`` over time follows each parameter by itself. Preferences are not evidence and do not count.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.acting.filter import Filter, Tracked, safe_logsumexp, tracked
from npro_aif.acting.sparse import UNMOVED, UNSEEN
from npro_aif.belief import Belief
from npro_aif.learning.records import Records, arrays
from npro_aif.numerics import is_concrete
from npro_aif.program.checks import check_belief
from npro_aif.program.program import Fixed, Program, program_of
from npro_aif.tables.world import World


def log_evidence(
    model: Callable[..., Any],
    belief: Belief,
    controls: Any,
    observations: Any = None,
    first: Any = None,
    *,
    length: Any = None,
) -> Array:
    """log p(y_1:T | u_1:T) of one episode, (), or of each of several, (N,).

    It is differentiable with respect to the belief and to everything continuous that the program uses, and works
    inside ``jit``, ``grad`` and ``vmap``. Data that the model thinks impossible give −inf, with a gradient of zero.

    :param belief: the belief before the first control, and before ``first``.
    :param controls: (T,) the controls, flat, or a dict by site; a step with −1 does not count. Or :class:`Records` of
        several episodes, in place of all further arguments.
    :param observations: (T,) the observation after each control, or a dict by site (``plan=False`` sites too); −1 where
        nothing was observed.
    :param first: the observation before the first control, a number or a dict by site.
    :param length: () the number of steps that count, all by default.

    >>> from npro_aif.models.tmaze import NORTH, SOUTH, initial_belief, tmaze
    >>> maze = functools.partial(tmaze, cue_accuracy=0.8)
    >>> value = log_evidence(maze, initial_belief(), [SOUTH, NORTH, SOUTH], {"cue": [1, -1, 1]})
    >>> round(float(jnp.exp(value)), 3)  # 0.5 · 0.8² + 0.5 · 0.2²
    0.34
    """
    if isinstance(controls, Records):
        return records_evidence(model, belief, controls)
    return records_evidence(model, belief, Records(arrays(controls), arrays(observations), first, length))


def records_evidence(model: Callable[..., Any], belief: Belief, data: Records) -> Array:
    """log p(y|u) of recorded episodes, (N,), or of one, ()."""
    program = program_of(model, belief, 1)
    check_belief(belief, program.signature)
    data.check(program.signature)
    controls, seen, first = filter_inputs(Filter(program), data)
    if is_concrete((controls, seen)):
        controls, seen = map(jnp.asarray, padded(np.asarray(controls), np.asarray(seen)))
    evidence = _evidence_of(program.base)
    return evidence(program.fixed, Belief(*map(jnp.asarray, belief)), controls, seen, first)


def filter_inputs(update: Filter, data: Records) -> tuple[Array, Array, Array]:
    """Controls (…, T), the observations after each (…, T, sites), and the first ones (…, sites); −1 for nothing."""
    controls = data.flat_controls(update.program.signature)
    lengths = jnp.asarray(controls.shape[-1] if data.lengths is None else data.lengths)
    steps = jnp.arange(controls.shape[-1])
    controls = jnp.where(steps < lengths[..., None], controls, UNMOVED)
    seen = jnp.moveaxis(update.seen(data.observations), 0, -1)
    first = jnp.moveaxis(update.seen(data.first), 0, -1)
    return (
        controls,
        jnp.broadcast_to(seen, (*controls.shape, seen.shape[-1])),
        jnp.broadcast_to(first, (*controls.shape[:-1], first.shape[-1])),
    )


def padded(controls: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Episodes with as many steps as the next power of two, so that few lengths compile."""
    num_steps = controls.shape[-1]
    extra = max(8, 1 << (num_steps - 1).bit_length()) - num_steps
    width = [(0, 0)] * (controls.ndim - 1) + [(0, extra)]
    return (
        np.pad(controls, width, constant_values=UNMOVED),
        np.pad(seen, [*width, (0, 0)], constant_values=UNSEEN),
    )


@functools.lru_cache(maxsize=64)
def _evidence_of(program: Program) -> Callable[..., Array]:
    """The evidence with a program, over whatever leading axes the data have."""
    follow = Follower(program)

    def one(fixed: Fixed, belief: Belief, controls: Array, seen: Array, first: Array) -> Array:
        end = follow(fixed, belief, controls, seen, first)[0]
        return safe_logsumexp(end.log_weight)

    def many(fixed: Fixed, belief: Belief, controls: Array, seen: Array, first: Array) -> Array:
        evidence = one
        for _ in range(controls.ndim - 1):
            evidence = jax.vmap(evidence, (None, None, 0, 0, 0))
        return evidence(fixed, belief, controls, seen, first)

    return jax.jit(many)


class Follower:
    """Filters each parameter's belief through an episode, in one scan.

    :param program: for one step.
    """

    def __init__(self, program: Program):
        self.program = program
        self.filter = Filter(program)
        self.changes = program.takes_elapsed or program.looks_at_belief  # whether tables differ from step to step

    def __call__(
        self, fixed: Fixed, belief: Belief, controls: Array, seen: Array, first: Array
    ) -> tuple[Tracked, Tracked]:
        """The beliefs at the end, and before each control with a leading axis."""
        world = self.program.bind(fixed, belief, 1)

        def step(now: Tracked, inputs: tuple[Array, Array, Array]) -> tuple[Tracked, Tracked]:
            t, control, seen = inputs
            here = self.world(fixed, world, now, t)
            counts = control != UNMOVED  # a step that does not count leaves everything as it is
            after = self.filter.follow(here, now, control, jnp.where(counts, seen, UNSEEN))
            return jax.tree.map(lambda a, b: jnp.where(counts, a, b), after, now), now

        times = jnp.arange(len(controls), dtype=jnp.int32)
        return jax.lax.scan(step, self.begin(world, first), (times, controls, seen))

    def begin(self, world: World, first: Array) -> Tracked:
        """The beliefs after the first look."""
        return self.filter.follow(world, tracked(world), jnp.asarray(UNMOVED), first)

    def world(self, fixed: Fixed, first: World, now: Tracked, t: Array) -> World:
        """The tables after t steps: those of the first step, unless they change."""
        return self.program.bind(fixed._replace(elapsed=t), now.belief(), 1) if self.changes else first
