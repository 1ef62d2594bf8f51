"""The solver's default ends at the lowest F that anybody finds: a short version of ``benchmarks/solver_quality.py``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npro_aif.program.program import program_of
from npro_aif.sizes import STARTS
from npro_aif.solvers.restarts import lowest
from tests.support import benchmark

pytestmark = pytest.mark.usefixtures("quick_compile")

ABOVE = 1e-3


@pytest.mark.parametrize("name", ["active", pytest.param("planning", marks=pytest.mark.slow)])
def test_the_default_is_as_low_as_the_best_of_many(name: str) -> None:
    """Two structures of three worlds each, whose policies without ties are all listed."""
    quality = benchmark("solver_quality")
    structures = quality.STRUCTURES[:2]
    outcomes = quality.run([name], ("control",), 3, svi=False, structures=structures)[name]
    assert len(outcomes) == 6
    for outcome in outcomes:
        starts, settled = (jnp.asarray(each[:STARTS]) for each in (outcome.starts, outcome.settled))
        kept = int(lowest(starts, settled)[0])  # as the solver chooses
        assert outcome.starts[kept] <= outcome.best + ABOVE
        assert outcome.settled[kept]
        assert outcome.rise <= 1e-6


@pytest.mark.parametrize("number", [pytest.param(7, marks=pytest.mark.slow), 18])
def test_its_worlds_are_those_of_their_programs(number: int) -> None:
    """The tables that are put into a frame's program are what the reader finds in the world's own."""
    quality = benchmark("solver_quality")
    structure = quality.STRUCTURES[number]
    frame, numbers = quality.frame_of(structure), quality.draw(structure, 3)
    belief = quality.belief_of(numbers)
    own = program_of(quality.program(frame, numbers), belief, frame.horizon).world(belief, numbers.horizon)
    put = quality.with_numbers(quality.read(frame).world, numbers)
    for found, expected in zip(*(jax.tree.leaves(world._replace(signature=None)) for world in (put, own)), strict=True):
        found, expected = np.broadcast_arrays(found, expected)
        np.testing.assert_allclose(np.exp(found), np.exp(expected), atol=1e-6)
