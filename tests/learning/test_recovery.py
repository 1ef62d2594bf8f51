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
    """The means of single data sets have a standard deviation of some .06; the first one is 2.5 of them too low."""
    rows = [recovery["one_world"](seed) for seed in range(4)]
    assert abs(np.mean([row["mean"] for row in rows]) - recovery["ACCURACY"]) < 0.1
    assert sum(row["divergences"] for row in rows) == 0
    assert max(row["r_hat"] for row in rows) < 1.02


@pytest.mark.slow
def test_three_agents(recovery: dict[str, Any]) -> None:
    """On a grid; NUTS, that knows nothing of products, comes to the same."""
    recovery["one_agent"].__globals__["SIDE"] = 21
    for seed in range(3):
        row = recovery["one_agent"](seed, range(3))
        for product in ("preference", "weight"):
            assert row[product]["low"] - 0.5 < row[product]["true"] < row[product]["high"] + 0.5
        assert row["edge"] < 0.01
    row, sampled = recovery["one_agent"](0, range(3)), recovery["sampled_agent"](0)
    assert sampled["divergences"] == 0
    for product in ("preference", "weight"):
        assert abs(row[product]["mean"] - sampled[product]["mean"]) < 0.2


@pytest.mark.slow
def test_learning_while_acting(recovery: dict[str, Any]) -> None:
    row = recovery["one_learner"](0, num_episodes=10)
    assert np.mean(row["with"]["reached"]) > 0.85
