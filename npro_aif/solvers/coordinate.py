"""Closed-form coordinate inference for the temporal guide: every sweep minimises each factor exactly.

A sweep is a forward pass, which yields q(θ, x_{t-1}) and the epistemic costs c_t(x), d_t(u) at the present q, and a
backward pass, which updates the factors from the last to the first given the others (V is the cost to go):

    q_t(x'|x,u,θ) ∝ p(x'|x,u,θ) exp(−V_t(x',θ))                                        (if states are learned)
    Q_t(x,u,θ)   = −log p(u|x) + d_t(u) + KL[q_t(·|x,u,θ) ‖ p] + Σ_x' q_t(x'|x,u,θ) V_t(x',θ)
    π_t(·|x)     = softmin_u, or with the planning correction argmin_u, of Σ_θ q_{t-1}(θ|x) Q_t(x,u,θ)
    q(θ)         ∝ p(θ) exp(−Σ_x0 p(x0|θ) V_0(x0,θ))                                   (if parameters are learned)

With c and d held F never rises. As they are computed anew at every sweep, F_active may cycle (often no policy
without ties reproduces itself): that is noticed, the costs are damped for some sweeps, and if nothing settles the
posterior with the lowest F is returned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.guides import TemporalGuide
from npro_aif.inference.temporal import TemporalPosterior
from npro_aif.program.program import World
from npro_aif.solvers.base import Problem, Solution, SolverInfo
from npro_aif.solvers.restarts import best_of, check_restarts
from npro_aif.solvers.sweep import (
    Costs,
    Forward,
    backward,
    emissions,
    forward,
    is_small,
    reference_flow,
    template,
    total,
    whole,
)
from npro_aif.tables.kernels import Dense

UNVISITED = ("prior", "free")
MEMORY = 8  # the longest cycle that is looked for
DAMPING = 0.5  # the share of the new costs once a cycle was met; halved again every CALM sweeps
CALM, PATIENCE = 2, 4  # and after PATIENCE sweeps that did not settle it, it is left alone (more never helped)


class Best(NamedTuple):
    """The posterior with the lowest F so far, or the one that reproduced itself."""

    free_energy: Array  # ()
    terms: dict[str, Array]  # by name, ()
    posterior: TemporalPosterior


class Progress(NamedTuple):
    """How far the sweeps have come."""

    sweep: Array  # () how many were made
    change: Array  # () how much the last one changed a factor or a cost
    cycle: Array  # () the length of a cycle that was met, 0 before
    since: Array  # () sweeps since then


class Sweeping(NamedTuple):
    """The state of the loop over sweeps."""

    progress: Progress
    posterior: TemporalPosterior
    costs: Costs  # those that the last backward pass used
    prints: Array  # (MEMORY,) fingerprints of the latest posteriors
    best: Best
    history: Array  # (max_sweeps+1,) F before each sweep, and after the last
    done: Array  # ()


@dataclass(frozen=True)
class CoordinateSolver:
    """Coordinate descent with exact minimisers, for :class:`TemporalGuide`.

    :param max_sweeps: how many sweeps at most.
    :param tol: stop when no probability of a learned factor (and no epistemic cost) changed by more than this.
    :param restarts: how many key-seeded starts to make; the lowest F is kept. Symmetric worlds have saddles and ties,
        and F_planning has local minima.
    :param lead: sweeps of F_active without epistemic costs to begin with, so that they are those of a plan and not of a
        random policy.
    :param unvisited: what stands in where q has no mass: the "prior"-predictive flow, so that information is seen where
        the plan does not go yet; or nothing ("free"), so that it does not lead away from the plan.
    """

    max_sweeps: int = 50
    tol: float = 1e-5
    restarts: int = 1
    lead: int = 0
    unvisited: str = "prior"

    def __post_init__(self) -> None:
        if self.max_sweeps < 1:
            raise ValueError(f"max_sweeps: found {self.max_sweeps}, expected at least 1")
        check_restarts(self.restarts)
        if not 0 <= self.lead < self.max_sweeps:
            raise ValueError(f"lead: found {self.lead}, expected at least 0 and less than max_sweeps={self.max_sweeps}")
        if self.unvisited not in UNVISITED:
            raise ValueError(f"unvisited: found {self.unvisited!r}, expected one of {', '.join(UNVISITED)}")
        if not self.tol > 0:
            raise ValueError(f"tol: found {self.tol}, expected a positive number")

    def check(self, problem: Problem) -> None:
        """Refuse what has no closed form."""
        if not isinstance(problem.guide, TemporalGuide):
            raise ValueError(
                f"CoordinateSolver: found the guide {type(problem.guide).__name__}, expected a TemporalGuide (use "
                "SVISolver)"
            )
        if problem.objective.epistemic and problem.objective.gradient == "through":
            raise ValueError(
                "CoordinateSolver: found Active(gradient='through'), expected gradient='fixed' (use SVISolver to "
                "differentiate through the epistemic priors)"
            )

    def solve(self, problem: Problem, key: Array, params: Any) -> Solution:
        """Sweep from ``params``, and from further key-seeded policies and q(θ), until q reproduces itself."""

        def solve(params: Any) -> Solution:
            return self._solve(problem, params)

        return best_of(self.restarts, problem, key, params, solve, lambda solution: solution.free_energy[-1])

    def _solve(self, problem: Problem, params: Any) -> Solution:
        world, objective = problem.world, problem.objective
        guide: Any = problem.guide
        learn = guide.learn
        seeds = {name: params[name] for name in ("control_logits", "parameter_logits") if name in params}
        first = template(world, guide.posterior(world, seeds, problem.num_steps), learn)
        observation = emissions(world, learn)
        reference = reference_flow(world, problem.num_steps) if self.unvisited == "prior" else None
        lead = self.lead if objective.epistemic else 0
        small = is_small(world, problem.num_steps)

        def body(state: Sweeping) -> Sweeping:
            seen = forward(world, state.posterior, objective, observation, reference)
            value = total(seen.terms)
            settled = state.progress.change <= self.tol
            hopeless = (state.progress.sweep == self.max_sweeps) | (state.progress.since == PATIENCE)
            now = Best(value, seen.terms, state.posterior)
            better = settled | (value <= state.best.free_energy)
            best = jax.tree.map(lambda old, new: jnp.where(better, new, old), state.best, now)
            history = state.history.at[state.progress.sweep].set(value)
            done = settled | hopeless
            state = state._replace(best=best, history=history, done=done)
            if not small:
                return jax.lax.cond(done, lambda state, _: state, move, state, seen)
            moved = move(state, seen)  # also when done: a branch would cost more, in batches much more
            kept = jax.tree.map(lambda old, new: jnp.where(done, old, new), state.progress, moved.progress)
            return moved._replace(progress=kept)

        def move(state: Sweeping, seen: Forward) -> Sweeping:
            """The backward pass: at first without epistemic costs, and with damped ones once a cycle was met."""
            sweep, _, cycle, since = state.progress
            share = jnp.where(cycle > 0, DAMPING ** (1 + since // CALM), 1.0)
            share = jnp.where(sweep > lead, share, jnp.where(sweep == lead, 1.0, 0.0))
            costs = jax.tree.map(lambda old, new: old + share * (new - old), state.costs, seen.costs)
            posterior = backward(world, state.posterior, objective, seen.before, costs, learn, reference)
            gap = jnp.stack([jnp.abs(a - b).max() for a, b in zip(costs, seen.costs, strict=True)]).max()
            change = jnp.maximum(distance(posterior, state.posterior), gap)
            mark = fingerprint(posterior, costs)
            period = _period(state.prints, mark, sweep - lead, self.tol)
            cycle = jnp.where((cycle == 0) & (change > self.tol), period, cycle)
            return state._replace(
                progress=Progress(sweep + 1, change, cycle, jnp.where(cycle > 0, since + 1, 0)),
                posterior=posterior,
                costs=costs,
                prints=jnp.roll(state.prints, 1).at[0].set(mark),
            )

        dtype = world.initial.dtype
        infinite = jnp.asarray(jnp.inf, dtype)
        shapes = (problem.num_steps, world.initial.shape[1]), (problem.num_steps, world.control.shape[-1])
        terms = jax.eval_shape(lambda: forward(world, first, objective, observation, reference).terms)
        state = jax.lax.while_loop(
            lambda state: ~state.done,
            body,
            Sweeping(
                progress=Progress(jnp.asarray(0), infinite, jnp.asarray(0), jnp.asarray(0)),
                posterior=first,
                costs=Costs(*(jnp.zeros(shape, dtype) for shape in shapes)),
                prints=jnp.full(MEMORY, jnp.inf, dtype),
                best=Best(infinite, {name: jnp.zeros((), term.dtype) for name, term in terms.items()}, first),
                history=jnp.zeros(self.max_sweeps + 1, dtype),
                done=jnp.asarray(False),
            ),
        )
        sweep, change, cycle, _ = state.progress
        converged, best = change <= self.tol, state.best
        posterior = whole(world, best.posterior, observation)
        made = jnp.arange(self.max_sweeps + 1) < jnp.minimum(sweep + 1, self.max_sweeps)
        history = jnp.where(made, state.history, best.free_energy)
        info = SolverInfo(sweep, converged, jnp.where(converged, 0, cycle))
        return Solution(posterior, history, best.terms, info, _params(world, posterior))


def _params(world: World, posterior: TemporalPosterior) -> dict[str, Array]:
    """The posterior as the guide's logits, so that any solver can start from it and any plan be completed."""

    def ratio(q: Array, p: Array) -> Array:
        return jnp.where(q > -jnp.inf, q - jnp.where(p > -jnp.inf, p, 0.0), -jnp.inf)

    params = {"control_logits": posterior.control, "parameter_logits": ratio(posterior.parameter, world.parameter)}
    if posterior.state is not world.state:
        params["state_logits"] = ratio(posterior.state.table(), world.state.table())
    for name, kernel in posterior.observation.items():
        if kernel is not world.observation[name] and isinstance(kernel, Dense):
            log = jnp.broadcast_to(world.observation[name].table(), kernel.log.shape)
            shape = (posterior.control.shape[0], world.initial.shape[0], *kernel.log.shape[2:])
            params[f"{name}_logits"] = jnp.broadcast_to(ratio(kernel.log, log), shape)
    return params


def distance(a: TemporalPosterior, b: TemporalPosterior) -> Array:
    """By how much two templates differ: the largest change of a probability, of whichever factor."""
    apart = jax.tree.map(lambda a, b: jnp.abs(jnp.exp(a) - jnp.exp(b)).max(), a, b)
    return jnp.stack(jax.tree.leaves(apart)).max()


def fingerprint(posterior: TemporalPosterior, costs: Costs) -> Array:
    """One number that tells posteriors apart: a projection on sin 0, sin 1, …, which look random.

    The state factor follows from the policy and the costs.
    """
    tables = jnp.exp(posterior.control), jnp.exp(posterior.parameter), *costs
    numbers = jnp.concatenate([table.ravel() for table in tables])
    return numbers @ np.sin(np.arange(numbers.size)).astype(numbers.dtype)


def _period(prints: Array, mark: Array, sweep: Array, tol: float) -> Array:
    """After how many sweeps the posterior came back (at least 2), 0 if it did not."""
    ages = jnp.arange(1, MEMORY + 1)
    same = (jnp.abs(prints - mark) <= tol) & (ages >= 2) & (ages <= sweep)
    return jnp.where(same.any(), jnp.argmax(same) + 1, 0)
