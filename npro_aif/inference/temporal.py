"""The temporal posterior q(θ) p(x0|θ) Π_t q(u_t|x_{t-1}) q(x_t|x_{t-1},u_t,θ) q(y_t|x_t,θ), slice by slice.

Everything is one forward pass over time; the cost is linear in the horizon. :class:`Slice` gives the statistics of one
step of that pass, for the free energy and the coordinate solver alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.inference.epistemic import COSTS, EpistemicPriors
from npro_aif.inference.marginals import Marginals
from npro_aif.inference.posterior import Evaluate, Terms
from npro_aif.numerics import divide, mul_log, near_sum, relative_entropy, sum_last, sum_mass
from npro_aif.tables.evidence import Evidence
from npro_aif.tables.joint import each_evidence, joint_emission
from npro_aif.tables.kernels import Emission, Transition
from npro_aif.tables.layout import contract, time_slice
from npro_aif.tables.loop import Loop
from npro_aif.tables.world import World


class TemporalPosterior(NamedTuple):
    """q as conditional tables, one for each factor and time."""

    parameter: Array  # (Θ,) log q(θ)
    initial: Array  # (Θ, X) log p(x0|θ)
    control: Array  # (T, P, U) log q(u_t|v_{t-1},m_{t-1}), over what the policy sees (npro_aif.tables.loop)
    state: Transition  # (T|1, Θ|1, X|1, U|1, X') q(x_t|x_{t-1},u_t,θ); the world's own where it is not learned
    observation: dict[str, Emission]  # by site, (T|1, Θ|1, X, Y) q(y_t|x_t,θ)

    @property
    def scope(self) -> str:
        return "temporal"

    @property
    def num_steps(self) -> int:
        return self.control.shape[0]

    def start(self, world: World) -> Array:
        """q(θ, s_0), (S, Θ)."""
        return world.loop.start(jnp.exp(self.parameter) * jnp.exp(self.initial).T)

    def slice(
        self, world: World, t: Array, before: Array, after: Array | None = None, control: Array | None = None
    ) -> Slice:
        """The slice into which q(θ, s_{t-1}), (S, Θ), flows.

        :param after: q(θ, s_t), where it is known already.
        :param control: log q(u_t|p), (P, U), from a scan over time: the gradient of ``self.control[t]`` would at every
            step be as large as the table of all steps.
        """
        control = self.control[t] if control is None else control
        loop, state = world.loop.at(t), self.state.at(t)
        observation = {name: kernel.at(t) for name, kernel in self.observation.items()}
        now = flow(loop, control, state, observation, before, after)
        return Slice(world, self, t, control, now, loop, state, observation)

    def terms(self, world: World, evaluate: Evaluate) -> Terms:
        """The sum over slices.

        The gradient recomputes the inside of a slice, except its costs, because keeping it would cost more.
        """

        def step(before: Array, t: Array, control: Array) -> tuple[Array, Terms]:
            now = self.slice(world, t, before, control=control)
            return now.flow.after, evaluate(now)

        step = jax.checkpoint(step, prevent_cse=False, policy=jax.checkpoint_policies.save_only_these_names(COSTS))
        _, terms = scan_horizon(step, self.start(world), world.horizon, self.control)
        return {name: near_sum(values) for name, values in terms.items()}

    def priors(self, world: World, priors: Callable[[Slice], EpistemicPriors]) -> EpistemicPriors:
        """log p̃ of every slice, stacked along a leading time axis."""

        def step(before: Array, t: Array) -> tuple[Array, EpistemicPriors]:
            now = self.slice(world, t, before)
            return now.flow.after, priors(now).log()

        return jax.lax.scan(step, self.start(world), jnp.arange(self.num_steps))[1]

    def marginals(self, world: World, mass: Array | None = None) -> Marginals:
        """All marginals in one forward pass.

        :param mass: (T+1, S, Θ) q(θ, s_t), where it is known already.
        """

        def step(before: Array, t: Array, control: Array) -> tuple[Array, Any]:
            now = self.slice(world, t, before, None if mass is None else mass[t + 1], control)
            return now.flow.after, (now.control(), *now.loop.states(sum_last(now.flow.after)), now.predicted())

        first = self.start(world)
        last, (control, state, memory, seen) = scan_horizon(step, first, world.horizon, self.control)
        beyond = jnp.arange(self.num_steps)[:, None] >= world.horizon
        begin, end = (world.loop.states(sum_last(mass)) for mass in (first, last))

        def over_time(present: Array, later: Array, final: Array) -> Array:
            return jnp.concatenate([present[None], jnp.where(beyond, final, later)])

        return Marginals(
            control=control,
            policy=jnp.exp(self.control),
            state=over_time(begin[0], state, end[0]),
            parameter=jnp.exp(self.parameter),
            observation=seen,
            memory=over_time(begin[1], memory, end[1]),
        )

    def first_control(self, world: World) -> Array:
        return world.loop.seen(sum_last(self.start(world))) @ jnp.exp(self.control[0])


class Flow(NamedTuple):
    """The mass that moves through one time slice."""

    before: Array  # (S, Θ) q(θ, s_{t-1})
    seen: Array  # (P,) q of what the policy sees
    policy: Array  # (P, U) q(u_t|p)
    by_row: Array  # (S, U) the same at every row
    arrived: Array  # (A, Θ) q(θ, x_t, m_{t-1}, u_t)
    after: Array  # (S, Θ) q(θ, s_t)

    @property
    def mass(self) -> Array:
        """q(p, u_t), (P, U)."""
        return self.seen[:, None] * self.policy

    def over_moves(self, table: Array) -> Array:
        """Σ_{θ,s,u} q(θ,s,u) table(θ,s,u), the table (Θ|1, S|1, U|1)."""
        return contract("", (self.before, "xi"), (self.by_row, "xu"), (table, "ixu"))

    def over_arrivals(self, table: Array) -> Array:
        """Σ_{θ,a} q(θ,a) table(θ,a), the table (Θ|1, A|1)."""
        return contract("", (self.arrived, "ki"), (table, "ik"))


NEAR_ONE = 1e-4  # the total of a distribution, after rounding


def flow(
    loop: Loop,
    control: Array,
    state: Transition,
    observation: dict[str, Emission],
    before: Array,
    after: Array | None = None,
) -> Flow:
    """Push q(θ, s_{t-1}) through the slices of the policy log q(u_t|p) (P, U), the moves and the memory.

    :param after: q(θ, s_t), where it is known already.
    """
    policy = jnp.exp(control)
    arrived = loop.move(state, before, policy * steady(before)) if after is None or loop.closed else after
    if after is None:
        after = loop.remember(arrived, observation) if loop.closed else arrived
    return Flow(before, loop.seen(sum_last(before)), policy, loop.by_row(policy), arrived, after)


def steady(mass: Array) -> Array:
    """The factor that keeps the total of a distribution at one, (): rounding would move it by 1e-4 in a thousand steps.

    A mass that is not a distribution, such as a part or a trace of one, gets the factor one.
    """
    total = jax.lax.stop_gradient(sum_mass(mass))
    return jnp.where(jnp.abs(total - 1) < NEAR_ONE, 1 / total, 1.0)


class Slice(NamedTuple):
    """The statistics of one time slice, as :class:`~npro_aif.inference.posterior.Part` says."""

    world: World
    posterior: TemporalPosterior
    t: Array  # () from 0 on
    log_policy: Array  # (P, U) log q(u_t|p)
    flow: Flow
    loop: Loop
    kernel: Transition  # q(x_t|x_{t-1},u_t,θ)
    observation: dict[str, Emission]  # by site, q(y_t|x_t,θ)

    def preference(self) -> Array:
        total: Array = jnp.zeros((), self.flow.after.dtype)
        for table in self.world.preference.values():
            edge = time_slice(table, self.t)  # (Θ|1, X|1, U|1, X'|1)
            if edge.shape[1] == edge.shape[2] == 1:
                total = total + self.flow.over_arrivals(self.loop.arrivals(edge[:, 0, 0, :]))
            else:
                moves = edge[..., 0] if edge.shape[3] == 1 else self.kernel.expect(edge)
                total = total + self.flow.over_moves(self.loop.by_state(moves, 1))
        for site, tables in self.world.observation_preference.items():
            for table in tables:
                cost = self.loop.each_control(time_slice(table, self.t))
                expected = self.observation[site].expect(cost)  # (Θ|1, X'·U*)
                total = total + self.flow.over_arrivals(self.loop.sights(expected))
        return total

    def complexity(self) -> Array:
        """KL of the factors that differ from the model's; that of q(θ) counts at the first step."""
        world, posterior, t = self.world, self.posterior, self.t
        total: Array = jnp.zeros((), self.flow.after.dtype)
        if posterior.parameter is not world.parameter:
            total = total + jnp.where(t == 0, relative_entropy(posterior.parameter, world.parameter).sum(), 0.0)
        if posterior.state is not world.state:
            gap = self.kernel.divergence(world.state.at(t))
            total = total + self.flow.over_moves(self.loop.by_state(gap, 1))
        for name, kernel in self.observation.items():
            if posterior.observation[name] is not world.observation[name]:
                gap = kernel.divergence(world.observation[name].at(t))
                total = total + self.flow.over_arrivals(gap if gap.shape[1] == 1 else self.loop.sights(gap))
        return total

    def plan_prior(self) -> Array:
        prior = self.loop.prior(time_slice(self.world.control, self.t))
        return near_sum(mul_log(self.flow.seen, relative_entropy(self.log_policy, prior).sum(-1)))

    def policy_entropy(self) -> Array:
        return -near_sum(mul_log(self.flow.mass, self.log_policy))

    def control(self) -> Array:
        return self.flow.mass.sum(0)

    def state(self) -> Array:
        return self.loop.contexts(self.flow.arrived)

    def move_entropy(self) -> Array:
        spread = self.loop.spread(self.kernel, self.flow.before)  # (U|1, P) q(p) H[v'|p,u]
        return divide((self.flow.policy.T * spread).sum(-1), self.control())

    def predicted(self) -> dict[str, Array]:
        """q(y_t) of each site, (Y,)."""
        labels, observed = self.world.labels, self.loop.observed(self.flow.arrived).T
        by_label = {} if labels is None else labels.predict(self.flow.arrived)
        return {
            name: by_label[name] if name in by_label else k.predict(observed) for name, k in self.observation.items()
        }

    def evidence(self, *, joint: bool) -> dict[str, Evidence]:
        kernels, labels = self.observation, self.world.labels
        if labels is not None and not (joint and any(kernel.learnable for kernel in kernels.values())):
            others = {name: kernel for name, kernel in kernels.items() if kernel.learnable}
            by_label = labels.evidence(self.flow.arrived, joint=joint)
            return by_label | each_evidence(others, lambda kernel: self.loop.evidence(kernel, self.flow.arrived))
        if joint and len(kernels) > 1:
            certain = None if self.world.certain is None else self.world.certain.at(self.t)
            together = joint_emission(certain, kernels)
            kernels = {"y": together}  # type: ignore[dict-item]
        return each_evidence(kernels, lambda kernel: self.loop.evidence(kernel, self.flow.arrived))


def scan_horizon(
    step: Callable[[Array, Array, Array], tuple[Array, Any]], first: Array, horizon: Array, control: Array
) -> tuple[Array, Any]:
    """Scan over the steps that count; further steps cost nothing, keep the carry and yield zeros.

    :param control: (T, P, U); each step gets its own (P, U).
    """
    step = jax.jit(step)  # traced once, for its shapes and for the loop
    like = jax.eval_shape(step, first, jnp.zeros((), int), control[0])[1]
    blank = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)

    def body(carry: Array, now: tuple[Array, Array]) -> tuple[Array, Any]:
        return jax.lax.cond(now[0] < horizon, step, lambda carry, *_: (carry, blank), carry, *now)

    return jax.lax.scan(body, first, (jnp.arange(len(control)), control))
