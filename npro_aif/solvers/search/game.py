"""A world counted from its end: steps by the number left, over classes of hypotheses, and the perfect-information cost.

    V_0(h) = 0,   V_k(h) = min_u cost_k(h,u) + Σ_h' p(h'|h,u) V_{k-1}(h')

is the cost of k steps for an agent that sees everything, so that Σ_h b(h) V_k(h) bounds the cost at belief b from
below. Nothing here depends on the belief: a game serves all plans with the same last steps, whatever their horizon. A
parameter is added when a belief first holds it possible.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from npro_aif._jax import eval_context
from npro_aif.belief import Belief, is_sparse
from npro_aif.program.program import Program
from npro_aif.sizes import FEW_ROWS, MOST_TAKEN_IN, ROWS_AT_ONCE
from npro_aif.solvers.search.branching import Branching, merge
from npro_aif.solvers.search.classes import names
from npro_aif.solvers.search.growing import Column, Numbering, StepTables, each
from npro_aif.solvers.search.hypotheses import Step, read_steps
from npro_aif.solvers.search.worth import PLANNING, Worth, xlogx
from npro_aif.tables.world import World

EQUAL = 1e-9  # costs that differ by at most this are equal


class Patience(NamedTuple):
    """When waiting, with a control that changes nothing, cannot pay."""

    least: float  # the cost of waiting from which on it cannot, or infinity
    instead: int  # the control that is done at the end in place of it; this one may itself be worth doing for ever


IMPATIENT = Patience(math.inf, -1)


class Game:
    """The steps of a program at one belief and horizon, for the parameters that were needed so far.

    :param marks: by steps left (the last step first), names that tell steps apart; see :mod:`.marks`.
    :param elapsed: the steps that have passed, for a model that asks for them.
    :param worth: the weights of the epistemic priors.
    """

    def __init__(
        self,
        program: Program,
        belief: Belief,
        horizon: int,
        marks: Sequence[bytes],
        elapsed: Any = 0,
        worth: Worth = PLANNING,
    ):
        self.program, self.horizon, self.elapsed, self.worth = program, horizon, elapsed, worth
        self.belief = belief if program.looks_at_numbers else None
        kinds = {mark: kind for kind, mark in enumerate(dict.fromkeys(marks))}
        self.marks = list(marks)
        self.kinds = kinds
        self.times = [horizon - 1 - list(marks).index(mark) for mark in kinds]  # a time at which each kind occurs
        self.num_states = program.signature.num_states
        self.row = np.full(program.signature.num_parameters, -1)  # the row of each parameter; −1 if not added
        self.parameters = np.zeros(0, int)  # the parameter of each row
        self._steps = StepTables()  # over hypotheses (row, x)
        self._class_steps = StepTables()  # over classes
        self._classes = Numbering()
        self._class_of = Column(np.zeros(0, np.int32))
        self.members = np.zeros(0, int)  # one hypothesis of each class
        self.layers: list[Branching] = []  # by kind, over classes
        self.certain_moves = True  # whether every control leads to one state
        self.certain = True  # whether observations are certain too
        self.move_entropy = 0.0  # the largest entropy of a move
        self._values: list[Column] = []  # by steps left, (C,) the perfect-information cost
        self.frame: World  # the world with some parameters, as NumPy tables, for what a policy sees and remembers
        self._whole: World | None = None  # the world with all parameters, if it is not large
        self._patience: dict[int, Patience] = {}  # by steps left
        self._most_waits = np.full(program.signature.num_controls, -math.inf)  # see :meth:`_waits`
        self._waited = 0  # the number of classes that are included in it
        self._plain: dict[int, Branching] = {}

    @property
    def steps(self) -> list[Step]:
        """By kind, over hypotheses."""
        return self._steps.steps

    @property
    def class_of(self) -> np.ndarray:
        """The class of each hypothesis."""
        return self._class_of.rows

    @property
    def names(self) -> np.ndarray:
        """The name of each class."""
        return self._classes.names

    def fits(self, marks: Sequence[bytes]) -> bool:
        """Whether a plan with these steps is one of this game."""
        return all(a == b for a, b in zip(marks, self.marks, strict=False)) and all(m in self.kinds for m in marks)

    def extend(self, marks: Sequence[bytes]) -> None:
        """Extend the game to plans with these steps."""
        self.marks += marks[len(self.marks) :]

    def full(self, belief: Belief) -> bool:
        """Whether there is no room for the parameters that a belief would add."""
        possible = np.asarray(belief.parameter) > 0
        return len(self.class_of) > MOST_TAKEN_IN and bool((self.row[possible] < 0).any())

    def layer(self, left: int) -> Branching:
        """The step with ``left`` steps to go, over classes."""
        return self.layers[self.kinds[self.marks[left - 1]]]

    def plain(self, left: int) -> Branching:
        """The same over hypotheses."""
        kind = self.kinds[self.marks[left - 1]]
        step = self.steps[kind]
        if kind not in self._plain:
            self._plain[kind] = Branching(step)
        elif self._plain[kind].size < len(step.cost):
            self._plain[kind].grow(step)
        return self._plain[kind]

    # --- Beliefs ---

    def hypotheses(self, belief: Belief) -> tuple[np.ndarray, np.ndarray]:
        """The possible hypotheses of a belief, (K,), and their probabilities; their parameters are added."""
        parameter = np.asarray(belief.parameter, np.float64)
        possible = np.flatnonzero(parameter > 0)
        self._require(possible)
        row, x, probs = belief.state.entries(possible) if is_sparse(belief) else _entries(belief.state, possible)
        weight = parameter[possible[row]] * probs
        return self.row[possible[row]] * self.num_states + x, weight / weight.sum()

    def classes(self, support: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A belief over hypotheses as one over their classes."""
        return merge(self.class_of[support], weight)

    # --- Parameters ---

    def _require(self, possible: np.ndarray) -> None:
        """Add the parameters that are missing."""
        fresh = possible[self.row[possible] < 0]
        if not len(fresh):
            return
        together = len(fresh) if self.program.sample is None else ROWS_AT_ONCE
        with eval_context():
            for start in range(0, len(fresh), together):
                self._add(fresh[start : start + together])
        self._finish()

    def _add(self, parameters: np.ndarray) -> None:
        world, rows = self._tables(parameters)
        first = len(self.class_of)
        charge = self.worth.ambiguity
        fresh = _shared([step.charged(charge) for step in read_steps(world, self.times, rows, first)])
        name = names(fresh, self.program.num_steps, first)
        self._steps.add(fresh)
        self.row[parameters] = len(self.parameters) + np.arange(len(parameters))
        self.parameters = np.append(self.parameters, parameters)
        number, member = self._classes(name)
        self._class_of.add(number.astype(np.int32))
        self.members = np.append(self.members, first + member)

    def _tables(self, parameters: np.ndarray) -> tuple[World, np.ndarray]:
        """A world with some parameters, as NumPy tables, and their places in it."""
        if self.program.sample is None:
            if self._whole is None:
                self.frame = self._whole = jax.tree.map(np.asarray, self._any_world())
            return self._whole, parameters
        size = FEW_ROWS if len(parameters) <= FEW_ROWS else ROWS_AT_ONCE  # each compiles once
        padded = np.resize(parameters, size).astype(np.int32)
        world = self.program.world(self.belief, self.horizon, jnp.asarray(padded), elapsed=self.elapsed)
        self.frame = jax.tree.map(np.asarray, world)
        return self.frame, np.arange(len(parameters))

    def _any_world(self) -> World:
        """The world with all parameters; their probabilities do not matter."""
        if self.belief is None and self.horizon == self.program.num_steps and int(self.elapsed) == 0:
            return self.program.example()  # which was evaluated before
        return self.program.world(self.belief, self.horizon, elapsed=self.elapsed)

    def _finish(self) -> None:
        """Add new classes to the tables and to the bound."""
        count = self.layers[0].size if self.layers else 0
        member = self.members[count:]
        fresh = each(lambda table: table[member], self.steps)
        ahead = {id(step.to): self.class_of[step.to] for step in fresh}
        fresh = [step._replace(to=ahead[id(step.to)]) for step in fresh]
        self._class_steps.add(fresh)
        if self.layers:
            for layer, step in zip(self.layers, self._class_steps.steps, strict=True):
                layer.grow(step)
        else:
            self.layers = [Branching(step) for step in self._class_steps.steps]
        self._patience = {}
        self.certain_moves = all(layer.step.chance is None for layer in self.layers)
        self.certain = all(layer.certain for layer in self.layers)
        if self.worth.novelty:
            self.move_entropy = max(self.move_entropy, *(_most_spread(step) for step in fresh))
        for left, column in enumerate(self._values):
            column.add(self._backed(left, slice(count, None)))

    # --- Bounds ---

    def value(self, left: int) -> np.ndarray:
        """V_k, (C,)."""
        while len(self._values) <= left:
            self._values.append(Column(self._backed(len(self._values), slice(None))))
        return self._values[left].rows

    def _backed(self, left: int, classes: slice) -> np.ndarray:
        if left == 0:
            return np.zeros(len(self.members[classes]))
        layer = self.layer(left)
        costs = layer.step.cost[classes] + layer.expected(self.value(left - 1), classes)
        return functools.reduce(np.minimum, costs.T)  # ten times as fast as the minimum over a short last axis

    def floor(self, support: np.ndarray, weight: np.ndarray, left: int) -> float:
        """A bound from below on the cost of a belief: Σ_h b(h) V_k(h), less what information may bring at most."""
        informed = float(weight @ self.value(left)[support])
        return informed - float(self.promise(-xlogx(weight).sum(), left)) if self.worth.novelty else informed

    def promise(self, entropy: Any, left: int) -> Any:
        """What the information of all steps left may bring at most, from beliefs with this entropy (:mod:`.worth`)."""
        return self.worth.novelty * (entropy + left * self.move_entropy) if left else 0.0 * entropy

    def patience(self, left: int) -> Patience:
        """The cost from which on waiting with a control that changes nothing cannot pay, with ``left`` steps to go.

        Instead of waiting and then following a policy, one can follow it at once and do some control e at the end. If
        all steps but the last are of one kind (with costs c, the last with costs c'), this costs
        c'(h',e) − (c'(h,u) − c(h,u)) in place of the cost of waiting, where (h,u) is the policy's last move, to h'. The
        cost is the largest of these over all moves, for the best e. A policy that only waits becomes one that only does
        e, so that e has to stay possible. Where information has a worth, the last move must also tell the same when it
        is made one step earlier.
        """
        if left not in self._patience:
            self._patience[left] = IMPATIENT
            if len({self.kinds[mark] for mark in self.marks[1:left]}) == 1 and self._last_tells_alike():
                waits = self._waits()
                self._patience[left] = Patience(float(waits.min()), int(waits.argmin()))
        return self._patience[left]

    def _last_tells_alike(self) -> bool:
        """Whether moves at the last step tell as much as at the step before, as far as that matters."""
        return not self.worth.novelty or _moves_alike(self.layer(1).step, self.layer(2).step)

    def _waits(self) -> np.ndarray:
        """The most that each control costs at the end in place of waiting, (U,): the maximum over all moves."""
        last, before = (self.layer(steps).step for steps in (1, 2))
        classes, self._waited = slice(self._waited, None), len(last.cost)
        if classes.start < self._waited:
            with np.errstate(invalid="ignore"):
                saved = np.where(np.isfinite(last.cost), last.cost - before.cost, math.inf)[classes]  # (C, U)
            for control in range(last.cost.shape[1]):
                ahead = last.cost[before.to[classes], control]  # (C, U, J)
                if before.chance is not None:
                    ahead = np.where(before.chance[classes] > 0, ahead, -math.inf)
                with np.errstate(invalid="ignore"):
                    more = np.where(np.isposinf(saved), -math.inf, ahead.max(-1) - saved)
                self._most_waits[control] = max(self._most_waits[control], float(more.max()))
        return self._most_waits

    def blind(self, support: np.ndarray, weight: np.ndarray, left: int) -> tuple[float, tuple[int, ...]]:
        """The better of two blind control sequences: its cost, and the sequence.

        One takes the best control on average as if everything became known after it, the other the best control for
        the most probable class.
        """
        likeliest = np.array([int(np.argmax(weight))])
        leads = [(support, weight)]
        if len(support) > 1:
            leads.append((support[likeliest], np.ones(1)))
        return min(self._sequence(support, weight, left, lead) for lead in leads)

    def _sequence(
        self, support: np.ndarray, weight: np.ndarray, left: int, lead: tuple[np.ndarray, np.ndarray]
    ) -> tuple[float, tuple[int, ...]]:
        total, controls = 0.0, []
        is_lead = lead[0] is support
        for steps in range(left, 0, -1):
            layer = self.layer(steps)
            cost = layer.costs(support, weight)
            ahead = lead[1] @ (layer.step.cost[lead[0]] + layer.expected(self.value(steps - 1), lead[0]))
            control = int(np.argmin(np.where(np.isfinite(cost), ahead, math.inf)))
            total += float(cost[control])
            controls.append(control)
            support, weight = layer.move(support, weight, control)
            lead = (support, weight) if is_lead else layer.move(*lead, control)
        return total, tuple(controls)


def _most_spread(step: Step) -> float:
    """The largest entropy of a move."""
    if step.chance is None:
        return 0.0
    return float(-(step.chance * np.log(np.where(step.chance > 0, step.chance, 1.0))).sum(-1).min())


def _entries(table: Any, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The possible entries in some rows of a table p(x|θ); see :meth:`npro_aif.SparseStates.entries`."""
    rows = np.asarray(table)[theta].astype(np.float64)
    row, x = np.nonzero(rows)
    return row, x, rows[row, x]


def _shared(steps: list[Step]) -> list[Step]:
    """The same steps, in which equal moves and sights are the same arrays."""
    result: list[Step] = []
    for step in steps:
        same = next((other for other in result if _moves_alike(step, other)), step)
        effort = same.effort if np.array_equal(same.effort, step.effort) else step.effort
        result.append(same._replace(cost=step.cost, effort=effort))
    return result


def _moves_alike(a: Step, b: Step) -> bool:
    if (a.chance is None) != (b.chance is None):
        return False
    pairs = [(a.to, b.to), (a.label, b.label), *zip(a.sight, b.sight, strict=True)]
    if a.chance is not None:
        pairs.append((a.chance, b.chance))  # type: ignore[arg-type]
    return all(a is b or np.array_equal(a, b) for a, b in pairs)
