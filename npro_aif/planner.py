"""The planner: a model, a guide, an objective and a solver, compiled once and called with beliefs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from npro_aif.checks import check_belief
from npro_aif.generic import GenericGuide
from npro_aif.guides import SequenceGuide, TableGuide, TemporalGuide
from npro_aif.language import Belief, check_horizon
from npro_aif.numerics import is_concrete
from npro_aif.objectives import Active, Objective
from npro_aif.plan import Origin, Plan
from npro_aif.solvers.base import Problem
from npro_aif.solvers.svi import SVISolver
from npro_aif.world import Fixed, Program, program_of

PRUNE_FROM = 8  # with fewer parameters there is nothing to gain from leaving some out


class Support(NamedTuple):
    """The parameters that a plan considers, padded to a power of two."""

    theta: Array  # (K,) flat indices
    valid: Array  # (K,) False for padding


class Planner:
    """Plans from beliefs: ``plan = planner(rng_key, belief, horizon=…)``.

    :param model: a program ``model(belief, horizon=…)``.
    :param guide: a :class:`TemporalGuide` (the default), a :class:`SequenceGuide`, or any NumPyro guide.
    :param objective: :class:`Active` by default.
    :param solver: :class:`SVISolver` with Adam by default.
    :param max_horizon: the largest horizon; by default the first call's. With a temporal guide every horizon up to
        it runs the same compiled code; the other guides compile once for each horizon.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        guide: TableGuide | Callable[..., Any] | None = None,
        objective: Objective | None = None,
        solver: Any = None,
        max_horizon: int | None = None,
    ):
        if max_horizon is not None:
            check_horizon(max_horizon)
        guide = TemporalGuide(model) if guide is None else guide
        self.model = model
        self.guide = guide if isinstance(guide, TableGuide) else GenericGuide(model, guide)
        self.objective = Active() if objective is None else objective
        self.solver = SVISolver(optax.adam(0.05)) if solver is None else solver
        self.max_horizon = max_horizon
        self.num_traces = 0  # how often planning code was traced: once for each shape
        self._solvers: dict[int, tuple[Program, Callable[..., Plan]]] = {}

    def __call__(
        self, rng_key: Array, belief: Belief, horizon: int | Array | None = None, warm: Plan | None = None
    ) -> Plan:
        """Plan from a belief.

        :param horizon: how many steps to look ahead, at most ``max_horizon``.
        :param warm: a plan of the same planner to start from.
        """
        horizon = self._horizon(horizon)
        program, solve = self._compiled(belief, horizon)
        check_belief(belief, program.signature)
        support = self._support(program, belief)
        params = None if warm is None else warm.params
        plan = solve(program.fixed, support, belief, jnp.asarray(horizon), rng_key, params)
        return trim(plan, horizon) if is_concrete(horizon) else plan

    def program(self, belief: Belief, horizon: int | None = None) -> Program:
        """The compiled program behind the plans."""
        return self._compiled(belief, self._horizon(horizon))[0]

    def _horizon(self, horizon: int | Array | None) -> int | Array:
        if horizon is None:
            default = inspect.signature(self.model).parameters.get("horizon")
            horizon = self.max_horizon or (default.default if default is not None else None)
            if not isinstance(horizon, int):
                raise ValueError("horizon: found None, expected a number of steps (the model declares no default)")
        check_horizon(horizon)
        if self.max_horizon is None and is_concrete(horizon):
            self.max_horizon = int(horizon)
        if is_concrete(horizon) and self._any_horizon() and int(horizon) > self._max():
            raise ValueError(f"horizon: found {horizon}, expected at most max_horizon={self.max_horizon}")
        return horizon

    def _max(self) -> int:
        if self.max_horizon is None:
            raise ValueError("max_horizon: found None with a traced horizon, expected a number of steps")
        return self.max_horizon

    def _any_horizon(self) -> bool:
        """Whether one compiled function serves every horizon."""
        return isinstance(self.guide, TemporalGuide)

    def _compiled(self, belief: Belief, horizon: int | Array) -> tuple[Program, Callable[..., Plan]]:
        if not self._any_horizon() and not is_concrete(horizon):
            raise ValueError("horizon: found a traced value, expected a Python int with this guide")
        num_steps = self._max() if self._any_horizon() else int(horizon)
        if num_steps not in self._solvers:
            program = program_of(self.model, belief, num_steps)
            with jax.core.eval_context():
                uniform = jax.tree.map(lambda a: np.full(np.shape(a), 1 / np.shape(a)[-1]), belief)
                world = program.world(uniform, num_steps)
                problem = Problem(world, self.guide, self.objective, num_steps)
                self.guide.check(world, num_steps)
                self.solver.check(problem)
            self._solvers[num_steps] = program, jax.jit(self._solver(program, num_steps))
        return self._solvers[num_steps]

    def _solver(self, program: Program, num_steps: int) -> Callable[..., Plan]:
        origin = Origin(program, self.guide, program.signature)

        def solve(
            fixed: Fixed, support: Support | None, belief: Belief, horizon: Array, key: Array, warm: Any
        ) -> Plan:
            self.num_traces += 1
            every = jnp.arange(program.signature.num_parameters)
            theta, valid = support if support is not None else (every, every >= 0)
            world = program.bind(fixed, belief, horizon, None if support is None else theta, valid)
            problem = Problem(world, self.guide, self.objective, num_steps)
            solution = self.solver.solve(problem, key, warm)
            marginals = solution.factors.marginals(world)
            parameter = jnp.zeros(len(every), marginals.parameter.dtype).at[theta].add(marginals.parameter)
            return Plan(
                control=marginals.control,
                policy=marginals.policy,
                state=marginals.state,
                parameter=parameter,
                observation=marginals.observation,
                free_energy=solution.free_energy,
                terms=self.objective.terms(world, solution.factors),
                info=solution.info,
                params=solution.params,
                belief=belief,
                horizon=horizon,
                theta=theta,
                valid=valid,
                origin=origin,
            )

        return solve

    def _support(self, program: Program, belief: Belief) -> Support | None:
        """The parameters that the belief holds possible, where leaving out the others pays."""
        total = program.signature.num_parameters
        if total < PRUNE_FROM or not is_concrete(belief) or isinstance(self.guide, SequenceGuide):
            return None
        possible = np.flatnonzero(np.asarray(belief.parameter) > 0)
        size = 1 << int(len(possible) - 1).bit_length()
        if size >= total:
            return None
        theta = np.full(size, possible[0], np.int32)
        theta[: len(possible)] = possible
        return Support(jnp.asarray(theta), jnp.arange(size) < len(possible))


def trim(plan: Plan, horizon: int | Array) -> Plan:
    """Leave out the rows beyond the horizon."""
    steps = int(horizon)
    if plan.control.shape[0] == steps:
        return plan
    return plan._replace(
        control=plan.control[:steps],
        policy=plan.policy[:steps],
        state=plan.state[: steps + 1],
        observation={name: table[:steps] for name, table in plan.observation.items()},
    )
