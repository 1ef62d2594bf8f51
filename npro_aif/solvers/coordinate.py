"""Closed-form coordinate inference for the temporal guide: every sweep minimises each factor exactly.

A sweep is a forward pass, which yields q(θ, x_{t-1}) and the epistemic costs c_t(x), d_t(u) at the present q, and a
backward pass, which updates the factors from the last to the first given the others (V is the cost to go):

    q_t(x'|x,u,θ) ∝ p(x'|x,u,θ) exp(−V_t(x',θ))                                        (if states are learned)
    Q_t(x,u,θ)   = −log p(u|x) + d_t(u) + KL[q_t(·|x,u,θ) ‖ p] + Σ_x' q_t(x'|x,u,θ) V_t(x',θ)
    π_t(·|x)     = softmin_u, or with the planning correction argmin_u, of Σ_θ q_{t-1}(θ|x) Q_t(x,u,θ)
    q(θ)         ∝ p(θ) exp(−Σ_x0 p(x0|θ) V_0(x0,θ))                                   (if parameters are learned)

With c and d held F never rises. As they are computed anew at every sweep, F_active may cycle: that is noticed,
the costs are damped, and if nothing settles the posterior with the lowest F is returned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.guides import TemporalGuide
from npro_aif.kernels import Dense, Kernel, time_slice
from npro_aif.numerics import masked_log_softmax, normalize
from npro_aif.objectives import Objective
from npro_aif.solvers.base import Problem, Solution, SolverInfo
from npro_aif.temporal import (
    Flow,
    TemporalPosterior,
    flow,
    parameter_complexity,
    slice_costs,
    slice_terms,
    start,
    temporal_terms,
)
from npro_aif.world import World

TIE = 1e-5  # controls whose costs differ by less, relative to max(1, |cost|), are tied and share
MEMORY = 8  # the longest cycle that is looked for
REFERENCE_MASS = 1e-6  # how much of the prior-predictive flow stands in where q has no mass
DAMPING = 0.5  # the share of the new costs once a cycle was met; halved again every CALM sweeps
CALM = 10


class Costs(NamedTuple):
    """The epistemic costs of all slices."""

    state: Array  # (T, X) c_t(x)
    control: Array  # (T, U) d_t(u)


class Forward(NamedTuple):
    """What a forward pass finds."""

    before: Array  # (T, Θ, X) q(θ, x_{t-1})
    costs: Costs
    free_energy: Array  # ()


class Sweeping(NamedTuple):
    """The state of the loop over sweeps."""

    sweep: Array  # () how many were made
    posterior: TemporalPosterior
    costs: Costs  # those that the last backward pass used
    change: Array  # () how much it changed the policy or the costs
    prints: Array  # (MEMORY,) fingerprints of the latest policies
    cycle: Array  # () the length of a cycle that was met, 0 before
    since: Array  # () sweeps since then
    best: tuple[Array, TemporalPosterior]  # the lowest F so far, and where
    history: Array  # (max_sweeps+1,) F before each sweep


@dataclass(frozen=True)
class CoordinateSolver:
    """Coordinate descent with exact minimisers, for :class:`TemporalGuide`.

    :param max_sweeps: how many sweeps at most.
    :param tol: stop when no probability of the policy (and no epistemic cost) changed by more than this.
    :param restarts: how many key-seeded starts to make; the lowest F is kept. Symmetric worlds have saddles and ties, and
        F_planning has local minima.
    """

    max_sweeps: int = 50
    tol: float = 1e-5
    restarts: int = 1

    def __post_init__(self) -> None:
        if self.max_sweeps < 1:
            raise ValueError(f"max_sweeps: found {self.max_sweeps}, expected at least 1")
        if self.restarts < 1:
            raise ValueError(f"restarts: found {self.restarts}, expected at least 1")
        if not self.tol > 0:
            raise ValueError(f"tol: found {self.tol}, expected a positive number")

    def check(self, problem: Problem) -> None:
        """Refuse what has no closed form."""
        if not isinstance(problem.guide, TemporalGuide):
            raise ValueError(
                f"CoordinateSolver: found the guide {type(problem.guide).__name__}, expected a TemporalGuide (use SVISolver)"
            )
        if problem.objective.epistemic and problem.objective.gradient == "through":
            raise ValueError(
                "CoordinateSolver: found Active(gradient='through'), expected gradient='fixed' (use SVISolver to "
                "differentiate through the epistemic priors)"
            )

    def solve(self, problem: Problem, key: Array, params: Any) -> Solution:
        """Sweep from the policy in ``params``, and from further key-seeded ones, until the posterior reproduces itself."""
        if self.restarts == 1:
            return self._solve(problem, key, params)

        def restart(i: Array) -> Solution:
            fresh = jax.random.fold_in(key, i)
            other = problem.guide.first_params(fresh, problem.world, problem.num_steps)
            return self._solve(problem, fresh, jax.tree.map(lambda a, b: jnp.where(i == 0, a, b), params, other))

        every = jax.vmap(restart)(jnp.arange(self.restarts))
        best = jnp.argmin(every.free_energy[:, -1])
        return jax.tree.map(lambda leaf: leaf[best], every)

    def _solve(self, problem: Problem, key: Array, params: Any) -> Solution:
        world, objective = problem.world, problem.objective
        learn = problem.guide.learn  # type: ignore[attr-defined]
        seeds = {"control_logits": params["control_logits"]} if "control" in learn else {}
        if "parameter" in learn:  # a q(θ) that is as symmetric as p(θ) would sit on a saddle, whatever the policy
            seeds["parameter_logits"] = jax.random.normal(jax.random.fold_in(key, 1), world.parameter.shape)
        first = _template(world, problem.guide.posterior(world, seeds, problem.num_steps), learn)
        reference = reference_flow(world, problem.num_steps)
        observation = emissions(world, learn)

        def body(state: Sweeping) -> Sweeping:
            seen = forward(world, state.posterior, objective, reference, observation)
            share = jnp.where(state.cycle > 0, DAMPING ** (1 + state.since // CALM), 1.0)
            share = jnp.where(state.sweep == 0, 1.0, share)
            costs = jax.tree.map(lambda old, new: old + share * (new - old), state.costs, seen.costs)
            posterior = backward(world, state.posterior, objective, seen.before, reference, costs, learn)
            moved = jnp.abs(jnp.exp(posterior.control) - jnp.exp(state.posterior.control)).max()
            gap = jnp.stack([jnp.abs(a - b).max() for a, b in zip(costs, seen.costs, strict=True)]).max()
            change = jnp.maximum(moved, gap)
            mark = fingerprint(posterior)
            period = _period(state.prints, mark, state.sweep, self.tol)
            cycle = jnp.where((state.cycle == 0) & (change > self.tol), period, state.cycle)
            lower = seen.free_energy < state.best[0]
            best = jax.tree.map(
                lambda old, new: jnp.where(lower, new, old), state.best, (seen.free_energy, state.posterior)
            )
            return Sweeping(
                state.sweep + 1,
                posterior,
                costs,
                change,
                jnp.roll(state.prints, 1).at[0].set(mark),
                cycle,
                jnp.where(cycle > 0, state.since + 1, 0),
                best,
                state.history.at[state.sweep].set(seen.free_energy),
            )

        def going(state: Sweeping) -> Array:
            return (state.sweep < self.max_sweeps) & (state.change > self.tol)

        infinite = jnp.asarray(jnp.inf, world.initial.dtype)
        shapes = (problem.num_steps, world.initial.shape[1]), (problem.num_steps, world.control.shape[-1])
        state = jax.lax.while_loop(
            going,
            body,
            Sweeping(
                jnp.asarray(0),
                first,
                Costs(*(jnp.zeros(shape, world.initial.dtype) for shape in shapes)),
                infinite,
                jnp.full(MEMORY, jnp.inf, world.initial.dtype),
                jnp.asarray(0),
                jnp.asarray(0),
                (infinite, first),
                jnp.zeros(self.max_sweeps, world.initial.dtype),
            ),
        )
        converged = state.change <= self.tol
        last = _own(world, state.posterior, learn)
        value = _total(temporal_terms(world, last, objective))
        keep = converged | (value <= state.best[0])
        chosen = jax.tree.map(lambda a, b: jnp.where(keep, a, b), state.posterior, state.best[1])
        value = jnp.where(keep, value, state.best[0])
        history = jnp.where(jnp.arange(self.max_sweeps) < state.sweep, state.history, value)
        info = SolverInfo(state.sweep, converged, jnp.where(converged, 0, state.cycle))
        posterior = _own(world, chosen, learn)
        return Solution(posterior, jnp.append(history, value), info, _params(world, posterior))


def _total(terms: dict[str, Array]) -> Array:
    return sum(terms.values())  # type: ignore[return-value]


def _template(world: World, posterior: TemporalPosterior, learn: tuple[str, ...]) -> TemporalPosterior:
    """The posterior with only what changes from sweep to sweep; learned states start at the model, tabled in time."""
    num_steps, num_parameters = posterior.control.shape[0], world.initial.shape[0]
    state: Any = None
    if "state" in learn and isinstance(world.state, Dense):
        log = world.state.log
        shape = (num_steps, num_parameters, world.initial.shape[1], posterior.control.shape[-1], log.shape[-1])
        state = Dense(jnp.broadcast_to(log, shape))
    return posterior._replace(state=state, observation={}, initial=None)  # type: ignore[arg-type]


def _own(world: World, posterior: TemporalPosterior, learn: tuple[str, ...]) -> TemporalPosterior:
    """The whole posterior: what is not learned is the world's own, observations are in closed form."""
    return posterior._replace(
        initial=world.initial,
        state=world.state if posterior.state is None else posterior.state,
        observation=emissions(world, learn),
    )


def emissions(world: World, learn: tuple[str, ...]) -> dict[str, Kernel]:
    """q(y|x,θ) ∝ p(y|x,θ) p̂(y) where observations are learned and preferred, p elsewhere; the same at every sweep."""
    found = {}
    for name, kernel in world.observation.items():
        tables = world.observation_preference[name]
        if "observation" in learn and tables:
            found[name] = kernel.tilt(-sum(tables))[0]  # type: ignore[arg-type]
        else:
            found[name] = kernel
    return found


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


def reference_flow(world: World, num_steps: int) -> Array:
    """The prior-predictive p(θ, x_t), (T+1, Θ, X): what stands in for q(θ|x) where q(x) = 0."""

    def step(t: Array, flows: Array) -> Array:
        prior = jnp.broadcast_to(time_slice(world.control, t), (flows.shape[-1], world.control.shape[-1]))
        return flows.at[t + 1].set(flow(prior, world.state.at(t), flows[t]).after)

    first = jnp.exp(world.parameter)[:, None] * jnp.exp(world.initial)
    flows = jnp.zeros((num_steps + 1, *first.shape), first.dtype).at[0].set(first)
    return jax.lax.fori_loop(0, world.horizon, step, flows)


def forward(
    world: World,
    posterior: TemporalPosterior,
    objective: Objective,
    reference: Array,
    observation: dict[str, Kernel],
) -> Forward:
    """q(θ, x_{t-1}), the epistemic costs and F at the present posterior."""
    num_steps, num_states, num_controls = posterior.control.shape
    own = posterior._replace(
        initial=world.initial,
        state=world.state if posterior.state is None else posterior.state,
        observation=observation,
    )
    dtype = world.initial.dtype

    def step(t: Array, carry: tuple[Array, Forward]) -> tuple[Array, Forward]:
        before, found = carry
        state = own.state.at(t)
        now = flow(own.control[t], state, before)
        costs, all_costs = None, found.costs
        if objective.epistemic:
            prior = jnp.exp(jnp.broadcast_to(time_slice(world.control, t), now.mass.shape))
            mixed = Flow(
                before,
                now.joint + REFERENCE_MASS * reference[t][:, :, None] * prior,
                now.mass + REFERENCE_MASS * reference[t].sum(0)[:, None] * prior,
                now.after + REFERENCE_MASS * reference[t + 1],
            )
            costs = slice_costs(mixed, state, {k: kernel.at(t) for k, kernel in own.observation.items()}, objective)
            all_costs = Costs(
                all_costs.state.at[t].set(costs.ambiguity + costs.novelty), all_costs.control.at[t].set(costs.control)
            )
        value = _total(slice_terms(world, own, objective, t, now, costs))
        return now.after, Forward(found.before.at[t].set(before), all_costs, found.free_energy + value)

    empty = Forward(
        jnp.zeros((num_steps, *world.initial.shape), dtype),
        Costs(jnp.zeros((num_steps, num_states), dtype), jnp.zeros((num_steps, num_controls), dtype)),
        parameter_complexity(world, own),
    )
    return jax.lax.fori_loop(0, world.horizon, step, (start(own), empty))[1]


def backward(
    world: World,
    posterior: TemporalPosterior,
    objective: Objective,
    before: Array,
    reference: Array,
    costs: Costs,
    learn: tuple[str, ...],
) -> TemporalPosterior:
    """Update every factor, from the last to the first, by its exact minimiser."""
    num_controls = posterior.control.shape[-1]
    learns_state = posterior.state is not None

    def step(i: Array, carry: tuple[Array, TemporalPosterior]) -> tuple[Array, TemporalPosterior]:
        future, q = carry  # (Θ, X') the cost to go from x_t on
        t = world.horizon - 1 - i
        arrival = future + costs.state[t] + emission_cost(world, t, learn)
        kernel, moving = _move(world, t, arrival, learns_state)
        prior = time_slice(world.control, t)  # (X|1, U)
        allowed = jnp.broadcast_to(prior > -jnp.inf, (before.shape[-1], num_controls))
        effort = costs.control[t] - jnp.where(prior > -jnp.inf, prior, 0.0)
        total = moving + effort  # (Θ, X, U) Q_t
        belief = normalize(before[t] + REFERENCE_MASS * reference[t], axis=0)  # (Θ, X) q(θ|x)
        average = jnp.einsum("ix,ixu->xu", belief, total)
        control = posterior.control[t]
        if "control" in learn:
            control = (least if objective.correction else soft)(average, allowed)
        probs = jnp.exp(control)
        spend = 0.0 if objective.correction else jnp.where(probs > 0, control, 0.0)
        future = ((total + spend) * probs).sum(-1)
        q = q._replace(control=q.control.at[t].set(control))
        if learns_state:
            q = q._replace(state=Dense(q.state.log.at[t].set(kernel.log)))
        return future, q

    nothing = jnp.zeros(world.initial.shape, world.initial.dtype)
    future, q = jax.lax.fori_loop(0, world.horizon, step, (nothing, posterior))
    if "parameter" in learn:
        cost = (jnp.exp(world.initial) * future).sum(-1)
        q = q._replace(parameter=masked_log_softmax(world.parameter - cost, world.parameter > -jnp.inf))
    return q


def _move(world: World, t: Array, arrival: Array, learns_state: bool) -> tuple[Any, Array]:
    """The state factor's minimiser, and the cost of moving: KL[q‖p] + E_q[V − log p̂], (Θ, X, U)."""
    kernel = world.state.at(t)
    edges: list[Array] = []
    for table in world.preference.values():
        edge = time_slice(table, t)
        if edge.shape[1] == edge.shape[2] == 1:
            arrival = arrival - edge[:, 0, 0, :]
        else:
            edges.append(edge)
    shape = (arrival.shape[0], arrival.shape[1], world.control.shape[-1])
    if learns_state:
        cost = arrival[:, None, None, :] - sum(edges) if edges else arrival[:, None, None, :]
        kernel, value = kernel.tilt(cost)
        kernel = Dense(jnp.broadcast_to(kernel.log, (*shape, kernel.size)))
    else:
        value = kernel.pull(arrival)
        for edge in edges:
            value = value - (edge[..., 0] if edge.shape[-1] == 1 else kernel.expect(edge))
    return kernel, jnp.broadcast_to(value, shape)


def emission_cost(world: World, t: Array, learn: tuple[str, ...]) -> Array:
    """What preferences on observations cost at each (θ, x): −E_q[log p̂(y)] + KL[q(y|x,θ) ‖ p], (Θ|1, X|1)."""
    total: Array = jnp.zeros((1, 1), world.initial.dtype)
    for name, tables in world.observation_preference.items():
        if tables:
            cost = -sum(time_slice(table, t) for table in tables)  # type: ignore[arg-type]
            kernel = world.observation[name].at(t)
            total = total + (kernel.tilt(cost)[1] if "observation" in learn else kernel.expect(cost))
    return total


def least(cost: Array, allowed: Array) -> Array:
    """log of the policy that takes the cheapest control; ties share equally."""
    cost = jnp.where(allowed, cost, jnp.inf)
    lowest = cost.min(-1, keepdims=True)
    tied = (cost <= lowest + TIE * jnp.maximum(1.0, jnp.abs(lowest))) & allowed
    return jnp.where(tied, -jnp.log(tied.sum(-1, keepdims=True)), -jnp.inf)


def soft(cost: Array, allowed: Array) -> Array:
    """log softmin over the controls."""
    return masked_log_softmax(-cost, allowed)


def fingerprint(posterior: TemporalPosterior) -> Array:
    """One number that tells policies apart: a fixed random projection."""
    probs = jnp.exp(posterior.control)
    return (probs * jax.random.normal(jax.random.key(0), probs.shape)).sum()


def _period(prints: Array, mark: Array, sweep: Array, tol: float) -> Array:
    """After how many sweeps the policy came back (at least 2), 0 if it did not."""
    ages = jnp.arange(1, MEMORY + 1)
    same = (jnp.abs(prints - mark) <= tol) & (ages >= 2) & (ages <= sweep)
    return jnp.where(same.any(), jnp.argmax(same) + 1, 0)
