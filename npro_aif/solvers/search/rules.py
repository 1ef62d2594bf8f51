"""Two simple rules that react to observations, for nodes that a search did not reach in a world without chance.

One takes the best control on average as if everything became known after it, the other the best control for the most
probable class, until that is refuted. Beliefs only narrow in such a world, so that a rule has at most as many branches
as there are hypotheses, and its costs from many beliefs are computed in one pass over the steps.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from npro_aif.solvers.search.branching import Branching, starts
from npro_aif.solvers.search.game import EQUAL, Game
from npro_aif.solvers.search.information import InformationState


class Rule(enum.Enum):
    """The hypotheses for which a control is chosen."""

    ALL = "all"
    LIKELIEST = "likeliest"


def rule_control(game: Game, state: InformationState, left: int, rule: Rule) -> int:
    """The control of a rule."""
    layer, ahead = game.layer(left), game.value(left - 1)
    return int(rule_controls(layer, ahead, state.support, state.weight, np.zeros(1, np.intp), rule)[0])


class _Followed(NamedTuple):
    """Hypotheses that are followed, in groups that no observation has told apart."""

    support: np.ndarray  # (N,)
    weight: np.ndarray  # (N,)
    origin: np.ndarray  # (N,) the belief that each comes from
    group: np.ndarray  # (N,) rising

    def part(self, chosen: np.ndarray) -> _Followed:
        return _Followed(*(column[chosen] for column in self))


def rule_costs(game: Game, beliefs: Sequence[tuple[InformationState, int]], rule: Rule) -> np.ndarray:
    """The cost of a rule from each of B beliefs, given with the steps left, (B,)."""
    total = np.zeros(len(beliefs))
    entering = defaultdict(list)
    for i, (state, left) in enumerate(beliefs):
        entering[left].append((i, state))
    rows = _entered([], 0)
    for left in range(max(entering), 0, -1):
        if left in entering:
            fresh = _entered(entering[left], int(rows.group.max(initial=-1)) + 1)
            rows = _Followed(*map(np.append, rows, fresh))
        alone = _sizes(rows.group) == 1  # what is left is known
        np.add.at(total, rows.origin[alone], (rows.weight * game.value(left)[rows.support])[alone])
        rows = rows.part(~alone)
        if len(rows.group):
            rows = _step(game, left, rows, rule, total)
    return total


def _entered(beliefs: list[tuple[int, InformationState]], first: int) -> _Followed:
    sizes = [len(state.support) for _, state in beliefs]
    return _Followed(
        np.concatenate([np.zeros(0, np.intp), *(state.support for _, state in beliefs)]),
        np.concatenate([np.zeros(0), *(state.weight for _, state in beliefs)]),
        np.repeat(np.array([i for i, _ in beliefs], np.intp), sizes),
        np.repeat(first + np.arange(len(beliefs)), sizes),
    )


def _sizes(group: np.ndarray) -> np.ndarray:
    """By hypothesis, how many are in its group."""
    return np.bincount(group)[group] if len(group) else group


def _step(game: Game, left: int, rows: _Followed, rule: Rule, total: np.ndarray) -> _Followed:
    """One step by a rule, which adds its costs to ``total``; observations divide the groups."""
    layer, first = game.layer(left), starts(rows.group)
    sizes = np.diff(np.append(first, len(rows.group)))
    control = np.repeat(rule_controls(layer, game.value(left - 1), rows.support, rows.weight, first, rule), sizes)
    np.add.at(total, rows.origin, rows.weight * layer.step.cost[rows.support, control])
    support = layer.step.to[rows.support, control, 0].astype(np.intp)
    seen = (rows.group * len(layer.labels) + layer.seen(support, control)) * layer.size + support
    order = np.argsort(seen, kind="stable")
    seen, weight = seen[order], rows.weight[order]
    first = starts(seen)  # those that came to the same are one
    support, origin, seen = support[order][first], rows.origin[order][first], seen[first] // layer.size
    group = np.cumsum(np.append(False, seen[1:] != seen[:-1]))
    return _Followed(support, np.add.reduceat(weight, first), origin, group)


def rule_controls(
    layer: Branching, ahead: np.ndarray, support: np.ndarray, weight: np.ndarray, first: np.ndarray, rule: Rule
) -> np.ndarray:
    """The control of each group of classes, (G,), of which these are the first; the first one of those that tie."""
    values = layer.step.cost[support] + layer.expected(ahead, support)  # (N, U)
    total = np.add.reduceat(weight[:, None] * values, first)
    if rule is Rule.LIKELIEST:
        sizes = np.diff(np.append(first, len(weight)))
        likely = weight >= np.repeat((1 - EQUAL) * np.maximum.reduceat(weight, first), sizes)
        needed = np.where(likely, values.min(1), np.inf)  # of these the one that is the nearest, so that it stays it
        nearest = np.flatnonzero(needed == np.repeat(np.minimum.reduceat(needed, first), sizes))
        group = np.repeat(np.arange(len(first)), sizes)[nearest]
        total = np.where(np.isfinite(total), values[nearest[starts(group)]], np.inf)
    blur = EQUAL * np.add.reduceat(weight, first)
    return (total <= (total.min(1) + blur)[:, None]).argmax(1)
