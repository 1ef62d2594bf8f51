"""What is learned is what was there: short versions of benchmarks/recovery.py."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("quick_compile")


@pytest.fixture(scope="module")
def recovery() -> dict[str, Any]:
    return runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "recovery.py"))


def test_a_table_of_moves(recovery: dict[str, Any]) -> None:
    table = recovery["learned_table"](num_episodes=40)
    assert table["rows"] > 20
    assert table["worst"] <= 0.1


@pytest.mark.slow
def test_the_accuracy_of_a_cue(recovery: dict[str, Any]) -> None:
    row = recovery["one_world"](0)
    assert abs(row["mean"] - recovery["ACCURACY"]) < 0.1
    assert row["divergences"] == 0
    assert row["r_hat"] < 1.02


@pytest.mark.slow
def test_three_agents(recovery: dict[str, Any]) -> None:
    for seed in range(3):
        row = recovery["one_agent"](seed)
        for product in ("preference", "weight"):
            assert abs(row[product]["mean"] - row[product]["true"]) < 1.5
            assert np.isfinite(row[product]["low"])


@pytest.mark.slow
def test_learning_while_acting(recovery: dict[str, Any]) -> None:
    row = recovery["one_learner"](0, num_episodes=10)
    assert np.mean(row["with"]["reached"]) > 0.85
