"""Stochastic variational inference without the noise: Optax steps on the exact free energy, in one compiled loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from npro_aif.solvers.base import Problem, Solution, SolverInfo

PATIENCE = 20  # how many steps in a row must change F by less than the tolerance


@dataclass(frozen=True)
class SVISolver:
    """Gradient descent on a guide's logits.

    :param optimizer: any Optax optimizer.
    :param num_steps: how many steps at most.
    :param tol: stop when F changed by less than this, relative to max(1, |F|), for 20 steps in a row.
    """

    optimizer: optax.GradientTransformation
    num_steps: int = 1000
    tol: float | None = None

    def __post_init__(self) -> None:
        if self.num_steps < 1:
            raise ValueError(f"num_steps: found {self.num_steps}, expected at least 1")
        if self.tol is not None and not self.tol > 0:
            raise ValueError(f"tol: found {self.tol}, expected a positive number or None")

    def check(self, problem: Problem) -> None:
        """Every guide and objective will do."""

    def solve(self, problem: Problem, key: Array, params: Any) -> Solution:
        """Minimise the objective from the guide's logits ``params``."""
        loss = problem.guide.loss_function(problem.objective, problem.world, problem.num_steps)
        step = stepper(self.optimizer, loss)
        state = params, self.optimizer.init(params)
        if self.tol is None:
            (params, _), history = jax.lax.scan(step, state, length=self.num_steps)
            iterations, converged = jnp.asarray(self.num_steps), jnp.asarray(False)
        else:
            params, history, iterations, converged = self._until(step, state)
        posterior = problem.guide.posterior(problem.world, params, problem.num_steps)
        terms = problem.objective.terms(problem.world, posterior)
        final = sum(terms.values())
        history = jnp.where(jnp.arange(self.num_steps) < iterations, history, final)
        info = SolverInfo(iterations, converged, jnp.asarray(0))
        return Solution(posterior, jnp.append(history, final), terms, info, params)

    def _until(self, step: Any, state: Any) -> tuple[Any, Array, Array, Array]:
        """Step until F stands still."""
        tol = self.tol or 0.0

        def going(carry: Any) -> Array:
            i, calm, *_ = carry
            return (i < self.num_steps) & (calm < PATIENCE)

        def body(carry: Any) -> Any:
            i, calm, last, state, history = carry
            state, value = step(state)
            still = jnp.abs(value - last) <= tol * jnp.maximum(1.0, jnp.abs(value))
            return i + 1, jnp.where(still, calm + 1, 0), value, state, history.at[i].set(value)

        history = jnp.zeros(self.num_steps)
        first = jnp.asarray(0), jnp.asarray(0), jnp.asarray(jnp.inf, history.dtype), state, history
        i, calm, _, (params, _), history = jax.lax.while_loop(going, body, first)
        return params, history, i, calm >= PATIENCE


def stepper(optimizer: optax.GradientTransformation, loss: Any) -> Any:
    """One step of the optimizer on ``loss``, as a function for ``lax.scan``: ((logits, its state)) → (the next, F)."""

    def step(state: Any, _: None = None) -> tuple[Any, Array]:
        params, optimizer_state = state
        value, gradient = jax.value_and_grad(loss)(params)
        updates, optimizer_state = optimizer.update(gradient, optimizer_state, params)
        return (optax.apply_updates(params, updates), optimizer_state), value

    return step
