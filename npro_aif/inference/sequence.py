"""The sequence posterior q(u) q(x|u) q(y,θ|x) over whole sequences, as in the paper's proposition, and its free energy.

Sequences are flat indices in C order with t = 1 slowest. x_0 is summed out of the tables and is drawn from
p(x0|x1,u1,θ). :class:`SequenceTables` holds a World's tables over sequences; it is built once for a plan.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.errors import GuideError
from npro_aif.inference.epistemic import EpistemicPriors
from npro_aif.inference.marginals import Marginals
from npro_aif.inference.posterior import Evaluate, Terms
from npro_aif.numerics import divide, finite, neg_entropy, normalize, safe_log
from npro_aif.tables.evidence import Evidence
from npro_aif.tables.layout import time_slice
from npro_aif.tables.world import World

FLOOR = 1e-10  # the paper's code adds no mass below this where its tables are unrestricted


class Steps(NamedTuple):
    """A log-factor over sequences as a sum over time, with its first step apart, where x0 may tell about θ.

    An entry that is log 0 is the finite :data:`~npro_aif.numerics.NEVER`.
    """

    first: Array  # (Θ|1, U|1, X|1) of t = 1: meets q(θ,u_1,x_1)
    later: Array  # (Θ|1, N_u|1, N_x|1) of t = 2 … T: meets q(u,x), with q(θ|x) where it sees θ

    def whole(self, num_controls: int, num_states: int) -> Array:
        """The sum over all steps, (Θ|1, N_u|1, N_x|1)."""
        first = self.first
        for axis, num in ((1, num_controls), (2, num_states)):
            if first.shape[axis] > 1:  # t = 1 is the slowest digit of a sequence
                first = jnp.repeat(first, num // first.shape[axis], axis)
        return first + self.later


class SequenceTables(NamedTuple):
    """A world's factors over sequences: N_u = U^T, N_x = X^T, N_y = Y^T."""

    plan: Steps  # log p(u|x): Σ_t log p(u_t|x_{t-1})
    states: Steps  # log p(x|u,θ)
    moves: Steps  # log p̂ of states and controls
    emission: Array  # (N_x, N_y, Θ) log p(θ) + log p(y|x,θ)
    outcomes: Array  # (N_x|1, N_y|1, Θ|1) log p̂ of observations
    origin: Array  # (Θ, U, X, X0) p(x0|x1,u1,θ)
    controls: Array  # (N_u, T, U) which control a sequence has at t
    places: Array  # (N_x, T, X)
    sights: dict[str, Array]  # by observation site, (N_y, T, Y)

    def whole(self, factor: Steps) -> Array:
        """A log-factor over all steps, (Θ|1, N_u|1, N_x|1)."""
        return factor.whole(len(self.controls), len(self.places))


class SequencePosterior(NamedTuple):
    """q as three tables over sequences."""

    control: Array  # (N_u,) log q(u)
    state: Array  # (N_u, N_x) log q(x|u)
    emission: Array  # (N_x, N_y, Θ) log q(y,θ|x)
    tables: SequenceTables

    @property
    def scope(self) -> str:
        return "sequence"

    def whole(self) -> Whole:
        """All the steps, as one part."""
        return Whole(self, mass(self, *self.tables.origin.shape[1:3]))

    def terms(self, world: World, evaluate: Evaluate) -> Terms:
        return evaluate(self.whole())

    def priors(self, world: World, priors: Callable[[Whole], EpistemicPriors]) -> EpistemicPriors:
        """log p̃ over sequences: (N_u,), (N_x,) and (N_x, N_y)."""
        return priors(self.whole()).log()

    def marginals(self, world: World) -> Marginals:
        return self.whole().marginals()

    def first_control(self, world: World) -> Array:
        return self.marginals(world).control[0]


def digits(size: int, length: int) -> np.ndarray:
    """All sequences of ``length`` numbers below ``size``, (size^length, length).

    >>> digits(2, 2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    grid = np.indices((size,) * length, dtype=np.int32)
    return grid.reshape(length, -1).T


def check_open(world: World) -> None:
    """Refuse a world whose policy sees less or more than every state."""
    if world.loop.closed:
        raise GuideError(
            "sequences: found a world with hidden states, memories or observations of controls, expected none: q(u) "
            "is over whole plans, made before anything is observed, and remembers nothing (use TemporalGuide)"
        )


def sequence_tables(world: World, length: int, floor: float = 0.0, *, chosen: bool = False) -> SequenceTables:
    """The tables of a world over sequences of ``length`` steps.

    :param floor: with unrestricted tables, probabilities of the model's factors are raised to this.
    :param chosen: whether the first control is chosen, so that it tells nothing about x0 even if its prior sees x0:
        ``origin`` and ``states`` are then without p(u1|x0). Otherwise they include it, as x0 is summed out of
        log p(u1,x1|θ).
    """
    check_open(world)
    signature = world.signature
    us, xs = digits(signature.num_controls, length), digits(signature.num_states, length)
    names, sizes = [s.name for s in signature.observation], [s.size for s in signature.observation]
    ys = digits(signature.num_observations, length)  # flat over the sites of a slice
    sites = np.stack(np.unravel_index(ys, sizes)) if sizes else np.zeros((0, *ys.shape), np.int32)

    def at(table: Array, t: int, x: object = 0, u: object = 0, nxt: object = 0) -> Array:
        """Entries (θ, …) of a table (t, θ, x, u, x') at index arrays; 0 where an axis has size 1."""
        row = time_slice(table, t)
        picks = [0 if size == 1 else pick for size, pick in zip(row.shape[1:], (x, u, nxt), strict=True)]
        return row[(slice(None), *picks)]

    raised = functools.partial(_raise_log, floor=floor)
    u, x = us[:, None, :], xs[None, :, :]
    origin, plan_first, states_first = _first_step(world, floor, chosen)
    free = world.control.shape[1] == 1
    plan = Steps(plan_first, jnp.zeros((1, 1, 1)))
    states = Steps(states_first, jnp.zeros((1, 1, 1)))
    moves = Steps(_first_moves(world, origin), jnp.zeros((1, 1, 1)))
    transition = world.state.table()
    for t in range(1, length):
        prior = raised(time_slice(world.control, t))[None, 0 if free else x[..., t - 1], u[..., t]]
        plan = plan._replace(later=plan.later + prior)
        move = raised(at(transition, t, x[..., t - 1], u[..., t], x[..., t]))
        states = states._replace(later=states.later + move)
        for table in world.preference.values():
            entries = at(table, t, x[..., t - 1], u[..., t], x[..., t])
            moves = moves._replace(later=moves.later + (entries[:, None, None] if entries.ndim == 1 else entries))
    emission = jnp.zeros((len(xs), len(ys), world.parameter.shape[0])) + raised(world.parameter)
    outcomes = jnp.zeros((1, 1, 1))
    for t in range(length):
        per_site = [world.observation[name].at(t).table() for name in names]  # (Θ|1, X, Y)
        if per_site:
            seen = [
                jnp.moveaxis(table, 0, -1)[xs[:, None, t], site[None, :, t]]
                for table, site in zip(per_site, sites, strict=True)
            ]
            emission = emission + raised(sum(seen, start=jnp.zeros(())))
        for site, name in zip(sites, names, strict=True):
            for table in world.observation_preference[name]:
                row = jnp.moveaxis(time_slice(table, t), 0, -1)  # (X|1, Y, Θ|1)
                outcomes = outcomes + row[0 if row.shape[0] == 1 else xs[:, None, t], site[None, :, t]]
    return SequenceTables(
        plan=plan,
        states=states,
        moves=moves,
        emission=emission,
        outcomes=outcomes,
        origin=origin,
        controls=jax.nn.one_hot(us, signature.num_controls),
        places=jax.nn.one_hot(xs, signature.num_states),
        sights={name: jax.nn.one_hot(site, size) for name, site, size in zip(names, sites, sizes, strict=True)},
    )


def _raise_log(log: Array, floor: float) -> Array:
    return jnp.maximum(log, jnp.log(floor)) if floor else finite(log)


def _first_step(world: World, floor: float, chosen: bool) -> tuple[Array, Array, Array]:
    """p(x0|x1,u1,θ) (Θ,U,X,X0); E[log p(u1|x0)] over it (Θ|1,U,X|1); and the rest of log p(u1,x1|θ) (Θ,U,X)."""
    raised = functools.partial(_raise_log, floor=floor)
    prior = time_slice(world.control, 0)  # (X|1, U)
    free = prior.shape[0] == 1  # the control prior does not see the state
    kernel = jnp.exp(world.state.at(0).table())  # (Θ|1, X|1, U|1, X')
    reach = jnp.exp(world.initial)[:, :, None, None] * kernel
    shape = (*world.initial.shape, world.control.shape[-1], world.initial.shape[1])
    joint = jnp.broadcast_to(reach if free or chosen else reach * jnp.exp(prior)[None, :, :, None], shape)
    joint = jnp.moveaxis(joint, 1, -1)  # (Θ, U, X', X0)
    total = joint.sum(-1)
    fallback = jnp.broadcast_to(jnp.exp(world.initial)[:, None, None, :], joint.shape)
    origin = jnp.where(total[..., None] > 0, normalize(joint), fallback)
    if free:
        plan, log_total = raised(prior)[0][None, :, None], finite(safe_log(total))
        return origin, plan, raised(log_total + plan) - plan if floor else log_total
    plan = (origin * raised(prior).T[None, :, None, :]).sum(-1)
    return origin, plan, finite(safe_log(total)) if chosen else raised(safe_log(total)) - plan


def _first_moves(world: World, origin: Array) -> Array:
    """E[log p̂] of the first step over p(x0|x1,u1,θ), (Θ|1, U|1, X)."""
    total: Array = jnp.zeros((1, 1, origin.shape[2]))
    for table in world.preference.values():
        edge = jnp.moveaxis(time_slice(table, 0), 1, -1)  # (Θ|1, U|1, X'|1, X0|1)
        total = total + (edge[..., 0] if edge.shape[-1] == 1 else (origin * edge).sum(-1))
    return total


class SequenceMass(NamedTuple):
    """Probabilities and marginals of a sequence posterior, computed once for all terms."""

    control: Array  # (N_u,) q(u)
    moved: Array  # (N_u, N_x) q(x|u)
    state: Array  # (N_x,) q(x)
    emission: Array  # (N_x, N_y, Θ) q(y,θ|x)
    parameter: Array  # (N_x, Θ) q(θ|x)
    first: Array  # (Θ, U, X) q(θ,u_1,x_1)
    entropy: Array  # (N_u,) H[q(x|u)]


def mass(posterior: SequencePosterior, num_controls: int = 1, num_states: int = 1) -> SequenceMass:
    """The probabilities of a posterior.

    :param num_controls: of one slice, as ``num_states``; needed for ``first`` alone.
    """
    control, moved, emission = (jnp.exp(log) for log in posterior[:3])
    parameter = emission.sum(1)
    begins = jnp.repeat(jnp.eye(num_controls, dtype=control.dtype), len(control) // num_controls, axis=1)  # (U, N_u)
    after_first = (begins * control) @ moved  # (U, N_x) q(u_1,x)
    first = jnp.einsum(
        "ukr,kri->iuk",
        after_first.reshape(num_controls, num_states, -1),
        parameter.reshape(num_states, -1, parameter.shape[1]),
    )
    entropy = -(moved * finite(posterior.state)).sum(1)
    return SequenceMass(control, moved, after_first.sum(0), emission, parameter, first, entropy)


def expectation(q: SequenceMass, table: Steps) -> Array:
    """E_q of a log-factor over sequences."""
    return (q.first * table.first).sum() + _later_expectation(q, table.later)


def _later_expectation(q: SequenceMass, table: Array) -> Array:
    if table.shape[0] == table.shape[2] == 1:
        return (q.control * table[0, :, 0]).sum()
    if table.shape[1] == 1:
        return (q.state[:, None] * q.parameter * table[:, 0].T).sum()
    if table.shape[0] == 1:
        return q.control @ (q.moved * table[0]).sum(1)
    by_theta = [q.control @ (q.moved * table[i] * q.parameter[:, i]).sum(1) for i in range(table.shape[0])]
    return sum(by_theta, start=jnp.zeros(()))


def sequence_evidence(q: SequenceMass, log_emission: Array) -> Evidence:
    """q(y|x), KL[q(θ|y,x)‖q(θ|x)] and E_q(θ|x) H[q(y|x,θ)] for every x sequence."""
    seen = q.emission.sum(-1)  # (N_x, N_y) q(y|x)
    log_parameter = finite(safe_log(q.parameter))[:, None, :]
    live = q.emission > 0
    gained = q.emission * jnp.where(live, log_emission - log_parameter, 0.0)
    gain = divide(gained.sum(-1), seen) - jnp.where(seen > 0, safe_log(jnp.where(seen > 0, seen, 1.0)), 0.0)
    return Evidence(seen, jnp.where(seen > 0, gain, 0.0), -gained.sum((-1, -2)))


def policy_masses(tables: SequenceTables, q: SequenceMass) -> list[Array]:
    """q(x_{t-1}, u_t) for t = 1 … T, each (X, U)."""
    before = tables.places[:, :-1]  # (N_x, T-1, X) where a sequence is at t - 1
    shape = before.shape[1:]
    reached = q.control[:, None] * (q.moved @ before.reshape(len(before), math.prod(shape)))  # (N_u, (T-1) X)
    pairs = jnp.einsum("ntx,ntu->txu", reached.reshape(len(reached), *shape), tables.controls[:, 1:])
    return [jnp.einsum("iuk,iukx->xu", q.first, tables.origin), *pairs]


def mass_entropy(masses: list[Array]) -> Array:
    """Σ_t H[q(u_t|x_{t-1})] from q(x_{t-1}, u_t), each (X, U)."""
    return sum((neg_entropy(m.sum(-1)).sum() - neg_entropy(m).sum() for m in masses), start=jnp.zeros(()))


class Whole(NamedTuple):
    """The statistics of whole sequences, as :class:`~npro_aif.inference.posterior.Part` says."""

    posterior: SequencePosterior
    mass: SequenceMass

    def preference(self) -> Array:
        tables, q = self.posterior.tables, self.mass
        total = expectation(q, tables.moves)
        if tables.outcomes.shape != (1, 1, 1):
            total = total + q.state @ (q.emission * tables.outcomes).sum((1, 2))
        return total

    def complexity(self) -> Array:
        tables, q = self.posterior.tables, self.mass
        gap = (q.emission * (finite(self.posterior.emission) - tables.emission)).sum((1, 2))  # KL[q(y,θ|x) ‖ p], (N_x,)
        return q.state @ gap - q.control @ q.entropy - expectation(q, tables.states)

    def plan_prior(self) -> Array:
        q = self.mass
        return (q.control * finite(self.posterior.control)).sum() - expectation(q, self.posterior.tables.plan)

    def policy_entropy(self) -> Array:
        return mass_entropy(policy_masses(self.posterior.tables, self.mass))

    def control(self) -> Array:
        return self.mass.control

    def state(self) -> Array:
        return self.mass.state

    def move_entropy(self) -> Array:
        return self.mass.entropy

    def evidence(self, *, joint: bool) -> dict[str, Evidence]:
        """The joint information in any case: the guide's q(y,θ|x) is over all sites and steps."""
        return {"y": sequence_evidence(self.mass, self.posterior.emission)}

    def marginals(self) -> Marginals:
        tables, q = self.posterior.tables, self.mass
        masses = policy_masses(tables, q)
        seen = q.state @ q.emission.sum(-1)  # (N_y,)
        return Marginals(
            control=jnp.stack([m.sum(0) for m in masses]),
            policy=jnp.stack([normalize(m) for m in masses]),
            state=jnp.concatenate([masses[0].sum(-1)[None], jnp.einsum("n,ntx->tx", q.state, tables.places)]),
            parameter=q.state @ q.parameter,
            observation={name: jnp.einsum("n,nty->ty", seen, sights) for name, sights in tables.sights.items()},
            memory=jnp.ones((len(masses) + 1, 1)),
        )
