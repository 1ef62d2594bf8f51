"""A solver as a user would write it (the skeleton of the documentation): the protocol is all that is asked for."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npro_aif as aif
from npro_aif.models import tmaze
from tests.support import skeleton

pytestmark = pytest.mark.usefixtures("quick_compile")

KEY = jax.random.key(0)


Lottery = skeleton("solver")["Lottery"]


def test_a_solver_of_ones_own() -> None:
    """It plans, in batches and in episodes; it does not beat the closed form."""
    from npro_aif.envs import TMaze

    belief = tmaze.initial_belief()
    guide = aif.guides.TemporalGuide(tmaze.tmaze, learn=("control",))
    planner, closed = (
        aif.Planner(tmaze.tmaze, guide, aif.Planning(), solver, max_horizon=2)
        for solver in (Lottery(), aif.CoordinateSolver())
    )
    plan = planner(KEY, belief)
    np.testing.assert_allclose(sum(plan.terms.values()), plan.free_energy[-1], rtol=1e-5)
    assert float(closed(KEY, belief).free_energy[-1]) <= float(plan.free_energy[-1]) + 1e-6
    batch = planner.batch(jax.random.split(KEY, 3), jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), belief))
    assert batch.control.shape == (3, 2, 4)
    outcomes = aif.run_episodes(TMaze, aif.Agent(planner, belief, max_steps=4), range(2))
    assert len(outcomes.episodes) == 2


def test_what_it_refuses_is_refused_before_anything_is_compiled() -> None:
    planner = aif.Planner(tmaze.tmaze, aif.guides.SequenceGuide(tmaze.tmaze), aif.Planning(), Lottery())
    with pytest.raises(ValueError, match="Lottery: found a guide of one horizon"):
        planner(KEY, tmaze.initial_belief(), horizon=1)
    assert planner.num_traces == 0


def test_a_solver_says_how_many_flows_it_holds() -> None:
    class Keeping(Lottery):
        def num_flows(self, objective: Any) -> int:
            return 2 + objective.epistemic

    def flows(solver: Any, objective: Any) -> int:
        planner = aif.Planner(tmaze.tmaze, objective=objective, solver=solver, max_horizon=2)
        return planner.memory(tmaze.initial_belief()).flows

    one = 3 * 5 * 2 * 4  # times, states, parameters and bytes
    assert flows(Lottery(), aif.Active()) == one
    assert (flows(Keeping(), aif.Planning()), flows(Keeping(), aif.Active())) == (2 * one, 3 * one)
    free, prior = (aif.CoordinateSolver(unvisited=name) for name in ("free", "prior"))
    assert [flows(s, aif.Active()) for s in (free, prior)] == [one, 2 * one]
    assert flows(prior, aif.Planning()) == one


def test_half_a_solver_is_refused() -> None:
    class Half:
        def solve(self, problem: Any, key: Any, params: Any) -> None:
            return None

    with pytest.raises(ValueError, match=r"solver: found .*Half.*, expected .* with check\(problem\) and solve"):
        aif.Planner(tmaze.tmaze, solver=Half())  # type: ignore[arg-type]
