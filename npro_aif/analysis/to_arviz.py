"""Episodes as ArviZ data: the exact tables of the plan at every step, and what was done and seen.

The groups and dimensions are those of one plan (:mod:`npro_aif.planning.to_arviz`), along a new dimension ``step``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import arviz as az
import numpy as np
import xarray as xr

from npro_aif.acting.episodes import Episode
from npro_aif.planning.plan import Plan
from npro_aif.planning.to_arviz import about, bundle, check, exact, free_energy, labels, terms
from npro_aif.program.signature import flat_index


def episode_to_arviz(
    plans: Sequence[Plan],
    controls: Sequence[int | Mapping[str, int]] | None = None,
    observations: Sequence[Mapping[str, int]] | None = None,
    *,
    episode: Episode | None = None,
) -> az.InferenceData:
    """An episode for ArviZ: the exact tables of a plan at every ``step``, and what was done and seen.

    ``time`` counts from each plan's own present, so time 1 is the step that is about to be taken; where a plan
    looks less far ahead than others, its tables are padded with NaN. There are no draws: take them from
    one of the plans. :func:`npro_aif.analysis.recording.record_episode` gathers all that is asked for here.

    :param plans: one for each step, of one model (an agent's ``plans``, say); their horizons may differ.
    :param controls: the controls taken, one for each plan (an int, or a dict by site); group ``taken``. Those of the
        ``episode`` by default.
    :param observations: what was seen before each of them, by site; group ``observed``.
    :param episode: what came of it; group ``outcome``.
    """
    if not plans:
        raise ValueError("plans: found none, expected at least one")
    for plan in plans:
        check(plan)
    groups = {
        "exact": _stack([exact(plan) for plan in plans]),
        "free_energy": _stack([free_energy(plan) for plan in plans]),
        "terms": _stack([terms(plan) for plan in plans]),
    }
    sites = plans[0].signature.control
    controls = episode.controls if controls is None and episode is not None else controls
    if controls is not None:
        _same_length("controls", controls, plans)
        flat = [flat_index(control, sites, "controls") for control in controls]
        names = np.asarray(labels(sites))[flat]
        groups["taken"] = xr.Dataset({"control": ("step", np.asarray(flat)), "label": ("step", names)})
    if observations is not None:
        _same_length("observations", observations, plans)
        seen = {name: ("step", np.asarray([int(o[name]) for o in observations])) for name in observations[0]}
        groups["observed"] = xr.Dataset(seen)
    step = np.arange(len(plans))
    groups = {name: group.assign_coords(step=step) for name, group in groups.items()}
    if episode is not None:
        groups["outcome"] = xr.Dataset({name: ((), value) for name, value in episode.record().items()})
    return bundle(groups, about(plans[0]))


def _stack(datasets: Sequence[xr.Dataset]) -> xr.Dataset:
    """Datasets along a new dimension ``step``, padded with NaN to the longest."""
    longest = {dim: max(d.sizes[dim] for d in datasets) for dim in datasets[0].sizes}
    padded = []
    for dataset in datasets:
        short = {dim: (0, size - dataset.sizes[dim]) for dim, size in longest.items() if size > dataset.sizes[dim]}
        padded.append(dataset.drop_vars(list(dataset.coords)).pad(short, constant_values=np.nan))
    coords = {dim: c for d in datasets for dim, c in d.coords.items() if c.size == longest[str(dim)]}
    return xr.concat(padded, "step").assign_coords(coords)


def _same_length(what: str, given: Sequence[Any], plans: Sequence[Plan]) -> None:
    if len(given) != len(plans):
        raise ValueError(f"{what}: found {len(given)}, expected one for each of the {len(plans)} plans")
