"""A world as pymdp's arrays A, B, C and D: state and parameter sites become factors, observation sites modalities.

Preferences over states become C over the outcomes of one more modality, the *goal*, which depends on the state and is
never observed; where they change with time (usually: only the last step counts), a *clock* is one more state factor.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from npro_aif.baselines.tables import Tables, TooLarge, in_words
from npro_aif.errors import ModelError
from npro_aif.program.signature import Signature, Site

Goal = Literal["silent", "seen"]
Timing = Literal["model", "every"]
Factors = Literal["sites", "joint"]

GOAL, CLOCK, JOINT = "goal", "clock", "state and parameter"
LOUDNESS = 0.01  # δ of the silent goal: it tells at most δ²/2 nats about the state


class Translation(NamedTuple):
    """The way in which a world is translated into pymdp's terms.

    ``goal="silent"``: the goal modality is a coin with p(high|s) = ½ (1 + δ v(s)) and C = centre ± scale/δ, whose
    expectation is E[log p̂] exactly and which tells (almost) nothing. ``goal="seen"``: one outcome for each level of
    log p̂, so that expecting to see the goal counts as information, as in pymdp's own examples.

    ``timing="model"``: log p̂ at the steps at which the program states it (a clock factor). ``timing="every"``: the last
    step's at every step, which is what pymdp does with a C that has no time.

    ``factors="sites"``: a factor for each state and parameter site, between which pymdp's beliefs are independent;
    ``"joint"``: one factor over all of them, in which beliefs are exact.
    """

    goal: Goal = "silent"
    timing: Timing = "model"
    factors: Factors = "sites"


TRANSLATION = Translation()


class Arrays(NamedTuple):
    """pymdp's arguments, in float64; the goal is the last modality."""

    A: list[np.ndarray]  # by modality, (outcomes, *the factors in A_dependencies)
    B: list[np.ndarray]  # by factor, (values, *the factors in B_dependencies, U or 1)
    C: list[np.ndarray]  # by modality, (outcomes,); zero but for the goal
    D: list[np.ndarray]  # by factor, (values,)
    A_dependencies: list[list[int]]
    B_dependencies: list[list[int]]
    modalities: tuple[str, ...]
    factors: tuple[str, ...]

    def without_goal(self) -> Arrays:
        """The arrays of what is really observed."""
        return self._replace(
            A=self.A[:-1], C=self.C[:-1], A_dependencies=self.A_dependencies[:-1], modalities=self.modalities[:-1]
        )

    def plans(self, num_controls: int, horizon: int) -> np.ndarray:
        """All plans as pymdp's policies, (U^T, T, factors): every controlled factor sees the same control."""
        sequences = np.indices((num_controls,) * horizon).reshape(horizon, -1).T
        controlled = np.array([b.shape[-1] > 1 for b in self.B])
        return np.where(controlled, sequences[..., None], 0)


def pymdp_arrays(tables: Tables, translation: Translation = TRANSLATION, clock: int | None = None) -> Arrays:
    """The arrays of a world.

    :param clock: add a clock factor that runs to this number; by default to the horizon, and only if it is needed.

    >>> from npro_aif.baselines.tables import dense_tables
    >>> from npro_aif.models.tmaze import tmaze, initial_belief
    >>> arrays = pymdp_arrays(dense_tables(tmaze, initial_belief(), horizon=2))
    >>> arrays.factors, arrays.modalities, [a.shape for a in arrays.A]
    (('x', 'theta', 'clock'), ('cue', 'place', 'goal'), [(2, 5, 2), (5, 5), (2, 5, 2, 3)])
    """
    sites = _factor_sites(tables.signature, translation.factors)
    names, sizes = [site.name for site in sites], tuple(site.size for site in sites)
    values = tables.preference[-1:] if translation.timing == "every" else tables.preference
    timed = clock is not None or bool((values != values[0]).any())
    joint = _by_factor(tables.joint, tables.signature, sizes)

    sensed = [_depending(_by_factor(p, tables.signature, sizes)) for p in tables.observation.values()]
    B, B_dependencies = _transitions(tables, sites, translation.factors)
    D = [joint.sum(tuple(k for k in range(joint.ndim) if k != f)) for f in range(joint.ndim)]

    by_factor = np.stack([_by_factor(v, tables.signature, sizes) for v in values], axis=-1)
    if timed:
        steps = tables.horizon if clock is None else clock
        start, after = by_factor[..., :1] * 0, np.repeat(by_factor[..., -1:], steps - by_factor.shape[-1], axis=-1)
        by_factor = np.concatenate([start, by_factor, after], axis=-1)  # neither is reached within the horizon
        ticks = np.minimum(np.arange(steps + 1) + 1, steps)
        B.append(np.eye(steps + 1)[ticks].T[..., None])
        B_dependencies.append([len(sites)])
        D.append(np.eye(steps + 1)[0])
        names.append(CLOCK)
    else:
        by_factor = by_factor[..., 0]
    outcome, preference = _goal(by_factor, translation.goal)
    goal, goal_dependencies = _depending(outcome)
    return Arrays(
        A=[*(a for a, _ in sensed), goal],
        B=B,
        C=[*(np.zeros(len(a)) for a, _ in sensed), preference],
        D=D,
        A_dependencies=[*(factors for _, factors in sensed), goal_dependencies],
        B_dependencies=B_dependencies,
        modalities=(*tables.observation, GOAL),
        factors=tuple(names),
    )


def check_size(signature: Signature, horizon: int, method: Literal["efe", "sophisticated"], limit: int) -> None:
    """Refuse a world for which pymdp would need more memory than ``limit`` bytes, and name what needs it.

    The count includes A and B in float32 with a factor for each site, and the matrix of all plans (Standard EFE) or the
    branches of one node of the search (Sophisticated Inference).
    """
    parameters, states, controls = signature.num_parameters, signature.num_states, signature.num_controls
    observed = signature.observation + signature.sensor
    sensing = 4 * parameters * states * sum(site.size for site in observed)
    moving = 4 * parameters * states * controls * sum(site.size for site in signature.state)
    factors = len(signature.state + signature.parameter) + 1
    if method == "efe":
        what = f"the {controls}^{horizon} plans of {horizon} steps"
        search = 4 * controls**horizon * horizon * factors
    else:
        branches = controls * math.prod(site.size for site in observed)
        what = f"the {branches:.1e} branches of one node of the search"
        search = 4 * branches * len(observed)
    if sensing + moving + search > limit:
        raise TooLarge(
            f"method '{method}': pymdp would need {in_words(sensing)} for A, {in_words(moving)} for B and "
            f"{in_words(search)} for {what}, expected at most {in_words(limit)} in all; plan with method 'vfe'"
        )


def _factor_sites(signature: Signature, factors: Factors) -> tuple[Site, ...]:
    sites = signature.state + signature.parameter
    return sites if factors == "sites" else (Site(JOINT, math.prod(site.size for site in sites)),)


def _by_factor(table: np.ndarray, signature: Signature, sizes: tuple[int, ...]) -> np.ndarray:
    """A table (Θ, X, …) with an axis for each factor in place of Θ and X: states first, then parameters."""
    return np.moveaxis(table, 0, 1).reshape(*sizes, *table.shape[2:])


def _depending(table: np.ndarray, own: int | None = None, controls: int = 0) -> tuple[np.ndarray, list[int]]:
    """A table (*factors, outcomes) as pymdp has it: outcomes first, only the factors on which it depends.

    :param own: a factor that is kept in any case.
    :param controls: 1 where the axis before the outcomes runs over controls, which goes last.
    """
    num_factors = table.ndim - 1 - controls
    needed = [f for f in range(num_factors) if f == own or np.ptp(table, axis=f).max() > 0] or [0]
    rows = table[tuple(slice(None) if f in needed else 0 for f in range(num_factors))]
    if controls and np.ptp(rows, axis=-2).max() == 0:
        rows = rows[..., :1, :]
    return np.moveaxis(rows, -1, 0), needed


def _transitions(tables: Tables, sites: tuple[Site, ...], factors: Factors) -> tuple[list[np.ndarray], list[list[int]]]:
    signature, sizes = tables.signature, tuple(site.size for site in sites)
    if factors == "joint":  # θ stays as it is
        moves = np.einsum("ixuk,ij->xiukj", tables.transition, np.eye(signature.num_parameters))
        table = moves.reshape(sizes[0], tables.num_controls, sizes[0])
        return [_depending(table, own=0, controls=1)[0]], [[0]]
    by_factor = _by_factor(tables.transition, signature, sizes)  # (*factors, U, X')
    after = by_factor.reshape(*by_factor.shape[:-1], *(site.size for site in signature.state))
    first = len(sizes) + 1
    marginals = [
        after.sum(tuple(first + k for k in range(len(signature.state)) if k != f)) for f in range(len(signature.state))
    ]
    together = marginals[0]
    for marginal in marginals[1:]:
        together = together[..., None] * marginal.reshape(*marginal.shape[:first], *([1] * (together.ndim - first)), -1)
    if not np.allclose(together, after, atol=1e-6):
        raise ModelError(
            f"states {', '.join(site.name for site in signature.state)}: found new values that depend on each other, "
            "which pymdp's factors cannot express, expected factors='joint'"
        )
    pairs = [_depending(marginal, own=f, controls=1) for f, marginal in enumerate(marginals)]
    pairs += [(np.eye(site.size)[..., None], [len(signature.state) + k]) for k, site in enumerate(signature.parameter)]
    return [b for b, _ in pairs], [dependencies for _, dependencies in pairs]


def _goal(value: np.ndarray, goal: Goal) -> tuple[np.ndarray, np.ndarray]:
    """p(outcome | factors) with the outcomes last, and C over the outcomes, so that E[C] is ``value``."""
    if goal == "seen":
        levels, which = np.unique(value.round(6), return_inverse=True)
        return np.eye(len(levels))[which.reshape(value.shape)], levels
    centre, scale = (value.max() + value.min()) / 2, max((value.max() - value.min()) / 2, 1e-6)
    high = 0.5 * (1 + LOUDNESS * (value - centre) / scale)
    return np.stack([1 - high, high], axis=-1), centre + np.array([-scale, scale]) / LOUDNESS
