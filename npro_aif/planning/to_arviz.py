"""A plan as ArviZ data: draws with named dimensions, exact tables, the free energy and its terms.

:class:`npro_aif.Plan` imports this module only when it is needed, as ArviZ is an extra. Everything that depends on
ArviZ's version is in :func:`bundle`; the rest is plain xarray.

Groups of a plan:

- ``posterior``: draws by site, (chain, draw, …); the categories are integers, their labels are an attribute.
- ``exact``: the tables ``policy`` q(u_t|x_{t-1}), ``control_marginal`` q(u_t), ``state_marginal`` q(x_t),
  ``parameter_marginal`` q(θ), ``observation_marginal`` q(y_t); where a role has several sites, also the
  marginal of each, ``<site>_marginal``.
- ``free_energy``: its history, and how the solver ended; ``terms``: the terms that sum to its last value.

Dimensions: ``time`` is 1 … T (controls, observations), ``time_with_present`` 0 … T (states), ``iteration`` counts
gradient steps or sweeps. ``state``, ``control``, ``parameter`` and ``memory`` run over the role's values, and ``seen``
(where it is not ``state``) over what the policy sees, with the model's labels ("North"; "sink,4" where there are
several sites); the dimension of a single observation site is ``observation``, those of several are called as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import arviz as az
import jax
import numpy as np
import xarray as xr

from npro_aif.inference.objectives import TERMS
from npro_aif.planning.origin import model_name
from npro_aif.program.signature import Signature, Site

TIME, WITH_PRESENT = "time", "time_with_present"
OVER: dict[str, tuple[str, ...]] = {  # the time dimension of each role's sites
    "parameter": (),
    "state": (WITH_PRESENT,),
    "control": (TIME,),
    "observation": (TIME,),
    "memory": (WITH_PRESENT,),
}
RESERVED = ("chain", "draw", "step", TIME, WITH_PRESENT)  # dimensions that a site's name would clash with


def plan_to_arviz(plan: Any, key: jax.Array | None = None, num_samples: int = 1000) -> az.InferenceData:
    """One plan for ArviZ; see the module's docstring for its groups and dimensions.

    :param key: for the draws; ``jax.random.key(0)`` by default.
    :param num_samples: the number of draws (in one chain).

    >>> import npro_aif, optax
    >>> from npro_aif.models.tmaze import tmaze, initial_belief
    >>> planner = npro_aif.Planner(tmaze, solver=npro_aif.SVISolver(optax.adam(0.1), 2))
    >>> data = planner(jax.random.key(0), initial_belief(), horizon=2).to_arviz(num_samples=10)
    >>> data.posterior["u"].dims, data.exact["policy"].sel(time=1, state="start", control="North").shape
    (('chain', 'draw', 'time'), ())
    """
    check(plan)
    draws = plan.sample(jax.random.key(0) if key is None else key, num_samples)
    return bundle(
        {
            "posterior": _draws(draws, plan.signature),
            "exact": exact(plan),
            "free_energy": free_energy(plan),
            "terms": terms(plan),
        },
        about(plan),
    )


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


def exact(plan: Any) -> xr.Dataset:
    """The exact tables of a plan."""
    signature, horizon = plan.signature, plan.control.shape[0]
    seen = "seen" if signature.is_closed else "state"  # what the policy sees
    tables: dict[str, tuple[tuple[str, ...], Any]] = {
        "policy": ((TIME, seen, "control"), plan.policy),
        "control_marginal": ((TIME, "control"), plan.control),
        "state_marginal": ((WITH_PRESENT, "state"), plan.state),
        "parameter_marginal": (("parameter",), plan.parameter),
    }
    coords: dict[str, Any] = {TIME: _times(TIME, horizon), WITH_PRESENT: _times(WITH_PRESENT, horizon + 1)}
    if signature.is_closed:
        coords["seen"] = labels(signature.policy)
    if signature.memory:
        tables["memory_marginal"] = (WITH_PRESENT, "memory"), plan.memory
    for role, over in OVER.items():
        sites = signature.sites(role)
        if role == "memory" and not sites:
            continue
        if role != "observation":
            coords[role] = labels(sites)
        elif len(sites) == 1:
            tables["observation_marginal"] = (TIME, "observation"), plan.observation[sites[0].name]
            coords["observation"] = labels(sites)
        if len(sites) > 1:
            tables |= {f"{site.name}_marginal": ((*over, site.name), plan.marginal(site.name)) for site in sites}
            coords |= {site.name: labels((site,)) for site in sites}
    return xr.Dataset({name: (dims, np.asarray(table)) for name, (dims, table) in tables.items()}, coords)


def free_energy(plan: Any) -> xr.Dataset:
    """F before every iteration and of the returned posterior, and how the solver ended."""
    history, info = np.asarray(plan.free_energy), plan.info
    values = np.append(history[: int(info.iterations)], history[-1])
    scalars = {name: np.asarray(value) for name, value in info._asdict().items() if np.ndim(value) == 0}
    ending = {name: ((), v if np.issubdtype(v.dtype, np.floating) else v.astype(int)) for name, v in scalars.items()}
    return xr.Dataset({"free_energy": ("iteration", values), **ending}, {"iteration": np.arange(len(values))})


def terms(plan: Any) -> xr.Dataset:
    """The terms of F."""
    return xr.Dataset({name: ((), np.asarray(plan.terms[name])) for name in TERMS if name in plan.terms})


def _times(dim: str, length: int) -> np.ndarray:
    return np.arange(length) + (1 if dim == TIME else 0)


def about(plan: Any) -> dict[str, str]:
    """The attributes of the file: the library, its version and the model."""
    return {
        "inference_library": "npro-aif",
        "inference_library_version": version("npro-aif"),
        "model": model_name(plan.origin.program.model),
    }


def check(plan: Any) -> None:
    """Refuse a batch, and site names that ArviZ uses itself."""
    if plan.control.ndim != 2:
        raise ValueError(
            f"plan: found a batch of shape {plan.control.shape[:-2]}, expected one plan; take one with "
            "jax.tree.map(lambda array: array[0], plans)"
        )
    for role in OVER:
        for site in plan.signature.sites(role):
            if site.name in RESERVED:
                raise ValueError(f"site '{site.name}': found the name of an ArviZ dimension, expected another name")
