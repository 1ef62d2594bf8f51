"""The solver's default ends at the lowest F that anybody finds: a short version of ``benchmarks/solver_quality.py``."""

import runpy
from pathlib import Path

import pytest

from npro_aif.sizes import STARTS

pytestmark = pytest.mark.usefixtures("quick_compile")

BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "solver_quality.py"))
ABOVE = 1e-3


@pytest.mark.parametrize("name", ["active", "planning"])
def test_the_default_is_as_low_as_the_best_of_many(name: str) -> None:
    """Two structures of three worlds each, whose policies without ties are all listed in one of them."""
    structures = BENCHMARK["STRUCTURES"]
    outcomes = BENCHMARK["run"]([name], ("control",), 3, svi=False, structures=(structures[0], structures[6]))[name]
    assert len(outcomes) == 6
    for outcome in outcomes:
        assert min(outcome.starts[:STARTS]) <= outcome.best + ABOVE
        assert outcome.rise <= 1e-6
        assert all(outcome.settled)
