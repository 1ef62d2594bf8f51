"""Closed-form coordinate inference for the temporal guide: every sweep minimises each factor exactly.

A sweep is a forward pass, which yields q(θ, x_{t-1}) and the epistemic costs c_t(x), d_t(u) at the present q, and a
backward pass, which updates the factors from the last to the first given the others (V is the cost to go):

    q_t(x'|x,u,θ) ∝ p(x'|x,u,θ) exp(−V_t(x',θ))                                        (if states are learned)
    Q_t(x,u,θ)   = −log p(u|x) + d_t(u) + KL[q_t(·|x,u,θ) ‖ p] + Σ_x' q_t(x'|x,u,θ) V_t(x',θ)
    π_t(·|x)     = softmin_u, or with the planning correction argmin_u, of Σ_θ q_{t-1}(θ|x) Q_t(x,u,θ)
    q(θ)         ∝ p(θ) exp(−Σ_x0 p(x0|θ) V_0(x0,θ))                                   (if parameters are learned)

With c and d held F never rises. As they are computed anew at every sweep, F_active may cycle (often no policy
without ties reproduces itself). The solver notices a cycle and damps the costs for some sweeps; if they do not settle,
it returns the posterior with the lowest F. Under ``gradient="through"`` F_active itself is descended
(:mod:`npro_aif.solvers.descent`). Where the policy sees everything, the first backward pass is the solution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.inference.objectives import Objective
from npro_aif.inference.posterior import Terms
from npro_aif.inference.temporal import TemporalPosterior
from npro_aif.sizes import STARTS, is_small
from npro_aif.solvers.base import Problem, Solution, SolverInfo
from npro_aif.solvers.descent import descend, led
from npro_aif.solvers.restarts import check_restarts, every_start, lowest
from npro_aif.solvers.steps import Exact
from npro_aif.solvers.sweep import Costs, Forward, Sweep, prepare

UNVISITED = ("prior", "free")
MEMORY = 8  # the longest cycle that is noticed
UNNORMALIZED = 1e-4  # the most by which rounding may move the sum of a row away from one
DAMPING = 0.5  # the share of the new costs after a cycle was noticed; halved again every CALM sweeps
CALM, PATIENCE = 2, 4  # after PATIENCE damped sweeps the solver gives up (further sweeps never helped)


class Best(NamedTuple):
    """The posterior with the lowest F so far, or the one that reproduced itself."""

    free_energy: Array  # ()
    terms: Terms  # by name, ()
    posterior: TemporalPosterior


class Progress(NamedTuple):
    """How far the sweeps have come."""

    sweep: Array  # () the number of sweeps made
    change: Array  # () how much the last sweep changed a factor or a cost
    cycle: Array  # () the length of the cycle, 0 before one is noticed
    since: Array  # () sweeps since it was noticed


class Sweeping(NamedTuple):
    """The state of the loop over sweeps."""

    progress: Progress
    posterior: TemporalPosterior
    costs: Costs  # the costs that the last backward pass used
    prints: Array  # (MEMORY,) fingerprints of the latest posteriors
    best: Best
    history: Array  # (max_sweeps+1,) F before each sweep, and after the last
    done: Array  # ()


@dataclass(frozen=True)
class CoordinateSolver:
    """Coordinate descent with exact minimisers, for :class:`TemporalGuide`.

    :param max_sweeps: the most sweeps.
    :param tol: stop when no probability of a learned factor (and no epistemic cost) changed by more than this.
    :param restarts: the number of key-seeded starts, made as one batch; the lowest F is kept. Symmetric worlds have
        saddles and ties, and F_planning and F_active have local minima. By default 16 in a small world
        (:mod:`npro_aif.sizes`); one in a large world, and for ``Active(gradient="fixed")``, which does not descend F.
    :param lead: the number of first sweeps of F_active without epistemic costs, so that the first epistemic costs are
        those of a plan and not of a random policy. Under ``gradient="through"`` the descent begins at that plan.
    :param unvisited: what stands in where q has no mass: the "prior"-predictive flow, so that information counts where
        the plan does not go yet; or nothing ("free"), so that it does not lead away from the plan.
    :param min_decrease: under ``Active(gradient="through")``, which is descended: stop when F falls by less than this,
        relative to max(1, |F|).

    >>> import jax, npro_aif as aif
    >>> from npro_aif.models.tmaze import initial_belief, tmaze
    >>> planner = aif.Planner(tmaze, objective=aif.Planning(), solver=CoordinateSolver(restarts=1), max_horizon=2)
    >>> bool(planner(jax.random.key(0), initial_belief()).info.converged)
    True
    """

    max_sweeps: int = 200
    tol: float = 1e-5
    restarts: int | None = None
    lead: int = 0
    unvisited: str = "prior"
    min_decrease: float = 1e-6

    def __post_init__(self) -> None:
        if self.max_sweeps < 1:
            raise ValueError(f"max_sweeps: found {self.max_sweeps}, expected at least 1")
        if self.restarts is not None:
            check_restarts(self.restarts)
        if not 0 <= self.lead < self.max_sweeps:
            raise ValueError(f"lead: found {self.lead}, expected at least 0 and less than max_sweeps={self.max_sweeps}")
        if self.unvisited not in UNVISITED:
            raise ValueError(f"unvisited: found {self.unvisited!r}, expected one of {', '.join(UNVISITED)}")
        for name in ("tol", "min_decrease"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected a positive number")

    quick: ClassVar[bool] = True

    def check(self, problem: Problem) -> None:
        """Refuse guides and objectives without a closed form."""
        if not problem.guide.closed_form:
            raise ValueError(
                f"CoordinateSolver: found the guide {type(problem.guide).__name__}, which has no closed-form updates, "
                "expected a TemporalGuide (use SVISolver)"
            )
        if not problem.objective.closed_form:
            raise ValueError(
                f"CoordinateSolver: found the objective {type(problem.objective).__name__}, which puts F together in "
                "its own way, expected one with a closed form such as Planning() (use SVISolver, or override priors() "
                "only)"
            )
        if descends(problem.objective):
            check_descent(problem)

    def num_flows(self, objective: Objective) -> int:
        """That of q, and the prior-predictive one where it stands in for q."""
        return 2 if self.unvisited == "prior" and objective.epistemic else 1

    def solve(self, problem: Problem, key: Array, params: Any) -> Solution:
        """Sweep from ``params``, and from further key-seeded policies and q(θ), until q reproduces itself.

        Of one start F and its terms may not be exact where they are not asked for (of several, F tells which is kept).
        """
        if self.num_starts(problem) == 1:
            return self._solve(problem, params)
        every = self.every_start(problem, key, params)
        best, agreed = lowest(every.free_energy[:, -1], every.info.converged)
        solution: Solution = jax.tree.map(lambda leaf: leaf[best], every)
        info = solution.info._replace(starts=jnp.asarray(self.num_starts(problem)), agreed=agreed)
        return solution._replace(info=info)

    def num_starts(self, problem: Problem) -> int:
        """The number of starts for a problem."""
        world, objective = problem.world, problem.objective
        if prepare(problem, (), with_reference=False).is_decision_process:
            return 1
        if self.restarts is not None:
            return self.restarts
        num_parameters, num_states = world.initial.shape
        small = is_small(num_parameters, world.loop.num_rows(num_states), world.num_controls)
        return STARTS if small and (descends(objective) or not objective.epistemic) else 1

    def every_start(self, problem: Problem, key: Array, params: Any) -> Solution:
        """The solutions from all starts, with a leading axis; they run as one batch."""
        count, problem = self.num_starts(problem), problem._replace(measured=True)
        return every_start(count, problem, key, params, lambda params: self._solve(problem, params))

    def _solve(self, problem: Problem, params: Any) -> Solution:
        world = problem.world
        guide: Any = problem.guide  # whose factors are learned in closed form
        learn = guide.learned(world)
        sweep = prepare(problem, learn, with_reference=False)
        if sweep.is_decision_process:
            return self._only(sweep, problem)
        sweep = prepare(problem, learn, with_reference=self.unvisited == "prior")
        tables = guide.tables(world, problem.num_steps)
        seeds = {name: params[name] for name, table in tables.items() if table.role in ("control", "parameter")}
        first = sweep.template(guide.posterior(world, seeds, problem.num_steps))
        if descends(problem.objective):
            first = led(sweep, first, self.lead) if self.lead else first
            end = descend(sweep, first, self.max_sweeps - self.lead, self.min_decrease)
            posterior = sweep.whole(end.posterior)
            info = SolverInfo(end.sweep, end.settled & is_normalized(end.posterior), jnp.asarray(0), end.change)
            return Solution(posterior, end.history, end.terms, info, guide.params_of(world, posterior))
        forward = jax.jit(sweep.forward)  # traced once, for its shapes and for the loop
        state = jax.lax.while_loop(
            lambda state: ~state.done,
            lambda state: self._body(sweep, forward, state),
            self._begin(jax.eval_shape(forward, first), first),
        )
        count, change, cycle, _ = state.progress
        best = state.best
        posterior = sweep.whole(best.posterior)
        converged = (change <= self.tol) & is_normalized(best.posterior)
        terms, value, last = best.terms, best.free_energy, jnp.minimum(count + 1, self.max_sweeps)
        if leaves_trace(sweep) and problem.measured:
            terms = problem.objective.terms(world, posterior)
            value, last = jnp.stack(list(terms.values())).sum(), jnp.where(converged, count, last)
        looked = jnp.arange(self.max_sweeps + 1) < last
        history = jnp.where(looked, state.history + (value - best.free_energy), value)
        info = SolverInfo(count, converged, jnp.where(converged, 0, cycle), change)
        return Solution(posterior, history, terms, info, guide.params_of(world, posterior))

    def _only(self, sweep: Sweep, problem: Problem) -> Solution:
        """The solution of a decision process, which does not depend on the start."""
        world, guide = problem.world, cast(Any, problem.guide)
        template = sweep.template(guide.posterior(world, {}, problem.num_steps))
        template = sweep.decide(template)
        mass = sweep.masses(template)
        posterior, terms = sweep.whole(template), sweep.terms(template, mass)
        value: Any = sum(terms.values())
        info = SolverInfo(jnp.asarray(1), is_normalized(template), jnp.asarray(0), jnp.zeros_like(value))
        history = jnp.full(self.max_sweeps + 1, value)
        return Solution(posterior, history, terms, info, guide.params_of(world, posterior), mass)

    def _begin(self, seen: Forward, first: TemporalPosterior) -> Sweeping:
        """The state before the first sweep.

        :param seen: the shapes of what a forward pass finds.
        """
        dtype = seen.mass.dtype
        infinite = jnp.asarray(jnp.inf, dtype)
        return Sweeping(
            progress=Progress(jnp.asarray(0), infinite, jnp.asarray(0), jnp.asarray(0)),
            posterior=first,
            costs=Costs(*(jnp.zeros(table.shape, dtype) for table in seen.costs)),
            prints=jnp.full(MEMORY, jnp.inf, dtype),
            best=Best(infinite, {name: jnp.zeros((), term.dtype) for name, term in seen.terms.items()}, first),
            history=jnp.zeros(self.max_sweeps + 1, dtype),
            done=jnp.asarray(False),
        )

    def _body(self, sweep: Sweep, forward: Callable[[TemporalPosterior], Forward], state: Sweeping) -> Sweeping:
        """Evaluate the present posterior, and move on if it has not settled."""
        seen = forward(state.posterior)
        value = sum(seen.terms.values())
        settled = state.progress.change <= self.tol
        hopeless = (state.progress.sweep == self.max_sweeps) | (state.progress.since == PATIENCE)
        now = Best(value, seen.terms, state.posterior)  # type: ignore[arg-type]
        better = settled | (value <= state.best.free_energy)
        best = jax.tree.map(lambda old, new: jnp.where(better, new, old), state.best, now)
        done = settled | hopeless
        state = state._replace(best=best, history=state.history.at[state.progress.sweep].set(value), done=done)
        if sweep.is_small:  # even when done: a branch would cost more, in batches much more
            moved = self._move(sweep, state, seen)
            progress = jax.tree.map(lambda old, new: jnp.where(done, old, new), state.progress, moved.progress)
            moved = moved._replace(progress=progress)
        else:
            moved = jax.lax.cond(
                done, lambda state, _: state, lambda state, seen: self._move(sweep, state, seen), state, seen
            )
        return self._ended(moved) if leaves_trace(sweep) else moved

    def _ended(self, state: Sweeping) -> Sweeping:
        """Stop at a posterior that reproduced itself; its F and terms are computed after the loop."""
        settled = ~state.done & (state.progress.change <= self.tol)
        posterior = jax.tree.map(lambda old, new: jnp.where(settled, new, old), state.best.posterior, state.posterior)
        return state._replace(best=state.best._replace(posterior=posterior), done=state.done | settled)

    def _move(self, sweep: Sweep, state: Sweeping, seen: Forward) -> Sweeping:
        """The backward pass: at first without epistemic costs, and with damped ones once a cycle was met."""
        lead = self.lead if sweep.objective.epistemic else 0
        count, _, cycle, since = state.progress
        share = jnp.where(cycle > 0, DAMPING ** (1 + since // CALM), 1.0)
        share = jnp.where(count > lead, share, jnp.where(count == lead, 1.0, 0.0))
        costs = jax.tree.map(lambda old, new: old + share * (new - old), state.costs, seen.costs)
        step = Exact(sweep.objective.correction)
        posterior, _ = sweep.backward(state.posterior, seen.mass, sweep.held(costs), step)
        gap = apart(costs, seen.costs)
        if sweep.learns_state:  # learned states follow from the policy and the costs, and move only with these
            gap = jnp.maximum(gap, jnp.where(count == 0, jnp.inf, apart(costs, state.costs)))
        change = jnp.maximum(distance(posterior, state.posterior), gap)
        mark = fingerprint(posterior, costs)
        period = _period(state.prints, mark, count - lead, self.tol)
        cycle = jnp.where((cycle == 0) & (change > self.tol), period, cycle)
        return state._replace(
            progress=Progress(count + 1, change, cycle, jnp.where(cycle > 0, since + 1, 0)),
            posterior=posterior,
            costs=costs,
            prints=jnp.roll(state.prints, 1).at[0].set(mark),
        )


def leaves_trace(sweep: Sweep) -> bool:
    """Whether the costs of the sweeps, and with them F, contain a trace of the prior-predictive flow."""
    return sweep.objective.epistemic and sweep.reference is not None


def descends(objective: Objective) -> bool:
    """Whether F is descended with the derivatives of its epistemic terms, instead of holding these."""
    return objective.epistemic and objective.gradient == "through"


def check_descent(problem: Problem) -> None:
    """Refuse problems that cannot, or should not, be descended."""
    objective, guide = problem.objective, problem.guide
    if not objective.descends:
        raise ValueError(
            f"CoordinateSolver: found {objective} with gradient='through', expected normalize=False, "
            "planning_correction=True and the epistemic priors of Active itself, whose derivatives have a closed form "
            "(use SVISolver, or gradient='fixed')"
        )
    learned = guide.learned(problem.world)  # type: ignore[attr-defined]
    if "observation" in learned and any(kernel.learnable for kernel in problem.world.observation.values()):
        raise ValueError(
            "CoordinateSolver: found learned observations with gradient='through', expected "
            "TemporalGuide(model, learn=('control',)), with 'parameter' and 'state' if you like: F_active would fall "
            "by imagining observations that tell more than the model's do"
        )


def probabilities(template: TemporalPosterior) -> tuple[Array, ...]:
    """The policy, and q(θ) if it is learned."""
    return tuple(jnp.exp(table) for table in (template.control, template.parameter) if table is not None)


def is_normalized(template: TemporalPosterior) -> Array:
    """Whether the rows of the factors that a sweep changes sum to one, ()."""
    tables = probabilities(template)
    if template.state is not None:
        tables = *tables, jnp.exp(template.state.entries()[1])
    gaps = [jnp.abs(table.sum(-1) - 1).max() for table in tables]
    return jnp.stack(gaps).max() <= UNNORMALIZED


def distance(a: TemporalPosterior, b: TemporalPosterior) -> Array:
    """By how much the policies and the q(θ) of two templates differ: the largest change of a probability, ()."""
    return apart(probabilities(a), probabilities(b))


def apart(a: Sequence[Array], b: Sequence[Array]) -> Array:
    """The largest difference between entries of tables, ()."""
    return jnp.stack([jnp.abs(one - other).max() for one, other in zip(a, b, strict=True)]).max()


def fingerprint(posterior: TemporalPosterior, costs: Costs) -> Array:
    """One number that tells posteriors apart: a projection on sin 0, sin 1, …, which look random.

    The state factor follows from the policy and the costs.
    """
    tables = *probabilities(posterior), *costs
    numbers = jnp.concatenate([table.ravel() for table in tables])
    return numbers @ np.sin(np.arange(numbers.size)).astype(numbers.dtype)


def _period(prints: Array, mark: Array, sweep: Array, tol: float) -> Array:
    """The number of sweeps (at least 2) after which the posterior came back, 0 if it did not."""
    ages = jnp.arange(1, MEMORY + 1)
    same = (jnp.abs(prints - mark) <= tol) & (ages >= 2) & (ages <= sweep)
    return jnp.where(same.any(), jnp.argmax(same) + 1, 0)
