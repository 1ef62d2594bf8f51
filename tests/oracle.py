"""A slow and obvious oracle: the whole joint q as one dense array, everything else by summing it.

The joint q(θ, x_0, u_1, x_1, y_1^a, y_1^b, …, u_T, x_T, y_T^a, …) is held as one float64 array with named
axes ("theta", "x0", "u1", "x1", "y1a", "y1b", …). Free energies and epistemic priors are read off its
marginals. There is no message passing and no JAX here, so that nothing is shared with what is being checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from string import ascii_lowercase
from typing import Literal, NamedTuple, overload

import numpy as np

Objective = Literal["marginal", "planning", "active"]
Temporal = Literal["temporal"]
Sequential = Literal["sequence"]
Scope = Temporal | Sequential
Support = Literal["model", "all"]
Pair = tuple[np.ndarray, np.ndarray]
Pairs = list[Pair]
Costs = Pair | Pairs
Factor = tuple[np.ndarray, tuple[str, ...]]  # a table, and the name of each of its axes

FLOOR = 1e-10  # the smallest probability of unrestricted tables (support="all")


class Tables(NamedTuple):
    """The generative model as probabilities (not logs), flattened over the sites of each role."""

    parameter: np.ndarray  # (Θ,)             p(θ)
    initial: np.ndarray  # (Θ, X)             p(x_0|θ)
    control: np.ndarray  # (T, X, U)          p(u_t|x_{t-1})
    state: np.ndarray  # (T, Θ, X, U, X)      p(x_t|x_{t-1},u_t,θ)
    observations: tuple[np.ndarray, ...]  # per site (T, Θ, X, Y_k)   p(y_t^k|x_t,θ)
    preference: np.ndarray  # (T, Θ, X, U, X) log p̂(θ, x_{t-1}, u_t, x_t), finite
    observation_preferences: tuple[np.ndarray, ...]  # per site (T, Θ, X, Y_k)   log p̂(θ, x_t, y_t^k), finite


class Joint(NamedTuple):
    """A distribution over every variable, one axis each."""

    axes: tuple[str, ...]
    table: np.ndarray

    def marginal(self, *names: str) -> np.ndarray:
        """The distribution of the named variables, axes in the order asked for."""
        summed = tuple(i for i, axis in enumerate(self.axes) if axis not in names)
        kept = [axis for axis in self.axes if axis in names]
        return self.table.sum(axis=summed).transpose([kept.index(name) for name in names])

    def without(self, name: str) -> Joint:
        """The same distribution with one variable summed out."""
        kept = tuple(axis for axis in self.axes if axis != name)
        return Joint(kept, self.marginal(*kept))

    @property
    def horizon(self) -> int:
        return sum(axis.startswith("u") for axis in self.axes)

    @property
    def sites(self) -> int:
        """The number of observation sites of one time step."""
        return sum(axis.startswith("y1") for axis in self.axes)

    @property
    def u_axes(self) -> tuple[str, ...]:
        """The plan: u_1 … u_T."""
        return tuple(axis for axis in self.axes if axis.startswith("u"))

    @property
    def x_axes(self) -> tuple[str, ...]:
        """The state sequence x_1 … x_T, without x_0."""
        return tuple(f"x{t}" for t in range(1, self.horizon + 1))

    @property
    def y_axes(self) -> tuple[str, ...]:
        """Every observation: time steps slowest, sites of one step fastest."""
        return tuple(axis for axis in self.axes if axis.startswith("y"))


class ExpectedFreeEnergy(NamedTuple):
    """G(u) = risk + ambiguity − novelty and what goes with it, one entry per plan; nan where q(u) = 0."""

    risk: np.ndarray  # (U**T,) E[log q(x|u) − log p̂], every preference of the model counted as p̂
    ambiguity: np.ndarray  # (U**T,) E[−log q(y|x,θ)]
    novelty: np.ndarray  # (U**T,) E[log q(θ|y,x) − log q(θ|x)], positive: an information gain
    complexity: np.ndarray  # (U**T,) C(u) = E[log q(y,x,θ|u) − log p(y,x,θ|u)]
    plan_prior: np.ndarray  # (U**T,) P(u) = E[−Σ_t log p(u_t|x_{t-1})], = −log p(u) if u does not look at x

    @property
    def total(self) -> np.ndarray:
        return self.risk + self.ambiguity - self.novelty


# Small tools


def log(p: np.ndarray) -> np.ndarray:
    """The logarithm with log 0 = −∞, silently."""
    with np.errstate(divide="ignore"):
        return np.log(p)


def expectation(q: np.ndarray, f: np.ndarray) -> np.ndarray:
    """q·f elementwise, with 0·f = 0 whatever f is."""
    q, f = np.broadcast_arrays(q, f)
    return np.where(q > 0, q * np.where(q > 0, f, 0.0), 0.0)


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The ratio a / b, and 0 where b = 0."""
    a, b = np.broadcast_arrays(a, b)
    return np.where(b > 0, a / np.where(b > 0, b, 1.0), 0.0)


def entropy(p: np.ndarray) -> float:
    """H[p] = −Σ p log p over the whole array."""
    return -float(expectation(p, log(p)).sum())


def spread(factor: Factor, axes: Sequence[str]) -> np.ndarray:
    """A factor's table, broadcastable against an array with the given axes."""
    table, names = factor
    order = sorted(range(len(names)), key=lambda i: axes.index(names[i]))
    sizes = {name: table.shape[i] for i, name in enumerate(names)}
    return table.transpose(order).reshape([sizes.get(axis, 1) for axis in axes])


def product(factors: Iterable[Factor], axes: tuple[str, ...]) -> Joint:
    """The dense product of factors."""
    return Joint(axes, reduce(np.multiply, (spread(factor, axes) for factor in factors)))


def y_axis(t: int, site: int) -> str:
    return f"y{t}{ascii_lowercase[site]}"


def joint_axes(horizon: int, sites: int) -> tuple[str, ...]:
    axes = ["theta", "x0"]
    for t in range(1, horizon + 1):
        axes += [f"u{t}", f"x{t}", *(y_axis(t, k) for k in range(sites))]
    return tuple(axes)


# Joints


def temporal_factors(
    parameter: np.ndarray,
    initial: np.ndarray,
    control: np.ndarray,
    state: np.ndarray,
    observations: tuple[np.ndarray, ...],
) -> list[Factor]:
    """The factors of r(θ) r(x_0|θ) Π_t r(u_t|x_{t-1}) r(x_t|x_{t-1},u_t,θ) Π_k r(y_t^k|x_t,θ), r = p or q."""
    factors: list[Factor] = [(parameter, ("theta",)), (initial, ("theta", "x0"))]
    for t in range(1, control.shape[0] + 1):
        factors.append((control[t - 1], (f"x{t - 1}", f"u{t}")))
        factors.append((state[t - 1], ("theta", f"x{t - 1}", f"u{t}", f"x{t}")))
        for k, table in enumerate(observations):
            factors.append((table[t - 1], ("theta", f"x{t}", y_axis(t, k))))
    return factors


def temporal_joint(
    tables: Tables,
    parameter: np.ndarray,
    control: np.ndarray,
    state: np.ndarray,
    observations: tuple[np.ndarray, ...],
) -> Joint:
    """q(θ) p(x_0|θ) Π_t q(u_t|x_{t-1}) q(x_t|x_{t-1},u_t,θ) Π_k q(y_t^k|x_t,θ).

    Shapes: (Θ,), (T, X, U), (T, Θ, X, U, X), per site (T, Θ, X, Y_k).
    """
    factors = temporal_factors(parameter, tables.initial, control, state, observations)
    return product(factors, joint_axes(control.shape[0], len(observations)))


def initial_posterior(tables: Tables) -> np.ndarray:
    """p(x_0|x_1,u_1,θ) ∝ p(x_0|θ) p(u_1|x_0) p(x_1|x_0,u_1,θ) as (Θ, X_0, U, X_1).

    Where that is 0/0 it is p(x_0|θ).
    """
    joint = tables.initial[:, :, None, None] * tables.control[0][None, :, :, None] * tables.state[0]
    evidence = joint.sum(axis=1, keepdims=True)  # p(u_1,x_1|θ)
    return np.where(evidence > 0, divide(joint, evidence), tables.initial[:, :, None, None])


def sequence_joint(tables: Tables, q_u: np.ndarray, q_x: np.ndarray, q_y_theta: np.ndarray) -> Joint:
    """q(u) q(x|u) q(y,θ|x) p(x_0|x_1,u_1,θ) over whole sequences.

    Shapes: (U**T,), (U**T, X**T), (X**T, Y**T, Θ). Sequences are flattened in C order, t = 1 slowest; within
    one t the observation sites are flattened in program order, C order.
    """
    horizon, num_states, num_controls = tables.control.shape
    sites = [table.shape[-1] for table in tables.observations]
    axes = joint_axes(horizon, len(sites))
    u_axes = tuple(f"u{t}" for t in range(1, horizon + 1))
    x_axes = tuple(f"x{t}" for t in range(1, horizon + 1))
    y_axes = tuple(y_axis(t, k) for t in range(1, horizon + 1) for k in range(len(sites)))
    u_shape, x_shape, y_shape = [num_controls] * horizon, [num_states] * horizon, sites * horizon
    factors: list[Factor] = [
        (q_u.reshape(u_shape), u_axes),
        (q_x.reshape(u_shape + x_shape), u_axes + x_axes),
        (q_y_theta.reshape(x_shape + y_shape + [tables.parameter.size]), x_axes + y_axes + ("theta",)),
        (initial_posterior(tables), ("theta", "x0", "u1", "x1")),
    ]
    return product(factors, axes)


def exact_joint(tables: Tables) -> tuple[Joint, float]:
    """The exact posterior p·p̂ / Z over everything, and its evidence Z."""
    log_factors = [*model_factors(tables), *preference_factors(tables)]
    axes = joint_axes(tables.control.shape[0], len(tables.observations))
    weights = product([(np.exp(table), names) for table, names in log_factors], axes)
    evidence = float(weights.table.sum())
    return Joint(axes, weights.table / evidence), evidence


# The model's logarithms


def model_factors(tables: Tables) -> list[Factor]:
    """The logs of p(θ), p(x_0|θ), p(u_t|x_{t-1}), p(x_t|x_{t-1},u_t,θ), p(y_t^k|x_t,θ)."""
    return [(log(table), names) for table, names in temporal_factors(*tables[:5])]


def floored_factors(tables: Tables) -> list[Factor]:
    """The same with x_0 summed out and every probability at least FLOOR.

    The factors are p(θ), p(u_1,x_1|θ), then p(u_t|x_{t-1}) and p(x_t|x_{t-1},u_t,θ) for t ≥ 2, and
    p(y_t|x_t,θ) jointly over the observation sites of each t.
    """
    horizon, sites = tables.control.shape[0], len(tables.observations)
    first = tables.initial[:, :, None, None] * tables.control[0][None, :, :, None] * tables.state[0]
    factors: list[Factor] = [(tables.parameter, ("theta",)), (first.sum(axis=1), ("theta", "u1", "x1"))]
    for t in range(2, horizon + 1):
        factors.append((tables.control[t - 1], (f"x{t - 1}", f"u{t}")))
        factors.append((tables.state[t - 1], ("theta", f"x{t - 1}", f"u{t}", f"x{t}")))
    for t in range(1, horizon + 1):
        axes = ("theta", f"x{t}", *(y_axis(t, k) for k in range(sites)))
        parts = [(tables.observations[k][t - 1], ("theta", f"x{t}", y_axis(t, k))) for k in range(sites)]
        factors.append((product(parts, axes).table, axes))
    return [(np.log(np.maximum(table, FLOOR)), names) for table, names in factors]


def preference_factors(tables: Tables) -> list[Factor]:
    """The preferences log p̂(θ, x_{t-1}, u_t, x_t) and log p̂(θ, x_t, y_t^k)."""
    factors: list[Factor] = []
    for t in range(1, tables.control.shape[0] + 1):
        factors.append((tables.preference[t - 1], ("theta", f"x{t - 1}", f"u{t}", f"x{t}")))
        for k, table in enumerate(tables.observation_preferences):
            factors.append((table[t - 1], ("theta", f"x{t}", y_axis(t, k))))
    return factors


def preference_factors_without_x0(tables: Tables) -> list[Factor]:
    """The same, where a first preference that looks at x_0 is averaged under p(x_0|x_1,u_1,θ)."""
    first, *later = preference_factors(tables)
    average = (initial_posterior(tables) * first[0]).sum(axis=1)
    return [(average, ("theta", "u1", "x1")), *later]


# Epistemic priors


def log_prior(exponent: np.ndarray, domain: np.ndarray, normalize: bool, weight: float) -> np.ndarray:
    """The prior log p̃ = w·a − [normalize] log Σ_domain exp(w·a); 0 outside, where a is not defined."""
    scaled = weight * exponent
    normaliser = math.log(float(np.exp(scaled[domain]).sum())) if normalize else 0.0
    return np.where(domain, scaled - normaliser, 0.0)


def observation_costs(joint: np.ndarray, normalize: bool, weight: float) -> np.ndarray:
    """c(x) = −log p̃(x) − Σ_y q(y|x) log p̃(y,x), from q(θ, x, y) as (Θ, X, Y); 0 where q(x) = 0.

    The exponents are −E_{q(θ|x)} H[q(y|x,θ)] for p̃(x) and KL[q(θ|y,x) ‖ q(θ|x)] for p̃(y,x).
    """
    q_theta_x = joint.sum(axis=2)  # (Θ, X)
    q_xy = joint.sum(axis=0)  # (X, Y)
    q_x = q_xy.sum(axis=1)  # (X,)
    y_given_x_theta = divide(joint, q_theta_x[:, :, None])
    theta_given_x = divide(q_theta_x, q_x)
    theta_given_xy = divide(joint, q_xy)
    entropies = -expectation(y_given_x_theta, log(y_given_x_theta)).sum(axis=2)  # H[q(y|x,θ)], (Θ, X)
    ambiguity = (theta_given_x * entropies).sum(axis=0)  # (X,)
    after, before = log(theta_given_xy), log(theta_given_x)[:, :, None]
    novelty = (expectation(theta_given_xy, after) - expectation(theta_given_xy, before)).sum(axis=0)  # (X, Y)
    log_x = log_prior(-ambiguity, q_x > 0, normalize, weight)
    log_yx = log_prior(novelty, q_xy > 0, normalize, weight)
    return -log_x - (divide(q_xy, q_x[:, None]) * log_yx).sum(axis=1)


def control_costs(joint: np.ndarray, normalize: bool, weight: float) -> np.ndarray:
    """d(u) = −log p̃(u), from q(u, before, after) as (U, B, A); 0 where q(u) = 0.

    The exponent is H[q(after, before|u)] − H[q(before|u)].
    """
    q_u = joint.sum(axis=(1, 2))
    conditional = divide(joint, q_u[:, None, None])
    exponent = np.array([entropy(table) - entropy(table.sum(axis=1)) for table in conditional])
    return -log_prior(exponent, q_u > 0, normalize, weight)


def sequence_marginal(q: Joint, *groups: tuple[str, ...]) -> np.ndarray:
    """A marginal with one flat axis per group of variables."""
    table = q.marginal(*(axis for group in groups for axis in group))
    sizes = dict(zip(q.axes, q.table.shape, strict=True))
    return table.reshape([math.prod(sizes[axis] for axis in group) for group in groups])


@overload
def epistemic_costs(
    q: Joint, scope: Temporal, normalize: bool = ..., weight: float = ..., joint: bool = ...
) -> Pairs: ...
@overload
def epistemic_costs(
    q: Joint, scope: Sequential, normalize: bool = ..., weight: float = ..., joint: bool = ...
) -> Pair: ...
@overload
def epistemic_costs(q: Joint, scope: Scope, normalize: bool = ..., weight: float = ..., joint: bool = ...) -> Costs: ...
def epistemic_costs(q: Joint, scope: Scope, normalize: bool = False, weight: float = 1.0, joint: bool = True) -> Costs:
    """The epistemic terms of F as costs: their sum is E_q[c(x)] + E_q[d(u)].

    Temporal: a list over t of (c_t (X,), d_t (U,)), with all the sites of y_t jointly; or (if not `joint`) c_t summed
    over the observation sites, each site with its own priors and normalisers. Sequence: one (c (X**T,), d (U**T,)),
    with all the sites of y jointly.
    """
    if scope == "sequence":
        states = observation_costs(sequence_marginal(q, ("theta",), q.x_axes, q.y_axes), normalize, weight)
        controls = control_costs(sequence_marginal(q, q.u_axes, (), q.x_axes), normalize, weight)
        return states, controls
    costs: Pairs = []
    for t in range(1, q.horizon + 1):
        sites = tuple(y_axis(t, k) for k in range(q.sites))
        groups = [sites] if joint else [(site,) for site in sites]
        tables = [sequence_marginal(q, ("theta",), (f"x{t}",), group) for group in groups]
        states = sum((observation_costs(table, normalize, weight) for table in tables), np.zeros(tables[0].shape[1]))
        costs.append((states, control_costs(q.marginal(f"u{t}", f"x{t - 1}", f"x{t}"), normalize, weight)))
    return costs


def expected_costs(q: Joint, scope: Scope, costs: Costs) -> float:
    """E_q[c(x)] + E_q[d(u)], c and d being given constants."""
    if isinstance(costs, tuple) != (scope == "sequence"):
        raise ValueError(f"the costs held are not of scope {scope!r}")
    if isinstance(costs, tuple):
        c, d = costs
        return float(sequence_marginal(q, q.x_axes) @ c) + float(sequence_marginal(q, q.u_axes) @ d)
    pairs = enumerate(costs, start=1)
    return sum(float(q.marginal(f"x{t}") @ c) + float(q.marginal(f"u{t}") @ d) for t, (c, d) in pairs)


# Objectives


def policy_entropy(q: Joint) -> float:
    """Σ_t H[q(u_t|x_{t-1})] = Σ_t H[q(x_{t-1},u_t)] − H[q(x_{t-1})], t = 1 … T."""
    steps = [(f"x{t - 1}", f"u{t}") for t in range(1, q.horizon + 1)]
    return sum(entropy(q.marginal(x, u)) - entropy(q.marginal(x)) for x, u in steps)


def marginal_free_energy(q: Joint, tables: Tables, support: Support = "model") -> float:
    """F_marginal = E_q[log q − log p − log p̂]; with support="all", x_0 summed out and p floored."""
    if support == "all":
        q = q.without("x0")
        factors = [*floored_factors(tables), *preference_factors_without_x0(tables)]
    else:
        factors = [*model_factors(tables), *preference_factors(tables)]
    expected_log_p = sum(float(expectation(q.marginal(*names), table).sum()) for table, names in factors)
    return -entropy(q.table) - expected_log_p


def free_energy(
    q: Joint,
    tables: Tables,
    objective: Objective,
    scope: Scope,
    *,
    normalize: bool = False,
    correction: bool = False,
    weight: float = 1.0,
    joint: bool = True,
    support: Support = "model",
    held: Costs | None = None,
) -> float:
    """F of any joint; +∞ where q has mass that p has not.

    F_planning = F_marginal + Σ_t H[q(u_t|x_{t-1})]
    F_active = F_marginal − E_q[log p̃(u) + log p̃(x) + log p̃(y,x)], plus those entropies with `correction`.

    `held` replaces the epistemic costs by given constants (then `normalize` and `weight` play no part).
    """
    if objective not in ("marginal", "planning", "active") or scope not in ("temporal", "sequence"):
        raise ValueError(f"unknown objective {objective!r} or scope {scope!r}")
    if support == "all" and scope != "sequence":
        raise ValueError('support="all" is defined for scope="sequence" only')
    value = marginal_free_energy(q, tables, support)
    if objective == "planning" or (objective == "active" and correction):
        value += policy_entropy(q)
    if objective == "active":
        costs = epistemic_costs(q, scope, normalize, weight, joint) if held is None else held
        value += expected_costs(q, scope, costs)
    return value


# Expected free energy


def per_plan(q: Joint, f: np.ndarray) -> np.ndarray:
    """E_{q(·|u)}[f] for every plan, f broadcasting against the joint; nan where q(u) = 0."""
    q_u = sequence_marginal(q, q.u_axes)
    total = sequence_marginal(Joint(q.axes, expectation(q.table, f)), q.u_axes)
    return np.where(q_u > 0, divide(total, q_u), np.nan)


def log_ratio(q: Joint, names: tuple[str, ...], given: tuple[str, ...]) -> np.ndarray:
    """The table of log q(names|given), broadcastable against the joint; −∞ where it is not defined."""
    axes = names + given
    conditional = divide(q.marginal(*axes), q.marginal(*given)) if given else q.marginal(*axes)
    return spread((log(conditional), axes), q.axes)


def expected_free_energy(q: Joint, tables: Tables, scope: Scope = "sequence") -> ExpectedFreeEnergy:
    """G(u) = r + a − n of every plan with C(u) and P(u), under q(y,x,θ|u).

    F_active (raw priors, no correction) is E_q(u)[log q(u) + P(u) + G(u) + C(u)]. x_0 is a variable of the
    joint with q(x_0|x_1,u_1,θ) = p(x_0|x_1,u_1,θ), which is the same as summing it out of q and p. At t = 1
    the plan prior is E_q[−log p(u_1|x_0)] and C has the rest; how P and C share matters only where p(u_1|x_0)
    looks at x_0, and their sum does not depend on it.
    """
    if scope != "sequence":
        raise ValueError("expected free energy is defined for sequence joints")
    u_axes, x_axes, y_axes, theta = q.u_axes, q.x_axes, q.y_axes, ("theta",)
    variables = tuple(axis for axis in q.axes if axis not in u_axes)
    preference = sum(spread(factor, q.axes) for factor in preference_factors(tables))
    controls = [factor for factor in model_factors(tables) if factor[1][-1] in u_axes]
    others = [factor for factor in model_factors(tables) if factor[1][-1] not in u_axes]
    return ExpectedFreeEnergy(
        risk=per_plan(q, log_ratio(q, x_axes, u_axes)) - per_plan(q, np.asarray(preference)),
        ambiguity=-per_plan(q, log_ratio(q, y_axes, x_axes + theta)),
        novelty=per_plan(q, log_ratio(q, theta, y_axes + x_axes)) - per_plan(q, log_ratio(q, theta, x_axes)),
        complexity=per_plan(q, log_ratio(q, variables, u_axes))
        - sum(per_plan(q, spread(factor, q.axes)) for factor in others),
        plan_prior=-np.asarray(sum(per_plan(q, spread(factor, q.axes)) for factor in controls)),
    )
