"""Standard EFE and Sophisticated Inference, exactly and by enumeration: small, obvious, and slow.

Both score one step of the future by its utility and its information,

    g(b, u) = E[log p̂(x', θ)] + Σ_m I(o_m; x', θ),         b the belief over (θ, x), m the observation sites.

Standard EFE adds g up along a fixed plan; Sophisticated Inference lets the later controls depend on what is observed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from npro_aif.baselines.tables import Tables

SAME_BELIEF = 10  # decimals to which two beliefs are one and the same in the memory of the recursion


class PlanScores(NamedTuple):
    """The terms of −EFE for every plan; plans in C order with t = 1 slowest."""

    plans: np.ndarray  # (N, T)
    utility: np.ndarray  # (N,) Σ_t E[log p̂_t]
    information: np.ndarray  # (N,) Σ_t Σ_m I(o_m,t; x_t, θ)

    @property
    def total(self) -> np.ndarray:
        """−EFE, (N,)."""
        return self.utility + self.information


class Recursion(NamedTuple):
    """The result of Sophisticated Inference at the present belief."""

    value: np.ndarray  # (U,) −EFE of each control, the later ones chosen as observations come in
    control: np.ndarray  # (U,) softmax(γ · value)


def entropy(p: np.ndarray) -> float:
    """−Σ p log p, in nats."""
    positive = p[p > 0]
    return float(-(positive * np.log(positive)).sum())


def predict(tables: Tables, joint: np.ndarray, control: int) -> np.ndarray:
    """p(θ, x') after a control, (Θ, X')."""
    return np.einsum("ix,ixk->ik", joint, tables.transition[:, :, control])


def information(tables: Tables, joint: np.ndarray) -> float:
    """Σ_m I(o_m; x, θ): each site's entropy less its expected entropy given the state."""
    return sum(entropy(_seen(joint, p)) - _ambiguity(joint, p) for p in tables.observation.values())


def standard_efe(tables: Tables) -> PlanScores:
    """The score of every plan, each on its own.

    >>> from npro_aif.baselines.tables import dense_tables
    >>> from npro_aif.models.tmaze import tmaze, initial_belief
    >>> scores = standard_efe(dense_tables(tmaze, initial_belief(), horizon=2))
    >>> int(scores.plans[scores.total.argmax()][0])
    2
    """
    plans = np.array(list(itertools.product(range(tables.num_controls), repeat=tables.horizon)))
    scores = np.array([_follow(tables, plan) for plan in plans])
    return PlanScores(plans, scores[:, 0], scores[:, 1])


def sophisticated(tables: Tables, gamma: float = np.inf) -> Recursion:
    """−EFE of each control by recursion over beliefs, to the end of ``tables.preference``.

        Q_t(b, u) = g_t(b, u) + Σ_o p(o|b, u) V_{t+1}(b'(o)),        V_t(b) = Σ_u softmax(γ Q_t(b, ·))(u) Q_t(b, u)

    :param gamma: the precision with which the agent expects itself to choose; infinite for the best control.

    >>> from npro_aif.baselines.tables import dense_tables
    >>> from npro_aif.models.tmaze import tmaze, initial_belief
    >>> int(sophisticated(dense_tables(tmaze, initial_belief(), horizon=4)).value.argmax())
    2
    """
    memory: dict[tuple[int, bytes], np.ndarray] = {}

    def value(joint: np.ndarray, t: int) -> np.ndarray:
        key = t, (joint.round(SAME_BELIEF) + 0.0).tobytes()  # + 0.0, as −0 and 0 differ in their bytes
        if key not in memory:
            memory[key] = np.array([score(joint, t, u) for u in range(tables.num_controls)])
        return memory[key]

    def score(joint: np.ndarray, t: int, control: int) -> float:
        after = predict(tables, joint, control)
        total = float((after * tables.preference[t]).sum()) + information(tables, after)
        if t + 1 < tables.horizon:
            for weight, posterior in outcomes(tables, after):
                later = value(posterior, t + 1)
                total += weight * float(choose(later, gamma) @ later)
        return total

    scores = value(tables.joint, 0)
    return Recursion(scores, choose(scores, gamma))


def choose(value: np.ndarray, gamma: float) -> np.ndarray:
    """softmax(γ · value); the best controls in equal parts where γ is infinite."""
    gap = value - value.max()
    weight = np.where(gap >= -1e-9, 1.0, 0.0) if np.isinf(gamma) else np.exp(gamma * gap)
    return weight / weight.sum()


def outcomes(tables: Tables, joint: np.ndarray) -> Iterator[tuple[float, np.ndarray]]:
    """Every observation of all sites that can come, as its probability and the belief after it."""
    branches = [(1.0, joint)]
    for p in tables.observation.values():
        branches = [
            (weight * float(mass), belief * p[..., k] / mass)
            for weight, belief in branches
            for k, mass in enumerate(_seen(belief, p))
            if mass > 0
        ]
    return iter(branches)


def _follow(tables: Tables, plan: np.ndarray) -> tuple[float, float]:
    joint, utility, learned = tables.joint, 0.0, 0.0
    for t, control in enumerate(plan):
        joint = predict(tables, joint, control)
        utility += float((joint * tables.preference[t]).sum())
        learned += information(tables, joint)
    return utility, learned


def _seen(joint: np.ndarray, p: np.ndarray) -> np.ndarray:
    """p(o), (Y,)."""
    return np.einsum("ix,ixk->k", joint, p)


def _ambiguity(joint: np.ndarray, p: np.ndarray) -> float:
    """E[H[o|x,θ]]."""
    logs = np.log(np.where(p > 0, p, 1.0))
    return float(-(joint[..., None] * p * logs).sum())
