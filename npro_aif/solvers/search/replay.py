"""A policy that a search found, followed forward over the hypotheses themselves: its graph, its marginals, its cost.

Everything is exact and independent of the search's bounds, so that the cost of a replay certifies the upper one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npro_aif.program.signature import Signature
from npro_aif.solvers.search.andor import BLINDLY, AndOrSearch, Node
from npro_aif.solvers.search.branching import Branching, merge
from npro_aif.solvers.search.contingency import END, Contingency
from npro_aif.solvers.search.information import InformationState
from npro_aif.solvers.search.rules import Rule, rule_control
from npro_aif.tables.world import World


class Ruled(NamedTuple):
    """An information state from which a rule is followed."""

    state: InformationState
    left: int
    rule: Rule


Position = Node | Ruled | list[int]  # a node of the search, a state with a rule, or what is left of a control sequence


class Replay(NamedTuple):
    """The marginals of a policy of everything."""

    contingency: Contingency
    control: np.ndarray  # (T, U)
    policy: np.ndarray  # (T, P, U)
    state: np.ndarray  # (T+1, X)
    memory: np.ndarray  # (T+1, M)
    observation: dict[str, np.ndarray]  # by site, (T, Y)
    preference: float  # E[log p̂]
    effort: float  # E[−log p(u|x)]

    @property
    def cost(self) -> float:
        """What the policy costs, F_planning."""
        return self.effort - self.preference


class Replayer:
    """One replay.

    :param world: any parameters of it: what the policy sees and remembers is asked of it.
    """

    def __init__(self, search: AndOrSearch, world: World, horizon: int):
        self.search, self.game, self.world, self.horizon = search, search.game, world, horizon
        self.signature: Signature = world.signature
        kernels = world.observation | world.sensor
        self.sites = tuple(kernels)
        self.certain = [not kernel.learnable for kernel in kernels.values()]
        self.sizes = {site.name: site.size for site in self.signature.observation}
        self.controls: list[int] = []
        self.after: list[Any] = []
        self.places: dict[Any, int] = {}

    def __call__(self, starts: list[tuple[float, Node, int]], support: np.ndarray, weight: np.ndarray) -> Replay:
        """Follow the policy from a belief over hypotheses.

        :param starts: the root with each control that it does, and how probable that is.
        """
        signature, horizon, world = self.signature, self.horizon, self.world
        num_controls, num_rows = world.num_controls, world.loop.num_classes(signature.num_states)
        self.control = np.zeros((horizon, num_controls))
        self.policy = np.zeros((horizon, num_rows, num_controls))
        self.state = np.zeros((horizon + 1, signature.num_states))
        self.memory = np.zeros((horizon + 1, signature.num_memories))
        self.observation = {name: np.zeros((horizon, size)) for name, size in self.sizes.items()}
        self.cost = self.effort = 0.0
        frontier: dict[tuple[int, int], list[Any]] = {}
        contents = self._first_memories(support)
        first = []
        for share, root, control in starts:
            position: Position = root
            if control == BLINDLY:
                position = self._completed(root)
                place = self._place(position)
            else:
                place = self._place(root, control)
            first.append((share, place))
            for memory in np.unique(contents):
                own = contents == memory
                self._put(frontier, place, position, int(memory), support[own], share * weight[own])
        for t in range(horizon):
            frontier = self._step(t, frontier)
        self._occupy(horizon, frontier)
        graph = Contingency(tuple(first), tuple(self.controls), tuple(self.after), self.sites)
        return Replay(
            graph,
            self.control,
            self._policy(),
            self.state,
            self.memory,
            self.observation,
            self.effort - self.cost,
            self.effort,
        )

    # --- Places ---

    def _completed(self, node: Node) -> Position:
        """What is done from a node on that was not looked at."""
        way = self.search.completion(node).way
        return Ruled(node.state, node.left, way) if isinstance(way, Rule) else list(way)

    def _place(self, position: Position, control: int | None = None) -> int:
        """The number of a place in the graph."""
        if isinstance(position, Node) and control is None:
            self.search.settle(position)
            control = position.control
            if control == BLINDLY:
                position = self._completed(position)
        if isinstance(position, list):
            key: Any = tuple(position)
            control = position[0]
        elif isinstance(position, Ruled):
            key = position.state.number, position.left, position.rule
            control = rule_control(self.game, position.state, position.left, position.rule)
        else:
            key = position.state.number, position.left, position.depth, control
        if key not in self.places:
            self.places[key] = len(self.controls)
            self.controls.append(int(control))  # type: ignore[arg-type]
            self.after.append(END)
        return self.places[key]

    @staticmethod
    def _put(
        frontier: dict, place: int, position: Position, memory: int, support: np.ndarray, mass: np.ndarray
    ) -> None:
        entry = frontier.setdefault((place, memory), [position, [], []])
        entry[1].append(support)
        entry[2].append(mass)

    # --- Steps ---

    def _step(self, t: int, frontier: dict) -> dict:
        self._occupy(t, frontier)
        left = self.horizon - t
        layer = self.game.plain(left)
        ahead: dict[tuple[int, int], list[Any]] = {}
        for (place, memory), (position, supports, masses) in frontier.items():
            support, mass = merge(np.concatenate(supports), np.concatenate(masses))
            control = self.controls[place]
            self.control[t, control] += mass.sum()
            x: Any = support % self.game.num_states
            np.add.at(self.policy[t], (np.asarray(self.world.loop.look(x, memory)), control), mass)
            self.cost += float(mass @ layer.step.cost[support, control])
            self.effort += float(mass @ layer.step.effort[support, control])
            arrived, moved = layer.move(support, mass, control)
            self._observe(t, layer, arrived, moved, control)
            self._go_on(t, layer, ahead, place, position, memory, support, mass, arrived, moved)
        return ahead

    def _go_on(
        self,
        t: int,
        layer: Branching,
        ahead: dict,
        place: int,
        position: Position,
        memory: int,
        support: np.ndarray,
        mass: np.ndarray,
        arrived: np.ndarray,
        moved: np.ndarray,
    ) -> None:
        left, control = self.horizon - t, self.controls[place]
        if isinstance(position, Node) and position.stamp == self.search.stamp and position.control == BLINDLY:
            position = self._completed(position)
        rest = position[1:] if isinstance(position, list) else None
        remembers = self.signature.num_memories > 1
        if left == 1 and not remembers:
            self._put(ahead, END, [], 0, arrived, moved)
            return
        if rest is not None and not remembers:
            self.after[place] = self._place(rest)
            self._put(ahead, self.after[place], rest, 0, arrived, moved)
            return
        kids = {} if left == 1 or rest is not None else self._kids(position, control)  # type: ignore[arg-type]
        branches = layer.branches(support, mass, control)
        ends = branches.start.tolist()
        for i, prob in enumerate(branches.prob.tolist()):
            part = slice(ends[i], ends[i + 1])
            own, weight = branches.support[part], branches.weight[part]
            seen = self._seen(layer, int(branches.outcome[i]), int(own[0]), control)
            after: Position = []
            if left == 1:
                then = END
            elif rest is not None:
                then, after = self._place(rest), rest
                self.after[place] = then
            else:
                after = kids[layer.sight(int(branches.outcome[i]))]
                then = self._place(after)
                if self.after[place] == END:
                    self.after[place] = {}
                self.after[place][seen] = then
            contents = self._next_memories(t, memory, own, control, seen)
            for content in np.unique(contents):
                same = contents == content
                self._put(ahead, then, after, int(content), own[same], prob * weight[same])

    def _kids(self, node: Node | Ruled, control: int) -> dict[tuple[int, ...], Any]:
        """Where a control leads, by what is seen."""
        if isinstance(node, Ruled):
            after = self.search.information.follow(node.state, node.left, control)
            return {seen: Ruled(state, node.left - 1, node.rule) for seen, state in after.items()}
        nodes = {kid.state.number: kid for _, kid in node.kids[control]}
        after = self.search.information.after(node.state, node.left, control)
        return {seen: nodes[state.number] for seen, state in after.items()}

    def _seen(self, layer: Branching, code: int, hypothesis: int, control: int) -> tuple[int, ...]:
        """What every site shows in a branch, in which the certain ones show the same for all hypotheses."""
        _, values = layer.outcomes(code)
        shown = layer.step.shown[hypothesis]
        certain = iter(shown[control if len(shown) > 1 else 0].tolist())
        uncertain = iter(values)
        return tuple(int(next(certain if is_certain else uncertain)) for is_certain in self.certain)

    def _observe(self, t: int, layer: Branching, support: np.ndarray, mass: np.ndarray, control: int) -> None:
        step = layer.step
        view = control if step.label.shape[1] > 1 else 0
        certain = uncertain = 0
        for name, is_certain in zip(self.sites, self.certain, strict=True):
            if is_certain:
                shown, certain = step.shown[support, view, certain], certain + 1
                if name in self.sizes:
                    self.observation[name][t] += np.bincount(shown, mass, self.sizes[name])
            else:
                table, uncertain = step.sight[uncertain], uncertain + 1
                if name in self.sizes:
                    self.observation[name][t] += mass @ table[support, view]

    # --- States, memories, the policy of what is seen ---

    def _occupy(self, t: int, frontier: dict) -> None:
        for (_, memory), (_, supports, masses) in frontier.items():
            for support, mass in zip(supports, masses, strict=True):
                np.add.at(self.state[t], support % self.game.num_states, mass)
                self.memory[t, memory] += mass.sum()

    def _first_memories(self, support: np.ndarray) -> np.ndarray:
        x: Any = support % self.game.num_states
        return np.broadcast_to(np.asarray(self.world.loop.first_memory(x)), x.shape)

    def _next_memories(
        self, t: int, memory: int, support: np.ndarray, control: int, seen: tuple[int, ...]
    ) -> np.ndarray:
        x = support % self.game.num_states
        if self.signature.num_memories == 1:
            return np.zeros(len(x), int)
        values: Any = {name: (seen[self.sites.index(name)], size) for name, size in self.sizes.items()}
        content = self.world.loop.at(t).next_memory(np.asarray(memory), x, control, values)  # type: ignore[arg-type]
        return np.broadcast_to(np.asarray(content), x.shape)

    def _policy(self) -> np.ndarray:
        """q(u_t|v,m); the prior where the plan does not come."""
        total = self.policy.sum(-1, keepdims=True)
        control = np.asarray(self.world.control)
        prior = np.stack([np.exp(np.asarray(self.world.loop.prior(row))) for row in control[: self.horizon]])
        return np.where(total > 0, self.policy / np.where(total > 0, total, 1.0), prior)
