"""The sequence posterior q(u) q(x|u) q(y,θ|x) over whole sequences, as in the paper's proposition, and its free energy.

Sequences are flat indices in C order with t = 1 slowest. x_0 is summed out of the tables and is drawn from
p(x0|x1,u1,θ). :class:`SequenceTables` holds what a World says about sequences; it is built once for a plan.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.epistemic import EpistemicCosts, EpistemicPriors, epistemic_costs, epistemic_priors
from npro_aif.kernels import Evidence, contract, time_slice
from npro_aif.numerics import divide, hold, mul_log, neg_entropy, normalize, safe_log
from npro_aif.objectives import Objective
from npro_aif.temporal import Marginals
from npro_aif.world import World

FLOOR = 1e-10  # the paper's code adds no mass below this where its tables are unrestricted


class SequenceTables(NamedTuple):
    """A world's factors over sequences: N_u = U^T, N_x = X^T, N_y = Y^T."""

    plan: Array  # (Θ|1, N_u, N_x|1) log p(u|x): Σ_t log p(u_t|x_{t-1})
    states: Array  # (Θ|1, N_u, N_x) log p(x|u,θ)
    emission: Array  # (N_x, N_y, Θ) log p(θ) + log p(y|x,θ)
    moves: Array  # (Θ|1, N_u|1, N_x) log p̂ of states and controls
    outcomes: Array  # (N_x, N_y, Θ) log p̂ of observations
    origin: Array  # (Θ, U, X, X0) p(x0|x1,u1,θ)
    controls: tuple[Array, ...]  # for each t, (N_u, U) which control a sequence has at t
    places: tuple[Array, ...]  # for each t, (N_x, X)
    sights: dict[str, tuple[Array, ...]]  # by observation site, for each t, (N_y, Y)


class SequencePosterior(NamedTuple):
    """q as three tables over sequences."""

    control: Array  # (N_u,) log q(u)
    state: Array  # (N_u, N_x) log q(x|u)
    emission: Array  # (N_x, N_y, Θ) log q(y,θ|x)
    tables: SequenceTables

    def terms(self, world: World, objective: Objective) -> dict[str, Array]:
        return sequence_terms(self, objective)

    def marginals(self, world: World) -> Marginals:
        return sequence_marginals(self)


def digits(size: int, length: int) -> np.ndarray:
    """All sequences of ``length`` numbers below ``size``, (size^length, length).

    >>> digits(2, 2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    grid = np.indices((size,) * length, dtype=np.int32)
    return grid.reshape(length, -1).T


def sequence_tables(world: World, length: int, floor: float = 0.0) -> SequenceTables:
    """What ``world`` says about sequences of ``length`` steps.

    :param floor: with unrestricted tables, probabilities of the model's factors are raised to this.
    """
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
    origin, log_first, plan_first = _first_step(world, raised)
    free = world.control.shape[1] == 1  # the control prior does not see the state
    plan = plan_first[:, u[..., 0], 0 if free else x[..., 0]]
    states = raised(log_first)[:, u[..., 0], x[..., 0]] - plan
    moves = _first_moves(world, origin)[:, u[..., 0], x[..., 0]]
    if all(t.shape[2] == t.shape[3] == 1 for t in world.preference.values()):
        moves = moves[:, :1]  # no preference sees a control or where it came from
    transition = world.state.table()
    for t in range(1, length):
        plan = plan + raised(time_slice(world.control, t))[None, 0 if free else x[..., t - 1], u[..., t]]
        states = states + raised(at(transition, t, x[..., t - 1], u[..., t], x[..., t]))
        for table in world.preference.values():
            entries = at(table, t, x[..., t - 1], u[..., t], x[..., t])
            moves = moves + (entries[:, None, None] if entries.ndim == 1 else entries)
    emission = jnp.zeros((len(xs), len(ys), world.parameter.shape[0])) + raised(world.parameter)
    outcomes = jnp.zeros((1, 1, 1))
    for t in range(length):
        per_site = [world.observation[name].at(t).table() for name in names]  # (Θ|1, X, Y)
        if per_site:
            joint = sum(
                jnp.moveaxis(table, 0, -1)[xs[:, None, t], site[None, :, t]]
                for table, site in zip(per_site, sites, strict=True)
            )
            emission = emission + raised(joint)
        for site, name in zip(sites, names, strict=True):
            for table in world.observation_preference[name]:
                row = jnp.moveaxis(time_slice(table, t), 0, -1)  # (X|1, Y, Θ|1)
                outcomes = outcomes + row[0 if row.shape[0] == 1 else xs[:, None, t], site[None, :, t]]
    return SequenceTables(
        plan=plan,
        states=states,
        emission=emission,
        moves=moves,
        outcomes=outcomes,
        origin=origin,
        controls=tuple(jax.nn.one_hot(us[:, t], signature.num_controls) for t in range(length)),
        places=tuple(jax.nn.one_hot(xs[:, t], signature.num_states) for t in range(length)),
        sights={
            name: tuple(jax.nn.one_hot(site[:, t], size) for t in range(length))
            for name, site, size in zip(names, sites, sizes, strict=True)
        },
    )


def _raise_log(log: Array, floor: float) -> Array:
    return jnp.maximum(log, jnp.log(floor)) if floor else log


def _first_step(world: World, raised: Callable[[Array], Array]) -> tuple[Array, Array, Array]:
    """p(x0|x1,u1,θ) (Θ,U,X,X0); log p(u1,x1|θ) (Θ,U,X); and the part of it that is E[log p(u1|x0)]."""
    prior = time_slice(world.control, 0)  # (X|1, U)
    kernel = jnp.exp(world.state.at(0).table())  # (Θ|1, X|1, U|1, X')
    start = jnp.exp(world.initial)[:, :, None, None]
    joint = jnp.moveaxis(start * jnp.exp(prior)[None, :, :, None] * kernel, 1, -1)  # (Θ, U, X', X0)
    total = joint.sum(-1)
    fallback = jnp.broadcast_to(jnp.exp(world.initial)[:, None, None, :], joint.shape)
    origin = jnp.where(total[..., None] > 0, normalize(joint), fallback)
    plan = mul_log(origin, jnp.moveaxis(raised(prior)[None, :, :, None], 1, -1)).sum(-1)
    return origin, safe_log(total), plan


def _first_moves(world: World, origin: Array) -> Array:
    """E[log p̂] of the first step over p(x0|x1,u1,θ), (Θ|1, U, X)."""
    total: Array = jnp.zeros((1, *origin.shape[1:3]))
    for table in world.preference.values():
        edge = jnp.moveaxis(time_slice(table, 0), 1, -1)  # (Θ|1, U|1, X'|1, X0|1)
        total = total + (edge[..., 0] if edge.shape[-1] == 1 else (origin * edge).sum(-1))
    return total


def expectation(weight: Array, state: Array, parameter: Array, table: Array) -> Array:
    """E_q of a table (Θ|1, N_u|1, N_x|1): weight is q(u,x), state q(x), parameter q(θ|x) (N_x, Θ)."""
    if table.shape[0] == table.shape[2] == 1:
        return mul_log(weight.sum(1), table[0, :, 0]).sum()
    if table.shape[1] == 1:
        return mul_log(state[:, None] * parameter, table[:, 0].T).sum()
    if table.shape[0] == 1:
        return mul_log(weight, table[0]).sum()
    return sum(mul_log(weight * parameter[:, i], table[i]).sum() for i in range(table.shape[0]))  # type: ignore[return-value]


class SequenceMass(NamedTuple):
    """Probabilities and marginals of a sequence posterior, computed once for all terms."""

    control: Array  # (N_u,) q(u)
    joint: Array  # (N_u, N_x) q(u,x)
    state: Array  # (N_x,) q(x)
    emission: Array  # (N_x, N_y, Θ) q(y,θ|x)
    parameter: Array  # (N_x, Θ) q(θ|x)


def mass(posterior: SequencePosterior) -> SequenceMass:
    control = jnp.exp(posterior.control)
    joint = control[:, None] * jnp.exp(posterior.state)
    emission = jnp.exp(posterior.emission)
    return SequenceMass(control, joint, joint.sum(0), emission, emission.sum(1))


def sequence_evidence(q: SequenceMass, log_emission: Array) -> Evidence:
    """q(y|x), KL[q(θ|y,x)‖q(θ|x)] and E_q(θ|x) H[q(y|x,θ)] for every x sequence."""
    seen = q.emission.sum(-1)  # (N_x, N_y) q(y|x)
    log_parameter = safe_log(q.parameter)[:, None, :]
    live = q.emission > 0
    gained = mul_log(q.emission, jnp.where(live, log_emission - jnp.where(live, log_parameter, 0.0), 0.0))
    novelty = divide(gained.sum(-1), seen) - jnp.where(seen > 0, safe_log(jnp.where(seen > 0, seen, 1.0)), 0.0)
    return Evidence(seen, jnp.where(seen > 0, novelty, 0.0), -gained.sum((-1, -2)))


def sequence_costs(
    posterior: SequencePosterior, q: SequenceMass, objective: Objective
) -> tuple[EpistemicCosts, EpistemicPriors]:
    """The epistemic costs and priors over sequences."""
    entropy = -mul_log(jnp.exp(posterior.state), posterior.state).sum(-1)
    arguments = entropy, q.control, {"y": sequence_evidence(q, posterior.emission)}, q.state
    switches = {"normalize": objective.normalize, "weight": objective.weight}
    return epistemic_costs(*arguments, **switches), epistemic_priors(*arguments, **switches)


def policy_masses(posterior: SequencePosterior, q: SequenceMass) -> list[Array]:
    """q(x_{t-1}, u_t) for t = 1 … T, each (X, U)."""
    tables = posterior.tables
    by_control = [jnp.einsum("nx,nu->ux", q.joint, c) for c in tables.controls]  # q(u_t, x sequence)
    at_first = contract("iuk", (by_control[0], "ux"), (q.parameter, "xi"), (tables.places[0], "xk"))
    masses = [jnp.einsum("iuk,iukx->xu", at_first, tables.origin)]
    for t in range(1, len(tables.controls)):
        masses.append(tables.places[t - 1].T @ by_control[t].T)
    return masses


def sequence_terms(posterior: SequencePosterior, objective: Objective) -> dict[str, Array]:
    """The free energy of a sequence posterior, term by term (see :meth:`Objective.terms`)."""
    tables, q = posterior.tables, mass(posterior)
    keep = hold(objective.gradient)
    expect = functools.partial(expectation, q.joint, q.state, q.parameter)
    emitted = q.state[:, None, None] * q.emission
    terms = {
        "risk": -expect(tables.moves) - (emitted * tables.outcomes).sum(),
        "complexity": mul_log(q.joint, posterior.state).sum()
        - expect(tables.states)
        + mul_log(emitted, posterior.emission - tables.emission).sum(),
        "plan_prior": mul_log(q.control, posterior.control).sum() - expect(tables.plan),
    }
    if objective.correction:
        terms["correction"] = sum(
            neg_entropy(m.sum(-1)).sum() - neg_entropy(m).sum() for m in policy_masses(posterior, q)
        )
    if objective.epistemic:
        costs = jax.tree.map(keep, sequence_costs(posterior, q, objective)[0])
        terms["risk"] += (q.control * costs.control).sum()
        terms["ambiguity"] = (q.state * costs.ambiguity).sum()
        terms["novelty"] = (q.state * costs.novelty).sum()
        if objective.normalize:
            terms["normalizer"] = costs.normalizer
    return terms


def sequence_priors(posterior: SequencePosterior, objective: Objective) -> EpistemicPriors:
    """log p̃ over sequences: (N_u,), (N_x,) and (N_x, N_y)."""
    return sequence_costs(posterior, mass(posterior), objective)[1]


def sequence_marginals(posterior: SequencePosterior) -> Marginals:
    tables, q = posterior.tables, mass(posterior)
    masses = policy_masses(posterior, q)
    seen = (q.state[:, None] * q.emission.sum(-1)).sum(0)  # (N_y,)
    return Marginals(
        control=jnp.stack([m.sum(0) for m in masses]),
        policy=jnp.stack([normalize(m) for m in masses]),
        state=jnp.stack([masses[0].sum(-1), *(q.state @ place for place in tables.places)]),
        parameter=q.state @ q.parameter,
        observation={name: jnp.stack([seen @ s for s in sights]) for name, sights in tables.sights.items()},
    )
