"""Recorded episodes as arrays: what was done and what was observed, −1 where nothing was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.acting.episodes import Episode
from npro_aif.acting.filter import control_index
from npro_aif.acting.sparse import UNSEEN
from npro_aif.belief import Belief
from npro_aif.errors import ModelError
from npro_aif.numerics import is_concrete
from npro_aif.program.program import program_of
from npro_aif.program.signature import Signature, flat_index


class Records(NamedTuple):
    """Recorded episodes; a single episode has no axis N.

    >>> records = Records(np.array([[2, 0]]), {"cue": np.array([[1, -1]])})  # South, North; the cue was seen once
    >>> records.num_episodes
    1
    """

    controls: Any  # (N, T) flat, or a dict by site; a step with −1 does not count
    observations: Any  # by site, (N, T), after each control; −1 where nothing was observed
    first: Any = None  # by site, (N,), before the first control
    lengths: Any = None  # (N,) how many steps count; all by default
    truth: Any = None  # by site, the unobserved values where they are known: parameters (N,), states (N, T+1)

    @property
    def num_episodes(self) -> int:
        """The number of episodes, N."""
        leaf = next(iter(self.controls.values())) if isinstance(self.controls, Mapping) else self.controls
        return len(leaf)

    def flat_controls(self, signature: Signature) -> Array:
        """The controls as flat indices."""
        return control_index(self.controls, signature)

    def check(self, signature: Signature) -> None:
        """Refuse records that do not fit a program, as far as their numbers are known."""
        sites = {site.name: site for site in signature.observation + signature.sensor}
        observations, first = self.observations, self.first
        if len(sites) == 1:
            name = next(iter(sites))
            observations = observations if isinstance(observations, Mapping) else {name: observations}
            first = first if isinstance(first, Mapping) or first is None else {name: first}
        for what, values in (("observations", observations), ("first", first)):
            if values is not None and not isinstance(values, Mapping):
                raise ValueError(
                    f"{what}: found {type(values).__name__}, expected a dict with some of the sites {list(sites)}"
                )
            for name, table in (values or {}).items():
                if name not in sites:
                    raise ValueError(f"{what}: found '{name}', expected some of the sites {list(sites)}")
                _check_range(f"{what} '{name}'", table, sites[name].size)
        by_site = self.controls if isinstance(self.controls, Mapping) else {"": self.controls}
        sizes = {site.name: site.size for site in signature.control} | {"": signature.num_controls}
        for name, table in by_site.items():
            _check_range(f"controls '{name}'" if name else "controls", table, sizes.get(name, 1))
        controls = self.flat_controls(signature)
        shape = jnp.shape(controls)
        if not shape:
            raise ValueError("controls: found a single number, expected one for each step: shape (T,) or (N, T)")
        for name, table in (observations or {}).items():
            if jnp.shape(table) != shape:
                raise ValueError(
                    f"observations '{name}': found shape {jnp.shape(table)}, expected that of the controls, {shape}: "
                    "one observation after each"
                )
        for name, table in (first or {}).items():
            if jnp.shape(table) not in ((), shape[:-1]):
                raise ValueError(f"first '{name}': found shape {jnp.shape(table)}, expected {shape[:-1]}")
        if self.lengths is not None:
            if jnp.shape(self.lengths) not in ((), shape[:-1]):
                raise ValueError(f"lengths: found shape {jnp.shape(self.lengths)}, expected {shape[:-1]}")
            _check_range("lengths", self.lengths, shape[-1] + 1, least=0)


def _check_range(what: str, table: Any, size: int, least: int = UNSEEN) -> None:
    if not is_concrete(table):
        return
    numbers = np.asarray(table)
    if not np.issubdtype(numbers.dtype, np.integer):
        raise ValueError(f"{what}: found numbers of type {numbers.dtype}, expected whole numbers")
    wrong = (numbers < least) | (numbers >= size)
    if wrong.any():
        none = " (-1: nothing)" if least == UNSEEN else ""
        raise ValueError(f"{what}: found {numbers[wrong].flat[0]}, expected {least} to {size - 1}{none}")


def arrays(tree: Any) -> Any:
    """Lists as arrays."""
    if isinstance(tree, Mapping):
        return {name: arrays(value) for name, value in tree.items()}
    return np.asarray(tree) if isinstance(tree, list | tuple) else tree


def as_records(data: Any, model: Callable[..., Any], belief: Belief) -> Records:
    """Recorded episodes as arrays: :class:`Records` as they are, a mapping of their fields, or a list of episodes."""
    if isinstance(data, Records):
        return data
    if isinstance(data, Mapping):
        unknown = set(data) - set(Records._fields)
        if unknown or "controls" not in data:
            raise ValueError(f"data: found the fields {sorted(data)}, expected {list(Records._fields)}")
        return Records(**{"observations": None, **data})
    episodes: Sequence[Episode] = tuple(data)
    if not episodes or not all(hasattr(episode, "observations") for episode in episodes):
        raise ValueError(f"data: found {type(data).__name__}, expected aif.Records, or a list of aif.Episode")
    return records_of(episodes, program_of(model, belief, 1).signature)


def records_of(episodes: Sequence[Episode], signature: Signature) -> Records:
    """The records of episodes that were run, padded to the longest."""
    num_steps = max(1, *(episode.steps for episode in episodes)) if len(episodes) > 1 else max(1, episodes[0].steps)
    shape = len(episodes), num_steps
    sites = signature.observation + signature.sensor
    controls = np.full(shape, UNSEEN, np.int32)
    seen = {site.name: np.full(shape, UNSEEN, np.int32) for site in sites}
    first = {site.name: np.full(len(episodes), UNSEEN, np.int32) for site in sites}

    def by_site(observation: Any) -> dict[str, int]:
        if observation is None:
            return {}
        if not isinstance(observation, Mapping):
            observation = {sites[0].name: observation}
        names = {site.name for site in sites}
        return {name: int(value) for name, value in observation.items() if name in names}

    for i, episode in enumerate(episodes):
        if len(episode.observations) != episode.steps + 1:
            raise ModelError(
                f"data: found {len(episode.observations)} observations in an episode of {episode.steps} steps, "
                "expected one before the first control and one after each, as aif.run_episodes records them"
            )
        controls[i, : episode.steps] = [flat_index(u, signature.control, "control") for u in episode.controls]
        for name, value in by_site(episode.observations[0]).items():
            first[name][i] = value
        for t, observation in enumerate(episode.observations[1:]):
            for name, value in by_site(observation).items():
                seen[name][i, t] = value
    return Records(controls, seen, first, np.array([episode.steps for episode in episodes]))
