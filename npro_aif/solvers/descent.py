"""F_active as a minimum: descent on the policy (and on learned parameters and states) that never leads upwards.

With raw priors and the planning correction F_active is a function of the masses q(x,m,u,θ), and its derivatives are
costs (:mod:`npro_aif.inference.derivatives`). One backward pass with them yields Q̄(v,m,u), and a mirror step

    π ← π exp(−η Q̄) / Z,
    log q ← (η log q* + log q) / (1 + η)     for learned parameters and states, q* their minimiser,

is kept if F falls; η grows where it does and shrinks where it does not, so that nothing can cycle. First of all the
greedy step (η = ∞) is tried. It is kept only if F falls by all that the backward pass promised: then the problem is a
Markov decision process as far as it goes, and the step solves it. Where it delivers less it would commit too early:
many minima are mixed policies.

On the way to a mixed policy a few rows bound η and the others creep. So steps have momentum, much as in Nesterov's
method: after k steps in a row that were kept the next one sets out from log q + k/(k+2) (log q − log q_before). If F
rises it is not kept, and one without momentum follows; only if that fails, too, η shrinks.
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
GROWTH, SHRINKING = 2.0, 4.0  # of the step size, where F falls and where it does not;
LATER = 1.05  # and its growth once a step has failed: twofold steps fail again at once, which ends the momentum
LAG = 2.0  # how late the momentum comes: k / (k + LAG) after k steps
SMALLEST = 1e-7  # a step size at which F does not fall: there is nothing left to gain but rounding
PATIENCE = 3  # how many steps in a row that hardly gain mean that it has settled
UNDECIDED = 0.1  # the share of the prior in a plan that a descent begins at: mirror steps do not leave certainty
DELIVERED = 1e-5  # how much of |F| (or of one nat) a greedy step may miss of its promise


class Descent(NamedTuple):
    """How far it has come."""

    sweep: Array  # () how many steps were tried
    posterior: TemporalPosterior
    before: TemporalPosterior  # the one before the last step that was kept
    mass: Array  # (T+1, S, Θ) q(θ, s_t)
    seen: Array  # (T, A, Θ) what observations cost
    value: Array  # () F
    terms: Terms  # by name, ()
    size: Array  # () η
    failed: Array  # () whether a mirror step ever failed
    run: Array  # () how many mirror steps in a row were kept
    greedy: Array  # () whether the next step to try is the greedy one
    calm: Array  # () how many steps in a row gained less than the tolerance
    change: Array  # () by how much F fell at the last step that was kept, relative to max(1, |F|)
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
    """Where a descent may begin: at the plan of this many sweeps without epistemic costs, with a share of the prior."""

    def move(_: Array, q: TemporalPosterior) -> TemporalPosterior:
        return sweep.backward(q, sweep.masses(q), sweep.free(), Exact(correction=True))[0]

    q = jax.lax.fori_loop(0, count, move, first)
    prior = jax.vmap(lambda t: prior_policy(sweep.world, t))(jnp.arange(sweep.num_steps))
    return q._replace(control=jnp.logaddexp(math.log1p(-UNDECIDED) + q.control, math.log(UNDECIDED) + prior))


def _body(sweep: Sweep, state: Descent, tol: float) -> Descent:
    """Try one step, and keep it if it is good."""
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
        greedy=good & jnp.where(greedy, fall > tol, calm == 1),  # again only while it gains something
        calm=calm,
        change=kept(fall, state.change),
        settled=hopeless | (calm >= PATIENCE) | (size < SMALLEST),
        history=state.history.at[state.sweep].set(state.value),
    )


def _ahead(now: Array, before: Array, share: Array) -> Array:
    """A factor's logarithms, moved on by a share of the last step; what is impossible stays so."""
    return now + share.astype(now.dtype) * (jnp.maximum(now, FLOOR) - jnp.maximum(before, FLOOR))


def _sum(terms: Terms) -> Array:
    return jnp.stack(list(terms.values())).sum()
