"""Recordings as plain dicts and lists, from which the page is drawn: nothing of JAX is left in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from npro_aif.acting.episodes import Episode
from npro_aif.analysis.view.drawing import Drawing
from npro_aif.analysis.view.numbers import entropy, rounded, sparse
from npro_aif.analysis.view.plans import first_controls, plan_data
from npro_aif.analysis.view.worlds import drawing_of
from npro_aif.belief import Belief, is_sparse
from npro_aif.planning.origin import model_name
from npro_aif.planning.plan import Plan
from npro_aif.program.signature import Signature, Site, flat_index, marginalize, split

ROLES = ("parameter", "state", "control", "observation", "sensor", "memory")
ABOUT = {  # by objective
    "Marginal": "weighs good outcomes against habits",
    "Planning": "wants the best outcome",
    "Active": "wants the best outcome, and information",
}


class Recorded(Protocol):
    """What a page is made of: a :class:`npro_aif.analysis.recording.Recording`."""

    @property
    def episode(self) -> Episode: ...
    @property
    def plans(self) -> tuple[Plan, ...]: ...
    @property
    def observations(self) -> tuple[Any, ...]: ...


def page_data(
    recordings: Mapping[str, Recorded], *, title: str | None, drawing: Drawing | None, depth: int
) -> dict[str, Any]:
    """The numbers of a page.

    :param recordings: episodes of one world, by the name that each has on the page.
    :param drawing: how the world looks; by default as :func:`drawing_of` knows it.
    :param depth: of the contingent trees, in steps.
    """
    signature, model = _common(recordings)
    drawing = drawing or drawing_of(model)
    if drawing is not None:
        drawing.check(signature)
    return {
        "title": title or (model_name(model).replace("_", " ") if drawing is None else drawing.title),
        "about": "" if drawing is None else drawing.about,
        "sites": {role: [_site(site) for site in signature.sites(role)] for role in ROLES},
        "drawing": None if drawing is None else _drawing(drawing),
        "runs": [_run(name, recording, drawing, depth) for name, recording in recordings.items()],
    }


def _common(recordings: Mapping[str, Recorded]) -> tuple[Signature, Any]:
    """The signature and the model that all of them have."""
    if not recordings:
        raise ValueError("recordings: found none, expected at least one")
    first: Plan | None = None
    for name, recording in recordings.items():
        if not recording.plans:
            raise ValueError(
                f"recording '{name}': found no plans, expected one for each step (record_episode keeps them)"
            )
        first = recording.plans[0] if first is None else first
        if recording.plans[0].signature != first.signature:
            raise ValueError(f"recording '{name}': found other sites than the first one has, expected the same world")
    assert first is not None
    return first.signature, first.origin.program.model


def _site(site: Site) -> dict[str, Any]:
    return {"name": site.name, "size": site.size, "labels": list(site.labels) if site.labels else None}


def _drawing(drawing: Drawing) -> dict[str, Any]:
    return {
        "bounds": rounded(drawing.bounds),
        "tiles": [[rounded(t.x), rounded(t.y), t.kind, t.label] for t in drawing.tiles],
        "places": rounded(drawing.places),
        "things": [
            {"name": thing.name, "path": thing.shape.path, "colour": thing.shape.colour, "ground": thing.ground}
            for thing in drawing.things
        ],
        "heading": drawing.heading,
        "angles": list(drawing.angles),
        "words": [[rounded(x), rounded(y), text] for x, y, text in drawing.row_labels],
    }


# --- One episode ---


def _run(name: str, recording: Recorded, drawing: Drawing | None, depth: int) -> dict[str, Any]:
    episode, plans = recording.episode, recording.plans
    signature, objective = plans[0].signature, plans[0].origin.objective
    firsts = first_controls(plans)
    seen = zip(plans, recording.observations, episode.controls, firsts, strict=True)
    return {
        "name": name,
        "wants": ABOUT.get(type(objective).__name__, repr(objective)),
        "seed": episode.seed,
        "reward": rounded(episode.reward),
        "terminated": episode.terminated,
        "truth": [_truth(info, signature, drawing) for info in episode.infos],
        "steps": [
            {
                "seen": _seen(observation, signature),
                "done": flat_index(control, signature.control, "control"),
                "belief": _belief(plan.belief, signature, drawing),
                "first": first,
            }
            | plan_data(plan, drawing, depth)
            for plan, observation, control, first in seen
        ],
    }


def _seen(observation: Any, signature: Signature) -> dict[str, str]:
    """What was observed, in words."""
    sites = signature.observation + signature.sensor
    if observation is None:
        return {}
    if not isinstance(observation, Mapping):
        observation = {sites[0].name: observation}
    return {site.name: site.label(int(observation[site.name])) for site in sites if site.name in observation}


def _truth(info: Mapping[str, Any], signature: Signature, drawing: Drawing | None) -> dict[str, Any] | None:
    """What the environment says is the case; None where it does not."""
    if "state" not in info:
        return None
    state, theta = int(info["state"]), info.get("theta")
    values = {name: int(v) for name, v in split(state, signature.state).items()}
    if theta is not None:
        values |= {name: int(v) for name, v in split(int(theta), signature.parameter).items()}
    truth: dict[str, Any] = {"values": values}
    if drawing is not None:
        truth["place"] = int(drawing.place_of(signature)[state])
        parameter, states = np.zeros(signature.num_parameters), np.zeros(signature.num_states)
        states[state] = 1
        if theta is not None:
            parameter[int(theta)] = 1
        truth["things"] = _things(drawing, parameter, np.broadcast_to(states, (len(parameter), len(states))))
    return truth


def _belief(belief: Belief, signature: Signature, drawing: Drawing | None) -> dict[str, Any]:
    parameter = np.asarray(belief.parameter, np.float64)
    rows = belief.state if is_sparse(belief) else np.asarray(belief.state)
    state = parameter @ rows  # (X,) p(x)
    sites: dict[str, list[float]] = {}
    for table, role in ((parameter, signature.parameter), (state, signature.state)):
        sites |= {site.name: sparse(marginalize(table, role, site.name)) for site in role}
    numbers: dict[str, Any] = {
        "sites": sites,
        "entropy": {"parameter": rounded(entropy(parameter)), "state": rounded(entropy(state))},
    }
    if drawing is not None:
        numbers["places"] = sparse(np.bincount(drawing.place_of(signature), state, len(drawing.places)))
        numbers["things"] = _things(drawing, parameter, rows)
    return numbers


def _things(drawing: Drawing, parameter: np.ndarray, states: Any) -> list[list[float]]:
    """For each thing how probable it is at each place, given p(θ), (Θ,), and p(x|θ), (Θ, X)."""
    rows: Sequence[list[float]] = [
        sparse((parameter if thing.shown is None else parameter * (states @ thing.shown)) @ thing.at)
        for thing in drawing.things
    ]
    return list(rows)
