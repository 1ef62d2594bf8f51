"""One sweep of coordinate inference: a forward pass and a backward pass over time.

The forward pass yields q(θ, x_t), F and the epistemic costs at the present posterior: c_t(x) and d_t(u), or the
derivatives of F's epistemic terms. The backward pass updates the factors from the last to the first, each by its exact
minimiser given the others or by a step towards it (:mod:`npro_aif.solvers.steps`). Where q has no mass the
prior-predictive flow may stand in; without it what is not used costs nothing, and q(θ|x) is p(θ) there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.inference.derivatives import moved, moved_to, told
from npro_aif.inference.objectives import Objective
from npro_aif.inference.posterior import Terms
from npro_aif.inference.temporal import Flow, Slice, TemporalPosterior, flow
from npro_aif.numerics import divide, mul_log, near_sum, sum_last
from npro_aif.sizes import is_small
from npro_aif.solvers.base import Problem
from npro_aif.solvers.moves import Moves, RowMoves, TableMoves
from npro_aif.solvers.passes import Look, at_once, flows, one_by_one, prior_policy, reference_flow
from npro_aif.solvers.steps import Decision, Exact, Step, decided
from npro_aif.tables.kernels import Emission, Transition
from npro_aif.tables.layout import control_first, time_slice
from npro_aif.tables.loop import Loop
from npro_aif.tables.world import World


class Costs(NamedTuple):
    """The epistemic costs of all slices."""

    state: Array  # (T, K) c_t of each context (in an open loop: of each new state)
    control: Array  # (T, U) d_t(u)


class SliceCosts(NamedTuple):
    """The epistemic costs of one slice, as the backward pass adds them."""

    arrival: Array  # (A, Θ|1) of each arrival
    control: Array  # (U,) of each control
    move: Array  # (U|1, S|1, Θ|1) of each move, wherever it leads
    edge: Array  # (1, X|1, U|1, X'|1) of each move and where it leads, where states are learned


CostsAt = Callable[[Array], SliceCosts]  # those of slice t


class Forward(NamedTuple):
    """What a forward pass finds."""

    mass: Array  # (T+1, S, Θ) q(θ, s_t)
    costs: Costs
    terms: Terms  # by name, (): their sum is F


class Sweep(NamedTuple):
    """What stays the same from sweep to sweep."""

    world: World
    objective: Objective
    num_steps: int
    learn: tuple[str, ...]  # which factors
    observation: dict[str, Emission]  # q(y|x,θ), in closed form
    reference: Array | None  # (T+1, S, Θ) what stands in for q(θ, s_t) where q has no mass
    reversible: bool = False  # whether passes can be differentiated backwards

    @property
    def is_small(self) -> bool:
        """Whether a loop or a branch costs more than what it computes."""
        num_parameters, num_states = self.world.initial.shape
        return is_small(num_parameters, self.world.loop.num_rows(num_states), self.world.num_controls)

    @property
    def learns_state(self) -> bool:
        return "state" in self.learn and self.world.state.learnable

    @property
    def is_decision_process(self) -> bool:
        """Whether the policy sees all there is, and costs do not depend on q: one backward pass is then the minimum."""
        num_parameters, num_states = self.world.initial.shape
        loop = self.world.loop
        hypotheses = num_parameters * loop.num_rows(num_states)
        return not self.objective.epistemic and hypotheses == loop.num_classes(num_states)

    def template(self, posterior: TemporalPosterior) -> TemporalPosterior:
        """The posterior with only what changes from sweep to sweep, the policy and what is learned.

        Learned states start at the model.
        """
        num_parameters, num_states = self.world.initial.shape
        shape = self.num_steps, num_parameters, num_states, self.world.num_controls
        state: Any = self.world.state.in_full(shape) if self.learns_state else None
        parameter: Any = posterior.parameter if "parameter" in self.learn else None
        return posterior._replace(parameter=parameter, state=state, observation={}, initial=None)  # type: ignore[arg-type]

    def whole(self, template: TemporalPosterior) -> TemporalPosterior:
        """The whole posterior of a template: what is not learned is the world's own."""
        return template._replace(
            parameter=template.parameter if "parameter" in self.learn else self.world.parameter,
            initial=self.world.initial,
            state=self.world.state if template.state is None else template.state,
            observation=self.observation,
        )

    def masses(self, template: TemporalPosterior) -> Array:
        """q(θ, s_t) of the present posterior, (T+1, S, Θ)."""
        own = self.whole(template)
        first = own.start(self.world)
        return flows(
            self.world,
            first,
            lambda t: own.control[t],
            own.state,
            own.observation,
            self.num_steps,
            reversible=self.reversible,
        )

    def _each(self, look: Look) -> tuple[Any, Terms]:
        """What ``look`` finds in every slice."""
        if self.is_small:
            return at_once(look, self.num_steps, self.world.horizon)
        return one_by_one(look, self.num_steps, self.world.horizon, reversible=self.reversible)

    def forward(self, template: TemporalPosterior) -> Forward:
        """q(θ, x_t), the epistemic costs c and d, and F at the present posterior."""
        world, objective, own = self.world, self.objective, self.whole(template)
        mass = self.masses(template)

        def look(t: Array) -> tuple[Costs, Terms]:
            now = own.slice(world, t, mass[t], mass[t + 1])
            costs = objective.costs(self.mixed(now)) if objective.epistemic else None
            if costs is None:
                return Costs(jnp.zeros_like(now.state()), jnp.zeros_like(now.control())), objective.combine(now, None)
            state = jnp.broadcast_to(costs.ambiguity + costs.novelty, now.state().shape)
            return Costs(state, costs.control), objective.combine(now, costs)

        return Forward(mass, *self._each(look))

    def terms(self, template: TemporalPosterior, mass: Array) -> Terms:
        """The terms of F at a posterior with the flow ``mass``, of an objective without epistemic priors."""
        own = self.whole(template)

        def look(t: Array) -> tuple[None, Terms]:
            return None, self.objective.combine(own.slice(self.world, t, mass[t], mass[t + 1]), None)

        each = at_once if self.is_small else one_by_one
        return each(look, self.num_steps, self.world.horizon)[1]

    def look(self, template: TemporalPosterior, mass: Array) -> tuple[Array, Terms]:
        """What observations cost at each arrival, (T, A, Θ), and the terms of F, at the present posterior."""
        own, objective = self.whole(template), self.objective

        def look(t: Array) -> tuple[Array, Terms]:
            now = own.slice(self.world, t, mass[t], mass[t + 1])
            seen, costs = told(self.mixed(now), objective)
            return seen, objective.combine(now, costs if self.reference is None else objective.costs(now))

        return self._each(look)

    def decide(self, template: TemporalPosterior) -> TemporalPosterior:
        """The minimum of a decision process, in one pass from the last decision to the first (value iteration)."""
        world, free, correction = self.world, self.free(), self.objective.correction
        start = self.whole(template).start(world)

        def update(i: Array, carry: tuple[Array, TemporalPosterior]) -> tuple[Array, TemporalPosterior]:
            future, q = carry  # (S, 1) the cost to go, less what is common to all states that may come first
            t = world.horizon - 1 - i
            loop, prior = world.loop.at(t), prior_policy(world, t)
            kernel, moving, effort = self.controls(t, future, free(t), Exact(correction), template)
            if "control" in self.learn:
                cost = loop.seen(moving.table()[..., 0].T).T + jnp.where(prior > -jnp.inf, effort, jnp.inf).T
                made = Decision.of(cost, correction=correction)
                future = loop.by_row(made.cost)[:, None]
                q = q._replace(control=q.control.at[t].set(made.control.T))
            else:
                future = self.follow(t, template.control[t], moving, effort)
            q = q if kernel is None else q._replace(state=q.state.put(t, kernel))
            return future - level(start, future), q

        first = jnp.zeros_like(start), template
        _, q = jax.lax.fori_loop(jnp.zeros_like(world.horizon), world.horizon, update, first)
        return q._replace(control=decided(q.control, correction=correction)) if "control" in self.learn else q

    def free(self) -> CostsAt:
        """No epistemic costs."""
        dtype = self.world.initial.dtype
        nothing, controls = jnp.zeros((1, 1, 1), dtype), jnp.zeros(self.world.num_controls, dtype)
        return lambda t: SliceCosts(nothing[0], controls, nothing, nothing[None])

    def held(self, costs: Costs) -> CostsAt:
        """c and d as the backward pass adds them."""
        nothing = jnp.zeros((1, 1, 1), self.world.initial.dtype)

        def at(t: Array) -> SliceCosts:
            arrival = self.world.loop.at(t).by_arrival(costs.state[t])[:, None]
            return SliceCosts(arrival, costs.control[t], nothing, nothing[None])

        return at

    def derivatives(self, template: TemporalPosterior, mass: Array, seen: Array) -> CostsAt:
        """The derivatives of F's epistemic terms at the present posterior, as costs (see :mod:`~.descent`).

        :param seen: what observations cost at each arrival, (T, A, Θ), as :meth:`look` finds it.
        """
        own, dtype = self.whole(template), mass.dtype
        free, nothing = jnp.zeros(self.world.num_controls, dtype), jnp.zeros((1, 1, 1), dtype)

        def at(t: Array) -> SliceCosts:
            now = self.mixed(own.slice(self.world, t, mass[t], mass[t + 1]))
            if self.learns_state:
                return SliceCosts(seen[t], free, nothing, moved_to(now, self.objective))
            return SliceCosts(seen[t], free, moved(now, self.objective), nothing[None])

        if not self.is_small:
            return at
        tables = jax.vmap(at)(jnp.arange(self.num_steps))
        return lambda t: jax.tree.map(lambda table: table[t], tables)

    def mixed(self, now: Slice) -> Slice:
        """A slice with a trace of the prior-predictive flow, by which unused controls are spread as their prior is."""
        if self.reference is None:
            return now
        mine, loop, world, t = now.flow, now.loop, self.world, now.t
        prior = prior_policy(world, t)
        other = flow(loop, prior, world.state.at(t), {}, self.reference[t], self.reference[t + 1])
        seen = mine.seen + other.seen
        policy = divide(mine.mass + other.mass, seen[:, None])
        before, arrived, after = (a + b for a, b in ((mine[0], other[0]), (mine[4], other[4]), (mine[5], other[5])))
        return now._replace(flow=Flow(before, seen, policy, loop.by_row(policy), arrived, after))

    def backward(
        self, template: TemporalPosterior, mass: Array, costs: CostsAt, step: Step
    ) -> tuple[TemporalPosterior, Array]:
        """Update every factor, from the last to the first; also F of the result if it had these costs, ().

        :param mass: (T+1, S, Θ) q(θ, s_t).
        """
        world = self.world
        start = self.whole(template).start(world)

        def update(i: Array, carry: tuple[Array, Array, TemporalPosterior]) -> tuple[Array, Array, TemporalPosterior]:
            future, common, q = carry  # (S, Θ) the cost to go from s_t on, less what is common to all of them: (T,)
            t = world.horizon - 1 - i
            loop, prior = world.loop.at(t), prior_policy(world, t)
            kernel, moving, effort = self.controls(t, future, costs(t), step, template)
            joint = mass[t] if self.reference is None else mass[t] + self.reference[t]
            average = loop.seen(moving.average(unseen_given_seen(world, joint))) + effort
            control = template.control[t]
            if "control" in self.learn:
                control = step.control(average, prior > -jnp.inf, control)
            future = self.follow(t, control, moving, effort)
            least = level(joint, future)
            q = q._replace(control=q.control.at[t].set(control))
            q = q if kernel is None else q._replace(state=q.state.put(t, kernel))
            return future - least, common.at[t].set(least), q

        first = jnp.zeros_like(start), jnp.zeros(self.num_steps, start.dtype), template
        future, common, q = jax.lax.fori_loop(0, world.horizon, update, first)
        # In a loop's body XLA may compute costs twice, with other rounding for the normaliser than for the result: rows
        # of large costs or long steps then sum to 0.9995. What has left the loop is there once.
        if "control" in self.learn:
            q = q._replace(control=step.normalized(q.control))
        cost = (jnp.exp(world.initial) * world.loop.begin(future).T).sum(-1)  # (Θ,)
        if "parameter" in self.learn:
            q = q._replace(parameter=step.parameter(world.parameter, cost, template.parameter))
        own = self.whole(q).parameter
        gap = own - jnp.where(own > -jnp.inf, world.parameter, 0.0)
        return q, mul_log(jnp.exp(own), gap + cost).sum() + near_sum(common)

    def controls(
        self,
        t: Array,
        future: Array,
        costs: SliceCosts,
        step: Step | None = None,
        template: TemporalPosterior | None = None,
    ) -> tuple[Transition | None, Moves, Array]:
        """The state factor, if learned, and Q_t in two parts, (U, S, Θ) and (P, U), given the cost to go (S, Θ)."""
        world = self.world
        loop, prior = world.loop.at(t), prior_policy(world, t)
        observation = {name: kernel.at(t) for name, kernel in self.observation.items()}
        arrival = loop.recall(future, observation) + costs.arrival
        kernel, moving = self._move(
            loop, t, arrival + emission_cost(world, loop, t, self.learn).T, costs, step, template
        )
        return kernel, moving, costs.control - jnp.where(prior > -jnp.inf, prior, 0.0)

    def follow(self, t: Array, control: Array, moving: Moves, effort: Array) -> Array:
        """The cost to go (S, Θ) of a policy's slice log π_t (P, U), given the two parts of Q_t."""
        loop, probs = self.world.loop.at(t), jnp.exp(control)
        if not self.objective.correction:
            effort = effort + jnp.where(probs > 0, control, 0.0)
        return moving.under(loop.by_row(probs)) + loop.by_row((probs * effort).sum(-1))[:, None]

    def _move(
        self,
        loop: Loop,
        t: Array,
        arrival: Array,
        costs: SliceCosts,
        step: Step | None,
        template: TemporalPosterior | None,
    ) -> tuple[Transition | None, Moves]:
        """The state factor's minimiser, if learned, and the cost of moving: KL[q‖p] + E_q[V − log p̂], (U, S, Θ)."""
        world, kernel = self.world, self.world.state.at(t)
        edges: list[Array] = []
        for table in world.preference.values():
            edge = time_slice(table, t)
            if edge.shape[1] == edge.shape[2] == 1:
                arrival = arrival - loop.arrivals(edge[:, 0, 0, :]).T
            else:
                edges.append(edge)
        num_parameters, num_states = world.initial.shape
        learned = None
        if self.learns_state:
            assert step is not None
            assert template is not None
            cost = arrival.T[:, None, None, :] - sum(edges) + costs.edge
            learned, value = step.state(kernel, cost, template.state.at(t))
            value = control_first(value)
        else:
            shifts = None if loop.closed or edges else kernel.shifts(arrival)
            if shifts is not None and costs.move.size == 1:
                return None, RowMoves(shifts, arrival + costs.move[0])
            value = loop.pull(kernel, arrival)
            for edge in edges:
                cost = edge[..., 0] if edge.shape[-1] == 1 else kernel.expect(edge)
                value = value - loop.by_state(control_first(cost), 1)
        value = value + costs.move
        shape = world.num_controls, loop.num_rows(num_states), num_parameters
        return learned, TableMoves(jnp.broadcast_to(value, shape))


def prepare(problem: Problem, learn: tuple[str, ...], *, with_reference: bool, reversible: bool = False) -> Sweep:
    """The sweeps of a problem.

    :param with_reference: whether the prior-predictive flow stands in where q has no mass.
    :param reversible: whether passes can be differentiated backwards.
    """
    world = problem.world
    reference = reference_flow(world, problem.num_steps, reversible=reversible) if with_reference else None
    return Sweep(world, problem.objective, problem.num_steps, learn, emissions(world, learn), reference, reversible)


def emissions(world: World, learn: tuple[str, ...]) -> dict[str, Emission]:
    """q(y|x,θ) ∝ p(y|x,θ) p̂(y) where observations are learned and preferred, p elsewhere; the same at every sweep."""
    tilted = {}
    for name, kernel in world.observation.items():
        tables = world.observation_preference[name]
        tilted[name] = kernel.tilt(-sum(tables))[0] if "observation" in learn and tables else kernel  # type: ignore[arg-type]
    return tilted


def level(joint: Array, future: Array) -> Array:
    """What all states with mass cost at least, (): a number to subtract, lest what they share drown the rest."""
    least = jnp.where(joint > 0, future, jnp.inf).min()
    return jnp.where(jnp.isfinite(least), least, 0.0)


def unseen_given_seen(world: World, joint: Array) -> Array:
    """q(s, θ|p) from q(s, θ), (S, Θ): of what is not seen given what the policy sees; p(θ) where there is no mass."""
    loop = world.loop
    mass = loop.by_row(loop.seen(sum_last(joint)))[:, None]
    share = joint.shape[0] // loop.num_classes(world.initial.shape[1])  # how many rows look the same
    return jnp.where(mass > 0, divide(joint, mass), jnp.exp(world.parameter) / share)


def emission_cost(world: World, loop: Loop, t: Array, learn: tuple[str, ...]) -> Array:
    """What preferences on observations cost at each arrival: −E_q[log p̂(y)] + KL[q(y|x,θ) ‖ p], (Θ|1, A|1)."""
    cost_of_all: Array = jnp.zeros((1, 1), world.initial.dtype)
    for name, tables in world.observation_preference.items():
        if tables:
            cost = -sum((time_slice(table, t) for table in tables), start=jnp.zeros(()))
            kernel, cost = world.observation[name].at(t), loop.each_control(cost)
            expected = kernel.tilt(cost)[1] if "observation" in learn else kernel.expect(cost)  # (Θ|1, X'·U*)
            cost_of_all += loop.sights(expected)
    return cost_of_all
