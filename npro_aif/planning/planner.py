"""The planner: a model, a guide, an objective and a solver, compiled once and called with beliefs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from npro_aif.belief import Belief, check_type, is_sparse
from npro_aif.errors import GuideError
from npro_aif.guides import GenericGuide, TableGuide, TemporalGuide
from npro_aif.inference.objectives import Active, Objective
from npro_aif.language import check_horizon, declared_horizon
from npro_aif.numerics import is_concrete
from npro_aif.pickling import Portable
from npro_aif.planning.batches import join, rows
from npro_aif.planning.choose import check_key
from npro_aif.planning.describe import describe
from npro_aif.planning.functions import Functions, typed, typed_arguments
from npro_aif.planning.host import HostFunctions
from npro_aif.planning.memory import Memory
from npro_aif.planning.origin import model_name
from npro_aif.planning.plan import Plan, trim
from npro_aif.planning.sharded import ShardedFunctions
from npro_aif.planning.support import thin
from npro_aif.planning.ways import Way
from npro_aif.program.checks import check_belief, check_beliefs
from npro_aif.program.program import Program, program_of
from npro_aif.program.reader import RUNNING
from npro_aif.program.sharded import ShardedBelief, readable
from npro_aif.shards import Shards
from npro_aif.solvers import CoordinateSolver, SearchSolver, SVISolver
from npro_aif.solvers.base import HostSolver, Solver


class Planner(Portable):
    """Plans from beliefs: ``plan = planner(rng_key, belief, horizon=…)``.

    :param model: a program ``model(belief, horizon=…)``.
    :param guide: a :class:`TemporalGuide` (the default), a :class:`SequenceGuide`, or any NumPyro guide.
    :param objective: :class:`Active` by default.
    :param solver: by default the closed form where there is one (:class:`CoordinateSolver`, and :class:`SearchSolver`
        with a :class:`RecallGuide`), otherwise :class:`SVISolver` with Adam. Any object with ``check`` and ``solve``
        (:class:`npro_aif.solvers.Solver`) will do, or with ``check`` and ``begin`` as in :class:`SearchSolver`.
    :param max_horizon: the largest horizon; by default the one that the model declares (``horizon=4`` in its
        signature). With a temporal guide every horizon up to it runs the same compiled code; other guides take any
        horizon, and compile once for each.
    :param max_parameters: plan with at most this many of the possible parameters, drawn by their probabilities (see
        :func:`npro_aif.planning.support.thin`). By default all of them are considered, which in a large world can be
        too many. The plan's ``belief`` is the thinned one.
    :param mesh: devices over which the parameters of a plan, or the rows of a batch, are laid (docs/scale.md); plans
        are the same.

    >>> from npro_aif.models.tmaze import CONTROLS, initial_belief, tmaze
    >>> planner = Planner(tmaze, solver=CoordinateSolver(restarts=1), max_horizon=2)
    >>> plan = planner(jax.random.key(0), initial_belief(), horizon=2)
    >>> CONTROLS[plan.best_control()]
    'South'
    """

    transient = ("_functions",)

    def __init__(
        self,
        model: Callable[..., Any],
        guide: TableGuide | Callable[..., Any] | None = None,
        objective: Objective | None = None,
        solver: Solver | HostSolver | None = None,
        max_horizon: int | None = None,
        max_parameters: int | None = None,
        mesh: jax.sharding.Mesh | None = None,
    ):
        if max_horizon is not None:
            check_horizon(max_horizon, "max_horizon")
        if max_parameters is not None and max_parameters < 1:
            raise ValueError(f"max_parameters: found {max_parameters}, expected at least 1")
        _check_arguments(guide, objective, solver)
        self.model = model
        self.guide = _table_guide(model, guide)
        self.objective = Active() if objective is None else objective
        self.solver = default_solver(self.guide, self.objective) if solver is None else solver
        self.max_horizon = declared_horizon(model) if max_horizon is None else max_horizon
        self.max_parameters = max_parameters
        self.shards = None if mesh is None else Shards(mesh)
        if self.shards is not None:
            _check_layable(self.guide, self.solver)
        self.restore()

    def restore(self) -> None:
        self._functions: dict[tuple[int, str], Functions] = {}

    @property
    def mesh(self) -> jax.sharding.Mesh | None:
        """The devices over which the parameters of a plan, or the rows of a batch, are laid."""
        return None if self.shards is None else self.shards.mesh

    @property
    def num_traces(self) -> int:
        """The number of times that planning code was traced: once for each shape."""
        return sum(functions.num_traces for functions in self._functions.values())

    @property
    def certificates(self) -> list[Any]:
        """The bounds that each search of this planner proved (:class:`npro_aif.solvers.search.Certificate`)."""
        return [c for functions in self._functions.values() for c in getattr(functions, "certificates", ())]

    def __call__(
        self,
        rng_key: Array,
        belief: Belief,
        horizon: int | Array | None = None,
        warm: Plan | None = None,
        *,
        elapsed: int | Array = 0,
    ) -> Plan:
        """Plan from a belief.

        :param horizon: how many steps to look ahead, at most ``max_horizon``.
        :param warm: the plan made one step earlier; the solver starts from its posterior, shifted by one step.
        :param elapsed: the steps that have passed, for a model with an argument ``elapsed``.
        """
        plan = self.solve(rng_key, belief, horizon, warm, elapsed=elapsed)
        return trim(plan, plan.horizon) if is_concrete(plan.horizon) else plan

    def solve(
        self,
        rng_key: Array,
        belief: Belief,
        horizon: int | Array | None = None,
        warm: Plan | None = None,
        *,
        elapsed: int | Array = 0,
    ) -> Plan:
        """Plan as a call does, but with the plan's arrays as long as ``max_horizon``, whatever the horizon."""
        functions, arguments = self._arguments(rng_key, belief, horizon, warm, elapsed)
        plan = functions.solve(*arguments)
        return plan if self.shards is None else plan._replace(belief=arguments[2])

    def first_control(
        self, rng_key: Array, belief: Belief, horizon: int | Array | None = None, *, elapsed: int | Array = 0
    ) -> Array:
        """q(u_1) of the plan, (U,): it is all that acting needs, and takes less time than a plan with its marginals."""
        return self.first_scores(rng_key, belief, horizon, elapsed=elapsed)[0]

    def first_cost(
        self, rng_key: Array, belief: Belief, horizon: int | Array | None = None, *, elapsed: int | Array = 0
    ) -> Array:
        """The cost of each first control of the plan, (U,): ``plan.control_cost`` without the whole plan."""
        return self.first_scores(rng_key, belief, horizon, by_cost=True, elapsed=elapsed)[0]

    def first_scores(
        self,
        rng_key: Array,
        belief: Belief,
        horizon: int | Array | None = None,
        *,
        by_cost: bool = False,
        warm: Plan | None = None,
        elapsed: int | Array = 0,
    ) -> tuple[Array, Any]:
        """:meth:`first_control` or :meth:`first_cost`, with the solver's report (the ``info`` of the plan)."""
        functions, arguments = self._arguments(rng_key, belief, horizon, warm, elapsed)
        decide = functions.cost if by_cost else functions.decide
        return decide(functions.size(arguments[1]), *arguments)

    def _arguments(
        self,
        rng_key: Array,
        belief: Belief,
        horizon: int | Array | None,
        warm: Plan | None,
        elapsed: int | Array,
    ) -> tuple[Functions, tuple[Any, ...]]:
        """The compiled functions for a problem, and their arguments."""
        check_key(rng_key)
        horizon = self._horizon(horizon)
        functions = self._of(belief, horizon)
        if isinstance(functions, ShardedFunctions):
            return functions, functions.arguments(rng_key, self._thinned(belief), horizon, warm, elapsed)
        check_belief(belief, functions.program.signature)
        belief, horizon = typed_arguments(belief, horizon)
        functions.program.check_at(belief, horizon, elapsed)
        if self.guide.checks_beliefs and is_concrete(belief):
            self.guide.check(functions.program.world(belief, horizon), functions.num_steps)
        belief = self._thinned(belief)
        if is_sparse(belief) and isinstance(functions, Functions):
            belief = belief._replace(state=belief.state.padded())
        support = functions.support(belief)
        start = functions.warm_start(support, warm)
        return functions, (functions.program.at(elapsed), support, belief, horizon, rng_key, start)

    def batch(
        self,
        keys: Array,
        beliefs: Belief,
        horizon: int | Array | None = None,
        warm: Plan | None = None,
        *,
        elapsed: int | Array = 0,
    ) -> Plan:
        """Plan from many beliefs at once: every array of the plan gets a leading batch axis.

        Beliefs with supports of the same size are planned together, so that a belief with many parameters does not slow
        down the others; the supports of the returned plan are padded to the largest.

        :param keys: (B,) random keys.
        :param beliefs: a :class:`Belief` whose arrays have a leading axis B.
        :param horizon: how many steps to look ahead, the same for all.
        :param warm: the batched plan made one step earlier, to start from.
        :param elapsed: the steps that have passed, for a model with an argument ``elapsed``.
        """
        check_key(keys, "keys")
        if jnp.ndim(keys) != (1 if jnp.issubdtype(keys.dtype, jax.dtypes.prng_key) else 2):  # old-style keys are rows
            raise ValueError(f"keys: found shape {jnp.shape(keys)}, expected several, as jax.random.split makes them")
        check_type(beliefs, "beliefs")
        count = len(keys)
        if is_sparse(beliefs):  # they are planned together, as tables
            beliefs = beliefs._replace(state=beliefs.state.dense())
        if (jnp.ndim(beliefs.parameter), jnp.ndim(beliefs.state)) != (2, 3) or {
            len(beliefs.parameter),
            len(beliefs.state),
        } != {count}:
            raise ValueError(
                f"beliefs: found arrays of shapes {jnp.shape(beliefs.parameter)} and {jnp.shape(beliefs.state)} for "
                f"{count} keys, expected (B, Θ) and (B, Θ, X)"
            )
        horizon = self._horizon(horizon)
        functions = self._of(Belief(beliefs.parameter[0], beliefs.state[0]), horizon)
        functions.check_batch(warm, count)
        if not is_concrete((beliefs, warm)):
            return jax.vmap(lambda key, belief, warm: self.solve(key, belief, horizon, warm, elapsed=elapsed))(
                keys, beliefs, warm
            )
        check_beliefs(beliefs, functions.program.signature)
        if functions.program.looks_at_numbers:
            for row in zip(*beliefs, strict=True):
                functions.program.check_at(Belief(*row), horizon, elapsed)
        beliefs = jax.tree.map(np.asarray, self._thinned(beliefs))
        supports = [functions.support(Belief(*row)) for row in zip(beliefs.parameter, beliefs.state, strict=True)]
        places: dict[int, list[int]] = {}
        for i, support in enumerate(supports):
            places.setdefault(functions.size(support), []).append(i)
        parts = []
        for place in places.values():
            own_keys, own_beliefs, own_warm = rows((keys, beliefs, warm), place)
            group = functions.plan_group(
                [supports[i] for i in place], own_keys, own_beliefs, own_warm, horizon, elapsed
            )
            parts.append((np.asarray(place), group))
        plans = join(parts, functions.tables)
        return trim(plans, horizon, axis=1) if is_concrete(horizon) else plans

    def way(self, beliefs: Sequence[Belief], horizon: int | None = None, *, fusable: bool = False) -> Way:
        """The way to compute decisions from these beliefs.

        :param fusable: whether the last observation is available, so that perception can be part of the same call.
        """
        functions = self.functions_for(beliefs[0], horizon)
        supports = [functions.support(self._thinned(belief)) for belief in beliefs]
        return functions.way(supports, fusable=fusable)

    def memory(self, belief: Belief | ShardedBelief, horizon: int | None = None) -> Memory:
        """The bytes that a plan from a belief will take on each device, before anything is allocated.

        >>> import npro_aif as aif
        >>> from npro_aif.models.tmaze import tmaze, initial_belief
        >>> aif.Planner(tmaze, max_horizon=10).memory(initial_belief()).flows  # 2 · 11 times · 5 states · 2 θ
        880
        """
        return self.functions_for(belief, horizon).memory(belief)  # type: ignore[arg-type]

    def accepted(self, belief: Any, horizon: int | None = None) -> Any:
        """A belief, checked against the model, in the form that plans take: with a mesh, laid over its devices."""
        functions = self.functions_for(belief, horizon)
        if isinstance(functions, ShardedFunctions):
            return functions.accepted(belief)
        check_belief(belief, functions.program.signature)
        return Belief(*map(typed, belief))

    def _thinned(self, belief: Belief) -> Belief:
        """The belief, or each of a batch, with at most ``max_parameters`` parameters; a traced one as it is."""
        if self.max_parameters is None or not is_concrete(belief):
            return belief
        if isinstance(belief, ShardedBelief):
            raise ValueError("max_parameters: found it with a belief that is laid over devices, expected None")
        thinned = np.apply_along_axis(thin, -1, np.asarray(belief.parameter), self.max_parameters)
        return Belief(jnp.asarray(thinned), belief.state)

    def program(self, belief: Belief, horizon: int | None = None) -> Program:
        """The program that the plans were made with, as it was read."""
        return self.functions_for(belief, horizon).program

    def describe(self, belief: Belief | None = None, horizon: int | None = None) -> str:
        """The settings, the sizes of the programs, and the way in which decisions are computed, in words.

        :param belief: any belief of the model; may be left out once a plan was made.
        """
        if belief is not None:
            self.functions_for(belief, horizon)
        settings = {
            "model": model_name(self.model),
            "guide": type(self.guide).__name__,
            "objective": self.objective,
            "solver": self.solver,
        }
        return describe(settings, self._functions.values(), self.max_parameters)

    def _horizon(self, horizon: int | Array | None) -> int | Array:
        horizon = self._max() if horizon is None else horizon
        check_horizon(horizon)
        if is_concrete(horizon) and self.guide.any_horizon and int(horizon) > self._max():
            raise ValueError(
                f"horizon: found {horizon}, expected at most max_horizon={self.max_horizon} (an argument of Planner; "
                "without it, the horizon that the model declares)"
            )
        return horizon

    def _max(self) -> int:
        if self.max_horizon is None:
            raise ValueError(
                "max_horizon: found None, and the model declares no horizon, expected a number of steps: "
                "aif.Planner(model, max_horizon=4), or horizon=4 in the model's signature"
            )
        return self.max_horizon

    def functions_for(self, belief: Belief, horizon: int | None = None) -> Functions:
        """The compiled functions for plans from such a belief."""
        return self._of(belief, self._horizon(horizon))

    def _of(self, belief: Belief, horizon: int | Array) -> Functions:
        """The compiled functions for a horizon and the present precision; a new program is read."""
        if not self.guide.any_horizon and not is_concrete(horizon):
            raise ValueError("horizon: found a traced value, expected a Python int with this guide")
        num_steps = self._max() if self.guide.any_horizon else int(horizon)
        key = num_steps, str(jnp.result_type(float))
        with RUNNING:
            if key not in self._functions:
                program = program_of(self.model, readable(belief), num_steps)
                self._functions[key] = self._made(program, num_steps)
            return self._functions[key]

    def _made(self, program: Program, num_steps: int) -> Any:
        make: Any = HostFunctions if hasattr(self.solver, "begin") else Functions
        if self.shards is not None:
            make = functools.partial(ShardedFunctions, shards=self.shards)
        return make(program, self.guide, self.objective, self.solver, num_steps)


def default_solver(guide: TableGuide, objective: Objective) -> Any:
    """The closed form where there is one, and otherwise gradient steps."""
    if guide.recalls:
        return SearchSolver()
    constant_costs = objective.gradient == "fixed" or not objective.epistemic
    closed = guide.closed_form and objective.closed_form and (constant_costs or objective.descends)
    return CoordinateSolver() if closed else SVISolver(optax.adam(0.05))


def _table_guide(model: Callable[..., Any], guide: Any) -> TableGuide:
    """A guide of tables for the model: the default, the given one, or one around an ordinary NumPyro guide."""
    if guide is None:
        return TemporalGuide(model)
    if not hasattr(guide, "tables"):
        return GenericGuide(model, guide)
    if guide.model != model:
        raise GuideError(
            f"guide: found a {type(guide).__name__} of the model {model_name(guide.model)}, expected one of the "
            f"planner's own: {type(guide).__name__}({model_name(model)}), with the very same object"
        )
    return guide


def _check_layable(guide: TableGuide, solver: Any) -> None:
    """Refuse settings that cannot be combined with a mesh."""
    if hasattr(solver, "begin"):
        raise ValueError(
            f"mesh: found the solver {type(solver).__name__}, which runs outside of JAX, expected one that is compiled "
            "such as aif.CoordinateSolver()"
        )
    if not guide.any_horizon:
        raise ValueError(f"mesh: found the guide {type(guide).__name__}, expected a TemporalGuide")


def _solves(solver: Any) -> bool:
    return hasattr(solver, "check") and (hasattr(solver, "solve") or hasattr(solver, "begin"))


def _check_arguments(guide: Any, objective: Any, solver: Any) -> None:
    """Refuse arguments in the wrong place, and a class where an instance is meant."""
    if guide is not None and (isinstance(guide, type | Objective) or not callable(guide)):
        raise ValueError(f"guide: found {guide!r}, expected a guide such as TemporalGuide(model), or a NumPyro guide")
    if objective is not None and not isinstance(objective, Objective):
        raise ValueError(f"objective: found {objective!r}, expected one such as aif.Active()")
    if solver is not None and (isinstance(solver, type) or not _solves(solver)):
        raise ValueError(
            f"solver: found {solver!r}, expected one such as aif.CoordinateSolver(), with check(problem) and "
            "solve(problem, key, params)"
        )
