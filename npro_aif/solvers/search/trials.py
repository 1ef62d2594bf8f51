"""Search within limits in a world of chance: trials from the root to the end, and backups on the way back.

Depth-first search tries to close every node that it expands, which is hopeless if every step has noise. A trial follows
one random history, mostly by the best plan known so far; at times it takes another control that may still be better
according to the bounds. Observations are drawn by their probability times the gap between the bounds after them. On the
way back every belief gets a new plan (:mod:`.vectors`) and a new bound from below.
"""

from __future__ import annotations

import math
import time

import numpy as np

from npro_aif.solvers.search.andor import AndOrSearch, Interrupts, Node, Stop
from npro_aif.solvers.search.vectors import Point, Vector, Vectors

EXPLORED = 0.2  # the share of steps that do another control than the best plan
MET = 1e-7  # bounds have met if they differ by at most this, relative to the size of the costs


class Trials:
    """The trials of a search; they draw from a generator of their own."""

    def __init__(self, search: AndOrSearch):
        self.search = search
        self.random = np.random.default_rng(0)
        self._vectors: Vectors | None = None  # the plans to which the next ones belong
        self._ways: dict[Node, list[tuple[float, list[tuple[float, Point]]]]] = {}  # see :meth:`_uppers`

    def solve(self, root: Node, *, max_nodes: float, seconds: float, tolerance: float) -> str:
        """Make trials until bounds meet or a limit is reached; returns "solved", "gap" or "stopped"."""
        search = self.search
        search.start, search.expanded, search.deepest = root.left, 0, 0
        search.most_nodes, search.deadline = max_nodes, time.perf_counter() + seconds
        met = MET * (1 + abs(root.floor))
        if search.vectors is not self._vectors:
            self._vectors, self._ways = search.vectors, {}
        with Interrupts(search):
            while not root.solved:
                gap = self.upper(root) - root.low
                if gap <= max(tolerance, met):
                    return "solved" if gap <= met else "gap"
                path: list[Node] = []
                try:
                    self._walk(root, path)
                except Stop:
                    self._return(path)
                    return "stopped"
                self._return(path)
        return "solved"

    def upper(self, node: Node) -> float:
        """The cost of the best known plan for a node, beyond its floor."""
        point = self.search.point(node)
        if point is not None:
            return max(0.0, point.look() - node.floor)
        if node.costs is None:
            return math.inf
        return min(self._uppers(node))

    def _uppers(self, node: Node) -> list[float]:
        """The same by control: a sum of its cost and the costs of the best plans at the possible next beliefs."""
        ways = self._ways.get(node)
        if ways is None:
            ways = self._ways[node] = [
                (cost - sum(p * kid.floor for p, kid in kids), [(p, self._point(kid)) for p, kid in kids])
                for cost, kids in zip(node.costs or [], node.kids, strict=True)
            ]
        return [base + sum([p * point.look() for p, point in points]) for base, points in ways]

    def _point(self, kid: Node) -> Point:
        """The belief after an observation, which lies in one group, given the certain observations."""
        point = self.search.point(kid)
        assert point is not None
        return point

    def _walk(self, root: Node, path: list[Node]) -> None:
        node = root
        while node.left > 1:
            if node.costs is None or not node.kids:
                self.search.expand(node)
            else:
                self.search.count(node)
            path.append(node)
            kids = node.kids[self._choose(node)]
            gaps = np.array([p * max(0.0, self._point(kid).look() - kid.floor - kid.low) for p, kid in kids])
            total = gaps.sum()
            if not total > 0:
                return
            node = kids[int(np.searchsorted(gaps.cumsum(), total * self.random.random(), side="right"))][1]

    def _choose(self, node: Node) -> int:
        """The control of the best plan, or at times one that may be better."""
        uppers = self._uppers(node)
        best = min(uppers)
        if self.random.random() < EXPLORED:
            others = [u for u, low in enumerate(node.lows()) if low < best]
            if others:
                return others[int(self.random.integers(len(others)))]
        return uppers.index(best)

    def _return(self, path: list[Node]) -> None:
        """Back up the beliefs of a trial, the last one first."""
        for node in reversed(path):
            node.low = max(node.low, min(node.lows()))
            point = self.search.point(node)
            if point is not None:
                uppers = self._uppers(node)
                control = uppers.index(min(uppers))
                self.search.vectors.backup(point, node.left, control, self._after(node, control))

    def _after(self, node: Node, control: int) -> dict[int, Vector]:
        """The best plan after each possible observation, by its code."""
        turn = self.search.information.turn(node.state, node.left)
        best: dict[int, Vector] = {}
        for _, kid in node.kids[control]:
            point = self._point(kid)
            point.look()
            best[kid.state.number] = point.best
        own = np.flatnonzero(turn.branches.control == control).tolist()
        codes = turn.branches.outcome[own].tolist()
        return {code: best[turn.order[branch].number] for code, branch in zip(codes, own, strict=True)}
