"""A third kind of table as a user would write it: one class for transitions, and nothing asks what it is.

It is the skeleton of the documentation, a ring on which θ decides how often one slips.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import npro_aif as aif
from npro_aif.guides import TemporalGuide
from npro_aif.program.program import program_of
from npro_aif.solvers import Problem
from tests.support import assert_close, skeleton

pytestmark = pytest.mark.usefixtures("quick_compile", "x64")

KEY = jax.random.key(0)
SKELETON = skeleton("kernel")
PLACES, SLIPS, ring, Ring = (SKELETON[name] for name in ("PLACES", "SLIPS", "ring", "Ring"))


def solved(world: Any, solver: Any, objective: Any, learn: tuple[str, ...]) -> Any:
    guide = TemporalGuide(ring, learn=learn)
    problem = Problem(world, guide, objective, 3)
    solver.check(problem)
    params = guide.first_params(KEY, world, 3)
    return problem, jax.jit(lambda params: solver.solve(problem, KEY, params))(params)


@pytest.mark.parametrize(
    "solver", [aif.CoordinateSolver(), aif.SVISolver(optax.adam(0.1), 20)], ids=["coordinate", "svi"]
)
def test_a_third_kernel(solver: Any) -> None:
    """With the objective that has every term."""
    objective = aif.Active()
    belief = aif.Belief(jnp.array([0.3, 0.7]), jnp.full((2, PLACES), 1 / PLACES))
    world = program_of(ring, belief, 3).world(belief, 3)
    own = world._replace(state=Ring(jnp.asarray(SLIPS)))
    np.testing.assert_allclose(jnp.exp(own.state.table()), jnp.exp(world.state.table())[0], atol=1e-12)
    learn = ("control", "parameter", "state")  # of this kernel there is nothing to learn
    problem, mine = solved(own, solver, objective, learn)
    _, theirs = solved(world, solver, objective, ("control", "parameter"))
    assert_close(mine.free_energy, theirs.free_energy, 1e-9)
    marginals, value = jax.jit(lambda q: (q.marginals(own)[:4], objective.free_energy(own, q)))(mine.posterior)
    expected = jax.jit(lambda q: q.marginals(world)[:4])(theirs.posterior)
    for a, b in zip(marginals, expected, strict=True):
        assert_close(a, b, 1e-9)
    assert_close(value, mine.free_energy[-1], 1e-9)
    draws = problem.guide.sample(own, mine.posterior, mine.params, KEY, 5, 3)
    assert draws["x"].shape == (5, 4)


def test_selecting_parameters_selects_in_every_kernel() -> None:
    belief = aif.Belief(jnp.array([0.3, 0.7]), jnp.full((2, PLACES), 1 / PLACES))
    world = program_of(ring, belief, 3).world(belief, 3)._replace(state=Ring(jnp.asarray(SLIPS)))
    assert world.select(jnp.array([1])).state.slip.tolist() == [0.4]
    assert world.without_parameters().state is None
