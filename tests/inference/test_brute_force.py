"""Every objective, guide and switch against plain enumeration of the whole joint, values and gradients.

Compiling takes nearly all the time, so each world is compiled once in each precision: two objectives give all the
terms, the six combinations of objective and switch are sums of them (:func:`combinations`), and a few worlds
check that ``free_energy`` is that sum.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npro_aif as aif
from npro_aif.inference.objectives import Objective
from tests import oracle
from tests.support import assert_close, objectives, sequence, switches, temporal, world_of
from tests.worlds import RandomWorld, random_sequence, random_temporal, random_world

pytestmark = pytest.mark.usefixtures("quick_compile")

SEEDS = range(32)
# Compiling takes long: the others are for the long run.
SOME_SEEDS = [seed if seed == 1 else pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS]
F32_SEEDS = [seed if seed in (8, 27) else pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS]
# Both scopes of epistemic priors, exact zeros, index tables, and several sites in every role.
DIRECT_SEEDS = (2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (8, 18, 27)))
WEIGHTS = (1.0, 0.3)
GRADIENTS = ("fixed", "through")
NUM_DIRECTIONS = 10
STEP = 1e-5  # of the central differences, in float64


class Case(NamedTuple):
    """A random q."""

    name: str
    tables: Any
    scope: Any  # over what its epistemic priors run
    support: Any


def cases(random: RandomWorld, rng: np.random.Generator) -> list[list[Case]]:
    """Random q; those of one factorisation are evaluated side by side, so that they compile once."""
    restricted = [Case("sequence", random_sequence(random, rng, "model"), "sequence", "model")]
    unrestricted = Case("unrestricted", random_sequence(random, rng, "all"), "sequence", "all")
    return [
        [Case("temporal", random_temporal(random, rng), "temporal", "model")],
        (restricted if random.sequence_ok else []) + [unrestricted],
    ]


def posterior_of(random: RandomWorld, world: Any, case: Case, tables: Any) -> Any:
    if case.scope == "temporal":
        return temporal(random, world, tables)
    return sequence(random, world, tables, case.support)


def joint_of(random: RandomWorld, case: Case, tables: Any) -> oracle.Joint:
    return (oracle.temporal_joint if case.scope == "temporal" else oracle.sequence_joint)(random.tables, *tables)


def stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def numbers(group: list[Case]) -> list[Any]:
    return [jax.tree.map(jnp.asarray, case.tables) for case in group]


def settings(seed: int) -> tuple[Any, float]:
    """The reading of the gradient and the weight of a world: the four pairs take turns."""
    return GRADIENTS[seed % 2], WEIGHTS[seed // 2 % 2]


def combinations(random: RandomWorld, world: Any, group: list[Case], tables: list[Any], seed: int) -> jax.Array:
    """F of Marginal, Planning and the four Active, in the order of :func:`objectives`, from their terms: (n, 6)."""

    def one(posterior: Any) -> jax.Array:
        gradient, weight = settings(seed)
        marginal = aif.Marginal().free_energy(world, posterior)
        terms = aif.Active(True, gradient, True, weight).terms(world, posterior)
        correction, normalizer = terms.pop("correction"), terms.pop("normalizer")
        raw = sum(terms.values())
        normalised = raw + normalizer
        return jnp.stack([marginal, marginal + correction, raw, raw + correction, normalised, normalised + correction])

    posteriors = [posterior_of(random, world, case, q) for case, q in zip(group, tables, strict=True)]
    return jax.vmap(one)(stack(posteriors))


def enumerated(random: RandomWorld, joint: oracle.Joint, case: Case, weight: float, held: Any = None) -> np.ndarray:
    """The same six by enumeration, with the raw and the normalised costs held where they are given."""
    marginal = oracle.marginal_free_energy(joint, random.tables, case.support)
    correction = oracle.policy_entropy(joint)
    costs = held or both_costs(joint, case, weight)
    raw, normalised = (marginal + oracle.expected_costs(joint, case.scope, c) for c in costs)
    return np.array([marginal, marginal + correction, raw, raw + correction, normalised, normalised + correction])


def both_costs(joint: oracle.Joint, case: Case, weight: float) -> list[Any]:
    return [oracle.epistemic_costs(joint, case.scope, normalize, weight) for normalize in (False, True)]


@pytest.mark.parametrize("seed", F32_SEEDS)
def test_free_energy_equals_enumeration_f32(seed: int) -> None:
    random = random_world(seed)
    world = world_of(random)
    groups = cases(random, np.random.default_rng(seed))

    @jax.jit
    def evaluate(world: Any, tables: list[list[Any]]) -> list[jax.Array]:
        return [combinations(random, world, group, t, seed) for group, t in zip(groups, tables, strict=True)]

    for group, found in zip(groups, evaluate(world, [numbers(group) for group in groups]), strict=True):
        for case, values in zip(group, found, strict=True):
            expected = enumerated(random, joint_of(random, case, case.tables), case, settings(seed)[1])
            assert_close(values, expected, 1e-5, (random.description, case.name))


@pytest.mark.parametrize("seed", SOME_SEEDS)
def test_free_energy_and_derivatives_f64(seed: int, x64: None) -> None:
    """Values to 1e-9; ten directional derivatives of each against central differences (with c, d held if fixed)."""
    random, rng = random_world(seed), np.random.default_rng(seed + 100)
    world = world_of(random)
    gradient, weight = settings(seed)
    groups = cases(random, rng)
    directions = [[[_random_like(c.tables, rng) for _ in range(NUM_DIRECTIONS)] for c in group] for group in groups]

    @jax.jit
    def evaluate(world: Any, tables: list[list[Any]], along: list[list[Any]]) -> list[tuple[jax.Array, list]]:
        def values(group: list[Case], base: list[Any]) -> Callable[[list[Any]], jax.Array]:
            def at(logits: list[Any]) -> jax.Array:
                shifted = [moved(b, shift, jnp) for b, shift in zip(base, logits, strict=True)]
                return combinations(random, world, group, shifted, seed)

            return at

        return [
            values_and_derivatives(values(group, base), base, d)
            for group, base, d in zip(groups, tables, along, strict=True)
        ]

    found = evaluate(
        world, [numbers(group) for group in groups], [[stack(along) for along in of_group] for of_group in directions]
    )
    for group, group_directions, (values, derivatives) in zip(groups, directions, found, strict=True):
        for i, case in enumerate(group):
            joint = joint_of(random, case, case.tables)
            note = (random.description, case.name, gradient, weight)
            assert_close(values[i], enumerated(random, joint, case, weight), 1e-9, note)
            held = both_costs(joint, case, weight) if gradient == "fixed" else None
            for direction, slopes in zip(group_directions[i], np.asarray(derivatives[i]).T, strict=True):
                ahead, behind = (
                    enumerated(random, joint_of(random, case, tables), case, weight, held)
                    for tables in (moved(case.tables, _scaled(direction, s * STEP), np) for s in (1, -1))
                )
                assert_close(slopes, (ahead - behind) / (2 * STEP), 1e-6, note)


def values_and_derivatives(
    function: Callable[[list[Any]], jax.Array], like: list[Any], along: list[Any]
) -> tuple[jax.Array, list[jax.Array]]:
    """The values (n, 6) at zero logits, and for each q the derivatives along directions by reverse mode, (6, 10)."""
    values, pull = jax.vjp(function, jax.tree.map(jnp.zeros_like, like))
    every = jnp.broadcast_to(jnp.eye(6)[:, None], (6, *values.shape))  # q do not mix: all rows at once
    (jacobian,) = jax.vmap(pull)(every)
    products = jax.tree.map(lambda j, d: j.reshape(6, -1) @ d.reshape(len(d), -1).T, jacobian, along)
    return values, [sum(jax.tree.leaves(product)) for product in products]


def moved(base: Any, logits: Any, xp: Any) -> Any:
    """q's tables with every row moved along its logits, within its support (``xp`` is NumPy or jax.numpy)."""

    def move(table: Any, shift: Any, flatten: bool) -> Any:
        rows = table.reshape(table.shape[0], -1) if flatten else table
        weights = rows * xp.exp(shift.reshape(rows.shape))
        return (weights / xp.maximum(weights.sum(-1, keepdims=True), 1e-300)).reshape(table.shape)

    is_sequence = not hasattr(base, "parameter")  # whose third table is one distribution over (y, θ)
    return type(base)(
        *(
            tuple(move(t, s, False) for t, s in zip(table, shift, strict=True))
            if isinstance(table, tuple)
            else move(table, shift, is_sequence and i == 2)
            for i, (table, shift) in enumerate(zip(base, logits, strict=True))
        )
    )


def _random_like(tables: Any, rng: np.random.Generator) -> Any:
    return jax.tree.map(lambda table: rng.normal(size=np.shape(table)), tables)


def _scaled(tables: Any, scale: float) -> Any:
    return jax.tree.map(lambda table: scale * table, tables)


@pytest.mark.parametrize("seed", DIRECT_SEEDS)
def test_free_energy_of_every_switch(seed: int) -> None:
    """``free_energy`` itself, for every objective, switch, reading of the gradient and weight."""
    random = random_world(seed)
    world = world_of(random)
    every = list(dict.fromkeys(o for g in GRADIENTS for w in WEIGHTS for o in objectives(g, w)))
    assert len(every) == 2 + 2 * 2 * 4
    every += [aif.Active(normalize, weight=0.7, evidence="sites") for normalize in (False, True)]
    groups = cases(random, np.random.default_rng(seed + 200))

    @jax.jit
    def evaluate(world: Any, tables: list[list[Any]]) -> list[Any]:
        def all_of(posterior: Any) -> jax.Array:
            return jnp.stack([objective.free_energy(world, posterior) for objective in every])

        posteriors = [
            [posterior_of(random, world, case, q) for case, q in zip(group, t, strict=True)]
            for group, t in zip(groups, tables, strict=True)
        ]
        return [jax.vmap(all_of)(stack(of_group)) for of_group in posteriors]

    for group, found in zip(groups, evaluate(world, [numbers(group) for group in groups]), strict=True):
        for case, values in zip(group, found, strict=True):
            joint = joint_of(random, case, case.tables)
            expected = [expected_value(random, joint, objective, case) for objective in every]
            assert_close(values, expected, 1e-5, (random.description, case.name))


def expected_value(random: RandomWorld, joint: oracle.Joint, objective: Objective, case: Case) -> float:
    kind: Any = type(objective).__name__.lower()
    arguments: Any = switches(objective)
    return oracle.free_energy(joint, random.tables, kind, case.scope, support=case.support, **arguments)
