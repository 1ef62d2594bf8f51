"""Bridges between the oracle's plain tables and the package's posteriors."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import runpy
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import npro_aif as aif
from npro_aif.inference.objectives import Objective
from npro_aif.inference.sequence import FLOOR, SequencePosterior, sequence_tables
from npro_aif.inference.temporal import TemporalPosterior
from npro_aif.models import tmaze
from npro_aif.numerics import safe_log
from npro_aif.program.program import program_of
from npro_aif.tables.dense import DenseEmission, DenseTransition
from npro_aif.tables.world import World
from tests.worlds import RandomWorld
from tests.worlds import SequenceTables as SequenceNumbers
from tests.worlds import TemporalTables as TemporalNumbers


def objectives(gradient: str, weight: float) -> list[Objective]:
    """Every objective and switch, for one reading of the gradient and one weight."""
    switches = itertools.product((False, True), (False, True))
    return [aif.Marginal(), aif.Planning()] + [aif.Active(n, gradient, c, weight) for n, c in switches]  # type: ignore[arg-type]


def benchmark(name: str) -> Any:
    """A script of ``benchmarks`` as a module."""
    spec: Any = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where its classes look for their own names
    spec.loader.exec_module(module)
    return module


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
        state=DenseTransition(log(q.state)),
        observation={
            name: DenseEmission(log(table))
            for name, table in zip(random.shapes.observation, q.observations, strict=True)
        },
    )


def sequence(random: RandomWorld, world: World, q: SequenceNumbers, support: str) -> SequencePosterior:
    tables = sequence_tables(world, random.horizon, floor=FLOOR if support == "all" else 0.0)
    return SequencePosterior(log(q.control), log(q.state), log(q.observation_parameter), tables)


def switches(objective: Objective) -> dict[str, object]:
    """An objective's switches as the oracle's keywords."""
    return {
        "normalize": getattr(objective, "normalize", False),
        "correction": objective.correction,
        "weight": getattr(objective, "weight", 1.0),
        "joint": getattr(objective, "evidence", "joint") == "joint",
    }


def planner_of_all(model: Any, objective: Objective, solver: Any, horizon: int) -> aif.Planner:
    """A planner that learns every factor."""
    return aif.Planner(model, aif.guides.TemporalGuide(model, aif.guides.FACTORS), objective, solver, horizon)


@functools.cache
def tmaze_planner() -> aif.Planner:
    """The T-maze's default planner; what one module compiles serves the next one."""
    return aif.Planner(tmaze.tmaze, solver=aif.CoordinateSolver(max_sweeps=20), max_horizon=4)


def skeleton(name: str) -> dict[str, Any]:
    """The names of a skeleton in the documentation, as somebody has them who copied it."""
    return runpy.run_path(str(Path(__file__).parents[1] / "docs" / "skeletons" / f"{name}.py"), run_name=name)


def assert_close(found: object, expected: object, tolerance: float, note: object = "") -> None:
    """Equal to ``tolerance``, relative or absolute, whichever is larger."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    error = np.abs(found - expected) / np.maximum(1.0, np.abs(expected))
    assert (error <= tolerance).all(), (note, error.max(), found, expected)
