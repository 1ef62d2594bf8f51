"""F_active as a minimum: descent on the policy (and on learned parameters and states), in which F never rises.

With raw priors and the planning correction F_active is a function of the masses q(x,m,u,θ), and its derivatives are
costs (:mod:`npro_aif.inference.derivatives`). One backward pass with them yields Q̄(v,m,u), and a mirror step

    π ← π exp(−η Q̄) / Z,
    log q ← (η log q* + log q) / (1 + η)     for learned parameters and states, q* their minimiser,

is kept if F falls; η grows if it does and shrinks if it does not, so that nothing can cycle. The greedy step (η = ∞) is
tried first. It is kept only if F falls by as much as the backward pass promised: along this step the problem is then a
Markov decision process, which the step solves. A greedy step that delivers less would commit too early, as many minima
are mixed policies.

On the way to a mixed policy a few rows limit η, and the others would creep. So steps have momentum, much as in
Nesterov's method: after k kept steps in a row the next one starts from log q + k/(k+2) (log q − log q_before). If F
rises the step is dropped, and one without momentum follows; only if that fails too does η shrink.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from npro_aif.inference.posterior import Terms
from npro_aif.inference.temporal import TemporalPosterior
from npro_aif.solvers.passes import prior_policy
from npro_aif.solvers.steps import FLOOR, Exact, Mirror
from npro_aif.solvers.sweep import Sweep

FIRST = 1.0  # the first step size η, in 1/nats
GROWTH, SHRINKING = 2.0, 4.0  # factors of the step size if F falls, and if it does not
LATER = 1.05  # the growth factor once a step has failed: doubled steps would fail again at once and end the momentum
LAG = 2.0  # delays the momentum, which is k / (k + LAG) after k steps
SMALLEST = 1e-7  # if F does not fall at this step size, only rounding is left to gain
PATIENCE = 3  # a descent has settled after this many steps in a row that hardly gain
UNDECIDED = 0.1  # the share of the prior in the plan where a descent begins: mirror steps cannot leave certainty
DELIVERED = 1e-5  # the share of |F| (or of one nat) by which a greedy step may miss its promise


class Descent(NamedTuple):
    """The state of a descent."""

    sweep: Array  # () the number of steps tried
    posterior: TemporalPosterior
    before: TemporalPosterior  # the template before the last kept step
    mass: Array  # (T+1, S, Θ) q(θ, s_t)
    seen: Array  # (T, A, Θ) the costs of observations
    value: Array  # () F
    terms: Terms  # by name, ()
    size: Array  # () η
    failed: Array  # () whether a mirror step ever failed
    run: Array  # () the number of mirror steps kept in a row
    greedy: Array  # () whether the next step to try is the greedy one
    calm: Array  # () the number of steps in a row that gained less than the tolerance
    change: Array  # () the fall of F at the last kept step, relative to max(1, |F|)
    settled: Array  # ()
    history: Array  # (max_sweeps+1,) F before each step that was tried, and after the last


def descend(sweep: Sweep, first: TemporalPosterior, max_sweeps: int, tol: float) -> Descent:
    """Descend from a template on.

    :param tol: it has settled when F falls by less than this, relative to max(1, |F|).
    """
    mass = sweep.masses(first)
    seen, terms = sweep.look(first, mass)
    value = _sum(terms)
    start = Descent(
        sweep=jnp.asarray(0),
        posterior=first,
        before=first,
        mass=mass,
        seen=seen,
        value=value,
        terms=terms,
        size=jnp.asarray(FIRST, value.dtype),
        failed=jnp.asarray(False),
        run=jnp.asarray(0),
        greedy=jnp.asarray(True),
        calm=jnp.asarray(0),
        change=jnp.asarray(jnp.inf, value.dtype),
        settled=jnp.asarray(False),
        history=jnp.zeros(max_sweeps + 1, value.dtype),
    )

    def going(state: Descent) -> Array:
        return ~state.settled & (state.sweep < max_sweeps)

    end = jax.lax.while_loop(going, lambda state: _body(sweep, state, tol), start)
    history = jnp.where(jnp.arange(max_sweeps + 1) < end.sweep, end.history, end.value)
    return end._replace(history=history)


def led(sweep: Sweep, first: TemporalPosterior, count: int) -> TemporalPosterior:
    """A start for a descent: the plan of ``count`` sweeps without epistemic costs, mixed with a share of the prior."""

    def move(_: Array, q: TemporalPosterior) -> TemporalPosterior:
        return sweep.backward(q, sweep.masses(q), sweep.free(), Exact(correction=True))[0]

    q = jax.lax.fori_loop(0, count, move, first)
    prior = jax.vmap(lambda t: prior_policy(sweep.world, t))(jnp.arange(sweep.num_steps))
    return q._replace(control=jnp.logaddexp(math.log1p(-UNDECIDED) + q.control, math.log(UNDECIDED) + prior))


def _body(sweep: Sweep, state: Descent, tol: float) -> Descent:
    """Try one step, and keep it if F falls."""
    greedy = state.greedy
    costs = sweep.derivatives(state.posterior, state.mass, state.seen)
    step = Mirror(jnp.where(greedy, jnp.inf, state.size))
    share = state.run / (state.run + LAG)
    ahead = jax.tree.map(lambda now, before: _ahead(now, before, share), state.posterior, state.before)
    posterior, promised = sweep.backward(ahead, state.mass, costs, step)
    mass = sweep.masses(posterior)
    seen, terms = sweep.look(posterior, mass)
    value = _sum(terms)

    scale = jnp.maximum(1.0, jnp.abs(state.value))
    good = (value <= state.value) & (~greedy | (value <= promised + DELIVERED * scale))
    fall = jnp.where(good, (state.value - value) / scale, 0.0)
    hopeless = greedy & (state.value - promised <= tol * scale)
    calm = jnp.where(good, jnp.where(fall <= tol, state.calm + 1, 0), state.calm)
    grown = state.size * jnp.where(state.failed, LATER, GROWTH)
    shrunk = jnp.where(state.run > 0, state.size, state.size / SHRINKING)
    size = jnp.where(greedy, state.size, jnp.where(good, grown, shrunk))

    def kept(new: Array, old: Array) -> Array:
        return jnp.where(good, new, old)

    return Descent(
        sweep=state.sweep + 1,
        posterior=jax.tree.map(kept, posterior, state.posterior),
        before=jax.tree.map(kept, state.posterior, state.before),
        mass=kept(mass, state.mass),
        seen=kept(seen, state.seen),
        value=kept(value, state.value),
        terms=jax.tree.map(kept, terms, state.terms),
        size=size,
        failed=state.failed | ~(good | greedy),
        run=jnp.where(good & ~greedy, state.run + 1, 0),
        greedy=good & jnp.where(greedy, fall > tol, calm == 1),  # repeated only while it gains something
        calm=calm,
        change=kept(fall, state.change),
        settled=hopeless | (calm >= PATIENCE) | (size < SMALLEST),
        history=state.history.at[state.sweep].set(state.value),
    )


def _ahead(now: Array, before: Array, share: Array) -> Array:
    """A factor's logarithms, moved on by a share of the last step; impossible values stay impossible."""
    return now + share.astype(now.dtype) * (jnp.maximum(now, FLOOR) - jnp.maximum(before, FLOOR))


def _sum(terms: Terms) -> Array:
    return jnp.stack(list(terms.values())).sum()
