"""A solver: anything with ``check`` and ``solve``. A frozen dataclass, so that equal settings are equal solvers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import npro_aif as aif
from npro_aif.models import tmaze
from npro_aif.solvers import Problem, Solution, SolverInfo


@dataclass(frozen=True)
class Lottery:
    """The best of some random starts."""

    tickets: int = 64

    def check(self, problem: Problem) -> None:
        """Refuse what it cannot solve, by name, before anything is compiled."""
        if not problem.guide.any_horizon:
            raise ValueError("Lottery: found a guide of one horizon, expected a TemporalGuide")

    def solve(self, problem: Problem, key: Any, params: Any) -> Solution:
        """Traced by JAX: the world's tables are arrays without numbers."""
        world, guide, objective = problem.world, problem.guide, problem.objective

        def draw(key: Any) -> Any:
            first = guide.first_params(key, world, problem.num_steps)
            return objective.free_energy(world, guide.posterior(world, first, problem.num_steps)), first

        values, tickets = jax.vmap(draw)(jax.random.split(key, self.tickets))
        best = jax.tree.map(lambda leaf: leaf[jnp.argmin(values)], tickets)
        posterior = guide.posterior(world, best, problem.num_steps)
        info = SolverInfo(jnp.asarray(self.tickets), jnp.asarray(False), jnp.asarray(0))
        return Solution(posterior, values.at[-1].set(values.min()), objective.terms(world, posterior), info, best)


if __name__ == "__main__":
    planner = aif.Planner(tmaze.tmaze, objective=aif.Planning(), solver=Lottery(), max_horizon=2)
    plan = planner(jax.random.key(0), tmaze.initial_belief())
    print("F =", float(plan.free_energy[-1]))
    assert abs(float(sum(plan.terms.values()) - plan.free_energy[-1])) < 1e-4
