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
        check_belief(belief, self.program.signature)
        seen = jnp.asarray(self._observed(observation), jnp.int32)
        move = -1 if control is None else flat_index(control, self.program.signature.control, "control")
        updated, masses = self._update(self.program.fixed, belief, jnp.asarray(move, jnp.int32), seen)
        masses = np.asarray(masses)
        if not (masses > 0).all() and not ignore_impossible:
            site = self.sites[int(np.argmax(~(masses > 0)))]
            value = int(seen[self.sites.index(site)])
            when = "" if step is None else f" at step {step}"
            raise ImpossibleObservation(
                f"site '{site.name}'{when}: observed {site.label(value)} ({value}), to which the model gives probability zero "
                "under the current belief"
            )
        return updated

    def _observed(self, observation: int | Mapping[str, int]) -> list[int]:
        """What was observed, in the order of the sites; sites that are not mentioned were not observed."""
        if not isinstance(observation, Mapping):
            if len(self.sites) != 1:
                names = [site.name for site in self.sites]
                raise ValueError(f"observation: found {observation!r}, expected a dict with some of the sites {names}")
            return [flat_index(observation, self.sites, "observation")]
        names = {site.name for site in self.sites}
        for name in observation:
            if name not in names:
                raise ValueError(f"observation: found '{name}', expected some of the sites {sorted(names)}")
        return [
            flat_index(observation[site.name], (site,), f"observation '{site.name}'") if site.name in observation else UNSEEN
            for site in self.sites
        ]

    def _bayes(self, fixed: Fixed, belief: Belief, control: Array, seen: Array) -> tuple[Belief, Array]:
        world = self.program.bind(fixed, belief, 1)
        joint = jnp.exp(world.parameter)[:, None] * jnp.exp(world.initial)
        moved = world.state.at(0).given(jnp.maximum(control, 0)).push(joint[:, :, None])
        joint = jnp.where(control < 0, joint, moved)
        masses = []
        for i, site in enumerate(self.sites):
            kernel = (world.observation | world.sensor)[site.name].at(0)
            weighted = joint * jnp.where(seen[i] == UNSEEN, 1.0, kernel.likelihood(jnp.maximum(seen[i], 0)))
            total = weighted.sum()
            masses.append(total)
            joint = jnp.where(total > 0, weighted / jnp.where(total > 0, total, 1.0), joint)  # or ignore it
        parameter = joint.sum(1)
        return Belief(parameter / parameter.sum(), normalize(joint)), jnp.stack(masses) if masses else jnp.ones(1)


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
    update = _filter_of(program_of(model, belief, 1))
    return update(belief, control, observation, ignore_impossible=ignore_impossible, step=step)


@functools.lru_cache(maxsize=64)
def _filter_of(program: Program) -> Filter:
    return Filter(program)
