"""Plans whose parameters are laid over devices: the same code as on one, on tables that each device makes for its own.

It stands where :class:`npro_aif.planning.functions.Functions` stands for one device. What devices tell each other in a
time slice are sums over parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

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
from npro_aif.planning.functions import Functions, Solved, typed_arguments
from npro_aif.planning.memory import Memory, check_device_memory, num_flows, plan_memory
from npro_aif.planning.plan import Plan
from npro_aif.planning.support import Support, power_of_two
from npro_aif.planning.warm import WarmStart
from npro_aif.planning.ways import Way, is_vectorized
from npro_aif.program.program import Fixed, Program
from npro_aif.program.reader import RUNNING
from npro_aif.program.sharded import (
    PARAMETERS,
    Rows,
    ShardedBelief,
    bind_rows,
    check_program,
    lay,
    num_possible,
    parameter_axes,
    possible_rows,
    rounded,
)
from npro_aif.shards import Shards, after, laid_over
from npro_aif.sizes import PADDED_FINELY
from npro_aif.solvers.base import Solver
from npro_aif.tables.world import World


class Laid(NamedTuple):
    """The tables of a plan, laid over devices; it stands where a support stands on one device."""

    theta: Array  # (D·K,) the parameters that are considered
    valid: Array  # (D·K,) False for padding
    world: World

    @property
    def size(self) -> int:
        return self.theta.shape[0]


class ShardedFunctions(Functions):
    """A planner's functions with parameters laid over devices.

    :param shards: the devices.
    """

    def __init__(
        self,
        program: Program,
        guide: TableGuide,
        objective: Objective,
        solver: Solver,
        num_steps: int,
        shards: Shards,
    ):
        check_program(program)
        self.shards = shards
        super().__init__(program, guide, objective, solver, num_steps)
        check_layable(self.program.example())
        self.solve, self.decide, self.cost = _home(self.solve), _home(self.decide), _home(self.cost)
        self._make: dict[int, Any] = {}
        self._memories: dict[int, Memory] = {}
        self._batches: dict[bool, Any] = {}

    @property
    def fusable(self) -> bool:
        return False

    def way(self, supports: Any, *, fusable: bool = False) -> Way:
        return Way.ALONE

    # --- Before anything is computed ---

    def support(self, belief: Any) -> Support | None:
        return None if isinstance(belief, ShardedBelief) else super().support(belief)

    def accepted(self, belief: Belief | ShardedBelief) -> ShardedBelief:
        """A belief over the devices."""
        if not is_concrete(belief):
            raise ValueError("belief: found a traced one with mesh, expected numbers (it goes outside of jit and vmap)")
        return lay(belief, self.shards, self.program.signature)

    def laid(self, belief: ShardedBelief, horizon: int | Array, elapsed: Any) -> Laid:
        """The tables that a plan needs, of the parameters that are possible, each on its device."""
        count = self._count(belief)
        check_device_memory(self._memory(count), self.shards)
        fixed, steps = self.shards.everywhere((self.program.at(elapsed), np.int32(horizon)))
        own, world = self._made(count)(fixed, steps, belief.tables)
        with laid_over(self.shards):
            world = world._replace(state=world.state.laid())
        if world.certain is not None:
            labels = power_of_two(int(world.certain.index.max()) + 1)
            world = world._replace(certain=replace(world.certain, size=min(labels, world.certain.size)))
        return Laid(own.theta, own.valid, world)

    def _made(self, count: int) -> Any:
        """What makes the tables of so many parameters on each device, compiled."""
        if count not in self._make:
            shards, num_parameters = self.shards, self.program.signature.num_parameters

            def own(fixed: Fixed, horizon: Array, own: Belief) -> list[Array]:
                tables = self._bound(fixed, horizon, possible_rows(own, count, shards, num_parameters))
                leaves, known["structure"] = jax.tree.flatten(tables)
                return leaves

            def make(*arguments: Any) -> tuple[Rows, World]:
                leaves = run(*arguments)  # at the first call it is traced
                return jax.tree.unflatten(known["structure"], leaves)

            known: dict[str, Any] = {}
            specs = [shards.spec(axis) for axis in parameter_axes(self._shapes)]
            given = shards.spec(None), shards.spec(None), shards.spec(PARAMETERS)
            run = jax.jit(shards.run(own, given, specs))
            self._make[count] = make
        return self._make[count]

    def _bound(self, fixed: Fixed, horizon: Array, rows: Rows) -> tuple[Rows, World]:
        """A device's tables; what only belief updates need is left out."""
        with RUNNING:
            world = bind_rows(self.program, fixed, horizon, rows)
        return rows._replace(parameter=None, state=None, place=None), world._replace(sensor={}).narrowed()  # type: ignore[arg-type]

    def _shapes(self, count: int) -> tuple[Rows, World]:
        """The shapes of a device's tables of so many parameters."""
        dtype, num_states = jnp.result_type(float), self.program.signature.num_states
        shapes = ((count,), jnp.int32), ((count,), bool), ((count,), dtype), ((count, num_states), dtype)
        own: Any = [*(jax.ShapeDtypeStruct(*shape) for shape in shapes), None]
        rows = Rows(*own)
        with eval_context():
            return jax.eval_shape(self._bound, self.program.fixed, jnp.asarray(self.num_steps), rows)

    def _count(self, belief: ShardedBelief) -> int:
        """With how many parameters a device plans: as many as the one that has most, padded."""
        most, own = int(num_possible(belief).max()), len(belief.parameter) // self.shards.count
        count = rounded(most, own)
        return count if self._memory(count).total < PADDED_FINELY else rounded(most, own, finely=True)

    def memory(self, belief: Belief | ShardedBelief) -> Memory:
        return self._memory(self._count(self.accepted(belief)))

    def _memory(self, count: int) -> Memory:
        if count not in self._memories:
            tables = self._shapes(count)[1]
            flows = num_flows(self.solver, self.objective)
            self._memories[count] = plan_memory(tables, self.program.signature, count, self.num_steps, flows)
        return self._memories[count]

    def warm_start(self, support: Any, warm: Plan | None) -> WarmStart:
        if warm is None:
            return WarmStart({}, np.asarray(False))  # type: ignore[arg-type]
        spread = [name for name, table in self.tables.items() if table.axis("parameter") is not None]
        if spread:
            raise ValueError(
                f"warm: found a plan to start from, with mesh and the learned tables {', '.join(spread)}, expected "
                "None, or a guide that learns controls only"
            )
        return WarmStart({name: np.asarray(values) for name, values in warm.params.items()}, np.asarray(True))  # type: ignore[arg-type, misc]

    # --- Many at once ---

    def check_batch(self, warm: Plan | None, count: int) -> None:
        self.shards.check_context()
        if warm is not None:
            raise ValueError(
                "warm: found plans to start from, with batch and mesh, expected None, or a planner without mesh"
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
        """Plans from beliefs whose supports have one size, batched: each device makes some of them by itself."""
        count, shards = len(supports), self.shards
        beliefs, horizon = typed_arguments(beliefs, horizon)
        support = None if supports[0] is None else stack(supports)
        together = is_vectorized(*self.shape(supports[0]))
        padded = shards.padded(power_of_two(count))
        parted = shards.parted(rows((keys, beliefs, support), np.minimum(np.arange(padded), count - 1)))
        fixed, steps = shards.everywhere((self.program.at(elapsed), horizon))
        if together not in self._batches:
            self._batches[together] = self._batch(together)
        return rows(brought_home(self._batches[together](fixed, steps, *parted)), range(count))

    def _batch(self, together: bool) -> Any:
        """What makes some plans on each device, compiled; every device gets all of them."""
        shards = self.shards
        alone = Functions(self.program, self.guide, self.objective, self.solver, self.num_steps)
        start = WarmStart({}, np.asarray(False))  # type: ignore[arg-type]

        def own(fixed: Fixed, horizon: Array, keys: Array, beliefs: Belief, support: Support | None) -> Plan:
            def plan(row: tuple[Array, Belief, Support | None]) -> Plan:
                key, belief, own = row
                return alone.plan(fixed, own, belief, horizon, key, start)

            return (jax.vmap(plan) if together else functools.partial(jax.lax.map, plan))((keys, beliefs, support))

        everywhere, laid = shards.spec(None), shards.spec(0)
        run = shards.run(own, (everywhere, everywhere, laid, laid, laid), laid, together=False)
        return jax.jit(run, out_shardings=shards.sharding())

    # --- What is compiled ---

    def arguments(
        self, key: Array, belief: Belief | ShardedBelief, horizon: int | Array, warm: Plan | None, elapsed: Any
    ) -> tuple[Any, ...]:
        """The arguments of a plan."""
        if not is_concrete((key, horizon, elapsed)):
            raise ValueError("mesh: found a traced key, horizon or elapsed, expected numbers (outside of jit and vmap)")
        start = self.warm_start(None, warm)
        tables = self.laid(self.accepted(belief), horizon, elapsed)
        fixed = self.program.at(elapsed)._replace(tables=None, values={}, t=None)  # type: ignore[arg-type]
        fixed, key, start = self.shards.everywhere((fixed, key, start))
        return fixed, tables, belief, None, key, start

    def plan(self, fixed: Fixed, support: Any, belief: Any, horizon: Any, key: Array, start: WarmStart) -> Plan:
        with laid_over(self.shards):
            solved = in_turn(self._solved(fixed, support, belief, horizon, key, start))
            plan = self.plan_of(solved, Support(support.theta, support.valid), belief, fixed.elapsed)
        return self._placed(plan)

    def _solved(
        self,
        fixed: Fixed,
        support: Any,
        belief: Any,
        horizon: Any,
        key: Array,
        start: WarmStart,
        *,
        measured: bool = True,
    ) -> Solved:
        with laid_over(self.shards), RUNNING:
            world = support.world.routed()
            if world.labels is not None:
                world = world._replace(parameter=after(world.labels.shown.max(), world.parameter))
            first = start.over(self.guide.first_params(key, world, self.num_steps), self.tables)
            return self.solution(world, key, first, measured=measured)

    def _placed(self, plan: Plan) -> Plan:
        """The plan's tables on all devices, but for those over parameters that are learned or believed: they stay."""
        place, tables = self.shards.placed, self.tables
        params = {name: place(values, tables[name].axis("parameter")) for name, values in plan.params.items()}
        last = plan.state.max()
        plan = plan._replace(theta=after(last, plan.theta), valid=after(last, plan.valid))
        belief = plan.belief if isinstance(plan.belief, ShardedBelief) else jax.tree.map(place, plan.belief)
        nothing: Any = None
        rest = jax.tree.map(place, plan._replace(params=nothing, belief=nothing))
        return rest._replace(params=params, belief=belief)


def in_turn(solved: Solved) -> Solved:
    """A solution whose marginals are computed after its terms."""
    solution, posterior = solved.solution, cast(Any, solved.solution.posterior)
    posterior = posterior._replace(control=after(solution.free_energy[-1], posterior.control))
    return solved._replace(solution=solution._replace(posterior=posterior))


def brought_home(tree: Any) -> Any:
    """What is the same on all devices as arrays of this process, with which one computes as with any others."""

    def home(leaf: Any) -> Any:
        return leaf.addressable_data(0) if isinstance(leaf, Array) and leaf.is_fully_replicated else leaf

    return jax.tree.map(home, tree)


def _home(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: brought_home(function(*arguments))


def check_layable(world: World) -> None:
    """Refuse what cannot be laid over devices, by its name."""
    if not world.state.layable:
        sites = ", ".join(site.name for site in world.signature.state)
        raise ValueError(
            f"mesh: found the states {sites} with a {type(world.state).__name__} that differs between parameters, "
            "expected rows of probabilities (dist.Categorical) or certain outcomes (aif.DeterministicCategorical)"
        )
