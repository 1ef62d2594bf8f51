"""An objective: a frozen dataclass, so that equal settings are equal objectives.

Override ``priors`` where it is F_marginal or F_planning with other epistemic priors: every solver will do. Override
``combine`` where F is anything else: it has no closed form then, and gradient steps minimise it.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import optax

import npro_aif as aif
from npro_aif.inference.epistemic import EpistemicCosts, EpistemicPriors, epistemic_priors
from npro_aif.inference.posterior import Part, Terms
from npro_aif.models import tmaze


@dataclass(frozen=True, eq=False)
class Curious(aif.Active):
    """Information gain alone: neither the entropy of moves nor ambiguity counts."""

    def priors(self, part: Part) -> EpistemicPriors:
        priors = epistemic_priors(part, normalize=False, weight=self.weight)
        nothing = {name: 0 * table for name, table in priors.state.items()}
        return priors._replace(control=0 * priors.control, state=nothing)


@dataclass(frozen=True, eq=False)
class Taxed(aif.Planning):
    """Every step to the East costs something; the new term stands in ``plan.terms`` beside the others."""

    price: float = 0.0

    def combine(self, part: Part, costs: EpistemicCosts | None) -> Terms:
        return super().combine(part, costs) | {"tax": self.price * part.control()[tmaze.EAST]}


if __name__ == "__main__":
    belief, key = tmaze.initial_belief(), jax.random.key(0)
    curious = aif.Planner(
        tmaze.tmaze, objective=Curious(gradient="fixed"), solver=aif.CoordinateSolver(), max_horizon=2
    )
    print("curious:", tmaze.CONTROLS[int(curious(key, belief).best_control())])
    taxed = aif.Planner(tmaze.tmaze, objective=Taxed(100.0), solver=aif.SVISolver(optax.adam(0.1), 150), max_horizon=2)
    plan = taxed(key, belief)
    assert float(plan.control[:, tmaze.EAST].max()) < 1e-2
    print("taxed:", {name: round(float(value), 3) for name, value in plan.terms.items()})
