"""Derivatives at a solution by the envelope theorem, without differentiating through a solver's loop.

At a minimum q* of F(q, φ) the total derivative is dF/dφ = ∂F(q*, φ)/∂φ with q* held. So the cost of a plan is evaluated
once more at the solution, as a function of the world's tables alone. If q* does not minimise the differentiated
function (with held epistemic costs and a posterior that moves with φ), this would be wrong, and it is refused.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif._jax import Tracer
from npro_aif.guides import TableGuide
from npro_aif.inference.objectives import Objective
from npro_aif.inference.posterior import Part, Posterior, Terms
from npro_aif.tables.world import World

Live = tuple[World, dict[str, Array]]  # what derivatives are taken with respect to: tables, and objective's numbers


def numbers_of(objective: Objective) -> dict[str, Array]:
    """The settings of an objective that JAX is tracing, by name."""
    return {name: value for name, value in vars(objective).items() if isinstance(value, Tracer)}


def with_numbers(objective: Objective, numbers: dict[str, Array]) -> Objective:
    """The objective with other numbers for these settings."""
    if not numbers:
        return objective
    copied = copy.copy(objective)
    for name, value in numbers.items():
        object.__setattr__(copied, name, value)  # it is frozen
    return copied


def held(tree: Any) -> Any:
    """The same numbers, held constant in derivatives."""
    return jax.lax.stop_gradient(tree)


def free_energy(objective: Objective, world: World, posterior: Posterior) -> Array:
    """F with its epistemic costs differentiated, whatever the objective holds while it is minimised."""

    def evaluate(part: Part) -> Terms:
        return objective.combine(part, objective.costs(part))

    return sum(posterior.terms(world, evaluate).values())  # type: ignore[return-value]


def gradient_fault(objective: Objective, guide: TableGuide, world: World) -> str | None:
    """The reason why the derivative of F would be wrong with the posterior held; None where it is right."""
    if not objective.epistemic or objective.gradient != "fixed":
        return None
    if objective.correction and _learned(guide, world) == ("control",):
        return None  # the policy takes the best control: it stays the same until a tie is crossed
    return (
        "gradient: found a derivative of F through a plan whose epistemic costs are held while its posterior moves, "
        "which would be wrong; expected Active(gradient='through'), Planning(), or a TemporalGuide that learns the "
        "policy alone"
    )


def cost_fault(objective: Objective, guide: TableGuide, world: World) -> str | None:
    """The same for the costs of first controls, for each of which F is not minimised."""
    learned = _learned(guide, world)
    moves = objective.epistemic and (objective.gradient != "fixed" or learned != ("control",))
    if objective.correction and not moves and "parameter" not in learned:
        return None
    return (
        f"gradient: found a derivative of control costs with {objective} and learn={learned}, whose later policy is no "
        "minimum for each first control, which would be wrong; expected Active(gradient='fixed') or Planning(), with a "
        "TemporalGuide that learns the policy alone"
    )


def _learned(guide: TableGuide, world: World) -> tuple[str, ...]:
    learned = getattr(guide, "learned", None)  # other guides learn everything
    return ("everything",) if learned is None else tuple(learned(world))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def attached(function: Callable[[Any, Live], Array], value: Array, params: Any, live: Live) -> Array:
    """A value computed with everything held, with the derivative of ``function(params, live)`` in ``live`` attached."""
    return value


@attached.defjvp
def _attached_jvp(function: Any, primals: Any, tangents: Any) -> tuple[Array, Array]:
    value, params, live = primals
    slope = jax.jvp(lambda live: function(params, live), (live,), (tangents[2],))[1]
    return value, slope.astype(value.dtype)


@jax.custom_vjp
def ending(history: Array, last: Array) -> Array:
    """A history of F that ends with ``last``; the values before have no derivative, and get NaN."""
    return history.at[-1].set(last)


def _ending_forward(history: Array, last: Array) -> tuple[Array, None]:
    return ending(history, last), None


def _ending_backward(_: None, cotangent: Array) -> tuple[Array, Array]:
    others = (cotangent[:-1] != 0).any()
    return jnp.zeros_like(cotangent), cotangent[-1] + jnp.where(others, jnp.nan, 0.0)


ending.defvjp(_ending_forward, _ending_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _refused(message: str, value: Array, link: Array) -> Array:
    return value


def _forward(message: str, value: Array, link: Array) -> tuple[Array, None]:
    return value, None


def _backward(message: str, _: None, cotangent: Array) -> NoReturn:
    raise ValueError(message)


_refused.defvjp(_forward, _backward)


def refused(message: str, tree: Any, live: Live) -> Any:
    """The same numbers, whose derivative with respect to ``live`` is refused."""
    floats = [leaf for leaf in jax.tree.leaves(live) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)]
    link = functools.reduce(jnp.add, [leaf.sum() for leaf in floats])  # never computed: no value depends on it

    def guard(leaf: Any) -> Any:
        return _refused(message, leaf, link) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else leaf

    return jax.tree.map(guard, tree)
