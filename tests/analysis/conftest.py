"""Real plans for the figures and the conversion, made once a process and compiled without optimisations."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import jax
import pytest

import npro_aif as aif
from npro_aif.analysis.recording import Recording, record_episode
from npro_aif.envs import DoorKey, TMaze
from npro_aif.models import doorkey, reactivity_maze, tmaze
from tests.support import tmaze_planner

SIZE = 5  # of the DoorKey grid: the smallest
SOLVER = aif.CoordinateSolver(max_sweeps=10)


@contextmanager
def quickly() -> Iterator[None]:
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="session")
def recording() -> Recording:
    """An episode in the T-maze that visits the cue; four plans whose horizons go from 4 down to 1."""
    agent = aif.Agent(tmaze_planner(), tmaze.initial_belief(), max_steps=4, record=False)
    with quickly():
        return record_episode(TMaze(), agent, seed=0)


@pytest.fixture(scope="session")
def reactivity_plan() -> aif.Plan:
    """A plan over two state sites; under Marginal its policy is spread over many controls."""
    planner = aif.Planner(reactivity_maze.reactivity_maze, objective=aif.Marginal(), solver=SOLVER, max_horizon=2)
    with quickly():
        return planner(jax.random.key(0), reactivity_maze.initial_belief())


@pytest.fixture(scope="session")
def doorkey_recording() -> Recording:
    """The first steps in a small DoorKey grid, with its frames."""
    model = functools.partial(doorkey.doorkey, size=SIZE)
    guide = aif.guides.TemporalGuide(model, learn=doorkey.LEARN)
    planner = aif.Planner(model, guide, aif.Active(weight=doorkey.WEIGHT), SOLVER, max_horizon=8)
    agent = aif.Agent(planner, doorkey.initial_belief(SIZE))
    with quickly():
        return record_episode(DoorKey(SIZE, max_steps=2, render_mode="rgb_array"), agent, seed=0)
