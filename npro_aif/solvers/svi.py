"""Variational inference by Optax steps on the exact free energy, without noise, in one compiled loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from numpyro.distributions.transforms import biject_to

from npro_aif.inference.objectives import Objective
from npro_aif.solvers.base import Problem, Solution, SolverInfo

PATIENCE = 20  # the number of steps in a row that must change F by less than the tolerance


class Descent(NamedTuple):
    """The state of a descent."""

    step: Array  # () the number of steps made
    calm: Array  # () the number of steps in a row that changed F by less than the tolerance
    value: Array  # () F before the last step, where there is a tolerance
    state: Any  # the guide's parameters, unconstrained, and the optimizer's state
    history: Array  # (num_steps,) F before each step


@dataclass(frozen=True)
class SVISolver:
    """Gradient descent on a guide's parameters.

    :param optimizer: any Optax optimizer.
    :param num_steps: the most steps.
    :param tol: stop when F changed by less than this, relative to max(1, |F|), for 20 steps in a row.

    >>> SVISolver(optax.adam(0.05)).num_steps
    1000
    """

    optimizer: optax.GradientTransformation
    num_steps: int = 1000
    tol: float | None = None

    def __post_init__(self) -> None:
        if self.num_steps < 1:
            raise ValueError(f"num_steps: found {self.num_steps}, expected at least 1")
        if self.tol is not None and not self.tol > 0:
            raise ValueError(f"tol: found {self.tol}, expected a positive number or None")

    quick: ClassVar[bool] = False

    def check(self, problem: Problem) -> None:
        """Accept every guide and objective."""

    def num_flows(self, objective: Objective) -> int:
        """That of q alone."""
        return 1

    def solve(self, problem: Problem, key: Array, params: Any) -> Solution:
        """Minimise the objective, starting from the guide's parameters ``params``.

        As in NumPyro's SVI, steps are made on unconstrained numbers.
        """
        tables = problem.guide.tables(problem.world, problem.num_steps)
        transforms = {name: biject_to(table.constraint) for name, table in tables.items()}
        constrained_loss = problem.guide.loss_function(problem.objective, problem.world, problem.num_steps)

        def constrain(free: Any) -> Any:
            return {name: transforms[name](value) for name, value in free.items()}

        free = {name: transforms[name].inv(params[name]) for name in transforms}
        step = stepper(self.optimizer, lambda free: constrained_loss(constrain(free)))
        descent = self._descend(step, self._first(free))
        iterations, params = descent.step, constrain(descent.state[0])
        posterior = problem.guide.posterior(problem.world, params, problem.num_steps)
        terms = problem.objective.terms(problem.world, posterior)
        final = sum(terms.values())
        history = jnp.where(jnp.arange(self.num_steps) < iterations, descent.history, final)
        info = SolverInfo(iterations, descent.calm >= PATIENCE, jnp.asarray(0))
        return Solution(posterior, jnp.append(history, final), terms, info, params)

    def _first(self, params: Any) -> Descent:
        history = jnp.zeros(self.num_steps)
        value = jnp.asarray(jnp.inf, history.dtype)
        return Descent(jnp.asarray(0), jnp.asarray(0), value, (params, self.optimizer.init(params)), history)

    def _descend(self, step: Any, descent: Descent) -> Descent:
        """Make all steps, or only those until F stands still."""
        if self.tol is not None:
            return self._until(step, descent, self.tol)
        state, values = jax.lax.scan(step, descent.state, length=self.num_steps)
        return descent._replace(step=jnp.asarray(self.num_steps), state=state, history=values)

    def _until(self, step: Any, descent: Descent, tol: float) -> Descent:
        """Step until F stands still."""

        def going(descent: Descent) -> Array:
            return (descent.step < self.num_steps) & (descent.calm < PATIENCE)

        def body(descent: Descent) -> Descent:
            i, calm, last, state, history = descent
            state, value = step(state)
            still = jnp.abs(value - last) <= tol * jnp.maximum(1.0, jnp.abs(value))
            return Descent(i + 1, jnp.where(still, calm + 1, 0), value, state, history.at[i].set(value))

        return jax.lax.while_loop(going, body, descent)


def stepper(optimizer: optax.GradientTransformation, loss: Any) -> Any:
    """One step of the optimizer on ``loss``, for ``lax.scan``: (logits, optimizer state) → (the next ones, F)."""

    def step(state: Any, _: None = None) -> tuple[Any, Array]:
        params, optimizer_state = state
        value, gradient = jax.value_and_grad(loss)(params)
        updates, optimizer_state = optimizer.update(gradient, optimizer_state, params)
        return (optax.apply_updates(params, updates), optimizer_state), value

    return step
