"""The search and the plan evaluation behind the paper's baselines (pymdp 0.0.7.1), exactly, in NumPy.

The differences of pymdp 1.x matter in the Reactivity Maze, so this is the small part of the older version on which the
published rows depend: two factors (states x, parameters θ), beliefs that are a product q(x)q(θ), and

    g(u) = Σ_m E[log softmax(C_m)] + Σ_m I(o_m; x, θ)                         of one step,

where flat modalities count too: their log softmax of zeros is minus the log of their number of outcomes.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

FLOOR = 1e-16  # added before every logarithm
ROUNDS = 10  # of the fixed point iteration
TIED = 1e-8  # action marginals that differ by no more are tied
PRUNED = 0.1  # controls and outcomes that are less probable are not followed
PENALTY = 512.0  # subtracted from the score of a control that is not followed
SAME_BELIEF = 12  # two beliefs are the same in an agent's memory if they agree to this many decimals


@dataclass(frozen=True, eq=False)
class Arrays:
    """A world with one state factor that is controlled, and parameters that never change."""

    A: tuple[np.ndarray, ...]  # by modality, (O, X, Θ) p(o|x,θ)
    B: np.ndarray  # (U, X', X) p(x'|x,u)
    C: tuple[np.ndarray, ...]  # by modality, (O,) relative log-preferences, the same at every step
    D: tuple[np.ndarray, np.ndarray]  # (X,) and (Θ,) before the first observation

    @functools.cached_property
    def likelihood(self) -> tuple[np.ndarray, ...]:
        """By modality, (O, X, Θ) log p(o|x,θ)."""
        return tuple(_log(a) for a in self.A)

    @functools.cached_property
    def worth(self) -> np.ndarray:
        """Σ_m E[log softmax(C_m) + log p(o_m|x,θ)], (X, Θ): utility less ambiguity."""
        parts = zip(self.A, self.likelihood, self.C, strict=True)
        return sum(((a * (log + _log(_softmax(c))[:, None, None])).sum(0) for a, log, c in parts), np.zeros(()))


class Belief(NamedTuple):
    """q(x) and q(θ)."""

    state: np.ndarray  # (X,)
    parameter: np.ndarray  # (Θ,)


def _log(p: np.ndarray) -> np.ndarray:
    return np.log(p + FLOOR)


def _softmax(x: np.ndarray) -> np.ndarray:
    weight = np.exp(x - x.max())
    return weight / weight.sum()


def infer(arrays: Arrays, prior: Belief, outcomes: tuple[int | None, ...]) -> Belief:
    """Mean-field inference: q(x) and q(θ) in turn see the expected log-likelihood of the other's last round.

    :param outcomes: by modality; None for one that was not observed.
    """
    likelihood = sum(
        (log[o] for log, o in zip(arrays.likelihood, outcomes, strict=True) if o is not None),
        np.zeros(arrays.worth.shape),
    )
    state, parameter = (np.full(len(p), 1 / len(p)) for p in prior)
    log_state, log_parameter = _log(prior.state), _log(prior.parameter)
    for _ in range(ROUNDS):
        state, parameter = _softmax(likelihood @ parameter + log_state), _softmax(state @ likelihood + log_parameter)
    return Belief(state, parameter)


def expected_outcomes(arrays: Arrays, belief: Belief) -> list[np.ndarray]:
    """The marginal of every modality, (O,) each."""
    joint = np.outer(*belief).ravel()
    return [a.reshape(len(a), -1) @ joint for a in arrays.A]


def score(arrays: Arrays, belief: Belief) -> float:
    """g of reaching a belief: utility and the information of each modality by itself."""
    surprise = sum(float(seen @ _log(seen)) for seen in expected_outcomes(arrays, belief))
    return float(belief.state @ arrays.worth @ belief.parameter) - surprise


def standard_efe(arrays: Arrays, belief: Belief, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """All plans, (N, T) with t = 1 slowest, and −EFE of each, (N,).

    Plans with the same beginning share its evaluation.
    """
    beliefs, totals = [belief], np.zeros(1)
    num_controls = len(arrays.B)
    for _ in range(horizon):
        beliefs = [Belief(b @ now.state, now.parameter) for now in beliefs for b in arrays.B]
        totals = np.repeat(totals, num_controls) + np.array([score(arrays, now) for now in beliefs])
    return np.array(list(itertools.product(range(num_controls), repeat=horizon))), totals


def sophisticated(arrays: Arrays, belief: Belief, horizon: int, gamma: float = 1.0) -> np.ndarray:
    """−EFE of each control by the search, (U,).

    A control whose one-step softmax(γ g) is below a threshold is not followed, and 512 is subtracted from its score.
    Outcomes are weighted by the product of the modalities' marginals; those below the threshold are left out, and the
    rest is not renormalised.
    """
    after = [Belief(b @ belief.state, belief.parameter) for b in arrays.B]
    value = np.array([score(arrays, now) for now in after])
    if horizon == 1:
        return value
    followed = _softmax(gamma * value) >= PRUNED
    for u, now in enumerate(after):
        if not followed[u]:
            value[u] -= PENALTY
            continue
        seen = expected_outcomes(arrays, now)
        for outcomes in itertools.product(*(np.flatnonzero(p >= PRUNED).tolist() for p in seen)):
            weight = float(np.prod([p[o] for p, o in zip(seen, outcomes, strict=True)]))
            if weight >= PRUNED:
                later = sophisticated(arrays, infer(arrays, now, outcomes), horizon - 1, gamma)
                value[u] += weight * float(_softmax(gamma * later) @ later)
    return value


class PublishedAgent:
    """Acts as the paper's baselines do: by the largest marginal of the first control, ties drawn.

    :param method: "efe", all plans with precision 16; or "sophisticated", the search with precision 1.
    :param modalities: from an observation of the environment to the outcome of each modality; None for not observed.
    :param seed: of the draws between ties (the original draws them unseeded).
    """

    def __init__(
        self,
        arrays: Arrays,
        horizon: int,
        max_steps: int,
        modalities: Any,
        *,
        method: Literal["efe", "sophisticated"],
        seed: int = 0,
    ):
        if method not in ("efe", "sophisticated"):
            raise ValueError(f"method: found {method!r}, expected 'efe' or 'sophisticated'")
        self.arrays, self.horizon, self.max_steps, self.modalities = arrays, horizon, max_steps, modalities
        self.method = method
        self.gamma = 16.0 if method == "efe" else 1.0
        self._draws = np.random.RandomState(seed)  # the generator that the original draws from
        self._memory: dict[Any, np.ndarray] = {}
        self.remembered = False  # whether the last marginals came from memory
        self.reset()

    def reset(self, key: Any = None) -> None:
        """Begin an episode; the draws between ties go on from the last one."""
        self.belief = Belief(*self.arrays.D)
        self.step = 0
        self.control: int | None = None  # the last one

    def act(self, observation: Mapping[str, int]) -> int:
        """The control to do next."""
        prior = self.belief
        if self.control is not None:
            prior = Belief(self.arrays.B[self.control] @ prior.state, prior.parameter)
        self.belief = infer(self.arrays, prior, self.modalities(observation))
        marginal = self.marginal()
        tied = np.flatnonzero(marginal >= marginal.max() - TIED)
        control = int(tied[0] if len(tied) == 1 else tied[self._draws.choice(len(tied))])
        self.step, self.control = self.step + 1, control
        return control

    def marginal(self) -> np.ndarray:
        """The posterior of the first control, (U,)."""
        ahead = min(self.horizon, self.max_steps - self.step)
        case = ahead, *((table.round(SAME_BELIEF) + 0.0).tobytes() for table in self.belief)
        self.remembered = case in self._memory
        if not self.remembered:
            self._memory[case] = self._marginal(ahead)
        return self._memory[case]

    def _marginal(self, horizon: int) -> np.ndarray:
        if self.method == "sophisticated":
            return _softmax(self.gamma * sophisticated(self.arrays, self.belief, horizon, self.gamma))
        plans, totals = standard_efe(self.arrays, self.belief, horizon)
        return np.bincount(plans[:, 0], _softmax(self.gamma * totals), minlength=len(self.arrays.B))
