"""Perception and planning in one compiled call, for small worlds.

In a large world the parameters that are still possible decide which compiled code plans, so the new belief must be
known first; in a small world a second call would take as long as the computation itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax import Array

from npro_aif.acting.filter import Filter
from npro_aif.belief import Belief
from npro_aif.planning.functions import Functions
from npro_aif.planning.plan import Plan
from npro_aif.program.program import Fixed


class Fused:
    """From a belief, the last control and the observation after it to the next belief and q(u_1), or the whole plan.

    :param functions: a planner's, of a small world (see :func:`npro_aif.planning.ways.choose_way`).
    :param update: the belief update of the same program.
    :param by_cost: return minus the costs of the first controls in place of q(u_1).
    """

    def __init__(self, functions: Functions, update: Filter, *, by_cost: bool = False):
        self.by_cost = by_cost
        self.functions = functions
        self.update = update
        self._call = jax.jit(self._decide, static_argnames="whole")
        self._first = jax.jit(functions.first)
        self._cold: dict[Any, dict[str, Array]] = {}  # first values that were drawn before, by the name of their key

    def __call__(
        self,
        belief: Belief,
        control: int | None,
        observation: int | Mapping[str, int],
        horizon: int,
        key: Array,
        key_name: Any,
        warm: Plan | None,
        *,
        whole: bool,
        elapsed: int = 0,
    ) -> tuple[Belief, Plan | Array] | None:
        """The next belief, and the plan or (if not ``whole``) q(u_1); None if the observation is impossible.

        :param key: for the solver.
        :param key_name: a name that tells this key from others; first values are drawn once for each.
        :param warm: the plan made one step earlier, to start from.
        :param elapsed: the steps that have passed, for a model that asks for them.
        """
        fixed, before = self.functions.program.at(elapsed), np.int32(max(elapsed - 1, 0))
        move, seen = self.update.flat(control, observation)
        if warm is not None:
            first = self.functions.continued(warm)
        elif key_name in self._cold:
            first = self._cold[key_name]
        else:
            first = self._cold[key_name] = self._first(fixed, belief, key)
        belief, possible, result = self._call(
            fixed, before, belief, move, seen, np.int32(horizon), key, first, whole=whole
        )
        return (belief, result) if np.asarray(possible).all() else None

    def _decide(
        self,
        fixed: Fixed,
        before: Array,
        belief: Belief,
        control: Array,
        seen: Array,
        horizon: Array,
        key: Array,
        first: dict[str, Array],
        *,
        whole: bool,
    ) -> tuple[Belief, Array, Plan | Array]:
        belief, possible = self.update.bayes(fixed._replace(elapsed=before), belief, None, control, seen)
        world = self.functions.program.bind(fixed, belief, horizon).routed()
        solved = self.functions.solution(world, key, first, measured=whole)
        if whole:
            return belief, possible, self.functions.plan_of(solved, None, belief, fixed.elapsed)
        if self.by_cost:
            return belief, possible, -self.functions.cost_of(solved)
        return belief, possible, self.functions.control_of(solved)
