"""The compiled functions of a planner for one length of the time axis: from a belief to a plan or its first control.

Beliefs, horizons and keys are arguments, so that one function serves every call with the same number of parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif._jax import eval_context
from npro_aif.belief import Belief
from npro_aif.guides import TableGuide
from npro_aif.inference.objectives import Objective
from npro_aif.numerics import is_concrete
from npro_aif.planning.batches import rows, stack
from npro_aif.planning.memory import Memory, num_flows, plan_memory
from npro_aif.planning.origin import Origin
from npro_aif.planning.plan import Plan
from npro_aif.planning.support import Sizes, Support, check_memory, power_of_two
from npro_aif.planning.threads import CompiledOnce
from npro_aif.planning.warm import WarmStart, later, realign
from npro_aif.planning.ways import Way, choose_way, is_vectorized
from npro_aif.program.program import Fixed, Program
from npro_aif.program.reader import RUNNING
from npro_aif.sizes import MOST_BLANK
from npro_aif.solvers.base import Problem, Solution, Solver, SolverInfo
from npro_aif.solvers.costs import attached_cost, control_cost
from npro_aif.solvers.envelope import (
    Live,
    attached,
    ending,
    free_energy,
    gradient_fault,
    held,
    numbers_of,
    refused,
    with_numbers,
)
from npro_aif.states import SparseStates
from npro_aif.tables.world import World

NO_GRADIENT = (
    "gradient: found a derivative of a plan's posterior, or of a part of its free energy, which it does not have; "
    "expected one of its F, plan.free_energy[-1], or of plan.control_cost"
)


class Solved(NamedTuple):
    """A world and the solution in it."""

    world: World
    held: World  # the same world without derivatives, in which the solution was found
    solution: Solution


class Functions:
    """A planner's compiled functions.

    :param num_steps: the length of the time axis.
    """

    def __init__(self, program: Program, guide: TableGuide, objective: Objective, solver: Solver, num_steps: int):
        self.program, self.guide, self.objective, self.solver = program, guide, objective, solver
        self.num_steps = num_steps
        self.num_traces = 0  # how often planning code was traced: once for each shape
        with eval_context():
            world = program.example()
            guide.check(world, num_steps)
            solver.check(Problem(world, guide, objective, num_steps))
            self.tables = guide.tables(world, num_steps)  # what each parameter stands for
        self.origin = Origin(program, guide, objective)
        self.sizes = Sizes(program.signature.num_parameters)
        self.solve: Callable[..., Plan] = jax.jit(self.plan)
        self.decide: Callable[..., tuple[Array, SolverInfo]] = CompiledOnce(jax.jit(self.first_control))
        self.cost: Callable[..., tuple[Array, SolverInfo]] = CompiledOnce(jax.jit(self.first_cost))
        self.vectorized = jax.jit(jax.vmap(self.plan, (None, 0, 0, None, 0, None)))
        self.vectorized_warm = jax.jit(jax.vmap(self.plan, (None, 0, 0, None, 0, 0)))
        self._blank: dict[int, WarmStart] = {}

    # --- Before anything is computed ---

    def support(self, belief: Belief) -> Support | None:
        """The possible parameters if the belief has numbers and leaving out the others pays; None otherwise."""
        if not is_concrete(belief) or not self.guide.any_horizon:
            return None
        support = self.sizes.support(np.asarray(belief.parameter))
        _, num_states, _ = self.shape(support)
        item_bytes = belief.state.dtype.itemsize
        check_memory(self.size(support), num_states, self.num_steps, item_bytes)
        return support

    def memory(self, belief: Belief) -> Memory:
        """The bytes that a plan from a belief takes."""
        size = self.size(self.sizes.support(np.asarray(belief.parameter)))

        def world(fixed: Fixed, theta: Array) -> World:
            return self.program.bind(fixed, None, self.num_steps, theta)._replace(sensor={})

        with eval_context():
            shapes = jax.eval_shape(world, self.program.fixed, jnp.zeros(size, jnp.int32))
        flows = num_flows(self.solver, self.objective)
        return plan_memory(shapes, self.program.signature, size, self.num_steps, flows)

    def size(self, support: Support | None) -> int:
        """The number of parameters in a plan with this support."""
        return self.program.signature.num_parameters if support is None else support.size

    def shape(self, support: Support | None) -> tuple[int, int, int]:
        """The shape of a (θ, x, u) table with these parameters."""
        signature = self.program.signature
        return self.size(support), signature.num_states * signature.num_memories, signature.num_controls

    def way(self, supports: Sequence[Support | None], *, fusable: bool = False) -> Way:
        """The way to compute decisions with these supports."""
        largest = max(supports, key=self.size)
        quick = getattr(self.solver, "quick", False)
        return choose_way(*self.shape(largest), len(supports), quick=quick, fusable=fusable and self.fusable)

    @property
    def fusable(self) -> bool:
        """Whether the code is the same for every belief and horizon, so that a belief update can go into it."""
        everything = self.program.sample is None and self.sizes.nothing_left_out
        return everything and self.guide.any_horizon

    # --- What is compiled ---

    def plan(
        self, fixed: Fixed, support: Support | None, belief: Belief, horizon: Array, key: Array, start: WarmStart
    ) -> Plan:
        """A plan from a belief, for the parameters of a support (all parameters if it is None)."""
        solved = self._solved(fixed, support, belief, horizon, key, start)
        return self.plan_of(solved, support, belief, fixed.elapsed)

    def first_control(
        self, fixed: Fixed, support: Support | None, belief: Belief, horizon: Array, key: Array, start: WarmStart
    ) -> tuple[Array, SolverInfo]:
        """q(u_1) of the same plan, (U,), and the solver's report."""
        solved = self._solved(fixed, support, belief, horizon, key, start, measured=False)
        return self.control_of(solved), solved.solution.info

    def first_cost(
        self, fixed: Fixed, support: Support | None, belief: Belief, horizon: Array, key: Array, start: WarmStart
    ) -> tuple[Array, SolverInfo]:
        """The cost of each first control of the same plan, (U,), and the solver's report."""
        solved = self._solved(fixed, support, belief, horizon, key, start, measured=False)
        return self.cost_of(solved), solved.solution.info

    def control_of(self, solved: Solved) -> Array:
        """q(u_1) of a solution, (U,)."""
        control = solved.solution.posterior.first_control(solved.held)
        return refused(NO_GRADIENT, control, self._live(solved.world))

    def cost_of(self, solved: Solved) -> Array:
        """The cost of each first control of a solution, (U,)."""
        world, frozen, solution = solved
        if not hasattr(solution.posterior, "slice"):
            raise ValueError(
                f"act_by: found 'cost' with a {type(solution.posterior).__name__}, expected plans of a TemporalGuide"
            )
        value = control_cost(frozen, self._held_objective(), solution.posterior)  # type: ignore[arg-type]
        return attached_cost(value, world, self.objective, self.guide, solution.params, self.num_steps)

    def _live(self, world: World) -> Live:
        """The world's tables and numbers of the objective with respect to which a plan may be differentiated."""
        return world, numbers_of(self.objective)

    def _held_objective(self) -> Objective:
        return with_numbers(self.objective, held(numbers_of(self.objective)))

    def _free_energy(self, world: World, solution: Solution) -> Array:
        """The history of F, whose last value has its derivative."""
        live, fault = self._live(world), gradient_fault(self.objective, self.guide, world)
        if fault is not None:
            return refused(fault, solution.free_energy, live)

        def value(params: Any, live: Live) -> Array:
            world, numbers = live
            posterior = self.guide.posterior(world, params, self.num_steps)
            return free_energy(with_numbers(self.objective, numbers), world, posterior)

        last = attached(value, solution.free_energy[-1], solution.params, live)
        return ending(solution.free_energy, last)

    def _solved(
        self,
        fixed: Fixed,
        support: Support | None,
        belief: Belief,
        horizon: Array,
        key: Array,
        start: WarmStart,
        *,
        measured: bool = True,
    ) -> Solved:
        theta, valid = (None, None) if support is None else support
        with RUNNING:
            world = self.program.bind(fixed, belief, horizon, theta, valid).routed()
            first = start.over(self.guide.first_params(key, world, self.num_steps), self.tables)
            return self.solution(world, key, first, measured=measured)

    def solution(self, world: World, key: Array, first: dict[str, Array], *, measured: bool = True) -> Solved:
        """The solver's solution in a world, starting from the guide's parameters ``first``; without derivatives.

        :param measured: whether F and its terms are asked for: a first control needs neither.
        """
        self.num_traces += 1
        problem = Problem(held(world), self.guide, self._held_objective(), self.num_steps, measured)
        return Solved(world, problem.world, self.solver.solve(problem, key, held(first)))

    def plan_of(self, solved: Solved, support: Support | None, belief: Belief, elapsed: Array) -> Plan:
        """The plan of a solution."""
        world, frozen, solution = solved
        every = jnp.arange(self.program.signature.num_parameters)
        theta, valid = support if support is not None else (every, every >= 0)
        flow = () if solution.mass is None else (solution.mass,)
        marginals = solution.posterior.marginals(frozen, *flow)
        marginals, terms = refused(NO_GRADIENT, (marginals, solution.terms), self._live(world))
        return Plan(
            control=marginals.control,
            policy=marginals.policy,
            state=marginals.state,
            parameter=jnp.zeros(len(every), marginals.parameter.dtype).at[theta].add(marginals.parameter),
            observation=marginals.observation,
            memory=marginals.memory,
            free_energy=self._free_energy(world, solution),
            terms=terms,
            info=solution.info,
            params=solution.params,
            belief=belief,
            horizon=world.horizon,
            theta=theta,
            valid=valid,
            origin=self.origin,
            elapsed=jnp.asarray(elapsed),
        )

    # --- Many at once ---

    def check_batch(self, warm: Plan | None, count: int) -> None:
        """Refuse plans to start from that are not one for each of ``count`` beliefs."""
        if warm is not None and (warm.control.ndim != 3 or len(warm.control) != count):
            raise ValueError(
                f"warm: found a plan whose control has shape {warm.control.shape}, expected ({count}, T, U): the plans "
                "that batch returned for these beliefs one step earlier"
            )

    def plan_group(
        self,
        supports: list[Support | None],
        keys: Array,
        beliefs: Belief,
        warm: Plan | None,
        horizon: int | Array,
        elapsed: int | Array = 0,
    ) -> Plan:
        """Batched plans from beliefs with supports of one size: small plans together, large ones one by one."""
        count, fixed = len(supports), self.program.at(elapsed)
        starts = [self.warm_start(s, None if warm is None else rows(warm, i)) for i, s in enumerate(supports)]
        beliefs, horizon = typed_arguments(beliefs, horizon)
        if not is_vectorized(*self.shape(supports[0])):
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

    # --- Where it starts ---

    def first(self, fixed: Fixed, belief: Belief, key: Array) -> dict[str, Array]:
        """The first values of the guide's parameters, if all θ are considered."""
        return self.guide.first_params(key, self.program.bind(fixed, belief, self.num_steps), self.num_steps)

    def continued(self, warm: Plan) -> dict[str, Array]:
        """The guide's parameters from a plan made one step earlier, if all θ are considered."""
        return {
            name: later(jnp.asarray(warm.params[name]), table) if name in warm.params else jnp.zeros(table.shape)
            for name, table in self.tables.items()
        }

    def warm_start(self, support: Support | None, warm: Plan | None) -> WarmStart:
        """The tables of an earlier plan; rows of parameters that it did not consider start at the model."""
        if not self.guide.any_horizon:
            if warm is not None:
                raise ValueError("warm: found a plan to start from, expected None with this guide (use TemporalGuide)")
            return WarmStart({}, jnp.asarray(False))
        size = self.size(support)
        if size not in self._blank:
            self._blank[size] = self._blank_start(size)
        blank = self._blank[size]
        if warm is None:
            return blank if is_handed_over(blank.params) else WarmStart({}, blank.use)
        params = {name: warm.params.get(name, values) for name, values in blank.params.items()}
        if is_concrete(warm):
            every = jnp.arange(self.program.signature.num_parameters)
            now = Support(every, every >= 0) if support is None else support
            params = realign(params, self.tables, Support(warm.theta, warm.valid), now)
        fitting = {name: values for name, values in params.items() if values.shape == blank.params[name].shape}
        return WarmStart(blank.params | fitting, jnp.asarray(True))

    def _blank_start(self, size: int) -> WarmStart:
        """Tables of the right shapes for ``size`` parameters, made from the example, whose other axes are the same."""

        def params(key: Array) -> dict[str, Array]:
            return {
                name: table.initial(key, table.shape_for(size))
                for name, table in self.guide.start.of(self.tables).items()
            }

        with eval_context():
            shapes = jax.eval_shape(params, jax.random.key(0))
            zeros: Any = jnp.zeros if is_handed_over(shapes) else lambda *a: np.broadcast_to(np.zeros((), a[1]), a[0])
            return WarmStart({k: zeros(v.shape, v.dtype) for k, v in shapes.items()}, jnp.asarray(False))


def is_handed_over(params: Mapping[str, Any]) -> bool:
    """Whether a plan without a warm start is given zeros for one, so that the same compiled code serves both cases."""
    return sum(math.prod(table.shape) for table in params.values()) <= MOST_BLANK


def typed(table: Array) -> Array:
    """The same numbers with the type that plans are compiled for; other types, weak ones too, would compile again."""
    dtype = jnp.result_type(float)
    if isinstance(table, SparseStates):
        return table if table.dtype == dtype else table.astype(dtype)
    fits = isinstance(table, Array) and table.dtype == dtype and not table.weak_type
    return table if fits else jnp.asarray(table, dtype)


def typed_arguments(belief: Belief, horizon: int | Array) -> tuple[Belief, Array]:
    """A belief and a horizon with the types that plans are compiled for."""
    steps = jnp.asarray(horizon, jnp.int32) if isinstance(horizon, Array) else np.int32(horizon)
    return Belief(*map(typed, belief)), steps  # type: ignore[return-value]
