"""Nodes of a search: information states with steps left, their bounds, and what is done where it did not come."""

from __future__ import annotations

import math
from typing import NamedTuple

from npro_aif.solvers.search.information import InformationState
from npro_aif.solvers.search.rules import Rule

BLINDLY = -1  # in place of a control: what completes the node is done


class Completion(NamedTuple):
    """What is done from a node on where the search did not come."""

    cost: float  # beyond the node's floor
    way: tuple[int, ...] | Rule  # a sequence of controls, or a rule


KNOWN = Completion(0.0, Rule.ALL)  # where everything is known: the rule does what is best


class Node:
    """An information state with so many steps left, looked at so deep.

    With V the perfect-information cost, a control costs (beyond V at this node)

        costs_u + Σ_i p_i r_i,   costs_u = E[cost_u] + Σ_h' p(h'|u) V(h') − floor ≥ 0

    where r_i is what the i-th belief that may follow costs beyond V; it is that of the state which stands for it but
    for a factor between 1 − blur and 1 + blur.
    """

    __slots__ = (
        "best", "blur", "bounds", "completion", "control", "costs", "depth", "floor", "high", "kids", "left", "low",
        "solved", "stamp", "state", "upper",
    )  # fmt: skip

    def __init__(self, state: InformationState, left: int, depth: int, floor: float):
        self.state, self.left, self.depth, self.floor = state, left, depth, floor
        self.low, self.high = 0.0, math.inf  # bounds; the second one when it is solved
        self.solved = False  # no control costs less than the best (as far as the depth reaches)
        self.best = BLINDLY  # control, when it is solved
        self.costs: list[float] | None = None  # by control; infinite for those that are left out
        self.kids: list[list[tuple[float, Node]]] = []  # by control
        self.bounds: list[float] = []  # by control, from below; they may be older than those of the kids
        self.blur = 0.0
        self.completion: Completion | None = None
        self.stamp = -1  # of the policy that the next two belong to
        self.upper, self.control = math.inf, BLINDLY

    def low_of(self, control: int) -> float:
        """A bound from below for a control."""
        costs, kids = self.costs, self.kids[control]
        return costs[control] + (1 - self.blur) * sum([p * kid.low for p, kid in kids])  # type: ignore[index]

    def lows(self) -> list[float]:
        """A bound from below for each control."""
        return [self.low_of(control) for control in range(len(self.kids))]

    def least(self) -> int:
        """The control with the least bound from below; that of no other is looked at anew."""
        bounds = self.bounds
        while True:
            low = min(bounds)
            control = bounds.index(low)
            bounds[control] = self.low_of(control)
            if bounds[control] <= low:
                return control

    def settled(self, control: int = BLINDLY, high: float = 0.0) -> None:
        """Note that it is solved."""
        self.solved, self.best, self.high = True, control, high
