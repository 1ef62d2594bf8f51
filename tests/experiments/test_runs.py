"""The paper's tasks, short: what each objective does in them. The long versions are the runs that are reported."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from npro_aif.experiments.agents import make_agent
from npro_aif.experiments.run import run
from npro_aif.experiments.tasks import Settings, SettingsError, make_task


def summary(name: str, episodes: int, *, size: int | None = None, preference: str | None = None, **choices: Any) -> Any:
    return run(
        name, Settings(**choices), episodes, size=size, preference=preference, console=Console(file=io.StringIO())
    )


def check_reactivity(objective: str, found: dict[str, Any]) -> None:
    if objective == "active":
        assert (found["success"], found["cue"]) == (1, 1)
    elif objective == "marginal":
        assert (found["safe"], found["cue"]) == (1, 0)
    else:
        assert found["cue"] == 0
        assert found["safe"] > 0.3  # the others' goals are a matter of luck


@pytest.mark.parametrize(
    "objective", ["active", *(pytest.param(name, marks=pytest.mark.slow) for name in ("marginal", "planning"))]
)
def test_reactivity(objective: str, quick_compile: None) -> None:
    check_reactivity(objective, summary("reactivity", 20, objective=objective))


@pytest.mark.optimised
@pytest.mark.parametrize(
    ("objective", "solver"),
    [("active", None), ("active", "coordinate"), pytest.param("planning", "coordinate", marks=pytest.mark.slow)],
)
def test_doorkey_of_size_5(objective: str, solver: str | None) -> None:
    found = summary("doorkey", 20, size=5, objective=objective, solver=solver, seed=1000)
    assert found["success"] == 1
    assert found["steps_over_shortest"] <= 1.12
    assert found.get("optimal") == (1 if solver is None else None)  # by default plans are proven


def test_settings_are_refused_by_name() -> None:
    task = make_task("tmaze")
    with pytest.raises(SettingsError, match="method: found 'magic', expected one of vfe, efe, sophisticated"):
        make_agent(task, Settings(method="magic"))
    with pytest.raises(SettingsError, match="objective: found 'magic'"):
        make_agent(task, Settings(objective="magic"))
    with pytest.raises(SettingsError, match="solver: found 'magic'"):
        make_agent(task, Settings(solver="magic"))
    with pytest.raises(SettingsError, match="task: found 'magic'"):
        make_task("magic")


# --- The reported runs ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("solver", "paper"), [("svi", False), ("svi", True), ("coordinate", False)])
def test_tmaze_active_long(solver: str, paper: bool) -> None:
    found = summary("tmaze", 200, solver=solver, paper=paper)
    assert (found["success"], found["cue"], found["steps"]) == (1, 1, 4)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["marginal", "planning"])
def test_tmaze_others_long(objective: str) -> None:
    found = summary("tmaze", 200, solver="svi", objective=objective)
    assert 0.4 <= found["success"] <= 0.6


@pytest.mark.slow
@pytest.mark.parametrize(("solver", "episodes"), [("coordinate", 200), ("svi", 50)])
@pytest.mark.parametrize("objective", ["active", "planning", "marginal"])
def test_reactivity_long(objective: str, solver: str, episodes: int) -> None:
    found = summary("reactivity", episodes, solver=solver, objective=objective)
    check_reactivity(objective, found)
    if objective == "planning":
        assert 0.1 <= found["success"] <= 0.35


@pytest.mark.slow
@pytest.mark.parametrize("size", [5, 6, 8])
def test_doorkey_active_long(size: int) -> None:
    found = summary("doorkey", 100, size=size, seed=1000)
    assert found["success"] == found["optimal"] == 1
    assert found["steps_over_shortest"] <= 1.10


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "success"), [("active", 0.99), ("planning", 0.98)])
def test_doorkey_by_sweeps_long(objective: str, success: float) -> None:
    found = summary("doorkey", 100, objective=objective, solver="coordinate", seed=1000)
    assert found["success"] >= success
    assert found["steps_over_shortest"] <= 1.15


@pytest.mark.slow
def test_doorkey_with_svi_can_be_resumed(tmp_path: Path) -> None:
    """A few steps of gradient descent per decision: this is about the folder, not about success."""
    settings = Settings(solver="svi", num_steps=2, seed=1000)
    options: Any = {"size": 5, "folder": tmp_path, "console": Console(file=io.StringIO())}
    first = run("doorkey", settings, 1, **options)
    kept = {path.name: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert len(kept) == first["problems"] + 1  # and the settings
    again = run("doorkey", settings, 1, **options)
    assert (again["steps"], again["problems"]) == (first["steps"], first["problems"])
