"""The epistemic terms of F_active under perfect recall: what information is worth, and how much can be had at most.

A policy of everything that was observed and done sees no state but by its observations y_t (those with ``plan=False``
too), so that

    F_active = F_planning + w_a Σ_t E[H[y_t|x_t,u_t,θ]] − w_n Σ_t I(y_t; x_t, θ | all before, u_t)

and the entropy of moves, which is that of visible states, does not occur. Ambiguity is a cost of hypotheses like any
other. The gain I depends on the belief b: for a control that leads from b to b', and with the observation y to b_y,

    I = H[y] − E[H[y|h']] = H(b') − Σ_y p(y) H(b_y),   H(b') ≤ H(b) + κ,

κ being the largest entropy of a move. So k steps gain at most ``promise(b, k)`` = H(b) + k κ, whatever is done. What a
step gains, and promises after it, is never more than what was promised before it, so that the costs which the search
counts, beyond the perfect-information cost less w_n times the promise, are not negative.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npro_aif.inference.objectives import Active, Objective
from npro_aif.numerics import is_concrete

CONCAVE = 2.1  # H(h|Y) changes by less than this times ε, beyond its own share of ε, if no b(h) changes by more than ε


class Worth(NamedTuple):
    """The weights of the epistemic priors."""

    ambiguity: float = 0.0
    novelty: float = 0.0

    def slack(self, blur: float) -> float:
        """By how much the costs of beliefs with this blur may differ, beyond a factor between 1 − blur and 1 + blur."""
        return CONCAVE * self.novelty * blur


PLANNING = Worth()


def worth_of(objective: Objective) -> Worth:
    """The weights of an objective; one that a search cannot minimise is refused."""
    expected = "aif.Planning(), or aif.Active(entropy=0, …) with its own priors, not normalised"
    plain = objective.closed_form and objective.correction
    if plain and not objective.epistemic:
        return PLANNING
    weights = objective.weights
    if not plain or not isinstance(objective, Active) or not objective.descends or objective.evidence != "joint":
        raise ValueError(f"SearchSolver: found the objective {objective}, expected {expected}")
    if not is_concrete(weights):
        raise ValueError("SearchSolver: found an objective with traced weights, expected numbers")
    if weights.entropy != 0:
        raise ValueError(
            f"SearchSolver: found the objective {objective}, expected {expected}: under perfect recall no state is "
            "seen but by its observations, so that p̃(u), the entropy of visible moves, has no meaning"
        )
    return Worth(float(weights.ambiguity), float(weights.novelty))


def xlogx(weight: np.ndarray) -> np.ndarray:
    """p log p of positive numbers."""
    return weight * np.log(weight)
