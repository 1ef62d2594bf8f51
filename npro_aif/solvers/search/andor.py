"""AND/OR search over information states and steps left, depth first, with bounds from below.

Costs of nodes are counted beyond the perfect-information cost, their ``floor``. A node's ``low`` starts at zero and
only rises. The control with the least lower bound is followed to an unsolved next state, until its own bound has risen
so much that another control is better (or the control is solved); so no path is walked again from the root. All bounds
hold at every moment, which makes the search anytime: unsolved nodes are completed by simple rules (in a world of chance
by blind control sequences), which bound the cost from above.
"""

from __future__ import annotations

import gc
import math
import signal
import threading
import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from npro_aif.solvers.search.game import EQUAL, Game
from npro_aif.solvers.search.information import SAME, Information, InformationState
from npro_aif.solvers.search.rules import Rule, rule_costs
from npro_aif.solvers.search.vectors import Point, Vector, Vectors

SLACK = 1e-11  # rounding in sums of bounds
LEAST_RISE = (
    1e-6  # nats by which a bound is raised at the least: two controls that tie would overtake each other by less
)
FIRST_LOOK = 64  # nodes after which the gap is computed for the first time
LEAST_SHARE = 1 / 16  # a search ends when less than this share of its time is left
MARGIN = 1.25  # the time set aside for completing a plan, relative to the time of the last completion
BLINDLY = -1  # in place of a control: the node's completion is followed


class Completion(NamedTuple):
    """What is done from a node that the search did not reach."""

    cost: float  # beyond the node's floor
    way: tuple[int, ...] | Rule | Vector  # a sequence of controls, a rule, or a plan


KNOWN = Completion(0.0, Rule.ALL)  # where everything is known the rule is optimal


class Stop(Exception):
    """A limit was reached."""


class Node:
    """An information state with a number of steps left and a depth of search.

    With V the perfect-information cost, a control costs (beyond V at this node)

        costs_u + Σ_i p_i r_i,   costs_u = E[cost_u] + Σ_h' p(h'|u) V(h') − floor ≥ 0

    where r_i is the cost of the i-th possible next belief beyond V; up to a factor between 1 − blur and 1 + blur, and a
    slack where information has a worth, it is the cost of the state that represents this belief. (V is then the
    perfect-information cost less the most that information may bring, :mod:`.worth`.)
    """

    __slots__ = (
        "best", "blur", "bounds", "completion", "control", "costs", "depth", "floor", "high", "kids", "left", "low",
        "point", "slack", "solved", "stamp", "state", "upper",
    )  # fmt: skip

    def __init__(self, state: InformationState, left: int, depth: int, floor: float):
        self.state, self.left, self.depth, self.floor = state, left, depth, floor
        self.low, self.high = 0.0, math.inf  # bounds; the second is set when the node is solved
        self.solved = False  # whether no control costs less than the best (as far as the depth reaches)
        self.best = BLINDLY  # the best control, once the node is solved
        self.costs: list[float] | None = None  # by control; infinite for controls that are left out
        self.kids: list[list[tuple[float, Node]]] = []  # by control
        self.bounds: list[float] = []  # by control, from below; they may be older than the kids' bounds
        self.blur = self.slack = 0.0
        self.completion: Completion | None = None
        self.point: Point | None = None  # in a world of chance: its belief among the known plans
        self.stamp = -1  # the policy to which the next two belong
        self.upper, self.control = math.inf, BLINDLY

    def low_of(self, control: int) -> float:
        """A bound from below for a control."""
        costs, kids = self.costs, self.kids[control]
        return costs[control] + (1 - self.blur) * sum([p * kid.low for p, kid in kids]) - self.slack  # type: ignore[index]

    def lows(self) -> list[float]:
        """A bound from below for each control."""
        return [self.low_of(control) for control in range(len(self.kids))]

    def least(self) -> int:
        """The control with the least bound from below; no other control's bound is computed anew."""
        bounds = self.bounds
        while True:
            low = min(bounds)
            control = bounds.index(low)
            bounds[control] = self.low_of(control)
            if bounds[control] <= low:
                return control

    def settled(self, control: int = BLINDLY, high: float = 0.0) -> None:
        """Mark the node as solved."""
        self.solved, self.best, self.high = True, control, high


Slack = Callable[[Node], float]  # by how much the costs of controls of a node may differ that count as equal


class AndOrSearch:
    """The nodes of a game; nodes of one plan serve later plans.

    :param vectors: plans that are known already.
    """

    def __init__(self, game: Game, tolerance: float = SAME, vectors: Vectors | None = None):
        self.game, self.information = game, Information(game, tolerance)
        self.move_entropy = game.move_entropy  # that the floors of its nodes were made with
        self._vectors = vectors
        self.nodes: dict[tuple[int, int, int], Node] = {}
        self.expanded = 0  # nodes expanded for the present plan
        self.deepest = 0
        self.start = 0  # the steps left at the root of the present plan
        self.completing = 0.0  # the seconds that it took to complete the last plan
        self.interrupted = False
        self.most_nodes: float = math.inf
        self.deadline = math.inf
        self.stamp, self._by_low = 0, False

    # --- Nodes ---

    def node(self, state: InformationState, left: int, depth: int, floor: float | None = None) -> Node:
        """The node of an information state.

        :param floor: its perfect-information cost, if that is known.
        """
        depth = min(left, depth)
        key = state.number, left, depth
        node = self.nodes.get(key)
        if node is None:
            if floor is None:
                floor = self.game.floor(state.support, state.weight, left)
            node = self.nodes[key] = self._fresh(state, left, depth, floor)
        return node

    def _fresh(self, state: InformationState, left: int, depth: int, floor: float) -> Node:
        node = Node(state, left, depth, floor)
        if depth == 0 or (len(state.support) == 1 and self.game.certain_moves):
            node.settled()
        elif left == 1:  # observations at the end change nothing that is done
            node.costs = (self.information.costs(state, self.game.layer(1)) - floor).tolist()
            node.kids = [[] for _ in node.costs]
            node.low = min(node.costs)
            node.settled(node.costs.index(node.low), node.low)
        return node

    def count(self, node: Node) -> None:
        """Count an expansion, unless a limit is reached."""
        if self.expanded >= self.most_nodes:
            raise Stop
        self.check()
        self.expanded += 1
        self.deepest = max(self.deepest, self.start - node.left + 1)

    def check(self) -> None:
        """Stop if time is up or an interrupt was requested."""
        if self.interrupted or time.perf_counter() > self.deadline:
            raise Stop

    def expand(self, node: Node) -> None:
        """Expand every control; controls that change nothing are left out if waiting cannot pay."""
        self.count(node)
        state, left = node.state, node.left
        turn = self.information.turn(state, left)
        floors = self.information.floors(turn, left - 1)
        costs = (turn.costs + turn.expected(floors) - node.floor).tolist()
        if 0 < len(turn.idle) < len(costs):
            patience = self.game.patience(left)
            for control in turn.idle:
                if control != patience.instead and turn.costs[control] >= patience.least - EQUAL:
                    costs[control] = math.inf
        below = floors.tolist()
        node.kids = [
            [
                (p, self.node(after, left - 1, node.depth - 1, below[branch] if exact else None))
                for p, after, branch, exact in entries
            ]
            for entries in turn.controls
        ]
        node.costs, node.blur, node.slack = costs, turn.blur, self.game.worth.slack(turn.blur)
        node.bounds = node.lows()
        node.low = max(node.low, min(node.bounds))

    @property
    def vectors(self) -> Vectors:
        """The known plans; new parameters change the groups, and there are no plans for them yet."""
        if self._vectors is None or self._vectors.size != self.game.layers[0].size:
            self._vectors = Vectors(self.game)
            for node in self.nodes.values():
                node.point = None
        return self._vectors

    def point(self, node: Node) -> Point | None:
        """A node's belief among the plans; None if it spans several groups (:meth:`.vectors.Vectors.point`)."""
        if node.point is None:
            node.point = self.vectors.point(node.state.support, node.state.weight, node.left)
        return node.point

    # --- Search ---

    def solve(self, root: Node, *, max_nodes: float, seconds: float, tolerance: float, ties: Slack | None) -> str:
        """Search until the root is solved or a limit is reached; returns "solved", "gap" or "stopped".

        :param seconds: for the search and the completion of the plan, for which the time of the last completion is set
            aside; if that is not known, or a gap is asked for, the first half of the time goes to the search.
        :param tolerance: stop when the bounds differ by at most this; checked whenever the number of nodes has doubled.
        :param ties: how much more than the best the root's controls may cost that are also solved; None solves no more.
        """
        self.start, self.expanded, self.deepest = root.left, 0, 0
        now = time.perf_counter()
        end, reserve = now + seconds, MARGIN * self.completing
        pause = FIRST_LOOK if tolerance > 0 else math.inf
        with Interrupts(self):
            while True:
                share = 0.5 if tolerance > 0 or reserve == 0 else 1.0
                self.most_nodes, self.deadline = min(max_nodes, pause), now + share * max(0.0, end - now - reserve)
                try:
                    self.improve(root, math.inf)
                    if ties is not None:
                        self._solve_ties(root, ties(root))
                    return "solved"
                except Stop:
                    before = time.perf_counter()
                    if (tolerance > 0 or seconds < math.inf) and self.upper(root) - root.low <= tolerance:
                        return "gap"
                    now = time.perf_counter()
                    reserve = max(reserve, MARGIN * (now - before))
                    self.completing = now - before
                    late = seconds < math.inf and end - now - reserve <= LEAST_SHARE * seconds
                    if self.interrupted or self.expanded >= max_nodes or late:
                        return "stopped"
                    pause = 2 * self.expanded if tolerance > 0 else math.inf

    def improve(self, node: Node, bound: float) -> None:
        """Raise a node's bound until it is solved or lies above ``bound``."""
        if not node.solved and node.costs is None:
            self.expand(node)
        while not node.solved:
            self.check()
            control = node.least()
            least = node.bounds[control]
            node.low = max(node.low, least)
            open_kids = [entry for entry in node.kids[control] if not entry[1].solved]
            if not open_kids:
                blurred = (1 + node.blur) * sum(p * kid.high for p, kid in node.kids[control])
                node.settled(control, node.costs[control] + blurred + node.slack)  # type: ignore[index]
                return
            if node.low > bound + SLACK:
                return
            second = sorted(node.bounds)[1] if len(node.bounds) > 1 else math.inf
            p, kid = max(open_kids, key=itemgetter(0))
            self.improve(kid, kid.low + max(min(bound, second) - least, LEAST_RISE) / p)

    def _solve_ties(self, root: Node, slack: float) -> None:
        for control, kids in enumerate(root.kids):
            while True:
                low = root.lows()[control]
                p, kid = max(((p, kid) for p, kid in kids if not kid.solved), key=lambda e: e[0], default=(0.0, None))
                if kid is None or low > root.low + slack:
                    break
                self.improve(kid, kid.low + max(root.low + slack - low, LEAST_RISE) / p)

    @staticmethod
    def tied(root: Node, slack: float) -> list[int]:
        """The controls of a root that cost at most this much more than the best, once these are solved."""
        return [control for control, low in enumerate(root.lows()) if low <= root.low + slack]

    # --- The policy that was found ---

    def upper(self, node: Node, *, by_low: bool = False) -> float:
        """The cost of the policy found from a node on, beyond the node's floor.

        At an expanded node the policy takes the control with the least bound from below, or (not with ``by_low``) a
        solved one that costs less. Nodes that the search did not reach are completed.
        """
        self.stamp += 1
        self._by_low = by_low
        self.complete([node], rivals=True)
        return self.settle(node)

    def settle(self, node: Node) -> float:
        """:meth:`upper` of a node, as part of one policy."""
        if node.stamp == self.stamp:
            return node.upper
        node.stamp, node.control = self.stamp, BLINDLY
        if node.left == 0:
            node.upper = 0.0
        elif node.costs is None or (node.point is not None and not node.solved):
            node.upper = self.completion(node).cost
        else:
            node.upper, node.control = self._best(node)
        return node.upper

    def _best(self, node: Node) -> tuple[float, int]:
        """The least cost of an expanded node, and its control."""
        if node.solved and node.depth == node.left:
            return node.high, node.best
        return min((self.cost(node, u), u) for u in self._options(node))

    def _options(self, node: Node) -> list[int]:
        """The controls among which the policy chooses, at an expanded node."""
        lows = node.lows()
        first = node.best if node.solved else min(range(len(lows)), key=lows.__getitem__)
        if self._by_low:
            return [first]
        others = (u for u, low in enumerate(lows) if u != first and low < math.inf)
        return [first, *(u for u in others if _all_known(node.kids[u]))]

    def cost(self, node: Node, control: int) -> float:
        """What a control of a node costs under the policy."""
        assert node.costs is not None
        ahead = (1 + node.blur) * sum(p * self.settle(kid) for p, kid in node.kids[control])
        return node.costs[control] + ahead + node.slack

    # --- Nodes that the search did not reach ---

    def completion(self, node: Node) -> Completion:
        """What is done from an unsolved node: a plan of the trials, if there were trials.

        Otherwise the node was not expanded, and a rule is followed in a world without chance, a control sequence in
        other worlds.
        """
        if node.point is not None:
            cost = max(0.0, node.point.look() - node.floor)
            plan = node.point.best
            return Completion(cost, (plan.control,) * node.left if plan.after is None else plan)
        if node.completion is None:
            if not self.game.certain:
                cost, controls = self.game.blind(node.state.support, node.state.weight, node.left)
                node.completion = Completion(cost - node.floor, controls)
            elif len(node.state.support) == 1:
                node.completion = KNOWN
            else:
                self._rule([node])
        return node.completion  # type: ignore[return-value]

    def complete(self, roots: Sequence[Node], *, rivals: bool = False) -> None:
        """Complete these nodes and all nodes that the policy reaches from them, together if that is quicker.

        :param rivals: also complete those of the given nodes that were expanded but not solved.
        """
        if not self.game.certain:
            return
        fresh, known, stack = [], set(), list(roots)
        whole = {id(node) for node in roots if rivals and not node.solved}
        while stack:
            node = stack.pop()
            if id(node) in known or len(node.state.support) == 1 or node.left == 0:
                continue
            known.add(id(node))
            if node.completion is None and (node.costs is None or id(node) in whole):
                fresh.append(node)
            if node.costs is not None and not (node.solved and node.depth == node.left):
                stack += [kid for u in self._options(node) for _, kid in node.kids[u]]
        if fresh:
            self._rule(fresh)

    def _rule(self, nodes: Sequence[Node]) -> None:
        """Complete nodes by the better rule of each."""
        beliefs = [(node.state, node.left) for node in nodes]
        costs = np.stack([rule_costs(self.game, beliefs, rule) for rule in Rule])
        for node, best, cost in zip(nodes, costs.argmin(0).tolist(), costs.min(0).tolist(), strict=True):
            node.completion = Completion(cost - node.floor, list(Rule)[best])


def _all_known(kids: list[tuple[float, Node]]) -> bool:
    """Whether it is known what to do at each of these nodes: they are solved, or have plans."""
    return all(kid.solved or kid.point is not None for _, kid in kids)


class Interrupts:
    """While a search runs, Ctrl-C asks it to stop and its results are kept; garbage collection is off.

    (There are many nodes without reference cycles; searching for cycles would take a third of the time.)
    """

    def __init__(self, search: AndOrSearch):
        self.search = search

    def __enter__(self) -> None:
        self.search.interrupted = False
        self.before: Any = None
        self.collecting = gc.isenabled()
        gc.disable()
        if threading.current_thread() is threading.main_thread():
            self.before = signal.signal(signal.SIGINT, self.stop)

    def stop(self, *_: Any) -> None:
        self.search.interrupted = True

    def __exit__(self, *_: Any) -> None:
        if self.collecting:
            gc.enable()
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)
