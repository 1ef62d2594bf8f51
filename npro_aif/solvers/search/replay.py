"""A policy that a search found, followed forward over the hypotheses: its graph, its marginals, its cost.

Everything is exact and independent of the search's bounds, so that the cost of a replay certifies the upper bound.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npro_aif.solvers.search.andor import BLINDLY, AndOrSearch, Node
from npro_aif.solvers.search.branching import Branching, merge
from npro_aif.solvers.search.contingency import END, Contingency
from npro_aif.solvers.search.following import RULES, Followed, Follower, Graph
from npro_aif.solvers.search.marginals import Marginals
from npro_aif.solvers.search.rules import Rule
from npro_aif.solvers.search.vectors import Vector
from npro_aif.tables.world import World

Position = Node | Rule | Vector | list[int]  # a node of the search, a rule, a plan, the rest of a control sequence


class Replay(NamedTuple):
    """The marginals of a policy with perfect recall."""

    contingency: Contingency
    control: np.ndarray  # (T, U)
    policy: np.ndarray  # (T, P, U)
    state: np.ndarray  # (T+1, X)
    memory: np.ndarray  # (T+1, M)
    observation: dict[str, np.ndarray]  # by site, (T, Y)
    preference: float  # E[log p̂]
    effort: float  # E[−log p(u|x)]
    ambiguity: float  # what noisy observations cost, and
    novelty: float  # what observations bring, as a negative cost: 0 without epistemic priors

    @property
    def cost(self) -> float:
        """The cost of the policy, F."""
        return self.effort - self.preference + self.ambiguity + self.novelty


class Replayer:
    """One replay.

    :param world: the world with any of its parameters; it says what the policy sees and remembers.
    """

    def __init__(self, search: AndOrSearch, world: World, horizon: int):
        self.search, self.game, self.horizon = search, search.game, horizon
        self.marginals = Marginals(world, horizon)
        self.graph = Graph([], [])
        self.follow = Follower(self.game, self.graph, self.marginals, horizon)
        self.places: dict[Any, int] = {}
        self.entering: list[Followed] = []  # those who follow a rule from the next step on

    def __call__(self, starts: list[tuple[float, Node, int]], support: np.ndarray, weight: np.ndarray) -> Replay:
        """Follow the policy from a belief over hypotheses.

        :param starts: the root with each of its controls, and the probability of each.
        """
        frontier: dict[tuple[int, int], list[Any]] = {}
        contents = self.marginals.first_memories(support)
        first = []
        for share, root, control in starts:
            position, place = self._completed(root) if control == BLINDLY else (root, self._node_place(root, control))
            first.append((share, place))
            for memory in np.unique(contents):
                mask = contents == memory
                self._put(frontier, place, position, int(memory), support[mask], share * weight[mask])
        rows = self._entered(Followed.none())
        for t in range(self.horizon):
            self._occupy(t, frontier, rows)
            frontier = self._step(t, frontier)
            rows = self._entered(self.follow(t, rows))
        self._occupy(self.horizon, frontier, rows)
        tables, graph = self.marginals, self.graph
        ambiguity = self.game.worth.ambiguity * tables.ambiguity
        return Replay(
            Contingency(tuple(first), tuple(graph.controls), tuple(graph.after), tables.sites),
            tables.control,
            tables.policy(),
            tables.state,
            tables.memory,
            tables.observation,
            tables.effort + ambiguity - tables.cost,
            tables.effort,
            ambiguity,
            -self.game.worth.novelty * tables.gain,
        )

    # --- Places ---

    def _place(self, node: Node) -> tuple[Position, int]:
        """The policy's position at a node, and the node's place in the graph."""
        self.search.settle(node)
        return self._completed(node) if node.control == BLINDLY else (node, self._node_place(node, node.control))

    def _node_place(self, node: Node, control: int) -> int:
        return self._known((node.state.number, node.left, node.depth, control), control)

    def _completed(self, node: Node) -> tuple[Position, int]:
        """The position at a node that was not expanded."""
        way = self.search.completion(node).way
        if isinstance(way, Rule):
            return way, self._known((node.state.number, node.left, way), END)
        return (way, self._known(way, way.control)) if isinstance(way, Vector) else self._sequence(way)

    def _sequence(self, controls: tuple[int, ...]) -> tuple[Position, int]:
        return list(controls), self._known(controls, controls[0])

    def _planned(self, plan: Vector, sight: tuple[int, ...]) -> tuple[Position, int]:
        """The position of a plan after an observation."""
        label, *outcomes = sight
        sizes = [table.shape[-1] for table in self.game.layer(plan.left).step.sight]
        ahead = plan.then(label, int(np.ravel_multi_index(outcomes, sizes)) if outcomes else 0)
        if ahead.after is None:
            return self._sequence((ahead.control,) * ahead.left)
        return ahead, self._known(ahead, ahead.control)

    def _known(self, key: Any, control: int) -> int:
        """The place with a name."""
        if key not in self.places:
            self.places[key] = self.graph.place(control)
        return self.places[key]

    def _put(
        self, frontier: dict, place: int, position: Position, memory: int, support: np.ndarray, mass: np.ndarray
    ) -> None:
        if isinstance(position, Rule):
            at, rule, content = (np.full(len(support), value) for value in (place, RULES.index(position), memory))
            self.entering.append(Followed(at, rule, content, support, mass))
        else:
            entry = frontier.setdefault((place, memory), [position, [], []])
            entry[1].append(support)
            entry[2].append(mass)

    def _entered(self, rows: Followed) -> Followed:
        entering, self.entering = self.entering, []
        return rows.joined(entering) if entering else rows

    def _occupy(self, t: int, frontier: dict, rows: Followed) -> None:
        self.marginals.occupy(t, rows.support, rows.mass, rows.memory)
        for (_, memory), (_, supports, masses) in frontier.items():
            self.marginals.occupy(t, np.concatenate(supports), np.concatenate(masses), memory)

    # --- Steps ---

    def _step(self, t: int, frontier: dict) -> dict:
        layer = self.game.plain(self.horizon - t)
        ahead: dict[tuple[int, int], list[Any]] = {}
        informed: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}  # by place, whatever the memory holds
        for (place, memory), (position, supports, masses) in frontier.items():
            support, mass = merge(np.concatenate(supports), np.concatenate(masses))
            control = self.graph.controls[place]
            self.marginals.act(t, layer, support, mass, control, memory)
            arrived, moved = layer.move(support, mass, control)
            self.marginals.observe(t, layer, arrived, moved, control)
            if self.game.worth.novelty and not isinstance(position, list):  # what is done blindly tells nothing
                informed.setdefault(place, []).append((support, mass))
            if self.marginals.num_memories > 1 or (t < self.horizon - 1 and not isinstance(position, list)):
                self._part(t, layer, ahead, (place, memory), position, support, mass)
            else:  # whatever is seen
                then = self._rest(t, place, position)
                self._put(ahead, then[1], then[0], 0, arrived, moved)
        for place, parts in informed.items():
            support, mass = merge(*map(np.concatenate, zip(*parts, strict=True)))
            self.marginals.inform(layer, support, mass, self.graph.controls[place])
        return ahead

    def _rest(self, t: int, place: int, position: Node | Vector | list[int]) -> tuple[Position, int]:
        """The position after a place where observations do not matter."""
        if t == self.horizon - 1 or not isinstance(position, list):
            return [], END
        rest = position[1:]
        self.graph.after[place] = self._known(tuple(rest), rest[0])
        return rest, self.graph.after[place]  # type: ignore[return-value]

    def _part(
        self,
        t: int,
        layer: Branching,
        ahead: dict,
        here: tuple[int, int],
        position: Node | Vector | list[int],
        support: np.ndarray,
        mass: np.ndarray,
    ) -> None:
        """Continue by observation."""
        place, memory = here
        control, after = self.graph.controls[place], self.graph.after
        matters = t < self.horizon - 1 and not isinstance(position, list)
        kids = self._kids(position, control) if matters and isinstance(position, Node) else {}
        if matters and after[place] == END:
            after[place] = {}
        branches = layer.branches(support, mass, control)
        ends = branches.start.tolist()
        for i, prob in enumerate(branches.prob.tolist()):
            members, weight = (column[ends[i] : ends[i + 1]] for column in (branches.support, branches.weight))
            seen = self._seen(layer, int(branches.outcome[i]), int(members[0]), control)
            if matters:
                sight = layer.sight(int(branches.outcome[i]))
                then = self._planned(position, sight) if isinstance(position, Vector) else self._place(kids[sight])
                after[place][seen] = then[1]  # type: ignore[index]
            else:
                then = self._rest(t, place, position)
            contents = self.marginals.next_memories(t, memory, members, control, seen)
            for content in np.unique(contents):
                same = contents == content
                self._put(ahead, then[1], then[0], int(content), members[same], prob * weight[same])

    def _kids(self, node: Node, control: int) -> dict[tuple[int, ...], Node]:
        """The next nodes after a control, by observation."""
        nodes = {kid.state.number: kid for _, kid in node.kids[control]}
        after = self.search.information.after(node.state, node.left, control)
        return {seen: nodes[state.number] for seen, state in after.items()}

    def _seen(self, layer: Branching, code: int, hypothesis: int, control: int) -> tuple[int, ...]:
        """What every site shows in a branch, in which the certain ones show the same for all hypotheses."""
        _, values = layer.outcomes(code)
        certain, uncertain = iter(layer.step.shown[hypothesis, layer.view(control)].tolist()), iter(values)
        return tuple(int(next(certain if is_certain else uncertain)) for is_certain in self.marginals.certain)
