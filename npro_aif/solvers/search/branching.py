"""Beliefs as a few hypotheses with weights, and how a step divides them by observations.

The same arithmetic serves classes of hypotheses, on which the search runs, and the hypotheses themselves, on which a
plan is replayed.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from npro_aif.solvers.search.growing import Column, Numbering
from npro_aif.solvers.search.hypotheses import Step
from npro_aif.solvers.search.worth import xlogx


class Branches(NamedTuple):
    """The possible results of a step from a belief: B branches, each with some hypotheses."""

    control: np.ndarray  # (B,) after which control
    prob: np.ndarray  # (B,) the weight of the branch
    start: np.ndarray  # (B + 1,) where each branch's hypotheses begin in the next two
    support: np.ndarray  # (N,) hypotheses, rising in each branch
    weight: np.ndarray  # (N,) p(h | branch): each branch sums to one
    outcome: np.ndarray  # (B,) the code of the observation: equal for equal observations after the same control


class Branching:
    """One kind of step over hypotheses 0 … H−1, to which others may be added."""

    def __init__(self, step: Step):
        self.num_controls: int = np.shape(step.cost)[1]
        self.num_outcomes = math.prod(table.shape[-1] for table in step.sight)
        self.certain = step.chance is None and not step.sight
        self._view = (  # the place of each control in the tables of observations
            np.arange(self.num_controls) if np.shape(step.label)[1] > 1 else np.zeros(self.num_controls, np.intp)
        )
        self._numbering = Numbering()  # of labels
        self._room = self._label_room = 0  # codes leave room for this many hypotheses and labels
        self.size = 0
        self.grow(step)

    def grow(self, step: Step) -> None:
        """Read the rows that were added at the end of the tables."""
        label = self._numbering(step.label[self.size :])[0]
        before, self.step, self.size = self.size, step, len(step.cost)
        if before == 0:
            self._label = Column(label)
        else:
            self._label.add(label)
        self.label: np.ndarray = self._label.rows  # (H, V)
        self.labels = self._numbering.names  # what each label's number stands for
        crowded = self.size > self._room or len(self.labels) > self._label_room
        if crowded:
            spare = 1 if before == 0 else 2
            self._room, self._label_room = spare * self.size, spare * len(self.labels)
        if self.certain:  # (control, label, hypothesis) as one number
            if crowded:
                self._keys = Column(self._key_of(slice(None)))
            else:
                self._keys.add(self._key_of(slice(before, None)))
            self._key = self._keys.rows

    def _key_of(self, rows: slice) -> np.ndarray:
        to = self.step.to[rows, :, 0]
        seen = np.arange(self.num_controls) * self._label_room + self.label[to, self._view]
        return seen * self._room + to

    def costs(self, support: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """The expected cost of each control, (U,)."""
        return weight @ self.step.cost[support]

    def gains(self, support: np.ndarray, weight: np.ndarray, branches: Branches) -> np.ndarray:
        """What the observation after each control tells, I(y; h'|b,u) = H[y|b,u] − E[H[y|h',u]], (U,).

        :param weight: (K,) a belief that sums to one, from which the branches come.
        """
        told = np.bincount(branches.control, -xlogx(branches.prob), self.num_controls)
        if self.step.ambiguity is not None:
            told = told - weight @ self.step.ambiguity[support]
        return np.maximum(told, 0.0)  # but for rounding it is not negative

    def expected(self, value: np.ndarray, support: np.ndarray | slice = slice(None)) -> np.ndarray:
        """E[value(h')] of some hypotheses, (…, U), for values (H,)."""
        ahead = value[self.step.to[support]]
        return ahead[..., 0] if self.step.chance is None else (ahead * self.step.chance[support]).sum(-1)

    def move(self, support: np.ndarray, weight: np.ndarray, control: int) -> tuple[np.ndarray, np.ndarray]:
        """The belief after a control if nothing is seen."""
        to = self.step.to[support, control]
        if self.step.chance is None:
            return merge(to[:, 0], weight)
        mass = weight[:, None] * self.step.chance[support, control]
        return merge(to[mass > 0], mass[mass > 0])

    def view(self, control: Any) -> Any:
        """Where controls are in the tables of what is seen."""
        return self._view[control]

    def seen(self, support: np.ndarray, control: np.ndarray) -> np.ndarray:
        """The number of the label that each hypothesis shows on arrival after a control."""
        return self.label[support, self._view[control]]

    def branches(self, support: np.ndarray, weight: np.ndarray, control: int | None = None) -> Branches:
        """The possible results of each control, or of one."""
        key, mass = self._outcomes(support, weight, control)
        order = np.argsort(key, kind="stable")
        key, mass = key[order], mass[order]
        first = starts(key)
        if len(first) < len(key):
            key, mass = key[first], np.add.reduceat(mass, first)
        seen, support = np.divmod(key, self._room)
        ends = bounds(seen)
        start = ends[:-1]
        prob = np.add.reduceat(mass, start)
        after, outcome = np.divmod(seen[start], self._label_room * self.num_outcomes)
        weight = mass / prob.repeat(ends[1:] - start)
        return Branches(after, prob, ends, support.astype(np.int32), weight, outcome)

    def _outcomes(self, support: np.ndarray, weight: np.ndarray, control: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Every (control, observation, hypothesis) as one number, and its mass."""
        chosen = slice(None) if control is None else slice(control, control + 1)
        if self.certain:
            key = self._key[support, chosen]
            return key.ravel(), np.repeat(weight, key.shape[1])
        to = self.step.to[support, chosen]  # (K, U, J)
        mass = np.broadcast_to(weight[:, None, None], to.shape)
        if self.step.chance is not None:
            mass = mass * self.step.chance[support, chosen]
        controls = np.broadcast_to(np.arange(self.num_controls)[chosen][:, None], to.shape)
        live = mass > 0
        to, mass, controls = to[live], mass[live], controls[live]
        view = self._view[controls]
        seen = controls * self._label_room + self.label[to, view]
        for table in self.step.sight:
            probs = table[to, view]  # (N, Y)
            outcome = np.arange(probs.shape[1])
            mass, seen = (mass[:, None] * probs).ravel(), (seen[:, None] * len(outcome) + outcome).ravel()
            to, view = np.repeat(to, len(outcome)), np.repeat(view, len(outcome))
            live = mass > 0
            to, mass, seen, view = to[live], mass[live], seen[live], view[live]
        return seen * self._room + to, mass

    def outcomes(self, code: int) -> tuple[int, tuple[int, ...]]:
        """The meaning of a branch's code: the label's number, and the outcome of each uncertain site."""
        values = []
        for table in reversed(self.step.sight):
            code, value = divmod(code, table.shape[-1])
            values.append(value)
        return code, tuple(reversed(values))

    def sight(self, code: int) -> tuple[int, ...]:
        """The same with the label itself, which is equal over classes and over hypotheses."""
        number, values = self.outcomes(code)
        return int(self.labels[number]), *values


def starts(rising: np.ndarray) -> np.ndarray:
    """Where each stretch of equal numbers begins."""
    return bounds(rising)[:-1]


def bounds(rising: np.ndarray) -> np.ndarray:
    """Where each stretch of equal numbers begins, and where the last one ends."""
    fresh = np.empty(len(rising) + 1, bool)
    fresh[0] = fresh[-1] = True
    np.not_equal(rising[1:], rising[:-1], out=fresh[1:-1])
    return fresh.nonzero()[0]


def merge(support: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same weights with every hypothesis once, rising."""
    order = np.argsort(support, kind="stable")
    support, weight = support[order], weight[order]
    first = starts(support)
    return support[first], np.add.reduceat(weight, first)
