"""Plans as vectors: the cost of a plan from each hypothesis, and so from every belief.

A plan of k steps, which may react to observations, costs α(h) from hypothesis h, and from belief b it costs
Σ_h b(h) α(h). The least of these sums over plans is a bound from above for every belief with k steps left. A backup at
one belief,

    α(h) = cost(h,u) + Σ_h' p(h'|h,u) Σ_y p(y|h',u) α_y(h'),

makes a new plan of the best control and, after each possible observation, the best plan known so far. (This is Pineau,
Gordon and Thrun's point-based value iteration, with a finite number of steps left.) Beliefs after an observation hold
only hypotheses that certain observations do not tell apart, so vectors are kept by groups of such hypotheses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from npro_aif.solvers.search.game import Game
from npro_aif.solvers.search.growing import Column

FORBIDDEN = 1e300  # stands for an infinite cost, but may be multiplied by zero
IMPROVED = 1e-9  # a new plan is kept only if it is better by more than this, relative to its cost


class Vector:
    """A plan for a group of hypotheses; :attr:`after` is None where its control is done blindly to the end."""

    __slots__ = ("after", "control", "index", "left")

    def __init__(self, left: int, control: int, index: int, after: dict[int, list[Vector]] | None = None):
        self.left, self.control, self.index, self.after = left, control, index, after

    def then(self, label: int, outcome: int) -> Vector:
        """The plan after a label (its 64-bit name) and an outcome of all uncertain sites, counted in C order."""
        assert self.after is not None
        return self.after[label][outcome]


class VectorSet:
    """The plans of one group with a given number of steps left."""

    def __init__(self, group: int, size: int):
        self.group, self.vectors = group, list[Vector]()
        self._rows = Column(np.zeros((0, size)))
        self._means: list[float] = []

    @property
    def rows(self) -> np.ndarray:
        """The cost of each plan from each hypothesis of the group, (K, G)."""
        return self._rows.rows

    @property
    def usual(self) -> Vector:
        """The plan with the least average cost, for observations that were not expected."""
        return self.vectors[int(np.argmin(self._means))]

    def add(self, vector: Vector, costs: np.ndarray) -> None:
        vector.index = len(self.vectors)
        self.vectors.append(vector)
        self._rows.add(costs[None])
        self._means.append(float(costs.mean()))


class Point:
    """A belief, and the best plan for it among those compared so far."""

    __slots__ = ("best", "compared", "cost", "plans", "weight")

    def __init__(self, plans: VectorSet, weight: np.ndarray):
        self.plans, self.weight = plans, weight  # (G,)
        self.compared, self.cost = 0, np.inf
        self.best: Vector

    def look(self) -> float:
        """The cost of the best plan, after comparing the new ones."""
        count = len(self.plans.vectors)
        if self.compared < count:
            costs = self.plans.rows[self.compared : count] @ self.weight
            at = int(costs.argmin())
            if costs[at] < self.cost:
                self.cost, self.best = float(costs[at]), self.plans.vectors[self.compared + at]
            self.compared = count
        return self.cost


class _Sight(NamedTuple):
    """The N hypotheses with one label to which a control may lead a group."""

    number: int  # of the label
    name: int
    group: int  # that they belong to
    place: np.ndarray  # (N,) in it
    row: np.ndarray  # (N,) among all that the control may lead to
    probs: np.ndarray  # (N, Y) p(y|h',u) of all uncertain sites


class _Way(NamedTuple):
    """The effect of a control on a group of G hypotheses."""

    cost: np.ndarray  # (G,)
    to: np.ndarray  # (G, J) rows
    chance: np.ndarray | None  # (G, J)
    sights: list[_Sight]
    size: int  # how many rows


class Vectors:
    """All known plans of a game."""

    def __init__(self, game: Game):
        self.game = game
        self.size = game.layers[0].size  # the number of classes; a game with more classes has other groups
        self.group = _groups([layer.label for layer in game.layers])  # (C,)
        order = np.argsort(self.group, kind="stable")
        self.members = np.split(order, np.cumsum(np.bincount(self.group))[:-1])
        self.place = np.empty(self.size, np.intp)  # of each class in its group
        self.place[order] = np.concatenate([np.arange(len(group)) for group in self.members])
        self._sets: dict[tuple[int, int], VectorSet] = {}
        self._blind: list[np.ndarray] = [np.zeros((self.size, game.layers[0].num_controls))]  # by steps left, (C, U)
        self._ways: dict[tuple[int, int, int], _Way] = {}

    def point(self, support: np.ndarray, weight: np.ndarray, left: int) -> Point | None:
        """A belief among the plans with ``left`` steps to go; None if it spans several groups."""
        group = int(self.group[support[0]])
        if (self.group[support] != group).any():
            return None
        dense = np.zeros(len(self.members[group]))
        dense[self.place[support]] = weight
        return Point(self.plans(left, group), dense)

    def plans(self, left: int, group: int) -> VectorSet:
        """The plans of a group; at first each repeats one control to the end."""
        if (left, group) not in self._sets:
            plans = self._sets[left, group] = VectorSet(group, len(self.members[group]))
            for control, costs in enumerate(self._blindly(left)[self.members[group]].T):
                plans.add(Vector(left, control, 0), costs)
        return self._sets[left, group]

    def _blindly(self, left: int) -> np.ndarray:
        """The cost of each control from every class if it is repeated to the end, (C, U)."""
        while len(self._blind) <= left:
            step, ahead = self.game.layer(len(self._blind)).step, self._blind[-1]
            then = np.stack([ahead[step.to[:, u], u] for u in range(ahead.shape[1])], 1)  # (C, U, J)
            then = then[..., 0] if step.chance is None else (then * step.chance).sum(-1)
            self._blind.append(np.minimum(step.cost + then, FORBIDDEN))
        return self._blind[left]

    def backup(self, point: Point, left: int, control: int, after: Mapping[int, Vector]) -> None:
        """Add the plan that does a control and then follows the best plans, if it is better than the known plans.

        :param after: the best plan after each observation, by its code.
        """
        plans = point.plans
        way = self._way(left, plans.group, control)
        ahead: dict[int, list[Vector]] = {}
        costs = np.empty(way.size)
        for sight in way.sights:
            following = self.plans(left - 1, sight.group) if left > 1 else None
            if following is None:
                costs[sight.row] = 0.0
                continue
            count = sight.probs.shape[1]
            first, usual = sight.number * count, None
            chosen = []
            for code in range(first, first + count):
                plan = after.get(code)
                if plan is None:
                    plan = usual = usual or following.usual
                chosen.append(plan)
            ahead[sight.name] = chosen
            rows = following.rows[np.array([plan.index for plan in chosen])[:, None], sight.place]  # (Y, N)
            costs[sight.row] = (sight.probs.T * rows).sum(0)
        then = costs[way.to]
        then = then[:, 0] if way.chance is None else (then * way.chance).sum(-1)
        total = np.minimum(way.cost + then, FORBIDDEN)
        cost = float(total @ point.weight)
        if cost < point.look() - IMPROVED * (1 + abs(cost)):
            plans.add(Vector(left, control, 0, ahead), total)

    def _way(self, left: int, group: int, control: int) -> _Way:
        kind = self.game.kinds[self.game.marks[left - 1]]
        if (kind, group, control) not in self._ways:
            self._ways[kind, group, control] = self._read(kind, group, control)
        return self._ways[kind, group, control]

    def _read(self, kind: int, group: int, control: int) -> _Way:
        layer, own = self.game.layers[kind], self.members[group]
        step, view = layer.step, layer.view(control)
        arrived, to = np.unique(step.to[own, control], return_inverse=True)
        probs = np.ones((len(arrived), 1))
        for table in step.sight:
            probs = (probs[:, :, None] * table[arrived, view][:, None, :]).reshape(len(arrived), -1)
        label = layer.seen(arrived, np.full(len(arrived), control))
        sights = []
        for number in np.unique(label).tolist():
            row = np.flatnonzero(label == number)
            there = arrived[row]
            name = int(layer.labels[number])
            sights.append(_Sight(number, name, int(self.group[there[0]]), self.place[there], row, probs[row]))
        return _Way(
            np.minimum(step.cost[own, control], FORBIDDEN),
            to.reshape(len(own), -1),
            None if step.chance is None else step.chance[own, control],
            sights,
            len(arrived),
        )


def _groups(labels: list[np.ndarray]) -> np.ndarray:
    """The group of each class, (C,): those that share a label, whatever the step and the control, are in one.

    >>> _groups([np.array([[0, 0], [0, 1], [1, 1], [2, 2]])]).tolist()
    [0, 0, 0, 1]
    """
    columns = [column for label in labels for column in label.T]
    group = np.arange(len(columns[0]))
    while True:
        before = group
        for column in columns:
            least = np.full(column.max() + 1, len(group))
            np.minimum.at(least, column, group)
            group = least[column]
        if np.array_equal(before, group):
            return np.unique(group, return_inverse=True)[1]
