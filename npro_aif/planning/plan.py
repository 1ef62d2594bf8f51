"""A plan: the posterior over controls, states, observations and parameters, with everything needed to explain it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.belief import Belief
from npro_aif.extras import missing
from npro_aif.inference.posterior import Posterior
from npro_aif.numerics import is_concrete
from npro_aif.planning.choose import TIE_TOLERANCE, Rule, check_key
from npro_aif.planning.contingent import contingent_draws, contingent_tree
from npro_aif.planning.origin import Origin
from npro_aif.planning.sampling import draw
from npro_aif.planning.summary import summarize
from npro_aif.planning.support import Support
from npro_aif.planning.tree import Tree, make_tree
from npro_aif.program.sharded import ShardedBelief
from npro_aif.program.signature import Signature, marginalize, split
from npro_aif.solvers.base import SolverInfo
from npro_aif.solvers.costs import attached_cost, control_cost, first_costs
from npro_aif.solvers.envelope import held, numbers_of, with_numbers
from npro_aif.solvers.terms import first_terms
from npro_aif.tables.world import World

if TYPE_CHECKING:
    import arviz as az


CONTINGENCY = "contingency"  # in the params of a plan with perfect recall


class Plan(NamedTuple):
    """The result of a planner: a pytree, so that it can be batched, compiled and stored.

    >>> import jax, optax
    >>> from npro_aif import Planner, SVISolver
    >>> from npro_aif.models.tmaze import tmaze, initial_belief
    >>> plan = Planner(tmaze, solver=SVISolver(optax.adam(0.05), 1))(jax.random.key(0), initial_belief(), horizon=2)
    >>> plan.control.shape, plan.policy.shape, plan.marginal("cue").shape, plan.best_control().shape
    ((2, 4), (2, 5, 4), (2, 2), ())
    >>> bool(jnp.isclose(sum(plan.terms.values()), plan.free_energy[-1]))
    True
    >>> plan.sample(jax.random.key(1), 3)["x"].shape
    (3, 3)
    """

    control: Array  # (T, U) q(u_t)
    policy: Array  # (T, P, U) q(u_t|v_{t-1},m_{t-1}), over visible states × memories (signature.policy), C order
    state: Array  # (T+1, X) q(x_t), over all states
    parameter: Array  # (Θ,) q(θ)
    observation: dict[str, Array]  # by site, (T, Y) q(y_t)
    memory: Array  # (T+1, M) q(m_t); M = 1 where nothing is remembered
    free_energy: Array  # (iterations+1,) F before every iteration; the last is F of this posterior
    terms: dict[str, Array]  # by name, () the terms of F; see Objective.terms
    info: SolverInfo
    params: Any  # the learned tables, from which a later plan can start
    belief: Belief  # where the plan starts from
    horizon: Array  # () the number of steps that count
    theta: Array  # (K,) the flat indices of the parameters that were considered
    valid: Array  # (K,) False for padding
    origin: Origin
    elapsed: Array | int = 0  # () the steps that had passed before it

    def __repr__(self) -> str:
        return summarize(self)

    @property
    def signature(self) -> Signature:
        return self.origin.signature

    def best_control(
        self,
        key: Array | None = None,
        *,
        ties: Literal["draw", "first"] = "draw",
        tie_tolerance: float = TIE_TOLERANCE,
    ) -> Array | dict[str, Array]:
        """The control with the highest q(u_1): a flat index, or a dict by site where there are several.

        An :class:`~npro_aif.Agent` that was reset with the same key and has the same rule begins with this control.

        :param key: draws between ties; without it the first is taken.
        :param ties: "first" takes the first in any case.
        :param tie_tolerance: probabilities that differ by at most this are tied; 0 is a bare argmax.
        """
        flat = Rule(ties, tie_tolerance).best_of(self.control[..., 0, :], key)
        sites = self.signature.control
        return flat if len(sites) == 1 else split(flat, sites)

    def marginal(self, name: str) -> Array:
        """The marginal of one site: (T, U_k), (T+1, X_k), (T, Y_k) or (Θ_k,)."""
        role, _ = self.signature.find(name)
        if role == "sensor":
            raise KeyError(f"site '{name}' has plan=False: it takes part in belief updates only")
        if role == "observation":
            return self.observation[name]
        return marginalize(getattr(self, role), self.signature.sites(role), name)

    @property
    def control_cost(self) -> Array:
        """The cost in nats of each first control if the plan's policy is followed afterwards, (U,).

        Where one control is certain, the least of these costs is F (less the cost of learned parameters). Epistemic
        costs are held at this plan. For a plan by search these are the costs found so far; ``info.control_lower``
        bounds them from below.
        """
        if CONTINGENCY in self.params:
            return jnp.asarray(self.info.control_upper)  # type: ignore[attr-defined]
        posterior = self.complete()
        if not hasattr(posterior, "slice"):
            raise ValueError(f"control_cost: found a {type(posterior).__name__}, expected the plan of a TemporalGuide")
        world, objective = self.world(), self.origin.objective
        if is_concrete((world, posterior)) and not numbers_of(objective):
            return first_costs(objective, world, posterior)
        guide, num_steps = self.origin.guide, self.origin.program.num_steps
        params, frozen = held((self.params, world))
        frozen_posterior: Any = guide.posterior(frozen, params, num_steps)
        value = control_cost(frozen, with_numbers(objective, held(numbers_of(objective))), frozen_posterior)
        return attached_cost(value, world, objective, guide, params, num_steps)

    @property
    def control_terms(self) -> dict[str, Array]:
        """The terms of ``control_cost``, by name (U,): the terms of F if a control is done first.

        They sum to ``control_cost``; a control that the prior excludes has an infinite ``plan_prior``.
        """
        if CONTINGENCY in self.params:
            raise ValueError("control_terms: found a plan by search, expected one of a solver that keeps every term")
        origin = self.origin
        return first_terms(origin.objective, origin.guide, origin.program.num_steps, self.world(), self.params)

    def explain(self) -> str:
        """The solver's report in words: whether it settled, after how many iterations, and from how many starts."""
        if self.free_energy.ndim != 1:
            raise ValueError(f"explain: found a batch of {len(self.free_energy)} plans, expected one")
        return f"F = {float(self.free_energy[-1]):.4f} nats. {self.info.explain()}"

    def tree(self, depth: int = 4) -> Tree:
        """The plan as a decision tree in words and numbers, to be printed.

        :param depth: how many steps.
        """
        if CONTINGENCY in self.params:
            return contingent_tree(self.world(), self.params[CONTINGENCY], depth)
        return make_tree(self.world(), self.complete(), depth)  # type: ignore[arg-type]

    def world(self) -> World:
        """The tables with which the plan was made."""
        if isinstance(self.belief, ShardedBelief):
            raise ValueError(
                "plan: found one from a belief that is laid over devices, whose tables no process has, expected one "
                "from an aif.Belief (belief.whole(), if it fits; what first controls cost is planner.first_cost)"
            )
        return self.origin.program.world(self.belief, self.horizon, self.theta, self.valid, self.elapsed)

    def complete(self) -> Posterior:
        """The whole posterior as tables."""
        return self.origin.guide.posterior(self.world(), self.params, self.origin.program.num_steps)

    def sample(self, key: Array, num_samples: int) -> dict[str, Array]:
        """Draws from the posterior by site: (n,) for parameters, (n, T+1) for states, (n, T) for the others."""
        check_key(key, "key")
        if CONTINGENCY in self.params:
            return contingent_draws(self.world(), self.params[CONTINGENCY], key, num_samples)
        return draw(
            self.origin,
            self.origin.program.at(self.elapsed),
            self.belief,
            self.horizon,
            Support(self.theta, self.valid),
            self.params,
            key,
            num_samples=num_samples,
            num_steps=int(self.horizon),
        )

    def to_arviz(self, key: Array | None = None, num_samples: int = 1000) -> az.InferenceData:
        """The plan for ArviZ: draws with named dimensions, exact tables, the free energy and its terms."""
        try:
            from npro_aif.planning.to_arviz import plan_to_arviz
        except ImportError as error:
            raise missing(error, "plan.to_arviz()") from error

        return plan_to_arviz(self, key, num_samples)


def trim(plan: Plan, horizon: int | Array, axis: int = 0) -> Plan:
    """Leave out the rows beyond the horizon.

    :param axis: the axis of time: 1 in a batched plan.
    """
    steps = int(horizon)
    if plan.control.shape[axis] == steps:
        return plan

    def rows(table: Array, count: int) -> Array:
        """The first rows; sliced by NumPy where that is possible, as JAX would compile anew for every count."""
        first = (slice(None),) * axis + (slice(count),)
        return jnp.asarray(np.asarray(table)[first]) if is_concrete(table) else table[first]

    return plan._replace(
        control=rows(plan.control, steps),
        policy=rows(plan.policy, steps),
        state=rows(plan.state, steps + 1),
        memory=rows(plan.memory, steps + 1),
        observation={name: rows(table, steps) for name, table in plan.observation.items()},
    )
