"""Information states: beliefs over classes of hypotheses, each of them one object however it was come to.

Two ways to one belief differ by rounding. States are found by their support and by one number, a random projection of
their weights; those whose number is near enough are compared weight by weight, so that no rounding can part them.
"""

from __future__ import annotations

import bisect
from typing import NamedTuple

import numpy as np

from npro_aif.solvers.search.branching import Branching
from npro_aif.solvers.search.game import Game

SAME = 1e-9  # weights that differ by no more, relative to their size, are the same


class Turn(NamedTuple):
    """What one step from an information state may bring."""

    controls: list[list[tuple[float, InformationState]]]  # by control: how probable each next state is
    order: list[InformationState]  # every branch's state, as in the next ones
    start: np.ndarray  # (B,) where each branch begins
    support: np.ndarray  # (N,)
    weight: np.ndarray  # (N,)


class InformationState:
    """A belief that was met."""

    __slots__ = ("number", "support", "turns", "weight")

    def __init__(self, support: np.ndarray, weight: np.ndarray, number: int):
        self.support, self.weight, self.number = support, weight, number
        self.turns: dict[int, Turn] = {}  # by kind of step


class Information:
    """All information states of a game.

    :param tolerance: how much the weights of one belief may differ, relative to their size: what rounding leaves.
    """

    def __init__(self, game: Game, tolerance: float = SAME):
        self.game, self.tolerance = game, tolerance
        self.count = 0
        self.size = 0  # hypotheses in all of them
        self._known: dict[bytes, tuple[list[float], list[InformationState]]] = {}
        self._random = np.zeros(0)

    def state(self, support: np.ndarray, weight: np.ndarray) -> InformationState:
        """The state of a belief over classes (each once, rising)."""
        places, states = self._known.setdefault(support.tobytes(), ([], []))
        if len(self._random) < len(self.game.names):
            self._random = np.random.default_rng(0).random(len(self.game.names))
        place = float(weight @ self._random[support])
        margin = self.tolerance * place
        first = bisect.bisect_left(places, place - margin)
        for i in range(first, len(places)):
            if places[i] > place + margin:
                break
            if (np.abs(states[i].weight - weight) <= self.tolerance * weight).all():
                return states[i]
        state = InformationState(support, weight, self.count)
        self.count += 1
        self.size += len(support)
        at = bisect.bisect_left(places, place)
        places.insert(at, place)
        states.insert(at, state)
        return state

    def turn(self, state: InformationState, left: int) -> Turn:
        """What the step may bring that is made when so many are left."""
        kind = self.game.kinds[self.game.marks[left - 1]]
        if kind not in state.turns:
            state.turns[kind] = self._turn(state, self.game.layers[kind])
        return state.turns[kind]

    def _turn(self, state: InformationState, layer: Branching) -> Turn:
        branches = layer.branches(state.support, state.weight)
        controls: list[dict[int, list]] = [{} for _ in range(layer.num_controls)]
        order = []
        ends = branches.start.tolist()
        for i, (control, prob) in enumerate(zip(branches.control.tolist(), branches.prob.tolist(), strict=True)):
            part = slice(ends[i], ends[i + 1])
            after = self.state(branches.support[part], branches.weight[part])
            order.append(after)
            entry = controls[control].setdefault(after.number, [0.0, after])
            entry[0] += prob
        merged = [[(prob, after) for prob, after in entries.values()] for entries in controls]
        return Turn(merged, order, branches.start[:-1], branches.support, branches.weight)
