"""DoorKey by search, from MiniGrid's own prior: the optimum over all first looks, and the loss of look-ahead.

``python benchmarks/bench_search.py`` prints F_planning of the optimal policy over all first looks, the perfect-
information bound, the expected number of steps, and the times of the searches; with ``--look-ahead 1 2 3`` also the
expected steps of agents that look that many steps ahead, with ties between controls averaged; ``--size`` sets the grid,
``--max-steps`` the deadline and ``--seconds`` a limit for each first look.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from npro_aif.models import doorkey
from npro_aif.program.program import program_of
from npro_aif.solvers.search.andor import BLINDLY, AndOrSearch, Node, Slack
from npro_aif.solvers.search.game import EQUAL, Game
from npro_aif.solvers.search.marks import Marks


class DoorKey:
    """A search, with the tables needed to count steps in it."""

    def __init__(self, size: int, deadline: int):
        model = functools.partial(doorkey.doorkey, size=size)
        self.deadline, belief = deadline, doorkey.initial_belief(size)
        program = program_of(model, belief, deadline)
        start = time.perf_counter()
        self.game = Game(program, belief, deadline, Marks(program)(belief, deadline))
        self.support, self.weight = self.game.hypotheses(belief)
        self.game.value(deadline)
        self.seconds = time.perf_counter() - start
        self.search = AndOrSearch(self.game)
        position = self.game.members % self.game.num_states // 16
        self.away = position != (size - 2) ** 2 - 1  # by class: not at the goal

    def informed(self) -> float:
        """The perfect-information cost."""
        classes, weight = self.game.classes(self.support, self.weight)
        return float(weight @ self.game.value(self.deadline)[classes])

    def looks(self, depth: int) -> Iterator[tuple[float, Node]]:
        """Every first look: its probability, and the node from which the agent then plans."""
        label = self.game.plain(1).label[self.support, 0]
        for value in np.unique(label):
            own = label == value
            share = float(self.weight[own].sum())
            state, _ = self.search.information.state(*self.game.classes(self.support[own], self.weight[own] / share))
            yield share, self.search.node(state, self.deadline, depth)

    def solve(self, node: Node, *, ties: Slack | None = None, seconds: float = math.inf) -> None:
        self.search.solve(node, max_nodes=math.inf, seconds=seconds, tolerance=0.0, ties=ties)

    def remaining(self, node: Node) -> float:
        """The probability that the goal is still ahead."""
        return float(node.state.weight @ self.away[node.state.support])

    def steps(self, node: Node, known: dict[int, float]) -> float:
        """The expected number of steps to the goal under the policy that was found."""
        if id(node) not in known:
            self.search.settle(node)
            if node.left == 0:
                known[id(node)] = 0.0
            elif node.control == BLINDLY:
                known[id(node)] = self.blind_steps(node)
            else:
                ahead = sum(p * self.steps(kid, known) for p, kid in node.kids[node.control])
                known[id(node)] = self.remaining(node) + ahead
        return known[id(node)]

    def blind_steps(self, node: Node) -> float:
        total, support, weight = 0.0, node.state.support, node.state.weight
        for i, control in enumerate(self.game.blind(support, weight, node.left)[1]):
            total += float(weight @ self.away[support])
            support, weight = self.game.layer(node.left - i).move(support, weight, control)
        return total

    def look_ahead(self, node: Node, depth: int, known: dict[int, float]) -> float:
        """The expected number of steps if every control is chosen by looking ``depth`` steps ahead, ties averaged."""
        if id(node) in known:
            return known[id(node)]
        away = self.remaining(node)
        if node.left == 0 or away == 0:
            steps = 0.0
        elif node.costs is None and node.solved:
            steps = self.blind_steps(node)
        else:
            self.solve(node, ties=lambda _: EQUAL)
            best = self.search.tied(node, EQUAL)
            turn = self.search.information.turn(node.state, node.left)
            ahead = [
                p * self.look_ahead(self.search.node(after, node.left - 1, depth), depth, known)
                for u in best
                for p, after, *_ in turn.controls[u]
            ]
            steps = away + sum(ahead) / len(best)
        known[id(node)] = steps
        return steps


class Optimum(NamedTuple):
    """The results of the searches from all first looks, averaged."""

    lower: float  # bounds on F_planning
    upper: float
    steps: float  # expected, of the optimal policy
    solved: int
    seconds: list[float]  # of each first look
    nodes: int


def optimum(world: DoorKey, seconds: float = math.inf) -> Optimum:
    """Search from every first look."""
    lower = upper = steps = 0.0
    times, solved, nodes = [], 0, 0
    for share, node in world.looks(world.deadline):
        start = time.perf_counter()
        world.solve(node, seconds=seconds)
        times.append(time.perf_counter() - start)
        nodes += world.search.expanded
        upper += share * (node.floor + world.search.upper(node))
        lower += share * (node.floor + node.low)
        steps += share * (world.steps(node, {}) if node.solved else math.nan)
        solved += node.solved
    return Optimum(lower, upper, steps, solved, times, nodes)


def look_ahead(world: DoorKey, depth: int) -> tuple[float, int]:
    """The expected number of steps of an agent that looks so far ahead, and how many decisions it has."""
    world.search = AndOrSearch(world.game)
    known: dict[int, float] = {}
    return sum(share * world.look_ahead(node, depth, known) for share, node in world.looks(depth)), len(known)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--max-steps", type=int, default=35)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--look-ahead", type=int, nargs="*", default=[])
    options = parser.parse_args()
    world = DoorKey(options.size, options.max_steps)
    game = world.game
    print(
        f"DoorKey-{options.size}x{options.size}, {options.max_steps} steps; {world.seconds:.2f} s once for the world:"
    )
    print(
        f"{len(game.class_of):,} hypotheses in {len(game.names):,} classes; perfect information {world.informed():.4f}",
        flush=True,
    )
    best = optimum(world, options.seconds)
    print(f"F_planning {best.lower:.4f} … {best.upper:.4f}; {best.solved} of {len(best.seconds)} first looks solved")
    print(f"expected steps {best.steps:.4f} (where the goal is not reached, the deadline counts)")
    times = best.seconds
    print(f"seconds a first look: mean {np.mean(times):.3f}, most {np.max(times):.2f}; nodes {best.nodes:,}")
    information = world.search.information
    print(f"{information.count:,} information states, {information.size:,} hypotheses in them", flush=True)
    for depth in options.look_ahead:
        start = time.perf_counter()
        expected, decisions = look_ahead(world, depth)
        took = time.perf_counter() - start
        print(
            f"look-ahead of {depth}: {expected:.4f} expected steps ({decisions:,} decisions, {took:.0f} s)", flush=True
        )


if __name__ == "__main__":
    main()
