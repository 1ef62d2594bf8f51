"""Plans and episodes as ArviZ data: draws with named dimensions, exact tables, the free energy and its terms.

Everything that depends on ArviZ's version is here, in :func:`bundle`; the rest is plain xarray.

Groups of a plan:

- ``posterior``: draws by site, (chain, draw, …); the categories are integers, their labels are an attribute.
- ``exact``: the tables ``policy`` q(u_t|x_{t-1}), ``control_marginal`` q(u_t), ``state_marginal`` q(x_t),
  ``parameter_marginal`` q(θ), ``observation_marginal`` q(y_t); where a role has several sites, also the
  marginal of each, ``<site>_marginal``.
- ``free_energy``: its history, and how the solver ended; ``terms``: what its last value is made of (they sum to it).

Dimensions: ``time`` is 1 … T (controls, observations), ``time_with_present`` 0 … T (states), ``iteration`` counts
gradient steps or sweeps. ``state``, ``control`` and ``parameter`` run over the role's values, with the model's labels
("North"; "sink,4" where there are several sites); a single observation site's dimension is ``observation``, and
several sites' are called as the sites are.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import arviz as az
import jax
import numpy as np
import xarray as xr

import npro_aif
from npro_aif.acting.episodes import Episode
from npro_aif.inference.objectives import TERMS
from npro_aif.planning.plan import Plan
from npro_aif.program.signature import Signature, Site, flat_index

TIME, WITH_PRESENT = "time", "time_with_present"
OVER: dict[str, tuple[str, ...]] = {  # the time dimension of each role's sites
    "parameter": (),
    "state": (WITH_PRESENT,),
    "control": (TIME,),
    "observation": (TIME,),
}
RESERVED = ("chain", "draw", "step", TIME, WITH_PRESENT)  # dimensions that a site's name would clash with


def plan_to_arviz(plan: Plan, key: jax.Array | None = None, num_samples: int = 1000) -> az.InferenceData:
    """One plan for ArviZ; see the module's docstring for its groups and dimensions.

    :param key: for the draws; ``jax.random.key(0)`` by default.
    :param num_samples: the number of draws (in one chain).

    >>> import optax
    >>> from npro_aif.models.tmaze import tmaze, initial_belief
    >>> planner = npro_aif.Planner(tmaze, solver=npro_aif.SVISolver(optax.adam(0.1), 2))
    >>> data = planner(jax.random.key(0), initial_belief(), horizon=2).to_arviz(num_samples=10)
    >>> data.posterior["u"].dims, data.exact["policy"].sel(time=1, state="start", control="North").shape
    (('chain', 'draw', 'time'), ())
    """
    _check(plan)
    draws = plan.sample(jax.random.key(0) if key is None else key, num_samples)
    return bundle(
        {
            "posterior": _draws(draws, plan.signature),
            "exact": _exact(plan),
            "free_energy": _free_energy(plan),
            "terms": _terms(plan),
        },
        _about(plan),
    )


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
        _check(plan)
    groups = {
        "exact": _stack([_exact(plan) for plan in plans]),
        "free_energy": _stack([_free_energy(plan) for plan in plans]),
        "terms": _stack([_terms(plan) for plan in plans]),
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
    return bundle(groups, _about(plans[0]))


def bundle(groups: Mapping[str, xr.Dataset], attributes: Mapping[str, str]) -> az.InferenceData:
    """Datasets by group as ArviZ's container (0.x: ``InferenceData``; 1.x: ``xarray.DataTree.from_dict(groups)``)."""
    return az.InferenceData(**{name: group.assign_attrs(attributes) for name, group in groups.items()})


def labels(sites: tuple[Site, ...]) -> list[str]:
    """The labels of a role's flat values, "a,b" where there are several sites.

    >>> labels((Site("where", 2, ("in", "out")), Site("n", 2)))
    ['in,0', 'in,1', 'out,0', 'out,1']
    """
    names = [[site.label(value) for value in range(site.size)] for site in sites]
    return [",".join(parts) for parts in itertools.product(*names)]


def _draws(draws: Mapping[str, jax.Array], signature: Signature) -> xr.Dataset:
    """Draws by site, (1, n, …) each."""
    variables, coords = {}, {"chain": np.arange(1)}
    for role, over in OVER.items():
        for site in signature.sites(role):
            values = np.asarray(draws[site.name])[None]
            about = {"role": role, "categories": ", ".join(labels((site,)))}
            variables[site.name] = xr.Variable(("chain", "draw", *over), values, about)
            coords["draw"] = np.arange(values.shape[1])
            coords |= {dim: _times(dim, values.shape[2]) for dim in over}
    return xr.Dataset(variables, coords)


def _exact(plan: Plan) -> xr.Dataset:
    """The exact tables of a plan."""
    signature, horizon = plan.signature, plan.control.shape[0]
    tables: dict[str, tuple[tuple[str, ...], Any]] = {
        "policy": ((TIME, "state", "control"), plan.policy),
        "control_marginal": ((TIME, "control"), plan.control),
        "state_marginal": ((WITH_PRESENT, "state"), plan.state),
        "parameter_marginal": (("parameter",), plan.parameter),
    }
    coords: dict[str, Any] = {TIME: _times(TIME, horizon), WITH_PRESENT: _times(WITH_PRESENT, horizon + 1)}
    for role, over in OVER.items():
        sites = signature.sites(role)
        if role != "observation":
            coords[role] = labels(sites)
        elif len(sites) == 1:
            tables["observation_marginal"] = (TIME, "observation"), plan.observation[sites[0].name]
            coords["observation"] = labels(sites)
        if len(sites) > 1:
            tables |= {f"{site.name}_marginal": ((*over, site.name), plan.marginal(site.name)) for site in sites}
            coords |= {site.name: labels((site,)) for site in sites}
    return xr.Dataset({name: (dims, np.asarray(table)) for name, (dims, table) in tables.items()}, coords)


def _free_energy(plan: Plan) -> xr.Dataset:
    """F before every iteration that was made and of the returned posterior, and how the solver ended."""
    history, info = np.asarray(plan.free_energy), plan.info
    made = np.append(history[: int(info.iterations)], history[-1])
    ending = {name: ((), np.asarray(value).astype(int)) for name, value in info._asdict().items()}
    return xr.Dataset({"free_energy": ("iteration", made), **ending}, {"iteration": np.arange(len(made))})


def _terms(plan: Plan) -> xr.Dataset:
    return xr.Dataset({name: ((), np.asarray(plan.terms[name])) for name in TERMS if name in plan.terms})


def _stack(datasets: Sequence[xr.Dataset]) -> xr.Dataset:
    """Datasets along a new dimension ``step``, padded with NaN to the longest."""
    longest = {dim: max(d.sizes[dim] for d in datasets) for dim in datasets[0].sizes}
    padded = []
    for dataset in datasets:
        short = {dim: (0, size - dataset.sizes[dim]) for dim, size in longest.items() if size > dataset.sizes[dim]}
        padded.append(dataset.drop_vars(list(dataset.coords)).pad(short, constant_values=np.nan))
    coords = {dim: c for d in datasets for dim, c in d.coords.items() if c.size == longest[str(dim)]}
    return xr.concat(padded, "step").assign_coords(coords)


def _times(dim: str, length: int) -> np.ndarray:
    return np.arange(length) + (1 if dim == TIME else 0)


def _about(plan: Plan) -> dict[str, str]:
    """What a reader of the file wants to know."""
    model = plan.origin.program.model
    return {
        "inference_library": "npro-aif",
        "inference_library_version": npro_aif.__version__,
        "model": getattr(getattr(model, "func", model), "__name__", "model"),  # func: of a functools.partial
    }


def _check(plan: Plan) -> None:
    if plan.control.ndim != 2:
        raise ValueError(
            f"plan: found a batch of shape {plan.control.shape[:-2]}, expected one plan; take one with "
            "jax.tree.map(lambda array: array[0], plans)"
        )
    for role in OVER:
        for site in plan.signature.sites(role):
            if site.name in RESERVED:
                raise ValueError(f"site '{site.name}': found the name of an ArviZ dimension, expected another name")


def _same_length(what: str, given: Sequence[Any], plans: Sequence[Plan]) -> None:
    if len(given) != len(plans):
        raise ValueError(f"{what}: found {len(given)}, expected one for each of the {len(plans)} plans")
