"""Plans by a solver that runs on the host, outside JAX: a search, whose steps depend on the numbers.

It takes the place that :class:`npro_aif.planning.functions.Functions` has for compiled solvers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.belief import Belief
from npro_aif.guides import Table, TableGuide
from npro_aif.inference.epistemic import EpistemicCosts
from npro_aif.inference.objectives import Objective
from npro_aif.numerics import is_concrete
from npro_aif.planning.origin import Origin
from npro_aif.planning.plan import CONTINGENCY, Plan
from npro_aif.planning.support import Support, power_of_two
from npro_aif.planning.ways import Way
from npro_aif.program.program import Fixed, Program
from npro_aif.solvers.base import HostSolver, Problem
from npro_aif.solvers.search.replay import Replay
from npro_aif.solvers.search.solver import SearchInfo, SearchOutcome


class HostFunctions:
    """The functions that a planner calls, for one length of the time axis.

    :param num_steps: the largest horizon.
    """

    num_traces = 0
    fusable = False

    def __init__(self, program: Program, guide: TableGuide, objective: Objective, solver: HostSolver, num_steps: int):
        self.program, self.guide, self.objective, self.solver = program, guide, objective, solver
        self.num_steps = num_steps
        if not is_concrete(program.fixed.numbers):
            raise ValueError(
                f"{type(solver).__name__}: found a model whose numbers are traced (inside jit, grad or vmap), expected "
                "numbers: it runs outside of them"
            )
        solver.check(Problem(program.example(), guide, objective, num_steps))
        self.search: Any = solver.begin(program, objective)
        self.origin = Origin(program, guide, objective)
        self.tables: dict[str, Table] = {}

    @property
    def certificates(self) -> list[Any]:
        """The bounds that every search proved."""
        return self.search.certificates

    def support(self, belief: Belief) -> None:
        """Refuse a traced belief; a search finds the possible parameters by itself."""
        if not is_concrete(belief):
            raise ValueError(
                f"belief: found a traced one with {type(self.solver).__name__}, expected numbers (it runs outside of "
                "jit and vmap)"
            )

    def size(self, support: None) -> int:
        return self.program.signature.num_parameters

    def shape(self, support: None) -> tuple[int, int, int]:
        signature = self.program.signature
        return self.size(support), signature.num_states, signature.num_controls

    def way(self, supports: Sequence[None], *, fusable: bool = False) -> Way:
        return Way.ALONE

    def warm_start(self, support: None, warm: Plan | None) -> None:
        if warm is not None:
            raise ValueError(
                f"warm: found a plan to start from, expected None with {type(self.solver).__name__} (a planner keeps "
                "what it looked at, and its next plan goes on from there)"
            )

    def check_batch(self, *_: Any) -> NoReturn:
        raise ValueError(
            f"batch: found the solver {type(self.solver).__name__}, expected one that is compiled; plan one by one"
        )

    def decide(
        self, size: int, fixed: Fixed, support: None, belief: Belief, horizon: int | Array, key: Array, start: None
    ) -> tuple[np.ndarray, SearchInfo]:
        """q(u_1), (U,), and the search's report."""
        outcome = self._uninterrupted(fixed, belief, horizon)
        return outcome.first_control(), outcome.info

    def cost(
        self, size: int, fixed: Fixed, support: None, belief: Belief, horizon: int | Array, key: Array, start: None
    ) -> tuple[np.ndarray, SearchInfo]:
        """The cost of each first control in the best plan found, (U,), and the search's report."""
        outcome = self._uninterrupted(fixed, belief, horizon)
        return outcome.bracket()[1], outcome.info

    def _uninterrupted(self, fixed: Fixed, belief: Belief, horizon: int | Array) -> SearchOutcome:
        """The outcome of a search for an agent: Ctrl-C ends its episode, not just this search."""
        outcome = self.search(belief, int(horizon), fixed.elapsed)
        if outcome.info.interrupted:
            raise KeyboardInterrupt
        return outcome

    def solve(self, fixed: Fixed, support: None, belief: Belief, horizon: int | Array, key: Array, start: None) -> Plan:
        """The plan from a belief."""
        outcome = self.search(belief, int(horizon), fixed.elapsed)
        replay = outcome.replay()
        info = outcome.certified(replay.cost)
        part: Any = _Part(replay, outcome)
        terms = self.objective.combine(part, part.costs() if self.objective.epistemic else None)
        dtype = jnp.result_type(float)
        theta, valid = _possible(np.asarray(belief.parameter))

        def array(table: Any) -> Array:
            return jnp.asarray(table, dtype)

        return Plan(
            control=array(replay.control),
            policy=array(replay.policy),
            state=array(replay.state),
            parameter=array(belief.parameter),
            observation={name: array(table) for name, table in replay.observation.items()},
            memory=array(replay.memory),
            free_energy=array([info.upper]),
            terms={name: array(value) for name, value in terms.items()},
            info=info,
            params={CONTINGENCY: replay.contingency},
            belief=belief,
            horizon=jnp.asarray(horizon, jnp.int32),
            theta=theta,
            valid=valid,
            origin=self.origin,
            elapsed=jnp.asarray(fixed.elapsed),
        )


class _Part:
    """The statistics of a whole plan, from which the objective computes its terms."""

    def __init__(self, replay: Replay, outcome: SearchOutcome):
        self.replay = replay
        shares = np.array([share for share, _ in outcome.starts])
        self.entropy = float(-(shares * np.log(shares)).sum())  # where first controls tie; later ones are certain

    def preference(self) -> Any:
        return np.asarray(self.replay.preference)

    def complexity(self) -> Any:
        return np.zeros(())

    def plan_prior(self) -> Any:
        return np.asarray(self.replay.effort - self.entropy)

    def policy_entropy(self) -> Any:
        return np.asarray(self.entropy)

    def costs(self) -> EpistemicCosts:
        """The epistemic costs of the whole plan, which is one control and one state for them."""
        return EpistemicCosts(np.zeros(1), np.asarray([self.replay.ambiguity]), np.asarray([self.replay.novelty]), None)  # type: ignore[arg-type]

    def control(self) -> Any:
        return np.ones(1)

    def state(self) -> Any:
        return np.ones(1)


def _possible(parameter: np.ndarray) -> Support:
    """The parameters that are possible, padded to a power of two."""
    possible = np.flatnonzero(parameter > 0)
    padded = np.resize(possible, power_of_two(len(possible))).astype(np.int32)
    return Support(*jax.device_put((padded, np.arange(len(padded)) < len(possible))))
