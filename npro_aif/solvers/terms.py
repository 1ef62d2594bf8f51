"""The costs of first controls term by term: each is done in turn, and the plan is followed afterwards."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.guides import TableGuide
from npro_aif.inference.derivatives import moved, told
from npro_aif.inference.epistemic import EpistemicCosts
from npro_aif.inference.objectives import Objective
from npro_aif.inference.posterior import Terms
from npro_aif.inference.temporal import Slice, TemporalPosterior
from npro_aif.solvers.costs import is_descended, sweep_of
from npro_aif.solvers.sweep import Sweep
from npro_aif.tables.world import World


def control_terms(world: World, objective: Objective, posterior: TemporalPosterior) -> Terms:
    """The terms of ``control_cost``: the free energy's terms for each first control, by name (U,).

    Each control in turn is done first, and the posterior's policy is followed afterwards: forward in time, where
    :func:`~npro_aif.solvers.costs.control_cost` goes backward. The terms sum to that cost.
    """
    sweep = sweep_of(world, objective, posterior)
    evaluate = _derived(sweep, posterior) if is_descended(objective) else _held(sweep, posterior)
    world = world._replace(parameter=posterior.parameter)  # what learned parameters cost is the same for all controls

    def terms(control: Array) -> Terms:
        first = jnp.where(jnp.arange(world.num_controls) == control, 0.0, -jnp.inf)
        return posterior._replace(control=posterior.control.at[0].set(first)).terms(world, evaluate)

    return jax.lax.map(terms, jnp.arange(world.num_controls))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def first_terms(objective: Objective, guide: TableGuide, num_steps: int, world: World, params: Any) -> Terms:
    """:func:`control_terms` of a guide's parameters, compiled once for a guide and the shapes of a world."""
    posterior: Any = guide.posterior(world, params, num_steps)
    if not hasattr(posterior, "slice"):
        raise ValueError(f"control_terms: found a {type(posterior).__name__}, expected the plan of a TemporalGuide")
    return control_terms(world, objective, posterior)


def _over_time(sweep: Sweep, posterior: TemporalPosterior, look: Callable[[Slice], Any]) -> Callable[[Slice], Any]:
    """The results of ``look`` in every slice of the posterior, for use at the same slice of another posterior."""
    template = sweep.template(posterior)
    own, mass = sweep.whole(template), sweep.masses(template)

    def at(t: Array) -> Any:
        return look(sweep.mixed(own.slice(sweep.world, t, mass[t], mass[t + 1])))

    tables = jax.lax.map(at, jnp.arange(posterior.num_steps))
    return lambda part: jax.tree.map(lambda table: table[part.t], tables)


def _held(sweep: Sweep, posterior: TemporalPosterior) -> Callable[[Any], Terms]:
    """The terms of a part, with the epistemic costs that the posterior has there."""
    objective = sweep.objective
    if not objective.epistemic:
        return lambda part: objective.combine(part, None)

    def costs(part: Slice) -> EpistemicCosts:
        epistemic = objective.costs(part)
        assert epistemic is not None
        return epistemic._replace(normalizer=None)

    costs_at = _over_time(sweep, posterior, costs)
    return lambda part: objective.combine(part, costs_at(part))


def _derived(sweep: Sweep, posterior: TemporalPosterior) -> Callable[[Any], Terms]:
    """The terms of a part, with the derivatives that the epistemic terms have at the posterior."""
    objective: Any = sweep.objective
    alone = {
        "ambiguity": dataclasses.replace(objective, novelty=0.0),
        "novelty": dataclasses.replace(objective, ambiguity=0.0),
    }

    def costs(part: Slice) -> tuple[Array, Array, Array]:
        ambiguity, _ = told(part, alone["ambiguity"])
        novelty, _ = told(part, alone["novelty"])
        return jnp.transpose(moved(part, objective)), ambiguity.T, novelty.T

    costs_at = _over_time(sweep, posterior, costs)

    def evaluate(part: Slice) -> Terms:
        moves, ambiguity, novelty = costs_at(part)
        terms = objective.combine(part, None)
        terms["risk"] += part.flow.over_moves(moves)
        return terms | {
            "ambiguity": part.flow.over_arrivals(ambiguity),
            "novelty": part.flow.over_arrivals(novelty),
        }

    return evaluate
