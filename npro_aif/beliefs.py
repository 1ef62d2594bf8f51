"""Exact Bayes on the joint belief p(x, θ), from the same program that plans."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.checks import check_belief
from npro_aif.errors import ImpossibleObservation
from npro_aif.language import Belief
from npro_aif.numerics import normalize
from npro_aif.signature import Site, flat_index
from npro_aif.world import Fixed, Program, program_of

UNSEEN = -1  # stands for an observation site that was not observed
UNMOVED = -1  # stands for no control: the observation before the first move
FEWEST, GROWTH = 16, 8  # the sizes to which the possible parameters are padded: 16, 128, …


class Filter:
    """Belief updates with one program, compiled once.

    :param program: the compiled model.
    """

    def __init__(self, program: Program):
        self.program = program
        self.sites: tuple[Site, ...] = program.signature.observation + program.signature.sensor
        self._update = jax.jit(self._bayes)

    def __call__(
        self,
        belief: Belief,
        control: int | Mapping[str, int] | None,
        observation: int | Mapping[str, int],
        *,
        ignore_impossible: bool = False,
        step: int | None = None,
    ) -> Belief:
        """The belief after a control and what was observed then; see :func:`update_belief`."""
        seen = np.asarray(self._observed(observation), np.int32)
        move = UNMOVED if control is None else flat_index(control, self.program.signature.control, "control")
        support = self._support(np.asarray(belief.parameter))
        updated, masses = self._update(self.program.fixed, belief, support, np.int32(move), seen)
        masses = np.asarray(masses)
        if not (masses > 0).all() and not ignore_impossible:
            site = self.sites[int(np.argmax(~(masses > 0)))]
            value = int(seen[self.sites.index(site)])
            when = "" if step is None else f" at step {step}"
            raise ImpossibleObservation(
                f"site '{site.name}'{when}: observed {site.label(value)} ({value}), to which the model gives "
                "probability zero under the current belief"
            )
        return updated

    def _observed(self, observation: int | Mapping[str, int]) -> list[int]:
        """What was observed, in the order of the sites; sites that are not mentioned were not observed."""
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
        """The parameters that are possible, padded with Θ; None where that leaves nothing out."""
        possible = np.flatnonzero(parameter)
        size = FEWEST
        while size < len(possible):
            size *= GROWTH  # every size compiles once
        if size >= len(parameter):
            return None
        return np.append(possible, np.full(size - len(possible), len(parameter))).astype(np.int32)

    def _bayes(
        self, fixed: Fixed, belief: Belief, support: Array | None, control: Array, seen: Array
    ) -> tuple[Belief, Array]:
        num_parameters = self.program.signature.num_parameters
        theta = None if support is None else jnp.minimum(support, num_parameters - 1)
        valid = None if support is None else support < num_parameters
        world = self.program.bind(fixed, belief, 1, theta, valid)
        joint = jnp.exp(world.parameter)[:, None] * jnp.exp(world.initial)
        moved = world.state.at(0).given(jnp.maximum(control, 0)).push(joint[None])
        joint = jnp.where(control == UNMOVED, joint, moved)
        masses = []
        for i, site in enumerate(self.sites):
            kernel = (world.observation | world.sensor)[site.name].at(0)
            weighted = joint * jnp.where(seen[i] == UNSEEN, 1.0, kernel.likelihood(jnp.maximum(seen[i], 0)))
            total = weighted.sum()
            masses.append(total)
            joint = jnp.where(total > 0, weighted / jnp.where(total > 0, total, 1.0), joint)  # or ignore it
        parameter, state = joint.sum(1), normalize(joint)
        if support is not None:  # put back what was left out: it stays impossible, and its states do not matter
            parameter = jnp.zeros(num_parameters, joint.dtype).at[support].set(parameter, mode="drop")
            blank = jnp.full((num_parameters, joint.shape[1]), 1 / joint.shape[1], joint.dtype)
            state = blank.at[support].set(state, mode="drop")
        return Belief(parameter / parameter.sum(), state), jnp.stack(masses) if masses else jnp.ones(1)


def update_belief(
    model: Callable[..., Any],
    belief: Belief,
    control: int | Mapping[str, int] | None,
    observation: int | Mapping[str, int],
    *,
    ignore_impossible: bool = False,
    step: int | None = None,
) -> Belief:
    """The joint belief after a control and an observation, by exact Bayes.

    :param control: what was done, a flat index or a dict by site; None for the observation before the first move.
    :param observation: what was observed then: a dict by site (``plan=False`` sites too; sites left out were not
        observed), or an index where the model has one observation site.
    :param ignore_impossible: leave out an observation that the model thinks impossible, instead of raising.
    :param step: the time, for the message.

    >>> from npro_aif.models.tmaze import tmaze, initial_belief, SOUTH
    >>> belief = update_belief(tmaze, initial_belief(), SOUTH, {"cue": 1, "place": 0})
    >>> belief.parameter.tolist()
    [0.0, 1.0]
    """
    program = program_of(model, belief, 1)
    check_belief(belief, program.signature)
    update = _filter_of(program)
    return update(belief, control, observation, ignore_impossible=ignore_impossible, step=step)


@functools.lru_cache(maxsize=64)
def _filter_of(program: Program) -> Filter:
    return Filter(program)
