"""The search solver: from a belief to a plan for everything that may be seen, with bounds on the cost of any plan."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from npro_aif._jax import eval_context
from npro_aif.belief import Belief
from npro_aif.inference.objectives import Objective
from npro_aif.program.program import Program
from npro_aif.sizes import MOST_REMEMBERED
from npro_aif.solvers.base import Problem
from npro_aif.solvers.search.andor import BLINDLY, AndOrSearch, Node, Slack
from npro_aif.solvers.search.game import Game
from npro_aif.solvers.search.hypotheses import check_sights
from npro_aif.solvers.search.information import SAME
from npro_aif.solvers.search.marks import Marks
from npro_aif.solvers.search.replay import Replay, Replayer
from npro_aif.solvers.search.rules import Rule, rule_control
from npro_aif.solvers.search.trials import Trials
from npro_aif.solvers.search.vectors import Vector
from npro_aif.solvers.search.worth import Worth, worth_of, xlogx

PROVEN = 1e-7  # bounds have met if they differ by at most this, relative to their size
UPDATES = 64  # the most units of rounding that belief updates add up to
LEAST_SEARCH = 1 / 8  # the share of the given seconds that goes to the search, however long the tables took
FRAMES = 4  # the most frames of Python's stack for each step of a plan


class SearchInfo(NamedTuple):
    """How a search ended, and its bounds.

    ``lower`` and ``upper`` are a certificate: no policy whatever costs less than ``lower``, and the plan costs
    ``upper``. (An agent that keeps no plans does not replay them; ``upper`` then bounds its policy's cost from above.)
    """

    iterations: Any  # () 0: there is no sweep and no gradient step
    converged: Any  # () whether it ended by itself, or with bounds within the tolerance, and not at a limit
    cycle: Any  # () 0
    lower: Any  # () a bound from below on F of any policy with perfect recall
    upper: Any  # () F of this plan
    optimal: Any  # () whether the two bounds have met
    nodes: Any  # () information states with steps left that were expanded for this plan
    depth: Any  # () how many steps deep the search came
    control_lower: Any  # (U,) lower bounds on the cost of each first control, followed by an optimal policy
    control_upper: Any  # (U,) the cost of each first control in the best plan found
    interrupted: Any  # () whether Ctrl-C ended it

    def closed(self, cost: float | None = None) -> SearchInfo:
        """The same with the plan's cost (by default its upper bound), and whether that is optimal."""
        upper = np.float64(self.upper if cost is None else cost)
        lower = np.float64(min(self.lower, upper))  # they may differ by rounding alone
        return self._replace(lower=lower, upper=upper, optimal=np.bool_(upper - lower <= PROVEN * (1 + abs(upper))))

    def explain(self) -> str:
        """The report in words.

        >>> SearchInfo(1, True, 0, 5.6, 5.6, True, 12, 4, None, None, False).explain()
        'Optimal: no policy has a lower F. 12 information states, 4 steps deep.'
        >>> SearchInfo(1, False, 0, 5.0, 5.5, False, 9, 2, None, None, False).explain()
        'Stopped: at most 0.5 nats above the optimum, which is at least 5.0000. 9 information states, 2 steps deep.'
        """
        size = f"{int(self.nodes)} information states, {int(self.depth)} steps deep."
        if bool(self.optimal):
            return f"Optimal: no policy has a lower F. {size}"
        end = "Interrupted" if bool(self.interrupted) else "Ended" if bool(self.converged) else "Stopped"
        gap = float(self.upper) - float(self.lower)
        return f"{end}: at most {gap:.4g} nats above the optimum, which is at least {float(self.lower):.4f}. {size}"


@dataclass(frozen=True)
class SearchSolver:
    """Exact contingent plans by AND/OR search over information states, with the perfect-information cost as a bound.

    It is used with :class:`npro_aif.guides.RecallGuide` and :class:`npro_aif.Planning`, or :class:`npro_aif.Active`
    with ``entropy=0`` (:mod:`.worth`). Without limits it ends at the optimum; within limits it returns the best plan
    found, and ``plan.info`` has bounds on the optimum. Ctrl-C ends a search in the same way. The nodes of one plan
    serve the planner's later plans.

    In a world of chance a search for F_planning within limits makes trials (:mod:`.trials`), whose plans serve later
    plans too; one for F_active goes depth first, and where it was stopped its plans go on blindly.

    :param max_nodes: the most information states to expand for each plan.
    :param max_depth: how many steps to look ahead; the perfect-information cost stands for what follows. First controls
        that tie then share equally.
    :param tol: stop when the bounds differ by at most this, in nats.
    :param seconds: the most seconds for each plan, its completion included. (Tables of a world, or of parameters that
        are added, are computed once; they leave at least an eighth of the time for the search.)
    :param first_nodes: the most information states for a planner's first plan, if that is more than ``max_nodes``; the
        later plans profit from them.

    >>> import jax, npro_aif as aif
    >>> from npro_aif.models.tmaze import tmaze, initial_belief
    >>> planner = aif.Planner(tmaze, aif.guides.RecallGuide(tmaze), aif.Planning(), aif.SearchSolver(), max_horizon=4)
    >>> plan = planner(jax.random.key(0), initial_belief())
    >>> round(float(plan.info.lower), 3), round(float(plan.info.upper), 3), bool(plan.info.optimal)
    (5.599, 5.599, True)
    """

    max_nodes: int | None = None
    max_depth: int | None = None
    tol: float = 0.0
    seconds: float | None = None
    first_nodes: int | None = field(default=None, repr=False)  # the repr of kept rows is older than this setting

    def __post_init__(self) -> None:
        for name in ("max_nodes", "max_depth", "first_nodes"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{name}: found {value!r}, expected a whole number of at least 1, or None")
        if not self.tol >= 0:
            raise ValueError(f"tol: found {self.tol!r}, expected a number that is not negative")
        if self.seconds is not None and not self.seconds > 0:
            raise ValueError(f"seconds: found {self.seconds!r}, expected a positive number, or None")
        if self.first_nodes is not None and self.max_nodes is None:
            raise ValueError(f"first_nodes: found {self.first_nodes} without max_nodes, expected both or none")

    def nodes(self, *, first: bool) -> float:
        """The most nodes for a plan."""
        limit = math.inf if self.max_nodes is None else self.max_nodes
        return max(limit, self.first_nodes or 0) if first else limit

    @property
    def quick(self) -> bool:
        return False

    def check(self, problem: Problem) -> None:
        guide = problem.guide
        if worth_of(problem.objective).novelty and self.max_depth is not None:
            raise ValueError(
                f"SearchSolver: found max_depth={self.max_depth} with the objective {problem.objective}, expected "
                "max_depth=None (or aif.Planning(), or novelty=0): beyond a look-ahead all that is unknown would count "
                "as told already, so that nothing would be sought"
            )
        if not getattr(guide, "recalls", False):
            raise ValueError(
                f"SearchSolver: found a {type(guide).__name__}, expected aif.guides.RecallGuide(model): its plans "
                "remember everything, and learn controls only"
            )
        check_sights(problem.world)

    def begin(self, program: Program, objective: Objective) -> Searches:
        """The searches that the plans of a program share."""
        return Searches(program, self, worth_of(objective))


class Certificate(NamedTuple):
    """The bounds that one search proved, in short."""

    horizon: int
    lower: float
    upper: float
    optimal: bool
    nodes: int
    seconds: float


class SearchOutcome(NamedTuple):
    """The result of a search from a belief."""

    search: AndOrSearch
    root: Node
    starts: list[tuple[float, int]]  # the first controls (or BLINDLY) with their probabilities
    support: np.ndarray  # (K,) hypotheses
    weight: np.ndarray  # (K,)
    classes: np.ndarray  # (C,) the weights of their classes, exactly (the root's state may be blurred)
    blur: float
    info: SearchInfo

    def first_control(self) -> np.ndarray:
        """q(u_1), (U,)."""
        probs = np.zeros(self.search.game.layers[0].num_controls)
        for share, control in self.starts:
            probs[self._completing() if control == BLINDLY else control] += share
        return probs

    def _completing(self) -> int:
        """The control that completes the root."""
        way = self.search.completion(self.root).way
        if isinstance(way, Vector):
            return way.control
        return rule_control(self.search.game, self.root.state, self.root.left, way) if isinstance(way, Rule) else way[0]

    def bracket(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds on the cost of each first control, (U,) and (U,)."""
        search, root = self.search, self.root
        state, left, layer = root.state, root.left, search.game.layer(root.left)
        informed = layer.step.cost[state.support] + layer.expected(search.game.value(left - 1), state.support)
        costs = self.classes @ informed  # (U,) if everything is seen after the control
        if search.game.worth.novelty:
            costs = costs - self._promised()
        if left == 1:
            return costs, costs
        turn = search.information.turn(state, left)
        kids = [
            [(p, search.node(after, left - 1, root.depth - 1)) for p, after, *_ in branch] for branch in turn.controls
        ]
        search.complete([kid for branch in kids for _, kid in branch])
        lows = np.array([sum(p * kid.low for p, kid in branch) for branch in kids])
        uppers = np.array([sum(p * search.settle(kid) for p, kid in branch) for branch in kids])
        blurs = (1 - self.blur) * (1 - turn.blur), (1 + self.blur) * (1 + turn.blur)
        slack = search.game.worth.slack(self.blur + turn.blur)
        return costs + np.minimum(blurs[0] * lows - slack, uppers), costs + blurs[1] * uppers + slack

    def _promised(self) -> np.ndarray:
        """What the observation after each first control tells, and what later ones may tell at most, as costs, (U,)."""
        game, left, support = self.search.game, self.root.left, self.root.state.support
        layer = game.layer(left)
        branches = layer.branches(support, self.classes)
        spread = -np.add.reduceat(xlogx(branches.weight), branches.start[:-1])
        later = np.bincount(branches.control, branches.prob * game.promise(spread, left - 1), layer.num_controls)
        return game.worth.novelty * layer.gains(support, self.classes, branches) + later

    def certified(self, cost: float) -> SearchInfo:
        """The info of a plan with this cost, with bounds for every first control, which take longer to compute."""
        lower, upper = self.bracket()
        return self.info.closed(cost)._replace(control_lower=lower, control_upper=upper)

    def replay(self) -> Replay:
        """The policy's marginals, graph and cost."""
        game = self.search.game
        replayer = Replayer(self.search, game.frame, self.root.left)
        return replayer([(share, self.root, u) for share, u in self.starts], self.support, self.weight)


class Searches:
    """The searches of a planner, with their games and nodes."""

    def __init__(self, program: Program, solver: SearchSolver, worth: Worth):
        self.program, self.solver, self.worth = program, solver, worth
        self.marks = Marks(program)
        self.certificates: list[Certificate] = []
        self._search: AndOrSearch | None = None
        self._trials: Trials

    def __call__(self, belief: Belief, horizon: int, elapsed: Any = 0) -> SearchOutcome:
        """Search from a belief.

        :param elapsed: the steps that have passed, for a model that asks for them.
        """
        solver, began = self.solver, time.perf_counter()
        with eval_context():
            marks = self.marks(belief, horizon, elapsed)
        search, (support, weight) = self._of(belief, horizon, elapsed, marks)
        classes, weights = search.game.classes(support, weight)
        state, blur = search.information.state(classes, weights)
        depth = horizon if solver.max_depth is None else min(horizon, solver.max_depth)
        root = search.node(state, horizon, depth)
        floor = search.game.floor(classes, weights, horizon)
        search.game.patience(horizon)  # computed here, before the seconds of the search begin
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, 1000 + FRAMES * horizon))
        try:
            limits = {
                "max_nodes": solver.nodes(first=not self.certificates),
                "seconds": self._seconds(time.perf_counter() - began),
                "tolerance": solver.tol,
            }
            limited = min(limits["max_nodes"], limits["seconds"]) < math.inf
            # Of controls whose costs differ by rounding none is chosen by what was looked at before, or in which order.
            ties = (lambda node: PROVEN * (1 + abs(floor + node.low))) if depth < horizon or not limited else None
            if limited and depth == horizon and not search.game.certain and not self.worth.novelty:
                ended = self._trials.solve(root, **limits)
            else:
                ended = search.solve(root, **limits, ties=ties)
            starts, info = self._ending(search, root, ended, ties)
        finally:
            sys.setrecursionlimit(limit)
        slack = self.worth.slack(blur)
        info = info._replace(
            lower=np.float64(floor + (1 - blur) * info.lower - slack),
            upper=np.float64(floor + (1 + blur) * info.upper + slack),
        ).closed()
        seconds = time.perf_counter() - began
        self.certificates.append(
            Certificate(horizon, float(info.lower), float(info.upper), bool(info.optimal), int(info.nodes), seconds)
        )
        return SearchOutcome(search, root, starts, support, weight, weights, blur, info)

    def _seconds(self, used: float) -> float:
        """The seconds for the search after ``used`` seconds for tables: at least a share of the given time."""
        given = math.inf if self.solver.seconds is None else self.solver.seconds
        return max(given - used, LEAST_SEARCH * given)

    def _of(
        self, belief: Belief, horizon: int, elapsed: Any, marks: list[bytes]
    ) -> tuple[AndOrSearch, tuple[np.ndarray, np.ndarray]]:
        """The search that these steps belong to, the last one or a new one; hypotheses and their weights."""
        search = self._search
        if search is None or not search.game.fits(marks) or search.game.full(belief):
            search = None
        game = search.game if search else Game(self.program, belief, horizon, marks, elapsed, self.worth)
        game.extend(marks)
        hypotheses = game.hypotheses(belief)
        if search is None or search.move_entropy != game.move_entropy:  # (of new parameters) the nodes' floors count it
            search = AndOrSearch(game, self._tolerance(belief))
        elif search.information.size > MOST_REMEMBERED:
            search = AndOrSearch(game, search.information.tolerance, search.vectors)
        if search is not self._search:
            self._search, self._trials = search, Trials(search)
        return search, hypotheses

    @staticmethod
    def _tolerance(belief: Belief) -> float:
        """The relative difference between equal weights after some belief updates in the belief's precision."""
        return max(SAME, UPDATES * float(np.finfo(belief.state.dtype).eps))

    @staticmethod
    def _ending(
        search: AndOrSearch, root: Node, ended: str, ties: Slack | None
    ) -> tuple[list[tuple[float, int]], SearchInfo]:
        """The first controls and the report, with bounds beyond the root's floor; tied controls share equally."""
        ahead = root.depth < root.left  # look-ahead: the bounds from below decide
        upper = search.upper(root, by_low=ahead)
        starts = [(1.0, root.control)]
        if ended == "solved" and ties is not None and root.costs is not None:
            best = search.tied(root, ties(root))
            starts = [(1 / len(best), u) for u in best]
            upper = float(np.mean([search.cost(root, u) for u in best]))
        elif not root.solved and search.completion(root).cost < upper:
            starts, upper = [(1.0, BLINDLY)], search.completion(root).cost
        return starts, SearchInfo(
            iterations=np.int32(0),
            converged=np.bool_(ended != "stopped"),
            cycle=np.int32(0),
            lower=np.float64(root.low),
            upper=np.float64(upper),
            optimal=np.bool_(False),
            nodes=np.int64(search.expanded),
            depth=np.int32(search.deepest),
            control_lower=None,
            control_upper=None,
            interrupted=np.bool_(search.interrupted),
        )
