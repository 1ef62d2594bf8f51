"""Rules followed forward over all hypotheses at once, in a world without chance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npro_aif.solvers.search.branching import starts
from npro_aif.solvers.search.contingency import END
from npro_aif.solvers.search.game import Game
from npro_aif.solvers.search.marginals import Marginals
from npro_aif.solvers.search.rules import Rule, rule_controls

RULES = list(Rule)


class Graph(NamedTuple):
    """The places of a policy while they are found; see :class:`.contingency.Contingency`."""

    controls: list[int]
    after: list[dict[tuple[int, ...], int] | int]

    def place(self, control: int = END) -> int:
        """A new place; its control may follow later."""
        self.controls.append(control)
        self.after.append(END)
        return len(self.controls) - 1


class Followed(NamedTuple):
    """Hypotheses by place."""

    place: np.ndarray  # (N,) rising
    rule: np.ndarray  # (N,) in RULES, equal at one place
    memory: np.ndarray  # (N,)
    support: np.ndarray  # (N,)
    mass: np.ndarray  # (N,)

    @classmethod
    def none(cls) -> Followed:
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, nothing, nothing, np.zeros(0))

    def joined(self, others: list[Followed]) -> Followed:
        """Joined with others; equal rows are merged."""
        rows = Followed(*map(np.concatenate, zip(self, *others, strict=True)))
        order = np.lexsort((rows.support, rows.memory, rows.place))
        rows = Followed(*(column[order] for column in rows))
        fresh = np.zeros(len(order), bool)
        fresh[:1] = True
        for column in (rows.place, rows.memory, rows.support):
            fresh[1:] |= column[1:] != column[:-1]
        first = np.flatnonzero(fresh)
        mass = np.add.reduceat(rows.mass, first) if len(first) else rows.mass
        return Followed(*(column[first] for column in rows))._replace(mass=mass)


class Follower:
    """Steps by rules, which add places to a graph and mass to marginals."""

    def __init__(self, game: Game, graph: Graph, marginals: Marginals, horizon: int):
        self.game, self.graph, self.marginals, self.horizon = game, graph, marginals, horizon

    def __call__(self, t: int, rows: Followed) -> Followed:
        """The hypotheses after step t."""
        if not len(rows.place):
            return rows
        left = self.horizon - t
        layer, marginals = self.game.plain(left), self.marginals
        control = self._choose(left, rows)
        marginals.act(t, layer, rows.support, rows.mass, control, rows.memory)
        arrived = layer.step.to[rows.support, control, 0].astype(np.int64)
        marginals.observe(t, layer, arrived, rows.mass, control)
        shown = layer.step.shown[arrived, layer.view(control)]  # (N, S)
        memory = marginals.next_memories(t, rows.memory, arrived, control, shown.T)
        seen = layer.seen(arrived, control)
        if self.game.worth.novelty:
            marginals.gain += _told(rows.place, seen, rows.mass)
        place = np.full(len(arrived), END) if left == 1 else self._places(rows.place, seen, shown)
        return Followed.none().joined([Followed(place, rows.rule, memory, arrived, rows.mass)])

    def _choose(self, left: int, rows: Followed) -> np.ndarray:
        """The control of each row, by the rule of its place; it is also written into the graph."""
        control = np.zeros(len(rows.place), np.int64)
        for number, rule in enumerate(RULES):
            members = np.flatnonzero(rows.rule == number)
            if not len(members):
                continue
            of_class = self.game.class_of[rows.support[members]]
            order = np.lexsort((of_class, rows.place[members]))
            place, of_class = rows.place[members][order], of_class[order]
            distinct = np.flatnonzero(np.append(True, (place[1:] != place[:-1]) | (of_class[1:] != of_class[:-1])))
            weight = np.add.reduceat(rows.mass[members][order], distinct)
            place, first = place[distinct], starts(place[distinct])
            chosen = rule_controls(
                self.game.layer(left), self.game.value(left - 1), of_class[distinct], weight, first, rule
            )
            for at, one in zip(place[first].tolist(), chosen.tolist(), strict=True):
                self.graph.controls[at] = one
            control[members] = chosen[np.searchsorted(place[first], rows.place[members])]
        return control

    def _places(self, place: np.ndarray, seen: np.ndarray, shown: np.ndarray) -> np.ndarray:
        """The next place of each row: one for each observation at a place."""
        order = np.lexsort((seen, place))
        group = np.append(True, np.diff(place[order]) | np.diff(seen[order])).astype(bool)
        first, after = order[group], self.graph.after
        fresh = []
        for before, sight in zip(place[first].tolist(), shown[first].tolist(), strict=True):
            if after[before] == END:
                after[before] = {}
            fresh.append(self.graph.place())
            after[before][tuple(sight)] = fresh[-1]
        result = np.empty(len(place), np.int64)
        result[order] = np.array(fresh)[np.cumsum(group) - 1]
        return result


def _told(place: np.ndarray, seen: np.ndarray, mass: np.ndarray) -> float:
    """The expected entropy of certain observations at the place where they are made."""
    there = np.bincount(place, mass)
    names, group = np.unique(np.stack([place, seen]), axis=1, return_inverse=True)
    shown = np.bincount(group.ravel(), mass)
    return float(shown @ np.log(there[names[0]] / shown))
