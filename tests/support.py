"""Bridges between the oracle's plain tables and the package's posteriors."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import npro_aif as aif
from npro_aif.kernels import Dense
from npro_aif.numerics import safe_log
from npro_aif.sequence import FLOOR, SequencePosterior, sequence_tables
from npro_aif.temporal import TemporalPosterior
from npro_aif.world import World, program_of
from tests.worlds import RandomWorld
from tests.worlds import SequenceTables as SequenceNumbers
from tests.worlds import TemporalTables as TemporalNumbers

OBJECTIVES = [
    aif.Marginal(),
    aif.Planning(),
    *(
        aif.Active(normalize=normalize, gradient=gradient, planning_correction=correction, weight=weight)
        for normalize in (False, True)
        for gradient in ("fixed", "through")
        for correction in (False, True)
        for weight in (1.0, 0.3)
    ),
]


def log(table: np.ndarray) -> jnp.ndarray:
    return safe_log(jnp.asarray(table))


def world_of(random: RandomWorld) -> World:
    belief = random.belief()
    return program_of(random.model, belief, random.horizon).world(belief, random.horizon)


def temporal(random: RandomWorld, world: World, q: TemporalNumbers) -> TemporalPosterior:
    return TemporalPosterior(
        parameter=log(q.parameter),
        initial=world.initial,
        control=log(q.control),
        state=Dense(log(q.state)),
        observation={
            name: Dense(log(table)) for name, table in zip(random.shapes.observation, q.observations, strict=True)
        },
    )


def sequence(random: RandomWorld, world: World, q: SequenceNumbers, support: str) -> SequencePosterior:
    tables = sequence_tables(world, random.horizon, floor=FLOOR if support == "all" else 0.0)
    return SequencePosterior(log(q.control), log(q.state), log(q.observation_parameter), tables)


def switches(objective: aif.Marginal | aif.Planning | aif.Active) -> dict[str, object]:
    """An objective's switches as the oracle's keywords."""
    return {
        "normalize": objective.normalize,
        "correction": objective.correction,
        "weight": objective.weight,
    }


def close(found: float, expected: float, tolerance: float) -> bool:
    return abs(found - expected) <= tolerance * max(1.0, abs(expected))
