"""Information states: beliefs over classes of hypotheses, with one object for each belief however it was reached.

Two ways to one belief differ by rounding. States are looked up by their support and by one number, a random projection
of their weights; states with a near enough number are compared weight by weight, so that rounding cannot separate them.
The distance ε of a belief b from the state b̃ that represents it, its *blur*, is kept: (1 − ε) b̃ ≤ b ≤ (1 + ε) b̃.
The cost of a policy beyond Σ_h b(h) V(h), V with everything seen, is an expectation under b of nonnegative terms. So it
equals that of b̃ up to a factor between 1 − ε and 1 + ε, and bounds can be passed on that hold exactly. (The worth of
information adds an amount of the size of ε: :meth:`.worth.Worth.slack`.)
"""

from __future__ import annotations

import bisect
import itertools
from typing import NamedTuple

import numpy as np

from npro_aif.solvers.search.branching import Branches, Branching
from npro_aif.solvers.search.game import Game
from npro_aif.solvers.search.worth import xlogx

SAME = 1e-9  # weights that differ by no more, relative to their size, differ by rounding in float64 only


class Next(NamedTuple):
    """A state that may follow a control."""

    prob: float
    state: InformationState
    branch: int  # the first branch that it stands for
    exact: bool  # whether it is that branch's belief without a blur


class Turn(NamedTuple):
    """The possible results of one step from an information state: B branches."""

    controls: list[list[Next]]  # by control
    idle: list[int]  # controls that change nothing
    blur: float  # the largest distance of a branch's belief from its state
    order: list[InformationState]  # (B,) every branch's state
    branches: Branches
    costs: np.ndarray  # (U,) the expected cost of each control at this step, less what its observation tells
    entropy: np.ndarray  # (B,) of every branch's belief; only where information has a worth

    def expect(self, value: np.ndarray) -> np.ndarray:
        """E[value(h')] in each branch, (B,)."""
        branches = self.branches
        return np.add.reduceat(branches.weight * value[branches.support], branches.start[:-1])

    def expected(self, floors: np.ndarray) -> np.ndarray:
        """The same after each control, (U,)."""
        return np.bincount(self.branches.control, self.branches.prob * floors, len(self.controls))


class InformationState:
    """A belief that was reached."""

    __slots__ = ("number", "support", "turns", "weight")

    def __init__(self, support: np.ndarray, weight: np.ndarray, number: int):
        self.support, self.weight, self.number = support, weight, number
        self.turns: dict[int, Turn] = {}  # by kind of step


class Information:
    """All information states of a game.

    :param tolerance: the largest blur: the relative difference that rounding makes between equal weights.
    """

    def __init__(self, game: Game, tolerance: float = SAME):
        self.game, self.tolerance = game, tolerance
        self.count = 0
        self.size = 0  # hypotheses in all of them
        self._known: dict[bytes, tuple[list[float], list[InformationState]]] = {}
        self._random = np.zeros(0)

    def state(self, support: np.ndarray, weight: np.ndarray) -> tuple[InformationState, float]:
        """The state that represents a belief over classes (each once, rising), and the blur."""
        return self._state(support.tobytes(), support, weight, float(weight @ self._projection()[support]))

    def _projection(self) -> np.ndarray:
        """A random number for each class."""
        if len(self._random) < len(self.game.names):
            self._random = np.random.default_rng(0).random(len(self.game.names))
        return self._random

    def _state(
        self, key: bytes, support: np.ndarray, weight: np.ndarray, place: float
    ) -> tuple[InformationState, float]:
        """The same by the bytes of the support, and by the projection of the weights."""
        entry = self._known.get(key)
        if entry is None:
            entry = self._known[key] = [], []
        places, states = entry
        margin = 2 * self.tolerance * place
        for i in range(bisect.bisect_left(places, place - margin), len(places)):
            if places[i] > place + margin:
                break
            if len(weight) == 1:
                return states[i], 0.0
            blur = float(np.abs(weight / states[i].weight - 1).max())
            if blur <= self.tolerance:
                return states[i], blur
        state = InformationState(support, weight, self.count)
        self.count += 1
        self.size += len(support)
        at = bisect.bisect_left(places, place)
        places.insert(at, place)
        states.insert(at, state)
        return state, 0.0

    def _states(self, branches: Branches) -> list[tuple[InformationState, float]]:
        """The state of every branch, and its blur."""
        support, weight = branches.support, branches.weight
        places = np.add.reduceat(weight * self._projection()[support], branches.start[:-1]).tolist()
        keys, width = support.tobytes(), support.itemsize
        states: list[tuple[InformationState, float]] = []
        parts = zip(places, itertools.pairwise(branches.start.tolist()), _steps_apart(branches), strict=True)
        for place, (start, end), apart in parts:
            if apart <= SAME:  # as after an uninformative site: no need to look it up
                state, blur = states[-1]
                blur += apart * (1 + blur)
                if blur <= self.tolerance:
                    states.append((state, blur))
                    continue
            states.append(self._state(keys[width * start : width * end], support[start:end], weight[start:end], place))
        return states

    def turn(self, state: InformationState, left: int) -> Turn:
        """The possible results of the step with ``left`` steps to go."""
        kind = self.game.kinds[self.game.marks[left - 1]]
        if kind not in state.turns:
            state.turns[kind] = self._turn(state, self.game.layers[kind])
        return state.turns[kind]

    def _turn(self, state: InformationState, layer: Branching) -> Turn:
        branches = layer.branches(state.support, state.weight)
        states = self._states(branches)
        controls: list[dict[int, Next]] = [{} for _ in range(layer.num_controls)]
        blurs = [0.0] * layer.num_controls
        probs = zip(branches.control.tolist(), branches.prob.tolist(), states, strict=True)
        for branch, (control, prob, (after, blur)) in enumerate(probs):
            entries = controls[control]
            entry = entries.get(after.number)
            if blur > blurs[control]:
                blurs[control] = blur
            if entry is None:
                entries[after.number] = Next(prob, after, branch, blur == 0.0)
            else:
                entries[after.number] = entry._replace(prob=entry.prob + prob)
        merged = [list(entries.values()) for entries in controls]
        idle = [
            u
            for u, (entries, blur) in enumerate(zip(merged, blurs, strict=True))
            if len(entries) == 1 and entries[0].state is state and blur <= SAME
        ]
        costs = self.costs(state, layer, branches)
        spread = np.zeros(0)
        if self.game.worth.novelty:
            spread = -np.add.reduceat(xlogx(branches.weight), branches.start[:-1])
        return Turn(merged, idle, max(blurs), [after for after, _ in states], branches, costs, spread)

    def costs(self, state: InformationState, layer: Branching, branches: Branches | None = None) -> np.ndarray:
        """The expected cost of each control at one step, less what its observation tells, (U,)."""
        costs = layer.costs(state.support, state.weight)
        novelty = self.game.worth.novelty
        if novelty:
            branches = layer.branches(state.support, state.weight) if branches is None else branches
            costs = costs - novelty * layer.gains(state.support, state.weight, branches)
        return costs

    def floors(self, turn: Turn, left: int) -> np.ndarray:
        """The floor of each branch of a turn, with ``left`` steps to go after it, (B,)."""
        floors = turn.expect(self.game.value(left))
        return floors - self.game.promise(turn.entropy, left) if self.game.worth.novelty else floors

    def after(self, state: InformationState, left: int, control: int) -> dict[tuple[int, ...], InformationState]:
        """The next states after a control, by the label and the outcomes of uncertain sites that are seen."""
        turn, layer = self.turn(state, left), self.game.layer(left)
        codes = layer.branches(state.support, state.weight, control).outcome  # labels may be numbered anew since
        states = [turn.order[i] for i in np.flatnonzero(turn.branches.control == control)]
        return {layer.sight(code): after for code, after in zip(codes.tolist(), states, strict=True)}

    def follow(self, state: InformationState, left: int, control: int) -> dict[tuple[int, ...], InformationState]:
        """The same without expanding other controls."""
        layer = self.game.layer(left)
        branches = layer.branches(state.support, state.weight, control)
        states = [after for after, _ in self._states(branches)]
        return {layer.sight(code): after for code, after in zip(branches.outcome.tolist(), states, strict=True)}


def _steps_apart(branches: Branches) -> list[float]:
    """The distance of each branch's belief from that of the branch before, relative to its weights."""
    start = branches.start[:-1]
    sizes = branches.start[1:] - start
    back = np.empty_like(sizes)  # how far before a hypothesis its place in the branch before is
    back[0], back[1:] = 0, sizes[:-1]
    place = np.arange(len(branches.support)) - back.repeat(sizes)
    np.maximum(place, 0, out=place)
    apart = np.abs(branches.weight / branches.weight[place] - 1)
    apart[branches.support != branches.support[place]] = np.inf
    apart = np.maximum.reduceat(apart, start)
    apart[back != sizes] = np.inf
    return apart.tolist()
