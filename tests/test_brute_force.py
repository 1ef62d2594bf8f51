"""Every objective, guide and switch against plain enumeration of the whole joint."""

import jax
import numpy as np
import pytest

from tests import oracle
from tests.support import OBJECTIVES, close, sequence, switches, temporal, world_of
from tests.worlds import random_sequence, random_temporal, random_world

SEEDS = range(36)


def check_values(seed: int, tolerance: float) -> None:
    random = random_world(seed)
    world = world_of(random)
    rng = np.random.default_rng(seed)
    q = random_temporal(random, rng)
    joint = oracle.temporal_joint(random.tables, *q)
    posterior = temporal(random, world, q)
    for objective in OBJECTIVES:
        expected = oracle.free_energy(
            joint, random.tables, type(objective).__name__.lower(), "temporal", **switches(objective)
        )
        found = float(objective.free_energy(world, posterior))
        assert close(found, expected, tolerance), (random.description, objective, found, expected)
    for support in ("model", "all"):
        if support == "model" and not random.sequence_ok:
            continue
        q = random_sequence(random, rng, support)
        joint = oracle.sequence_joint(random.tables, *q)
        posterior = sequence(random, world, q, support)
        for objective in OBJECTIVES:
            expected = oracle.free_energy(
                joint, random.tables, type(objective).__name__.lower(), "sequence", support=support, **switches(objective)
            )
            found = float(objective.free_energy(world, posterior))
            assert close(found, expected, tolerance), (random.description, support, objective, found, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_free_energy_equals_enumeration_f32(seed: int) -> None:
    check_values(seed, 1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_free_energy_equals_enumeration_f64(seed: int, x64: None) -> None:
    assert jax.numpy.zeros(()).dtype == np.float64
    check_values(seed, 1e-9)
