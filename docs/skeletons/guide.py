"""A guide of tables: which parameters it has, which posterior they stand for, and how it is drawn.

(An ordinary NumPyro function that draws every site of the model is a guide too, and needs nothing of this:
``examples/05_custom_guide.py``. It is evaluated by enumeration, which grows exponentially with the horizon.)
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

import npro_aif as aif
from npro_aif.guides import Table, TableGuide, TemporalGuide
from npro_aif.models import tmaze


class Open(TableGuide):
    """One row of logits for each step: the policy does not look at the state."""

    scope = "temporal"
    any_horizon = True  # steps beyond a horizon can be masked, so that one compiled function serves all horizons

    def tables(self, world: Any, num_steps: int) -> dict[str, Table]:
        shape = (num_steps, world.num_controls)
        return {"anything": Table("control", ("time", "control"), shape, jax.random.normal)}

    def posterior(self, world: Any, params: Any, num_steps: int) -> Any:
        shape = (num_steps, world.initial.shape[1], world.num_controls)
        logits = jnp.broadcast_to(params["anything"][:, None, :], shape)
        return TemporalGuide(self.model).posterior(world, {"control_logits": logits}, num_steps)

    def draw(self, world: Any, posterior: Any, num_steps: int) -> None:
        TemporalGuide(self.model).draw(world, posterior, num_steps)


if __name__ == "__main__":
    solver = aif.SVISolver(optax.adam(0.1), 150)
    planner = aif.Planner(tmaze.tmaze, Open(tmaze.tmaze), aif.Active(), solver, max_horizon=2)
    plan = planner(jax.random.key(0), tmaze.initial_belief())
    print("first:", tmaze.CONTROLS[int(plan.best_control())])
    assert int(plan.best_control()) == tmaze.SOUTH
