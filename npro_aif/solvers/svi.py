"""Stochastic variational inference without the noise: Optax steps on the exact free energy, in one compiled loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from numpyro.distributions.transforms import biject_to

from npro_aif.solvers.base import Problem, Solution, SolverInfo
from npro_aif.solvers.restarts import best_of, check_restarts

PATIENCE = 20  # how many steps in a row must change F by less than the tolerance
# Further starts have 4 N(0,1) for control logits: nearly deterministic policies. From N(0,1), which is near the uniform
# policy, descents often end in the same few minima. (In the Reactivity Maze, at a place with the knob at 3 and θ known,
# none of 6 keys found the way back to the cue, F 5.13 and not 6.47; with 4 N(0,1) 6 of 16 were on it after 150 steps.)
SPREAD = 4.0


class Descent(NamedTuple):
    """How far the steps from one start have come."""

    step: Array  # () how many were made
    calm: Array  # () how many in a row changed F by less than the tolerance
    value: Array  # () F before the last of them, where there is a tolerance
    state: Any  # the guide's parameters, unconstrained, and the optimizer's state
    history: Array  # (num_steps,) F before each


@dataclass(frozen=True)
class SVISolver:
    """Gradient descent on a guide's parameters.

    :param optimizer: any Optax optimizer.
    :param num_steps: how many steps at most.
    :param tol: stop when F changed by less than this, relative to max(1, |F|), for 20 steps in a row.
    :param restarts: how many key-seeded starts to make; the lowest F is kept. F_active and F_planning have local
        minima.
    :param trial_steps: after how many steps to choose between the starts, so that only the best makes the rest of them;
        after all of them by default. If F has risen in the end, the plan is the one after the trial.

    >>> SVISolver(optax.adam(0.05), restarts=16, trial_steps=100).num_steps
    1000
    """

    optimizer: optax.GradientTransformation
    num_steps: int = 1000
    tol: float | None = None
    restarts: int = 1
    trial_steps: int | None = None

    def __post_init__(self) -> None:
        if self.num_steps < 1:
            raise ValueError(f"num_steps: found {self.num_steps}, expected at least 1")
        if self.tol is not None and not self.tol > 0:
            raise ValueError(f"tol: found {self.tol}, expected a positive number or None")
        check_restarts(self.restarts)
        if self.trial_steps is not None and not 1 <= self.trial_steps <= self.num_steps:
            raise ValueError(
                f"trial_steps: found {self.trial_steps}, expected at least 1 and at most num_steps={self.num_steps}, "
                "or None"
            )
        if self.trial_steps is not None and self.restarts == 1:
            raise ValueError(
                f"trial_steps: found {self.trial_steps} with restarts=1, expected it with several starts only"
            )

    quick: ClassVar[bool] = False

    def check(self, problem: Problem) -> None:
        """Every guide and objective will do."""

    def solve(self, problem: Problem, key: Array, params: Any) -> Solution:
        """Minimise the objective from the guide's parameters ``params``, and from further key-seeded ones.

        As in NumPyro's SVI, steps are made on unconstrained numbers.
        """
        tables = problem.guide.tables(problem.world, problem.num_steps)
        transforms = {name: biject_to(table.constraint) for name, table in tables.items()}
        constrained_loss = problem.guide.loss_function(problem.objective, problem.world, problem.num_steps)

        def constrain(free: Any) -> Any:
            return {name: transforms[name](value) for name, value in free.items()}

        def loss(free: Any) -> Array:
            return constrained_loss(constrain(free))

        step = stepper(self.optimizer, loss)
        trial_steps = self.num_steps if self.trial_steps is None else self.trial_steps

        def descend(params: Any) -> Descent:
            free = {name: transforms[name].inv(params[name]) for name in transforms}
            return self._descend(step, self._first(free), 0, trial_steps)

        def free_energy(descent: Descent) -> Array:
            return loss(descent.state[0])

        descent = best_of(self.restarts, problem, key, params, descend, free_energy, SPREAD)
        free = descent.state[0]
        if trial_steps < self.num_steps:
            descent = self._descend(step, descent, trial_steps, self.num_steps)
            # With fixed epistemic costs steps may leave a low F_active again, for a fixed point that is higher.
            fell = loss(descent.state[0]) <= loss(free)
            free = jax.tree.map(lambda old, new: jnp.where(fell, new, old), free, descent.state[0])
        iterations, params = descent.step, constrain(free)
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

    def _descend(self, step: Any, descent: Descent, begin: int, end: int) -> Descent:
        """Make the steps from ``begin`` to ``end``."""
        if self.tol is not None:
            return self._until(step, descent, end, self.tol)
        state, values = jax.lax.scan(step, descent.state, length=end - begin)
        return descent._replace(step=jnp.asarray(end), state=state, history=descent.history.at[begin:end].set(values))

    def _until(self, step: Any, descent: Descent, end: int, tol: float) -> Descent:
        """Step until F stands still."""

        def going(descent: Descent) -> Array:
            return (descent.step < end) & (descent.calm < PATIENCE)

        def body(descent: Descent) -> Descent:
            i, calm, last, state, history = descent
            state, value = step(state)
            still = jnp.abs(value - last) <= tol * jnp.maximum(1.0, jnp.abs(value))
            return Descent(i + 1, jnp.where(still, calm + 1, 0), value, state, history.at[i].set(value))

        return jax.lax.while_loop(going, body, descent)


def stepper(optimizer: optax.GradientTransformation, loss: Any) -> Any:
    """One step of the optimizer on ``loss``, as a function for ``lax.scan``: ((logits, its state)) → (the next, F)."""

    def step(state: Any, _: None = None) -> tuple[Any, Array]:
        params, optimizer_state = state
        value, gradient = jax.value_and_grad(loss)(params)
        updates, optimizer_state = optimizer.update(gradient, optimizer_state, params)
        return (optax.apply_updates(params, updates), optimizer_state), value

    return step
