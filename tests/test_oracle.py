"""The oracle against identities and hand-computed cases; the random programs against their tables."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

from tests import oracle, worlds

SEEDS = range(worlds.NUM_WORLDS)
LOG2 = math.log(2.0)
SCOPES: tuple[oracle.Scope, oracle.Scope] = ("temporal", "sequence")
OBJECTIVES: tuple[oracle.Objective, ...] = ("marginal", "planning", "active")


@cache
def world_of(seed: int) -> worlds.RandomWorld:
    return worlds.random_world(seed)


SEQUENCE_SEEDS = [seed for seed in SEEDS if world_of(seed).sequence_ok]
BLIND_CONTROL_SEEDS = [
    seed
    for seed in SEQUENCE_SEEDS
    if np.all(world_of(seed).tables.control == world_of(seed).tables.control[:, :1])  # p(u_t) without x
]
OTHER_SEEDS = [seed for seed in SEEDS if not world_of(seed).sequence_ok]


def two_observation_sites() -> worlds.RandomWorld:
    """Some world with three steps and two binary observations."""
    candidates = (world_of(seed) for seed in SEQUENCE_SEEDS)
    return next(w for w in candidates if w.horizon == 3 and list(w.shapes.observation.values()) == [2, 2])


def temporal(seed: int, zeros: float = 0.0) -> tuple[oracle.Joint, oracle.Tables]:
    world = world_of(seed)
    q = worlds.random_temporal(world, np.random.default_rng(1000 + seed), zeros)
    return oracle.temporal_joint(world.tables, *q), world.tables


def sequence(
    seed: int, support: Any = "model", zeros: float = 0.0
) -> tuple[oracle.Joint, oracle.Tables, worlds.SequenceTables]:
    world = world_of(seed)
    q = worlds.random_sequence(world, np.random.default_rng(2000 + seed), support, zeros)
    return oracle.sequence_joint(world.tables, *q), world.tables, q


# Joints


@pytest.mark.parametrize("seed", SEEDS)
def test_joints_are_distributions(seed: int) -> None:
    for joint in (temporal(seed)[0], temporal(seed, 0.4)[0], sequence(seed)[0], sequence(seed, "all")[0]):
        assert joint.table.shape == joint.marginal(*joint.axes).shape
        assert joint.table.min() >= 0.0
        assert joint.table.sum() == pytest.approx(1.0, abs=1e-12)


def test_temporal_joint_entry_by_entry() -> None:
    world = two_observation_sites()
    q = worlds.random_temporal(world, np.random.default_rng(0))
    joint = oracle.temporal_joint(world.tables, *q)
    rng = np.random.default_rng(1)
    for _ in range(50):
        index = tuple(int(rng.integers(n)) for n in joint.table.shape)
        at = dict(zip(joint.axes, index, strict=True))
        theta = at["theta"]
        value = q.parameter[theta] * world.tables.initial[theta, at["x0"]]
        for t in (1, 2, 3):
            before, u, x = at[f"x{t - 1}"], at[f"u{t}"], at[f"x{t}"]
            value *= q.control[t - 1, before, u] * q.state[t - 1, theta, before, u, x]
            value *= q.observations[0][t - 1, theta, x, at[f"y{t}a"]]
            value *= q.observations[1][t - 1, theta, x, at[f"y{t}b"]]
        assert joint.table[index] == pytest.approx(value, rel=1e-12)


def test_sequence_joint_entry_by_entry() -> None:
    world = two_observation_sites()
    q = worlds.random_sequence(world, np.random.default_rng(0))
    joint = oracle.sequence_joint(world.tables, *q)
    tables, (num_x, num_u) = world.tables, world.tables.control.shape[1:]
    rng = np.random.default_rng(1)
    for _ in range(50):
        index = tuple(int(rng.integers(n)) for n in joint.table.shape)
        at = dict(zip(joint.axes, index, strict=True))
        theta, x0, u1, x1 = at["theta"], at["x0"], at["u1"], at["x1"]
        plan = (at["u1"] * num_u + at["u2"]) * num_u + at["u3"]
        path = (at["x1"] * num_x + at["x2"]) * num_x + at["x3"]
        readings = [2 * at[f"y{t}a"] + at[f"y{t}b"] for t in (1, 2, 3)]
        reading = (readings[0] * 4 + readings[1]) * 4 + readings[2]
        start = tables.initial[theta] * tables.control[0, :, u1] * tables.state[0, theta, :, u1, x1]
        value = q.control[plan] * q.state[plan, path] * q.observation_parameter[path, reading, theta]
        assert joint.table[index] == pytest.approx(value * start[x0] / start.sum(), rel=1e-12)


def test_sequences_are_flattened_first_step_slowest() -> None:
    world = world_of(0)
    q = worlds.random_sequence(world, np.random.default_rng(0), "all")
    num_u = world.tables.control.shape[2]
    plan = np.zeros(num_u**world.horizon)
    plan[num_u ** (world.horizon - 1)] = 1.0  # u_1 = 1, then always 0
    joint = oracle.sequence_joint(world.tables, plan, *q[1:])
    assert joint.marginal("u1")[1] == pytest.approx(1.0)
    assert joint.marginal(f"u{world.horizon}")[0] == pytest.approx(1.0)


# Free energies


@pytest.mark.parametrize("seed", SEEDS)
def test_exact_posterior_attains_minus_log_evidence(seed: int) -> None:
    tables = world_of(seed).tables
    joint, evidence = oracle.exact_joint(tables)
    exact = oracle.free_energy(joint, tables, "marginal", "temporal")
    assert exact == pytest.approx(-math.log(evidence), abs=1e-10)
    assert oracle.free_energy(temporal(seed)[0], tables, "marginal", "temporal") >= exact


@pytest.mark.parametrize("seed", SEEDS)
def test_evidence_by_forward_recursion(seed: int) -> None:
    tables = world_of(seed).tables
    message = tables.parameter[:, None] * tables.initial  # (Θ, X)
    for t in range(tables.control.shape[0]):
        step = tables.control[t][None, :, :, None] * tables.state[t] * np.exp(tables.preference[t])
        message = np.einsum("tx,txuv->tv", message, step)
        for p, preferred in zip(tables.observations, tables.observation_preferences, strict=True):
            message = message * (p[t] * np.exp(preferred[t])).sum(axis=-1)
    assert oracle.exact_joint(tables)[1] == pytest.approx(message.sum(), rel=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_planning_adds_the_entropy_of_the_policy(seed: int) -> None:
    world = world_of(seed)
    q = worlds.random_temporal(world, np.random.default_rng(seed), zeros=0.2)
    joint = oracle.temporal_joint(world.tables, *q)
    entropies = 0.0
    for t in range(1, world.horizon + 1):
        for x, mass in enumerate(joint.marginal(f"x{t - 1}")):
            entropies += mass * oracle.entropy(q.control[t - 1, x])
    marginal, planning, active, corrected = (
        oracle.free_energy(joint, world.tables, "marginal", "temporal"),
        oracle.free_energy(joint, world.tables, "planning", "temporal"),
        oracle.free_energy(joint, world.tables, "active", "temporal"),
        oracle.free_energy(joint, world.tables, "active", "temporal", correction=True),
    )
    assert planning - marginal == pytest.approx(entropies, abs=1e-10)
    assert corrected - active == pytest.approx(entropies, abs=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_held_costs_reproduce_the_free_energy(seed: int) -> None:
    joint, tables = temporal(seed, zeros=0.3)
    for normalize, weight in ((False, 1.0), (True, 0.5)):
        costs = oracle.epistemic_costs(joint, "temporal", normalize, weight)
        value = oracle.free_energy(joint, tables, "active", "temporal", normalize=normalize, weight=weight)
        assert math.isfinite(value)
        held = oracle.free_energy(joint, tables, "active", "temporal", held=costs)
        assert held == pytest.approx(value, abs=1e-12)
        for t, (c, d) in enumerate(costs, start=1):
            assert np.all(c[joint.marginal(f"x{t}") == 0] == 0)
            assert np.all(d[joint.marginal(f"u{t}") == 0] == 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_weight_zero_leaves_the_marginal(seed: int) -> None:
    joint, tables = temporal(seed)
    marginal = oracle.free_energy(joint, tables, "marginal", "temporal")
    for scope in SCOPES:
        assert oracle.free_energy(joint, tables, "active", scope, weight=0.0) == pytest.approx(marginal)


@pytest.mark.parametrize("seed", SEEDS)
def test_scopes_agree_on_one_step(seed: int) -> None:
    """One step, one observation site and x_0 known: priors of steps and of sequences are the same."""
    tables = world_of(seed).tables
    known = np.zeros_like(tables.initial)
    known[:, 0] = 1.0
    tables = oracle.Tables(
        parameter=tables.parameter,
        initial=known,
        control=tables.control[:1],
        state=tables.state[:1],
        observations=(tables.observations[0][:1],),
        preference=tables.preference[:1],
        observation_preferences=(tables.observation_preferences[0][:1],),
    )
    q = worlds.random_temporal(world_of(seed)._replace(tables=tables), np.random.default_rng(seed))
    joint = oracle.temporal_joint(tables, *q)
    for normalize in (False, True):
        values = [oracle.free_energy(joint, tables, "active", scope, normalize=normalize) for scope in SCOPES]
        assert values[0] == pytest.approx(values[1], abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_temporal_priors_are_entropies_of_the_joint(seed: int) -> None:
    """F_active − F_marginal = Σ_t −H[x_t|x_{t-1},u_t] + H[y|x,θ] − I[θ; y|x], by joint entropies, or site by site."""
    joint, tables = temporal(seed, zeros=0.2)

    def entropy(*names: str) -> float:
        return oracle.entropy(joint.marginal(*names))

    for together in (True, False):
        expected = oracle.free_energy(joint, tables, "marginal", "temporal")
        for t in range(1, joint.horizon + 1):
            before, u, x = f"x{t - 1}", f"u{t}", f"x{t}"
            expected -= entropy(before, u, x) - entropy(before, u)
            sites = tuple(axis for axis in joint.y_axes if axis.startswith(f"y{t}"))
            for y in [sites] if together else [(site,) for site in sites]:
                ambiguity = entropy(*y, x, "theta") - entropy(x, "theta")
                expected += ambiguity - (entropy(*y, x) - entropy(x) - ambiguity)
        value = oracle.free_energy(joint, tables, "active", "temporal", joint=together)
        assert value == pytest.approx(expected, abs=1e-10)


# The proposition


@pytest.mark.parametrize("seed", SEQUENCE_SEEDS)
def test_active_is_expected_free_energy_plus_complexity(seed: int) -> None:
    joint, tables, q = sequence(seed)
    terms = oracle.expected_free_energy(joint, tables)
    used = q.control > 0
    weights = q.control[used]
    cost = (terms.total + terms.complexity + terms.plan_prior)[used]
    expected = float(weights @ (np.log(weights) + cost))
    value = oracle.free_energy(joint, tables, "active", "sequence")
    assert math.isfinite(value)
    assert value == pytest.approx(expected, abs=1e-10)
    assert np.all(terms.novelty[used] >= -1e-12)
    assert np.all(terms.ambiguity[used] >= -1e-12)

    # q*(u) = σ(−P − G − C) is the best q(u), and attains −log Σ exp(−P − G − C).
    best = np.zeros_like(q.control)
    best[used] = np.exp(-cost) / np.exp(-cost).sum()
    optimum = oracle.free_energy(oracle.sequence_joint(tables, best, *q[1:]), tables, "active", "sequence")
    assert optimum == pytest.approx(-math.log(np.exp(-cost).sum()), abs=1e-10)
    assert optimum <= value + 1e-12


@pytest.mark.parametrize("seed", BLIND_CONTROL_SEEDS)
def test_complexity_and_plan_prior_against_the_predictive_model(seed: int) -> None:
    """Where p(u_t) does not look at x, C(u) = E[log q(y,x,θ|u) − log p(y,x,θ|u)], x_0 summed out of both."""
    joint, tables, q = sequence(seed)
    terms = oracle.expected_free_energy(joint, tables)
    model = oracle.product(oracle.temporal_factors(*tables[:5]), joint.axes)
    groups = (joint.u_axes, joint.x_axes, joint.y_axes, ("theta",))
    p, given = oracle.sequence_marginal(model, *groups), oracle.sequence_marginal(joint, *groups)
    prior = p.sum(axis=(1, 2, 3))
    for plan in range(q.control.size):
        conditional = given[plan] / q.control[plan]
        places = conditional > 0
        ratio = np.log(conditional[places]) - np.log(p[plan][places] / prior[plan])
        assert terms.complexity[plan] == pytest.approx(float(conditional[places] @ ratio), abs=1e-9)
        assert terms.plan_prior[plan] == pytest.approx(-math.log(prior[plan]), abs=1e-9)


# Unrestricted tables


@pytest.mark.parametrize("seed", SEQUENCE_SEEDS)
def test_floor_changes_nothing_where_it_is_not_reached(seed: int) -> None:
    joint, tables, _ = sequence(seed)
    for objective in OBJECTIVES:
        model = oracle.free_energy(joint, tables, objective, "sequence")
        floored = oracle.free_energy(joint, tables, objective, "sequence", support="all")
        assert floored == pytest.approx(model, abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_floor_keeps_unrestricted_tables_finite(seed: int) -> None:
    joint, tables, _ = sequence(seed, "all")
    assert math.isfinite(oracle.free_energy(joint, tables, "active", "sequence", support="all"))
    model = (tables.parameter, tables.state, tables.control, *tables.observations)
    if any((table == 0).any() for table in model):
        assert oracle.free_energy(joint, tables, "marginal", "sequence") == math.inf


# By hand


def coin_tables(initial: list[float], reveal: float) -> oracle.Tables:
    """Two states; u = 0 stays, u = 1 tosses a coin; θ is a coin that y shows with probability `reveal`."""
    stay, toss = np.eye(2), np.full((2, 2), 0.5)
    state = np.stack([stay, toss], axis=1)  # (X, U, X)
    show = np.array([[reveal, 1 - reveal], [1 - reveal, reveal]])
    return oracle.Tables(
        parameter=np.array([0.5, 0.5]),
        initial=np.array([initial, initial]),
        control=np.full((1, 2, 2), 0.5),
        state=np.broadcast_to(state, (1, 2, 2, 2, 2)),
        observations=(np.broadcast_to(show[:, None, :], (1, 2, 2, 2)),),
        preference=np.zeros((1, 2, 2, 2, 2)),
        observation_preferences=(np.zeros((1, 2, 2, 2)),),
    )


def coin_joint(tables: oracle.Tables) -> oracle.Joint:
    return oracle.temporal_joint(tables, tables.parameter, *tables[2:5])


@pytest.mark.parametrize("scope", SCOPES)
def test_a_coin_and_a_revealing_observation_by_hand(scope: oracle.Scope) -> None:
    tables = coin_tables([1.0, 0.0], reveal=1.0)
    joint = coin_joint(tables)  # q = p: F_marginal = 0, F_planning = H[u] = log 2
    assert oracle.free_energy(joint, tables, "marginal", scope) == pytest.approx(0.0, abs=1e-15)
    assert oracle.free_energy(joint, tables, "planning", scope) == pytest.approx(LOG2)

    # Raw: E log p̃(u) = ½ log 2 (the toss), log p̃(x) = 0 (y is certain given θ), log p̃(y,x) = log 2.
    assert oracle.free_energy(joint, tables, "active", scope) == pytest.approx(-1.5 * LOG2)

    # Softmax: p̃(u) = (1, 2)/3, p̃(x) = ½ each, p̃(y,x) = ¼ each.
    normalised = math.log(3) - 0.5 * LOG2 + LOG2 + 2 * LOG2
    assert oracle.free_energy(joint, tables, "active", scope, normalize=True) == pytest.approx(normalised)

    # Weight 2, softmax: p̃(u) = (1, 4)/5; the others are equal among themselves.
    weighted = math.log(5) - LOG2 + LOG2 + 2 * LOG2
    value = oracle.free_energy(joint, tables, "active", scope, normalize=True, weight=2.0)
    assert value == pytest.approx(weighted)


def test_an_uninformative_observation_is_ambiguous_by_hand() -> None:
    tables = coin_tables([1.0, 0.0], reveal=0.5)
    joint = coin_joint(tables)  # ambiguity log 2, novelty 0, E log p̃(u) = ½ log 2
    assert oracle.free_energy(joint, tables, "active", "temporal") == pytest.approx(LOG2 - 0.5 * LOG2)
    c, d = oracle.epistemic_costs(joint, "sequence")
    np.testing.assert_allclose(c, [LOG2, LOG2])
    np.testing.assert_allclose(d, [0.0, -LOG2], atol=1e-15)


def test_temporal_control_prior_conditions_on_the_previous_state() -> None:
    tables = coin_tables([0.5, 0.5], reveal=0.5)
    joint = coin_joint(tables)
    [(_, given_before)] = oracle.epistemic_costs(joint, "temporal")
    np.testing.assert_allclose(given_before, [0.0, -LOG2], atol=1e-15)  # staying is certain given x_0
    _, of_sequences = oracle.epistemic_costs(joint, "sequence")
    np.testing.assert_allclose(of_sequences, [-LOG2, -LOG2])  # but x_1 is uncertain under both


def test_only_what_has_mass_is_normalised_over() -> None:
    tables = coin_tables([1.0, 0.0], reveal=1.0)
    always_stay = np.array([[[1.0, 0.0], [0.5, 0.5]]])
    joint = oracle.temporal_joint(tables, tables.parameter, always_stay, *tables[3:5])
    [(c, d)] = oracle.epistemic_costs(joint, "temporal", normalize=True)
    np.testing.assert_allclose(d, [0.0, 0.0])  # one control left: p̃ = 1; the other is set to 0
    np.testing.assert_allclose(c, [LOG2, 0.0])  # one state: p̃(x) = 1; two pairs: p̃(y,x) = ½; x = 1 unvisited


@pytest.mark.parametrize("seed", SEEDS)
def test_normalised_priors_add_up_to_one(seed: int) -> None:
    joint, _ = temporal(seed, zeros=0.3)
    for t, (_, costs) in enumerate(oracle.epistemic_costs(joint, "temporal", True, 0.7), start=1):
        assert np.exp(-costs[joint.marginal(f"u{t}") > 0]).sum() == pytest.approx(1.0)
    _, costs = oracle.epistemic_costs(joint, "sequence", True, 0.7)
    assert np.exp(-costs[oracle.sequence_marginal(joint, joint.u_axes) > 0]).sum() == pytest.approx(1.0)


def test_the_floor_by_hand() -> None:
    tables = coin_tables([1.0, 0.0], reveal=1.0)
    # q(u) on "stay", q(x|u) on x_1 = 1, which p excludes; q(y,θ|x) as in p.
    q_y_theta = np.broadcast_to(np.eye(2) / 2, (2, 2, 2))
    joint = oracle.sequence_joint(tables, np.array([1.0, 0.0]), np.array([[0.0, 1.0], [0.5, 0.5]]), q_y_theta)
    assert oracle.free_energy(joint, tables, "marginal", "sequence") == math.inf
    floored = oracle.free_energy(joint, tables, "marginal", "sequence", support="all")
    assert floored == pytest.approx(-math.log(oracle.FLOOR))


# The random worlds


def test_there_are_enough_worlds_of_each_kind() -> None:
    assert len(SEEDS) >= 36
    assert len(SEQUENCE_SEEDS) >= 24
    assert len(OTHER_SEEDS) >= 6
    assert all(world_of(seed).shapes.joint_size(world_of(seed).horizon) <= 2_000_000 for seed in SEEDS)
    assert {world_of(seed).horizon for seed in SEEDS} == {1, 2, 3}


@pytest.mark.parametrize("seed", SEEDS)
def test_program_agrees_with_tables(seed: int) -> None:
    """Every site's log-probability in a traced run on 64 values at once.

    The values are uniform, so that also zeros, and rows which the model would not reach, are met.
    """
    world, rng = world_of(seed), np.random.default_rng(seed)
    sizes = dict(world.shapes.parameter) | {f"{name}_0": size for name, size in world.shapes.state.items()}
    for t in range(1, world.horizon + 1):
        for role in (world.shapes.state, world.shapes.control, world.shapes.observation):
            sizes |= {f"{name}_{t}": size for name, size in role.items()}
    values = {name: jnp.asarray(rng.integers(size, size=64)) for name, size in sizes.items()}
    program = numpyro.handlers.substitute(world.model, data=values)
    _compare(world, numpyro.handlers.trace(program).get_trace(world.belief(), horizon=world.horizon))


def test_program_runs_forward() -> None:
    seed = next(seed for seed in SEEDS if all(len(role) == 2 for role in world_of(seed).shapes))
    world = world_of(seed)
    program = numpyro.handlers.seed(world.model, seed)
    _compare(world, numpyro.handlers.trace(program).get_trace(world.belief()))


def _compare(world: worlds.RandomWorld, trace: dict[str, Any]) -> None:
    tables, shapes = world.tables, world.shapes

    def flat(role: dict[str, int], suffix: str) -> np.ndarray:
        index = np.zeros((), dtype=int)
        for name, size in role.items():
            index = index * size + np.asarray(trace[name + suffix]["value"])
        return index

    def log_prob(names: list[str]) -> np.ndarray:
        sites = [trace.pop(name) for name in names]
        return sum((np.asarray(site["fn"].log_prob(site["value"])) for site in sites), np.zeros(()))

    def check(names: list[str], probability: np.ndarray) -> None:
        found = np.exp(log_prob(names))  # exact zeros may be clamped to the smallest float by NumPyro
        np.testing.assert_allclose(found, np.broadcast_to(probability, found.shape), rtol=1e-5, atol=1e-12)

    steps = range(1, world.horizon + 1)
    theta = flat(shapes.parameter, "")
    x = [flat(shapes.state, f"_{t}") for t in (0, *steps)]
    u = [flat(shapes.control, f"_{t}") for t in steps]
    y = [[np.asarray(trace[f"{name}_{t}"]["value"]) for name in shapes.observation] for t in steps]

    for t in steps:
        before, after, control = x[t - 1], x[t], u[t - 1]
        check([f"{name}_{t}" for name in shapes.control], tables.control[t - 1, before, control])
        check([f"{name}_{t}" for name in shapes.state], tables.state[t - 1, theta, before, control, after])
        preferred = tables.preference[t - 1, theta, before, control, after]
        for k, name in enumerate(shapes.observation):
            check([f"{name}_{t}"], tables.observations[k][t - 1, theta, after, y[t - 1][k]])
            preferred = preferred + tables.observation_preferences[k][t - 1, theta, after, y[t - 1][k]]
        names = [name for name in trace if name.endswith(f"_{t}")]
        found = log_prob(names)
        np.testing.assert_allclose(np.broadcast_to(found, np.shape(preferred)), preferred, atol=1e-5)
    check(list(shapes.parameter), tables.parameter[theta])
    check([f"{name}_0" for name in shapes.state], tables.initial[theta, x[0]])
    assert not trace  # nothing else was drawn


@pytest.mark.parametrize("seed", SEEDS)
def test_random_posteriors_stay_on_the_support(seed: int) -> None:
    world = world_of(seed)
    for zeros in (0.0, 0.5):
        joint, tables = temporal(seed, zeros)
        assert math.isfinite(oracle.free_energy(joint, tables, "active", "temporal"))
        if world.sequence_ok:
            joint, tables, _ = sequence(seed, zeros=zeros)
            assert math.isfinite(oracle.free_energy(joint, tables, "active", "sequence"))
    q = worlds.random_sequence(world, np.random.default_rng(seed), "all")
    assert min(table.min() for table in q) > 0
