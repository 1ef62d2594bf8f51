"""A planner's compiled functions: from a belief to a plan, or to the first control alone.

Beliefs, horizons and keys are arguments, so that one function serves every call with as many parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.language import Belief
from npro_aif.planning.batches import VECTORIZE_BELOW, rows, stack
from npro_aif.planning.limits import check_memory
from npro_aif.planning.plan import Origin, Plan
from npro_aif.planning.support import Sizes, Support, power_of_two, realign
from npro_aif.planning.threads import RUNNING, CompiledOnce
from npro_aif.program.program import Fixed, Program, World
from npro_aif.solvers.base import Problem, Solution
from npro_aif.tables.numerics import is_concrete

if TYPE_CHECKING:
    from npro_aif.planning.planner import Planner


class WarmStart(NamedTuple):
    """Tables of logits to start from, and whether to do so."""

    params: dict[str, Array]
    use: Array  # ()


class Compiled:
    """A planner's compiled functions for one length of the time axis."""

    def __init__(self, planner: Planner, program: Program, num_steps: int):
        self.planner = planner
        self.program = program
        self.num_steps = num_steps
        self.origin = Origin(program, planner.guide, program.signature)
        self.sizes = Sizes(program.signature.num_parameters)
        self.solve = jax.jit(self.plan)
        self.decide = CompiledOnce(jax.jit(self.first_control))
        self.vectorized = jax.jit(jax.vmap(self.plan, (None, 0, 0, None, 0, None)))
        self.vectorized_warm = jax.jit(jax.vmap(self.plan, (None, 0, 0, None, 0, 0)))
        self._blank: dict[int, WarmStart] = {}

    def support(self, belief: Belief) -> Support | None:
        """The parameters that the belief holds possible, where its numbers are known and leaving out others pays."""
        if not is_concrete(belief) or not self.planner.any_horizon():
            return None
        support = self.sizes.support(np.asarray(belief.parameter))
        num_states, item_bytes = self.program.signature.num_states, belief.state.dtype.itemsize
        check_memory(self.size(support), num_states, self.num_steps, item_bytes)
        return support

    def size(self, support: Support | None) -> int:
        return self.program.signature.num_parameters if support is None else support.size

    def plan_group(
        self,
        size: int,
        supports: list[Support | None],
        keys: Array,
        beliefs: Belief,
        warm: Plan | None,
        horizon: int | Array,
    ) -> Plan:
        """Plans from beliefs whose supports have one size, batched."""
        count, fixed = len(supports), self.program.fixed
        starts = [self.warm_start(s, None if warm is None else rows(warm, i)) for i, s in enumerate(supports)]
        beliefs, horizon = typed_arguments(beliefs, horizon)
        if size * self.program.signature.num_states * self.program.signature.num_controls >= VECTORIZE_BELOW:
            return stack(
                [
                    self.solve(fixed, supports[i], Belief(*(t[i] for t in beliefs)), horizon, keys[i], starts[i])
                    for i in range(count)
                ]
            )
        padding = np.minimum(np.arange(power_of_two(count)), count - 1)
        keys, beliefs, support = rows((keys, beliefs, None if supports[0] is None else stack(supports)), padding)
        if warm is None:
            plans = self.vectorized(fixed, support, beliefs, horizon, keys, starts[0])
        else:
            plans = self.vectorized_warm(fixed, support, beliefs, horizon, keys, rows(stack(starts), padding))
        return rows(plans, np.arange(count))

    def plan(
        self, fixed: Fixed, support: Support | None, belief: Belief, horizon: Array, key: Array, start: WarmStart
    ) -> Plan:
        """What is compiled: a plan from a belief, for the parameters of a support (all where there is none)."""
        world, solution = self._solved(fixed, support, belief, horizon, key, start)
        return self.plan_of(world, solution, support, belief)

    def first_control(
        self, fixed: Fixed, support: Support | None, belief: Belief, horizon: Array, key: Array, start: WarmStart
    ) -> Array:
        """q(u_1) of the same plan, (U,)."""
        world, solution = self._solved(fixed, support, belief, horizon, key, start)
        return solution.posterior.first_control(world)

    def _solved(
        self, fixed: Fixed, support: Support | None, belief: Belief, horizon: Array, key: Array, start: WarmStart
    ) -> tuple[World, Solution]:
        theta, valid = (None, None) if support is None else support
        with RUNNING:
            world = self.program.bind(fixed, belief, horizon, theta, valid).routed()
            first = self.planner.guide.first_params(key, world, self.num_steps)
            first = {
                name: jnp.where(start.use, _shift(name, start.params[name]), value) if name in start.params else value
                for name, value in first.items()
            }
            return world, self.solution(world, key, first)

    def solution(self, world: World, key: Array, first: dict[str, Array]) -> Solution:
        """The solver's solution in a world, from the logits ``first`` on."""
        planner = self.planner
        planner.num_traces += 1
        return planner.solver.solve(Problem(world, planner.guide, planner.objective, self.num_steps), key, first)

    def plan_of(self, world: World, solution: Solution, support: Support | None, belief: Belief) -> Plan:
        """The plan that a solution is."""
        every = jnp.arange(self.program.signature.num_parameters)
        theta, valid = support if support is not None else (every, every >= 0)
        marginals = solution.posterior.marginals(world)
        return Plan(
            control=marginals.control,
            policy=marginals.policy,
            state=marginals.state,
            parameter=jnp.zeros(len(every), marginals.parameter.dtype).at[theta].add(marginals.parameter),
            observation=marginals.observation,
            free_energy=solution.free_energy,
            terms=solution.terms,
            info=solution.info,
            params=solution.params,
            belief=belief,
            horizon=world.horizon,
            theta=theta,
            valid=valid,
            origin=self.origin,
        )

    def first(self, fixed: Fixed, belief: Belief, key: Array) -> dict[str, Array]:
        """The first values of the guide's logits, where all parameters are considered."""
        return self.planner.guide.first_params(key, self.program.bind(fixed, belief, self.num_steps), self.num_steps)

    def continued(self, warm: Plan) -> dict[str, Array]:
        """The logits of a plan made one step earlier, where all parameters are considered."""
        return {name: _shift(name, jnp.asarray(table)) for name, table in warm.params.items()}

    def warm_start(self, support: Support | None, warm: Plan | None) -> WarmStart:
        """The tables of an earlier plan; those over other parameters than this one's start at the model."""
        if not self.planner.any_horizon():
            if warm is not None:
                raise ValueError("warm: found a plan to start from, expected None with this guide (use TemporalGuide)")
            return WarmStart({}, jnp.asarray(False))
        size = self.size(support)
        if size not in self._blank:
            self._blank[size] = self._blank_start(size)
        blank = self._blank[size]
        if warm is None:
            return blank
        tables = {name: warm.params.get(name, table) for name, table in blank.params.items()}
        if is_concrete(warm):
            every = jnp.arange(self.program.signature.num_parameters)
            now = Support(every, every >= 0) if support is None else support
            tables = realign(tables, Support(warm.theta, warm.valid), now)
        kept = {name: table for name, table in tables.items() if table.shape == blank.params[name].shape}
        return WarmStart(blank.params | kept, jnp.asarray(True))

    def _blank_start(self, size: int) -> WarmStart:
        """Tables of the right shapes for ``size`` parameters."""

        def params(fixed: Fixed, theta: Array, key: Array) -> dict[str, Array]:
            signature = self.program.signature
            uniform = Belief(
                jnp.full(signature.num_parameters, 1 / signature.num_parameters),
                jnp.full((signature.num_parameters, signature.num_states), 1 / signature.num_states),
            )
            world = self.program.bind(fixed, uniform, self.num_steps, theta)
            return self.planner.guide.first_params(key, world, self.num_steps)

        with jax.core.eval_context():
            shapes = jax.eval_shape(params, self.program.fixed, jnp.zeros(size, jnp.int32), jax.random.key(0))
            return WarmStart({k: jnp.zeros(v.shape, v.dtype) for k, v in shapes.items()}, jnp.asarray(False))


def _shift(name: str, table: Array) -> Array:
    """A table of logits one step later; the last step starts at the model."""
    return table if name == "parameter_logits" else jnp.roll(table, -1, axis=0).at[-1].set(0.0)


def typed(table: Array) -> Array:
    """The same numbers with the type that a plan is compiled for: another (a weak one too) would compile it again."""
    dtype = jnp.result_type(float)
    fits = isinstance(table, Array) and table.dtype == dtype and not table.weak_type
    return table if fits else jnp.asarray(table, dtype)


def typed_arguments(belief: Belief, horizon: int | Array) -> tuple[Belief, Array]:
    steps = jnp.asarray(horizon, jnp.int32) if isinstance(horizon, Array) else np.int32(horizon)
    return Belief(*map(typed, belief)), steps  # type: ignore[return-value]
