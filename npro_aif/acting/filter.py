"""Exact Bayes on the joint belief p(x, θ), from the same program that plans."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.belief import Belief
from npro_aif.errors import ImpossibleObservation, ModelError
from npro_aif.numerics import divide, normalize, safe_log
from npro_aif.pickling import Portable
from npro_aif.program.checks import check_belief
from npro_aif.program.program import Fixed, Program, program_of
from npro_aif.program.signature import Site, flat_index
from npro_aif.sizes import FEWEST_UPDATED, GROWTH_UPDATED, MOST_UPDATED

UNSEEN = -1  # stands for an observation site that was not observed
UNMOVED = -1  # stands for no control: the observation before the first move


class Part(NamedTuple):
    """The update of some parameters."""

    parameter: Array  # (K,) p(θ) among them
    state: Array  # (K, X) p(x|θ)
    log_mass: Array  # (sites + 1,) log of their joint probability with what was seen: at first, and at each site


class Filter(Portable):
    """Belief updates with a model as it is now: read once, compiled once, for as many updates as are wanted.

    :param model: a model; or a program that was read before, without a belief.
    :param belief: any belief of the model.

    >>> from npro_aif.models.tmaze import tmaze, initial_belief, SOUTH
    >>> update = Filter(tmaze, initial_belief())
    >>> update(initial_belief(), SOUTH, {"cue": 1, "place": 0}).parameter.tolist()
    [0.0, 1.0]
    """

    transient = ("_update",)

    def __init__(self, model: Callable[..., Any] | Program, belief: Belief | None = None):
        program: Any = model
        if belief is not None:
            program = program_of(model, belief, 1)  # type: ignore[arg-type]
        elif not hasattr(model, "signature"):
            raise ValueError("belief: found None, expected any belief of the model: aif.Filter(model, belief)")
        self.program: Program = program
        self.sites: tuple[Site, ...] = program.signature.observation + program.signature.sensor
        at_once = max(1, MOST_UPDATED // program.signature.num_states)
        self._at_once = 1 << (at_once.bit_length() - 1)  # how many parameters go together: a power of two
        self.restore()

    def restore(self) -> None:
        self._update = jax.jit(self.bayes)

    def __call__(
        self,
        belief: Belief,
        control: int | Mapping[str, int] | None,
        observation: int | Mapping[str, int] | None,
        *,
        ignore_impossible: bool = False,
        step: int | None = None,
        elapsed: int = 0,
    ) -> Belief:
        """The belief after a control and what was observed then; see :func:`update_belief`."""
        check_belief(belief, self.program.signature)
        move, seen = self.flat(control, observation)
        support = self._support(np.asarray(belief.parameter))
        while True:
            updated, possible = self._update(self.program.at(elapsed), belief, support, move, seen)
            impossible = ~np.asarray(possible)
            if not impossible.any():
                return updated
            first = int(np.argmax(impossible))
            site, value = self.sites[first], int(seen[first])
            if value == UNSEEN:
                raise ModelError("belief: found no state and parameter of positive probability, expected some")
            if not ignore_impossible:
                when = "" if step is None else f" at step {step}"
                raise ImpossibleObservation(
                    f"site '{site.name}'{when}: observed {site.label(value)}{f' ({value})' * bool(site.labels)}, to "
                    "which the model gives probability zero under the current belief; ignore_impossible=True leaves "
                    "such an observation out"
                )
            seen = np.where(np.arange(len(seen)) == first, np.int32(UNSEEN), seen)  # and all the others again

    def flat(
        self, control: int | Mapping[str, int] | None, observation: int | Mapping[str, int] | None
    ) -> tuple[np.int32, np.ndarray]:
        """The control and, in the order of the sites, what was observed, as numbers for :meth:`bayes`."""
        move = UNMOVED if control is None else flat_index(control, self.program.signature.control, "control")
        return np.int32(move), np.asarray(self._observed(observation), np.int32)

    def _observed(self, observation: int | Mapping[str, int] | None) -> list[int]:
        """What was observed, in the order of the sites; sites that are not mentioned were not observed."""
        if observation is None:
            return [UNSEEN] * len(self.sites)
        if isinstance(observation, Mapping) and not observation and self.sites:
            names = [site.name for site in self.sites]
            raise ValueError(
                f"observation: found an empty dict, expected some of the sites {names}, or None for nothing"
            )
        if not isinstance(observation, Mapping):
            if len(self.sites) != 1:
                names = [site.name for site in self.sites]
                raise ValueError(f"observation: found {observation!r}, expected a dict with some of the sites {names}")
            return [flat_index(observation, self.sites, "observation")]
        known = {site.name for site in self.sites}
        for name in observation:
            if name not in known:
                raise ValueError(f"observation: found '{name}', expected some of the sites {sorted(known)}")
        return [
            flat_index(observation[site.name], (site,), f"observation '{site.name}'")
            if site.name in observation
            else UNSEEN
            for site in self.sites
        ]

    def _support(self, parameter: np.ndarray) -> np.ndarray | None:
        """The parameters that are possible, padded with Θ; None where that leaves nothing out and all go together."""
        possible = np.flatnonzero(parameter)
        size = FEWEST_UPDATED
        while size < len(possible):
            size *= GROWTH_UPDATED  # every size compiles once
        if size >= len(parameter):
            if len(parameter) <= self._at_once:
                return None
            size = len(parameter)
        if size > self._at_once:
            size = -(-size // self._at_once) * self._at_once
        return np.append(possible, np.full(size - len(possible), len(parameter))).astype(np.int32)

    def bayes(
        self, fixed: Fixed, belief: Belief, support: Array | None, control: Array, seen: Array
    ) -> tuple[Belief, Array]:
        """The belief, and whether what was seen is possible, by site."""
        part = functools.partial(self._part, fixed, belief, control, seen)
        together = support is None or len(support) <= self._at_once
        parameter, state, log_mass = part(support) if together else self._each(part, jnp.asarray(support))
        parameter = parameter / parameter.sum()
        if support is not None:  # put back what was left out: it stays impossible, and its states do not matter
            parameter = jnp.zeros_like(belief.parameter).at[support].set(parameter, mode="drop")
            state = jnp.full_like(belief.state, 1 / state.shape[1]).at[support].set(state, mode="drop")
        return Belief(parameter, state), log_mass[1:] > -jnp.inf

    def _each(self, part: Callable[[Array], Part], support: Array) -> Part:
        """The parts of a large support, one after the other, as one."""
        groups = support.reshape(-1, self._at_once)
        shapes = jax.eval_shape(part, groups[0])
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        nothing = nothing._replace(log_mass=jnp.full_like(nothing.log_mass, -jnp.inf))

        def some(theta: Array) -> Part:  # padding comes last, so that whole parts of it are skipped
            return jax.lax.cond(theta[0] < self.program.signature.num_parameters, part, lambda _: nothing, theta)

        parts = jax.lax.map(some, groups)
        most = parts.log_mass.max(0)
        share = jnp.exp(parts.log_mass[:, -1:] - jnp.where(most[-1] > -jnp.inf, most[-1], 0.0))
        return Part((parts.parameter * share).ravel(), parts.state.reshape(len(support), -1), most)

    @staticmethod
    def _place(table: Array, control: Array) -> Array:
        """Where a control is in a table (…, U|1), which has no axis for it where it was bound to it."""
        return jnp.where(table.shape[2] == 1, 0, control)

    def _part(self, fixed: Fixed, belief: Belief, control: Array, seen: Array, support: Array | None) -> Part:
        """Bayes on some parameters (Θ stands for padding), or on all."""
        num_parameters = self.program.signature.num_parameters
        theta = None if support is None else jnp.minimum(support, num_parameters - 1)
        valid = None if support is None else support < num_parameters
        only = jnp.maximum(control, 0)
        world = self.program.bind(fixed, belief, 1, theta, valid, only)
        joint = jnp.exp(world.parameter)[:, None] * jnp.exp(world.initial)

        def push(joint: Array) -> Array:
            certain = jnp.ones((joint.shape[1], 1), joint.dtype)
            return world.state.at(0).given(only).push(joint.T, certain).T

        joint = jax.lax.cond(control == UNMOVED, lambda joint: joint, push, joint)
        total = joint.sum()
        log_mass = [safe_log(total)]
        joint = divide(joint, total)
        for i, site in enumerate(self.sites):
            kernel = (world.observation | world.sensor)[site.name].at(0)
            likelihood = kernel.likelihood(jnp.maximum(seen[i], 0))  # (Θ|1, X), or of observed controls (Θ|1, X·U)
            left_out = seen[i] == UNSEEN
            if likelihood.shape[1] > joint.shape[1]:  # before the first move there is no control to observe
                by_control = likelihood.reshape(likelihood.shape[0], joint.shape[1], -1)
                likelihood = jax.lax.dynamic_index_in_dim(by_control, self._place(by_control, only), 2, keepdims=False)
                left_out |= control == UNMOVED
            joint = joint * jnp.where(left_out, 1.0, likelihood)
            total = joint.sum()
            log_mass.append(log_mass[-1] + safe_log(total))
            joint = divide(joint, total)  # at every site: the product of many could underflow
        return Part(joint.sum(1), normalize(joint), jnp.stack(log_mass))


def update_belief(
    model: Callable[..., Any],
    belief: Belief,
    control: int | Mapping[str, int] | None,
    observation: int | Mapping[str, int] | None,
    *,
    ignore_impossible: bool = False,
    step: int | None = None,
    elapsed: int = 0,
) -> Belief:
    """The joint belief after a control and an observation, by exact Bayes.

    The model is read anew at every call, so that a table that has changed counts; :class:`Filter` reads it once.

    :param control: what was done, a flat index or a dict by site; None for the observation before the first move.
    :param observation: what was observed then: a dict by site (``plan=False`` sites too; sites left out were not
        observed), or an index where the model has one observation site; None for nothing.
    :param ignore_impossible: leave out an observation that the model thinks impossible, instead of raising.
    :param step: the time, for the message.
    :param elapsed: the steps that had passed before the control, for a model with an argument ``elapsed``.

    >>> from npro_aif.models.tmaze import tmaze, initial_belief, SOUTH
    >>> belief = update_belief(tmaze, initial_belief(), SOUTH, {"cue": 1, "place": 0})
    >>> belief.parameter.tolist()
    [0.0, 1.0]
    """
    program = program_of(model, belief, 1)
    update = _filter_of(program)
    return update(belief, control, observation, ignore_impossible=ignore_impossible, step=step, elapsed=elapsed)


@functools.lru_cache(maxsize=64)
def _filter_of(program: Program) -> Filter:
    return Filter(program)
