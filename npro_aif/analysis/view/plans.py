"""One plan as plain numbers: its flow, its first controls and what they cost, its free energy, its tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.analysis.view.drawing import Drawing
from npro_aif.analysis.view.numbers import rounded, sparse
from npro_aif.inference.temporal import TemporalPosterior
from npro_aif.planning.plan import CONTINGENCY, Plan
from npro_aif.planning.tree import Branch
from npro_aif.program.signature import marginalize
from npro_aif.tables.world import World

TERMS = ("risk", "ambiguity", "novelty", "complexity", "controls")  # in this order
LEAST_MOVE = 0.005  # moves with less probability are not drawn
MOST_POINTS = 80  # of the curve of F
MOST_BRANCHES = 120  # of a tree
LEAST_BRANCH = 0.005  # in probability
NO_COSTS = "This plan is over whole sequences of controls: it has no cost for each first one."
ONE_COST = "Found by search: the cost of each first control as far as was found, not split into terms."


def plan_data(plan: Plan, drawing: Drawing | None, depth: int) -> dict[str, Any]:
    """Everything about the future that the page shows."""
    signature = plan.signature
    state = np.asarray(plan.state)  # (T+1, X)
    tables = {site.name: marginalize(state, signature.state, site.name) for site in signature.state}
    memory = np.asarray(plan.memory)
    tables |= {site.name: marginalize(memory, signature.memory, site.name) for site in signature.memory}
    future: dict[str, Any] = {
        "horizon": int(plan.horizon),
        "control": [rounded(row) for row in np.asarray(plan.control)],
        "sites": {name: [sparse(row) for row in table] for name, table in tables.items()},
    }
    if drawing is not None:
        place = drawing.place_of(signature)
        future["places"] = [sparse(np.bincount(place, row, len(drawing.places))) for row in state]
        future["moves"] = _moves(plan, drawing)
    return {
        "future": future,
        "energy": _energy(plan),
        "tree": _tree(plan, depth) if signature.memory or CONTINGENCY in plan.params else None,
    }


def _energy(plan: Plan) -> dict[str, Any]:
    """F over the solver's iterations, and what it is made of."""
    history = np.asarray(plan.free_energy)[: int(plan.info.iterations) + 1]
    shown = np.unique(np.linspace(0, len(history) - 1, min(len(history), MOST_POINTS)).round().astype(int))
    return {
        "iterations": shown.tolist(),
        "history": rounded(history[shown]),
        "total": rounded(np.asarray(plan.free_energy)[-1]),
        "terms": {name: rounded(value) for name, value in plan.terms.items()},
        "ending": plan.info.explain(),
    }


# --- Where controls lead ---


def _moves(plan: Plan, drawing: Drawing) -> list[list[list[float]]]:
    """For each step the moves [place, place it leads to or −1, control, probability]."""
    signature = plan.signature
    place = drawing.place_of(signature, visible=True)  # (V,)
    num_places, num_controls = len(drawing.places), signature.num_controls
    key = (place[:, None] * (num_places + 1) + drawing.target + 1) * num_controls + np.arange(num_controls)
    moves = []
    for mass in policy_mass(plan):  # (V, U)
        total = np.bincount(key.ravel(), mass.ravel())
        rows = []
        for code in np.flatnonzero(total >= LEAST_MOVE):
            cell, control = divmod(int(code), num_controls)
            start, end = divmod(cell, num_places + 1)
            rows.append([start, end - 1, control, rounded(total[code])])
        moves.append(rows)
    return moves


def policy_mass(plan: Plan) -> np.ndarray:
    """q(v_{t-1}, u_t), (T, V, U): how probable it is that a control is done where the policy sees v."""
    signature, policy = plan.signature, np.asarray(plan.policy)
    if signature.num_memories > 1:
        mass = np.asarray(_joint(plan.world(), plan.complete()))[: len(policy)]
        return mass.reshape(len(policy), signature.num_visible, signature.num_memories, -1).sum(2)
    cube = np.asarray(plan.state)[:-1].reshape(-1, *(site.size for site in signature.state))
    hidden = tuple(1 + i for i, site in enumerate(signature.state) if site.hidden)
    return cube.sum(hidden).reshape(len(policy), -1, 1) * policy


@jax.jit
def _joint(world: World, posterior: TemporalPosterior) -> Array:
    """q(v_{t-1}, m_{t-1}, u_t), (T, P, U)."""

    def step(before: Array, t: Array) -> tuple[Array, Array]:
        now = posterior.slice(world, t, before).flow
        return now.after, now.mass

    return jax.lax.scan(step, posterior.start(world), jnp.arange(posterior.num_steps))[1]


# --- What first controls cost ---


def first_controls(plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """For each plan q(u_1), what each first control costs, and the terms of which that is the sum."""
    size = max((len(plan.theta) for plan in plans), default=0)
    return [{"probability": rounded(np.asarray(plan.control)[0])} | _costs(plan, size) for plan in plans]


def _costs(plan: Plan, size: int) -> dict[str, Any]:
    if CONTINGENCY in plan.params:
        return {"cost": rounded(plan.control_cost), "terms": None, "note": ONE_COST}
    if plan.origin.guide.scope != "temporal":
        return {"cost": None, "terms": None, "note": NO_COSTS}
    terms = {name: np.asarray(values, np.float64) for name, values in _alike(plan, size).control_terms.items()}
    cost = np.sum(list(terms.values()), 0)
    effort = [terms.pop(name) for name in ("plan_prior", "correction") if name in terms]
    terms["controls"] = np.sum(effort, 0)  # E[−log p(u)], where the correction takes the policy's own entropy out again
    order = [name for name in TERMS if name in terms] + sorted(set(terms) - set(TERMS))
    return {"cost": rounded(cost), "terms": {name: rounded(terms[name]) for name in order}, "note": ""}


def _alike(plan: Plan, size: int) -> Plan:
    """The plan over this many parameters, the further ones impossible: what is compiled for one then serves all."""
    theta = np.asarray(plan.theta)
    if len(theta) == size or any(np.ndim(table) != 3 for table in plan.params.values()):
        return plan  # tables of other factors than the policy run over the parameters
    valid = np.zeros(size, bool)
    valid[: len(theta)] = np.asarray(plan.valid)
    return plan._replace(theta=jnp.asarray(np.resize(theta, size)), valid=jnp.asarray(valid))


# --- The contingent tree ---


def _tree(plan: Plan, depth: int) -> list[dict[str, Any]]:
    budget = [MOST_BRANCHES]
    return [_branch(branch, {}, budget) for branch in plan.tree(depth).branches if branch.probability >= LEAST_BRANCH]


def _branch(branch: Branch, before: dict[str, str], budget: list[int]) -> dict[str, Any]:
    """One situation; ``left`` counts how many more there may be."""
    budget[0] -= 1
    new = {name: label for name, label in branch.seen.items() if before.get(name) != label}
    likely = [kid for kid in branch.branches if kid.probability >= LEAST_BRANCH]
    kids = []
    for kid in likely:
        if budget[0] > 0:
            kids.append(_branch(kid, branch.seen, budget))
    believed = {}
    for name, probs in branch.believed.items():
        label, p = max(probs.items(), key=lambda item: item[1])
        believed[name] = [label, rounded(p)]
    return {
        "seen": new if before else branch.seen,
        "probability": rounded(branch.probability),
        "control": {label: rounded(p) for label, p in branch.control.items() if p >= LEAST_BRANCH},
        "believed": believed,
        "kids": kids,
        "more": len(likely) - len(kids),
    }
