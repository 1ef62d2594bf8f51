"""From observations to the next controls: one function serves one agent at one step and many in lockstep.

Equal beliefs with equal observations are updated once, and equal problems are solved once;
:mod:`npro_aif.planning.ways` decides how the remaining ones are solved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.acting.filter import Filter
from npro_aif.acting.fused import Fused
from npro_aif.acting.solutions import Solutions, Solved, fingerprint
from npro_aif.belief import Belief, is_sparse
from npro_aif.planning.batches import rows
from npro_aif.planning.plan import Plan, trim
from npro_aif.planning.planner import Planner
from npro_aif.planning.threads import on_all_cores
from npro_aif.planning.ways import Way

Observation = int | Mapping[str, int] | None  # None: nothing was observed


class Situation(NamedTuple):
    """What a decision depends on: the belief before the last control, that control, and the observation after it."""

    belief: Belief
    control: int | None  # the last control, flat; None before the first
    observation: Any  # what was observed, by site or as an index; None for nothing
    plan: Plan | None  # the plan made one step earlier, to start from


class Decision(NamedTuple):
    """A decision: the updated belief, and the scores of the controls."""

    belief: Belief  # after the observation
    control: np.ndarray  # (U,) q(u_1), or minus the cost of each control
    plan: Plan | None  # the whole plan, where it was asked for


class Decider:
    """Decisions with one planner.

    :param planner: an :class:`npro_aif.Planner`.
    :param belief: any belief of the model.
    :param horizon: the most steps to look ahead.
    :param ignore_impossible: leave out observations that the model thinks impossible, instead of raising.
    :param by_cost: score controls by their costs, not by q(u_1).
    """

    def __init__(
        self, planner: Planner, belief: Belief, horizon: int | None, *, ignore_impossible: bool, by_cost: bool = False
    ):
        self.planner, self.horizon, self.ignore_impossible = planner, horizon, ignore_impossible
        self.by_cost = by_cost
        self._elapsed = 0  # the number of steps that have passed, for a model that asks for it
        functions = planner.functions_for(belief, horizon)
        self.filter = Filter(functions.program, mesh=planner.mesh)
        self.fused: Fused | None = None
        if functions.fusable and not is_sparse(belief) and planner.way([belief], horizon, fusable=True) is Way.FUSED:
            self.fused = Fused(functions, self.filter, by_cost=by_cost)

    def __call__(
        self,
        situations: Sequence[Situation],
        horizon: int,
        seed: int,
        step: int,
        key: Array,
        *,
        whole: bool,
        solutions: Solutions | None = None,
    ) -> list[Decision]:
        """The decisions of agents that are all at one step.

        :param horizon: how many steps to look ahead.
        :param seed: the solver's key is made of ``seed`` and ``step``.
        :param whole: return whole plans, not only q(u_1).
        :param solutions: problems solved before; new ones are added.
        """
        self._elapsed = step if self.filter.program.takes_elapsed else 0
        if self.fused is not None and len(situations) == 1 and solutions is None:
            decision = self._fused(situations[0], horizon, key, (seed, step), whole=whole)
            if decision is not None:
                return [decision]
        beliefs = self._perceive(situations, step)
        if whole:
            return self._plans(situations, beliefs, horizon, key, solutions)
        names = {id(belief): fingerprint(belief, horizon, seed, step) for belief in beliefs}
        solutions = Solutions() if solutions is None else solutions
        fresh = {names[id(b)]: b for b in beliefs if names[id(b)] not in solutions}
        if fresh:
            with solutions.clock():
                solved, seconds = self._controls(list(fresh.values()), horizon, key)
            solutions.add(dict(zip(fresh, solved, strict=True)), seconds)
        solutions.decisions += len(situations)
        return [Decision(belief, solutions[names[id(belief)]], None) for belief in beliefs]

    def _fused(
        self, now: Situation, horizon: int, key: Array, key_name: tuple[int, int], *, whole: bool
    ) -> Decision | None:
        """Update the belief and plan in one call; None if the observation is impossible, which the filter reports."""
        result = self.fused(  # type: ignore[misc]
            now.belief,
            now.control,
            now.observation,
            horizon,
            key,
            key_name,
            now.plan,
            whole=whole,
            elapsed=self._elapsed,
        )
        if result is None:
            return None
        belief, scores_or_plan = result
        if not whole:
            return Decision(belief, np.asarray(scores_or_plan), None)
        plan: Any = scores_or_plan
        return Decision(belief, self._scores(plan), trim(plan, horizon))

    def _scores(self, plan: Plan) -> np.ndarray:
        """The scores of a plan's first controls, (U,)."""
        return -np.asarray(plan.control_cost) if self.by_cost else np.asarray(plan.control)[0]

    def _perceive(self, situations: Sequence[Situation], step: int) -> list[Belief]:
        """The next beliefs; equal beliefs with equal observations share one object."""
        updated: dict[Any, Belief] = {}
        beliefs = []
        for now in situations:
            seen = tuple(sorted(now.observation.items())) if hasattr(now.observation, "items") else now.observation
            case = id(now.belief), now.control, seen
            if case not in updated:
                updated[case] = self.filter(
                    now.belief,
                    now.control,
                    now.observation,
                    ignore_impossible=self.ignore_impossible,
                    step=step,
                    elapsed=max(self._elapsed - 1, 0),
                )
            beliefs.append(updated[case])
        return beliefs

    def _controls(self, beliefs: Sequence[Belief], horizon: int, key: Array) -> tuple[list[Solved], float]:
        """q(u_1) from each of the beliefs, and the sum of the seconds that each took."""
        if self._way(beliefs) is Way.TOGETHER and not self.by_cost:
            plans, seconds = self._together(beliefs, horizon, key)
            columns = np.asarray(plans.control)[:, 0], np.asarray(plans.info.iterations), plans.info.converged
            return [Solved(row, int(i), bool(c)) for row, i, c in zip(*columns, strict=True)], seconds

        def solve(belief: Belief) -> Solved:
            scores, info = self.planner.first_scores(key, belief, horizon, by_cost=self.by_cost, elapsed=self._elapsed)
            sign = -1 if self.by_cost else 1
            return Solved(sign * np.asarray(scores), int(info.iterations), bool(info.converged))

        return self._each(solve, beliefs, beliefs)

    def _plans(
        self,
        situations: Sequence[Situation],
        beliefs: Sequence[Belief],
        horizon: int,
        key: Array,
        solutions: Solutions | None,
    ) -> list[Decision]:
        """Whole plans, each started from the one before it where there is one; equal problems are solved once."""
        problems = {(id(b), id(now.plan)): (b, now.plan) for now, b in zip(situations, beliefs, strict=True)}

        def solve(problem: tuple[Belief, Plan | None]) -> tuple[Plan, np.ndarray | None]:
            belief, warm = problem
            plan = jax.block_until_ready(self.planner(key, belief, horizon, warm, elapsed=self._elapsed))
            if not self.by_cost or self.planner.mesh is None:
                return plan, None
            return plan, self._costs(belief, horizon, key, warm)  # no process has the tables of such a plan

        solutions = Solutions() if solutions is None else solutions
        fresh = list(problems.values())
        with solutions.clock():
            if all(plan is None for _, plan in fresh) and self._way([b for b, _ in fresh]) is Way.TOGETHER:
                batch, seconds = self._together([b for b, _ in fresh], horizon, key)
                solved: list[Any] = [(rows(batch, i), None) for i in range(len(fresh))]
            else:
                solved, seconds = self._each(solve, fresh, [b for b, _ in fresh])
        solutions.count_last(len(solved), seconds)
        solutions.note([(int(plan.info.iterations), bool(plan.info.converged)) for plan, _ in solved])
        solutions.decisions += len(situations)
        plan_of = dict(zip(problems, solved, strict=True))
        return [
            Decision(belief, self._scores(plan) if scores is None else scores, plan)
            for now, belief in zip(situations, beliefs, strict=True)
            for plan, scores in [plan_of[id(belief), id(now.plan)]]
        ]

    def _costs(self, belief: Belief, horizon: int, key: Array, warm: Plan | None) -> np.ndarray:
        """Minus the cost of each first control, (U,), without a plan's tables."""
        costs, _ = self.planner.first_scores(key, belief, horizon, by_cost=True, warm=warm, elapsed=self._elapsed)
        return -np.asarray(costs)

    def _way(self, beliefs: Sequence[Belief]) -> Way:
        return self.planner.way(beliefs, self.horizon)

    def _together(self, beliefs: Sequence[Belief], horizon: int, key: Array) -> tuple[Plan, float]:
        """One batch of plans, and the seconds that it took."""
        start = time.perf_counter()
        stacked = Belief(*(np.stack(list(map(np.asarray, tables))) for tables in zip(*beliefs, strict=True)))
        plans = jax.block_until_ready(
            self.planner.batch(jnp.stack([key] * len(beliefs)), stacked, horizon, elapsed=self._elapsed)
        )
        return plans, time.perf_counter() - start

    def _each(
        self, solve: Callable[[Any], Any], problems: Sequence[Any], beliefs: Sequence[Belief]
    ) -> tuple[list[Any], float]:
        """Solve the problems one after the other or on all cores; the results, and their seconds added up."""

        def timed(problem: Any) -> tuple[Any, float]:
            start = time.perf_counter()
            return solve(problem), time.perf_counter() - start

        threads = self._way(beliefs) is Way.THREADS
        results = on_all_cores(timed, problems) if threads else [timed(problem) for problem in problems]
        return [result for result, _ in results], sum(seconds for _, seconds in results)
