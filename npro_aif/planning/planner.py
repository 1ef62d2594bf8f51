"""The planner: a model, a guide, an objective and a solver, compiled once and called with beliefs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from npro_aif.guides import TableGuide, TemporalGuide
from npro_aif.inference.generic import GenericGuide
from npro_aif.inference.objectives import Active, Objective
from npro_aif.language import Belief, check_horizon, default_horizon
from npro_aif.planning.batches import join, rows
from npro_aif.planning.functions import Compiled, typed_arguments
from npro_aif.planning.limits import thin
from npro_aif.planning.plan import Plan
from npro_aif.planning.threads import RUNNING
from npro_aif.program.checks import check_belief, check_beliefs, check_type
from npro_aif.program.program import Program, program_of
from npro_aif.solvers.base import Problem
from npro_aif.solvers.svi import SVISolver
from npro_aif.tables.numerics import is_concrete


class Planner:
    """Plans from beliefs: ``plan = planner(rng_key, belief, horizon=…)``.

    :param model: a program ``model(belief, horizon=…)``.
    :param guide: a :class:`TemporalGuide` (the default), a :class:`SequenceGuide`, or any NumPyro guide.
    :param objective: :class:`Active` by default.
    :param solver: :class:`SVISolver` with Adam by default.
    :param max_horizon: the largest horizon; by default the first call's. With a temporal guide every horizon up to
        it runs the same compiled code; the other guides compile once for each horizon.
    :param max_parameters: plan with at most so many of the parameters that a belief holds possible, drawn by their
        probabilities (see :func:`npro_aif.planning.limits.thin`); with all of them by default, which in a large world can be
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
        belief, horizon = typed_arguments(belief, horizon)
        if self.guide.checks_beliefs and is_concrete(belief):
            self.guide.check(compiled.program.world(belief, horizon), compiled.num_steps)
        belief = self._thinned(belief)
        support = compiled.support(belief)
        start = compiled.warm_start(support, warm)
        return compiled, (compiled.program.fixed, support, belief, horizon, rng_key, start)

    def batch(self, keys: Array, beliefs: Belief, horizon: int | Array | None = None, warm: Plan | None = None) -> Plan:
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
        if is_concrete(horizon) and self.any_horizon() and int(horizon) > self._max():
            raise ValueError(
                f"horizon: found {horizon}, expected at most max_horizon={self.max_horizon} (an argument of Planner; "
                "without it, the first call's horizon)"
            )
        return horizon

    def _max(self) -> int:
        if self.max_horizon is None:
            raise ValueError("max_horizon: found None with a traced horizon, expected a number of steps")
        return self.max_horizon

    def any_horizon(self) -> bool:
        """Whether one compiled function serves every horizon."""
        return isinstance(self.guide, TemporalGuide)

    def _compiled(self, belief: Belief, horizon: int | Array) -> Compiled:
        if not self.any_horizon() and not is_concrete(horizon):
            raise ValueError("horizon: found a traced value, expected a Python int with this guide")
        num_steps = self._max() if self.any_horizon() else int(horizon)
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
