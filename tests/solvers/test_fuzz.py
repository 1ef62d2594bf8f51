"""One structure of ``benchmarks/fuzz.py``, in which F of the sweeps' own costs once missed F of the plan by 1e-4."""

import pytest

from tests.support import benchmark

pytestmark = pytest.mark.usefixtures("quick_compile")


def test_every_number_of_a_plan_is_that_of_enumeration(x64: None) -> None:
    fuzz = benchmark("fuzz")
    structure = fuzz.Structure(fuzz.FIRST + 17)
    for variant in (0, 3):
        row = fuzz.check(structure, variant)
        assert row["checks"] >= 16
        assert not row["wrong"]
