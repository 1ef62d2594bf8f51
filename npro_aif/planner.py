"""The planner: a model, a guide, an objective and a solver, compiled once and called with beliefs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from npro_aif.batches import VECTORIZE_BELOW, join, rows, stack
from npro_aif.checks import check_belief, check_beliefs, check_type
from npro_aif.generic import GenericGuide
from npro_aif.guides import TableGuide, TemporalGuide
from npro_aif.language import Belief, check_horizon, default_horizon
from npro_aif.limits import check_memory, thin
from npro_aif.numerics import is_concrete
from npro_aif.objectives import Active, Objective
from npro_aif.plan import Origin, Plan
from npro_aif.solvers.base import Problem, Solution
from npro_aif.solvers.svi import SVISolver
from npro_aif.support import Sizes, Support, power_of_two, realign
from npro_aif.threads import RUNNING, CompiledOnce
from npro_aif.world import Fixed, Program, World, program_of


class Planner:
    """Plans from beliefs: ``plan = planner(rng_key, belief, horizon=…)``.

    :param model: a program ``model(belief, horizon=…)``.
    :param guide: a :class:`TemporalGuide` (the default), a :class:`SequenceGuide`, or any NumPyro guide.
    :param objective: :class:`Active` by default.
    :param solver: :class:`SVISolver` with Adam by default.
    :param max_horizon: the largest horizon; by default the first call's. With a temporal guide every horizon up to
        it runs the same compiled code; the other guides compile once for each horizon.
    :param max_parameters: plan with at most so many of the parameters that a belief holds possible, drawn by their
        probabilities (see :func:`npro_aif.limits.thin`); with all of them by default, which in a large world can be
        too many. The plan's ``belief`` is the one that was planned with.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        guide: TableGuide | Callable[..., Any] | None = None,
        objective: Objective | None = None,
        solver: Any = None,
        max_horizon: int | None = None,
        max_parameters: int | None = None,
    ):
        if max_horizon is not None:
            check_horizon(max_horizon, "max_horizon")
        if max_parameters is not None and max_parameters < 1:
            raise ValueError(f"max_parameters: found {max_parameters}, expected at least 1")
        _check_arguments(guide, objective, solver)
        guide = TemporalGuide(model) if guide is None else guide
        self.model = model
        self.guide = guide if isinstance(guide, TableGuide) else GenericGuide(model, guide)
        self.objective = Active() if objective is None else objective
        self.solver = SVISolver(optax.adam(0.05)) if solver is None else solver
        self.max_horizon = max_horizon
        self.max_parameters = max_parameters
        self.num_traces = 0  # how often planning code was traced: once for each shape
        self._solvers: dict[tuple[int, str], Compiled] = {}

    def __call__(
        self, rng_key: Array, belief: Belief, horizon: int | Array | None = None, warm: Plan | None = None
    ) -> Plan:
        """Plan from a belief.

        :param horizon: how many steps to look ahead, at most ``max_horizon``.
        :param warm: the plan made one step earlier; its posterior, shifted by one step, is where the solver starts.
        """
        plan = self.solve(rng_key, belief, horizon, warm)
        return trim(plan, plan.horizon) if is_concrete(plan.horizon) else plan

    def solve(
        self, rng_key: Array, belief: Belief, horizon: int | Array | None = None, warm: Plan | None = None
    ) -> Plan:
        """As a call, but the plan's arrays keep the length of ``max_horizon``, whatever the horizon."""
        compiled, arguments = self._arguments(rng_key, belief, horizon, warm)
        return compiled.solve(*arguments)

    def first_control(self, rng_key: Array, belief: Belief, horizon: int | Array | None = None) -> Array:
        """q(u_1) of the plan, (U,): all that acting needs, in less time than a plan with its marginals."""
        compiled, arguments = self._arguments(rng_key, belief, horizon, None)
        return compiled.decide(compiled.size(arguments[1]), *arguments)

    def _arguments(
        self, rng_key: Array, belief: Belief, horizon: int | Array | None, warm: Plan | None
    ) -> tuple[Compiled, tuple[Any, ...]]:
        """The compiled functions for a problem, and their arguments."""
        horizon = self._horizon(horizon)
        compiled = self._compiled(belief, horizon)
        check_belief(belief, compiled.program.signature)
        belief, horizon = _typed(belief, horizon)
        if self.guide.checks_beliefs and is_concrete(belief):
            self.guide.check(compiled.program.world(belief, horizon), compiled.num_steps)
        belief = self._thinned(belief)
        support = compiled.support(belief)
        start = compiled.warm_start(support, warm)
        return compiled, (compiled.program.fixed, support, belief, horizon, rng_key, start)

    def batch(
        self, keys: Array, beliefs: Belief, horizon: int | Array | None = None, warm: Plan | None = None
    ) -> Plan:
        """Plan from many beliefs at once: every array of the plan gets a leading batch axis.

        Beliefs with supports of one size are planned together, so that one with many parameters does not make the
        others pay; the plan's supports are then padded to the largest.

        :param keys: (B,) random keys.
        :param beliefs: a :class:`Belief` whose arrays have a leading axis B.
        :param horizon: how many steps to look ahead, the same for all.
        :param warm: the batched plan made one step earlier, to start from.
        """
        if jnp.ndim(keys) != (1 if jnp.issubdtype(keys.dtype, jax.dtypes.prng_key) else 2):  # older keys are rows
            raise ValueError(f"keys: found shape {jnp.shape(keys)}, expected several, as jax.random.split makes them")
        check_type(beliefs, "beliefs")
        count = len(keys)
        if (jnp.ndim(beliefs.parameter), jnp.ndim(beliefs.state)) != (2, 3) or {
            len(beliefs.parameter),
            len(beliefs.state),
        } != {count}:
            raise ValueError(
                f"beliefs: found arrays of shapes {jnp.shape(beliefs.parameter)} and {jnp.shape(beliefs.state)} for "
                f"{count} keys, expected (B, Θ) and (B, Θ, X)"
            )
        horizon = self._horizon(horizon)
        compiled = self._compiled(Belief(beliefs.parameter[0], beliefs.state[0]), horizon)
        if not is_concrete((beliefs, warm)):
            return jax.vmap(lambda key, belief, warm: self.solve(key, belief, horizon, warm))(keys, beliefs, warm)
        check_beliefs(beliefs, compiled.program.signature)
        beliefs = jax.tree.map(np.asarray, self._thinned(beliefs))
        supports = [compiled.support(Belief(*row)) for row in zip(beliefs.parameter, beliefs.state, strict=True)]
        places: dict[int, list[int]] = {}
        for i, support in enumerate(supports):
            places.setdefault(compiled.size(support), []).append(i)
        parts = []
        for size, place in places.items():
            group = [supports[i] for i in place]
            own = rows((keys, beliefs, warm), place)
            parts.append((np.asarray(place), compiled.plan_group(size, group, own[0], own[1], own[2], horizon)))
        plans = join(parts)
        return trim(plans, horizon, axis=1) if is_concrete(horizon) else plans

    def _thinned(self, belief: Belief) -> Belief:
        """The belief, or each of a batch, with at most ``max_parameters`` parameters; a traced one as it is."""
        if self.max_parameters is None or not is_concrete(belief):
            return belief
        kept = np.apply_along_axis(thin, -1, np.asarray(belief.parameter), self.max_parameters)
        return Belief(jnp.asarray(kept), belief.state)

    def program(self, belief: Belief, horizon: int | None = None) -> Program:
        """The compiled program behind the plans."""
        return self._compiled(belief, self._horizon(horizon)).program

    def compiled(self, program: Program) -> Compiled:
        """The compiled functions for a program of this planner."""
        return next(compiled for compiled in self._solvers.values() if compiled.program is program)

    def _horizon(self, horizon: int | Array | None) -> int | Array:
        if horizon is None:
            horizon = self.max_horizon or default_horizon(self.model)
        check_horizon(horizon)
        if self.max_horizon is None and is_concrete(horizon):
            self.max_horizon = int(horizon)
        if is_concrete(horizon) and self._any_horizon() and int(horizon) > self._max():
            raise ValueError(
                f"horizon: found {horizon}, expected at most max_horizon={self.max_horizon} (an argument of Planner; "
                "without it, the first call's horizon)"
            )
        return horizon

    def _max(self) -> int:
        if self.max_horizon is None:
            raise ValueError("max_horizon: found None with a traced horizon, expected a number of steps")
        return self.max_horizon

    def _any_horizon(self) -> bool:
        """Whether one compiled function serves every horizon."""
        return isinstance(self.guide, TemporalGuide)

    def _compiled(self, belief: Belief, horizon: int | Array) -> Compiled:
        if not self._any_horizon() and not is_concrete(horizon):
            raise ValueError("horizon: found a traced value, expected a Python int with this guide")
        num_steps = self._max() if self._any_horizon() else int(horizon)
        key = num_steps, str(jnp.result_type(float))
        with RUNNING:
            if key not in self._solvers:
                program = program_of(self.model, belief, num_steps)
                with jax.core.eval_context():
                    world = program.example()
                    self.guide.check(world, num_steps)
                    self.solver.check(Problem(world, self.guide, self.objective, num_steps))
                self._solvers[key] = Compiled(self, program, num_steps)
            return self._solvers[key]


def _check_arguments(guide: Any, objective: Any, solver: Any) -> None:
    """Refuse what is in the wrong place, or a class where one of its instances is meant."""
    if guide is not None and (isinstance(guide, type | Objective) or not callable(guide)):
        raise ValueError(f"guide: found {guide!r}, expected a guide such as TemporalGuide(model), or a NumPyro guide")
    if objective is not None and not isinstance(objective, Objective):
        raise ValueError(f"objective: found {objective!r}, expected one such as aif.Active()")
    if solver is not None and (isinstance(solver, type) or not hasattr(solver, "solve")):
        raise ValueError(f"solver: found {solver!r}, expected one such as aif.CoordinateSolver()")


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
        if not is_concrete(belief) or not self.planner._any_horizon():
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
        beliefs, horizon = _typed(beliefs, horizon)
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
        if not self.planner._any_horizon():
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


def _typed(belief: Belief, horizon: int | Array) -> tuple[Belief, Array]:
    steps = jnp.asarray(horizon, jnp.int32) if isinstance(horizon, Array) else np.int32(horizon)
    return Belief(*map(typed, belief)), steps  # type: ignore[return-value]


def trim(plan: Plan, horizon: int | Array, axis: int = 0) -> Plan:
    """Leave out the rows beyond the horizon.

    :param axis: which one is time: 1 in a batched plan.
    """
    steps = int(horizon)
    if plan.control.shape[axis] == steps:
        return plan

    def rows(table: Array, count: int) -> Array:
        """The first ones; sliced by NumPy where that is possible, as JAX would compile anew for every count."""
        first = (slice(None),) * axis + (slice(count),)
        return jnp.asarray(np.asarray(table)[first]) if is_concrete(table) else table[first]

    return plan._replace(
        control=rows(plan.control, steps),
        policy=rows(plan.policy, steps),
        state=rows(plan.state, steps + 1),
        observation={name: rows(table, steps) for name, table in plan.observation.items()},
    )
