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
from npro_aif.numerics import divide, mul_log, sum_last
from npro_aif.tables.evidence import Evidence
from npro_aif.tables.kernels import Emission, Transition
from npro_aif.tables.layout import contract, time_slice
from npro_aif.tables.world import World


class TemporalPosterior(NamedTuple):
    """q as conditional tables, one for each factor and time."""

    parameter: Array  # (Θ,) log q(θ)
    initial: Array  # (Θ, X) log p(x0|θ)
    control: Array  # (T, X, U) log q(u_t|x_{t-1})
    state: Transition  # (T|1, Θ|1, X|1, U|1, X') q(x_t|x_{t-1},u_t,θ); the world's own where it is not learned
    observation: dict[str, Emission]  # by site, (T|1, Θ|1, X, Y) q(y_t|x_t,θ)

    @property
    def scope(self) -> str:
        return "temporal"

    @property
    def num_steps(self) -> int:
        return self.control.shape[0]

    def start(self) -> Array:
        """q(θ, x0), (X, Θ)."""
        return jnp.exp(self.parameter) * jnp.exp(self.initial).T

    def slice(self, world: World, t: Array, before: Array) -> Slice:
        """The slice into which q(θ, x_{t-1}), (X, Θ), flows."""
        state = self.state.at(t)
        return self.slice_of(world, t, flow(self.control[t], state, before), state)

    def slice_of(self, world: World, t: Array, now: Flow, state: Transition | None = None) -> Slice:
        """The slice in which the mass moves as it is known to."""
        observation = {name: kernel.at(t) for name, kernel in self.observation.items()}
        return Slice(world, self, t, now, self.state.at(t) if state is None else state, observation)

    def terms(self, world: World, evaluate: Evaluate) -> Terms:
        """The sum over slices.

        The gradient recomputes what a slice is made of, but for its costs: to keep it would cost more than to make it.
        """

        def step(before: Array, t: Array) -> tuple[Array, Terms]:
            now = self.slice(world, t, before)
            return now.flow.after, evaluate(now)

        step = jax.checkpoint(step, prevent_cse=False, policy=jax.checkpoint_policies.save_only_these_names(COSTS))
        _, terms = scan_horizon(step, self.start(), self.num_steps, world.horizon)
        return {name: values.sum() for name, values in terms.items()}

    def priors(self, world: World, priors: Callable[[Slice], EpistemicPriors]) -> EpistemicPriors:
        """log p̃ of every slice, stacked along a leading time axis."""

        def step(before: Array, t: Array) -> tuple[Array, EpistemicPriors]:
            now = self.slice(world, t, before)
            return now.flow.after, priors(now).log()

        return jax.lax.scan(step, self.start(), jnp.arange(self.num_steps))[1]

    def marginals(self, world: World) -> Marginals:
        """All marginals in one forward pass."""

        def step(before: Array, t: Array) -> tuple[Array, tuple[Array, Array, dict[str, Array]]]:
            now = self.slice(world, t, before)
            seen = {name: kernel.predict(now.flow.after.T) for name, kernel in now.observation.items()}
            return now.flow.after, (now.control(), now.state(), seen)

        first = self.start()
        last, (control, state, seen) = scan_horizon(step, first, self.num_steps, world.horizon)
        beyond = jnp.arange(self.num_steps)[:, None] >= world.horizon
        return Marginals(
            control=control,
            policy=jnp.exp(self.control),
            state=jnp.concatenate([sum_last(first)[None], jnp.where(beyond, sum_last(last), state)]),
            parameter=jnp.exp(self.parameter),
            observation=seen,
        )

    def first_control(self, world: World) -> Array:
        return sum_last(self.start()) @ jnp.exp(self.control[0])


class Flow(NamedTuple):
    """The mass that moves through one time slice."""

    before: Array  # (X, Θ) q(θ, x_{t-1})
    policy: Array  # (X, U) q(u_t|x_{t-1})
    after: Array  # (X', Θ) q(θ, x_t)

    @property
    def mass(self) -> Array:
        """q(x_{t-1}, u_t), (X, U)."""
        return sum_last(self.before)[:, None] * self.policy

    def over_moves(self, table: Array) -> Array:
        """Σ_{θ,x,u} q(θ,x,u) table(θ,x,u), the table (Θ|1, X|1, U|1)."""
        return contract("", (self.before, "xi"), (self.policy, "xu"), (table, "ixu"))

    def over_arrivals(self, table: Array) -> Array:
        """Σ_{θ,x'} q(θ,x') table(θ,x'), the table (Θ|1, X'|1)."""
        return contract("", (self.after, "ki"), (table, "ik"))


def flow(control: Array, state: Transition, before: Array) -> Flow:
    """Push q(θ, x_{t-1}) through the policy's slice log q(u_t|x_{t-1}) (X, U) and the state kernel's slice."""
    policy = jnp.exp(control)
    return Flow(before, policy, state.push(before, policy))


class Slice(NamedTuple):
    """The statistics of one time slice, as :class:`~npro_aif.inference.posterior.Part` says."""

    world: World
    posterior: TemporalPosterior
    t: Array  # () from 0 on
    flow: Flow
    kernel: Transition  # q(x_t|x_{t-1},u_t,θ)
    observation: dict[str, Emission]  # by site, q(y_t|x_t,θ)

    def preference(self) -> Array:
        total: Array = jnp.zeros((), self.flow.after.dtype)
        for table in self.world.preference.values():
            edge = time_slice(table, self.t)  # (Θ|1, X|1, U|1, X'|1)
            if edge.shape[1] == edge.shape[2] == 1:
                total = total + self.flow.over_arrivals(edge[:, 0, 0, :])
            else:
                total = total + self.flow.over_moves(edge[..., 0] if edge.shape[3] == 1 else self.kernel.expect(edge))
        for site, tables in self.world.observation_preference.items():
            for table in tables:
                expected = self.observation[site].expect(time_slice(table, self.t))  # (Θ|1, X'|1)
                total = total + self.flow.over_arrivals(expected)
        return total

    def complexity(self) -> Array:
        """KL of the factors that differ from the model's; that of q(θ) counts at the first step."""
        world, posterior, t = self.world, self.posterior, self.t
        total: Array = jnp.zeros((), self.flow.after.dtype)
        if posterior.parameter is not world.parameter:
            total = total + jnp.where(t == 0, _divergence(posterior.parameter, world.parameter), 0.0)
        if posterior.state is not world.state:
            total = total + self.flow.over_moves(self.kernel.divergence(world.state.at(t)))
        for name, kernel in self.observation.items():
            if posterior.observation[name] is not world.observation[name]:
                total = total + self.flow.over_arrivals(kernel.divergence(world.observation[name].at(t)))
        return total

    def plan_prior(self) -> Array:
        mass, prior = self.flow.mass, time_slice(self.world.control, self.t)
        return mul_log(mass, self.posterior.control[self.t] - jnp.where(mass > 0, prior, 0.0)).sum()

    def policy_entropy(self) -> Array:
        return -mul_log(self.flow.mass, self.posterior.control[self.t]).sum()

    def control(self) -> Array:
        return self.flow.mass.sum(0)

    def state(self) -> Array:
        return sum_last(self.flow.after)

    def move_entropy(self) -> Array:
        entropy = (self.flow.policy.T * self.kernel.spread(self.flow.before)).sum(-1)  # Σ_x q(x,u) H[x'|x,u]
        return divide(entropy, self.control())

    def evidence(self) -> dict[str, Evidence]:
        after = self.flow.after.T
        return {name: kernel.evidence(after) for name, kernel in self.observation.items()}


def _divergence(q: Array, p: Array) -> Array:
    """KL[q ‖ p] of log-probabilities (Θ,)."""
    believed = jnp.exp(q)
    return mul_log(believed, q - jnp.where(believed > 0, p, 0.0)).sum()


def scan_horizon(
    step: Callable[[Array, Array], tuple[Array, Any]], first: Array, num_steps: int, horizon: Array
) -> tuple[Array, Any]:
    """Scan over the steps that count; the others cost nothing, keep the carry and yield zeros."""
    blank = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(step, first, jnp.zeros((), int))[1])

    def body(carry: Array, t: Array) -> tuple[Array, Any]:
        return jax.lax.cond(t < horizon, step, lambda carry, t: (carry, blank), carry, t)

    return jax.lax.scan(body, first, jnp.arange(num_steps))
