"""Reproduction of the tables: rows are run once, kept, redone when they change, and shown beside the paper's values."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from npro_aif.acting.solutions import Solutions, Solved
from npro_aif.cli import app
from npro_aif.experiments import reproduce as command
from npro_aif.experiments.rows import MEASURES, TABLES, Row, TableOfRows, mean, rate
from npro_aif.experiments.tables import MARK, cell, csv_text, interval, markdown, overlap, picture, rich_table
from npro_aif.experiments.tasks import SettingsError

SUMMARY = {
    "seed": 0, "episodes": 200, "seconds_per_decision": 0.01, "compile_seconds": 1.0,
    "success": 0.5, "success_low": 0.43, "success_high": 0.57, "cue": 1.0, "cue_low": 0.98, "cue_high": 1.0,
    "safe": None, "safe_low": None, "safe_high": None, "reward": 0.0, "reward_std": 1.0, "steps": 4.0, "steps_std": 0.0,
}  # fmt: skip


def small_table(*kinds: str) -> TableOfRows:
    """Table 1 with a few rows of its cheapest block only."""
    table = TABLES["table1"]
    (block,) = (b for b in table.blocks if b.title == "ours, coordinate")
    rows = tuple(row for row in block.rows if row.settings.objective in kinds)
    return table._replace(blocks=(block._replace(rows=rows),))


def quiet() -> Console:
    return Console(file=io.StringIO(), width=140)


def make(table: TableOfRows, out: Path, episodes: int) -> tuple[list[Path], str]:
    console = quiet()
    files = command.make_table(table, out, episodes=episodes, quick=False, console=console)
    return files, console.file.getvalue()  # type: ignore[attr-defined]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Rows that were run, with nothing really run."""
    names: list[str] = []

    def play(row: Row, episodes: int, *_: Any) -> dict[str, Any]:
        names.append(row.name)
        return SUMMARY | {"episodes": episodes, "problems": 1}

    monkeypatch.setattr(command, "play", play)
    return names


def test_rows_are_those_of_the_paper() -> None:
    names = [row.name for table in TABLES.values() for block in table.blocks for row in block.rows]
    assert len(set(names)) == len(names)
    for table in TABLES.values():
        assert set(table.measures) <= set(MEASURES)
        for row in (row for block in table.blocks for row in block.rows):
            assert set(row.published) in (set(table.measures), set())
    kinds = {name.rsplit("-", 1)[1] for name in names}
    assert kinds == {"active", "marginal", "planning", "efe", "sophisticated"}


def test_intervals_of_published_values_allow_for_rounding() -> None:
    assert rate(100, 98, 100).interval(200) == pytest.approx((0.975, 1.005))
    low, high = mean(0.05, 1.0).interval(200)
    half = 1.959964 / np.sqrt(200) + 0.005
    assert (low, high) == pytest.approx((0.05 - half, 0.05 + half))
    assert mean(4.0, 0.0, 1).interval(200) == pytest.approx((3.95, 4.05))


@pytest.mark.parametrize(
    ("measure", "published", "expected"),
    [
        ("success", rate(48, 40, 55), True),
        ("success", rate(66, 60, 73), False),  # ours ends at 57 %
        ("cue", rate(0, 0, 2), False),
        ("reward", mean(0.1, 1.0), True),  # ±0.139 each
        ("reward", mean(0.33, 0.0), False),
        ("steps", mean(4.0, 0.0, 1), True),
        ("steps", mean(3.0, 0.0, 1), False),
        ("success", None, None),
    ],
)
def test_marks_stand_where_intervals_do_not_overlap(measure: str, published: Any, expected: bool | None) -> None:
    assert cell(measure, SUMMARY, published, 200).overlap is expected


def test_overlap_is_symmetric_and_agrees_with_a_grid() -> None:
    rng = np.random.default_rng(0)
    grid = np.linspace(0, 1, 101)
    for _ in range(50):
        (a, b), (c, d) = np.sort(rng.integers(0, 101, size=(2, 2)), axis=1) / 100
        common = bool(((grid >= a) & (grid <= b) & (grid >= c) & (grid <= d)).any())
        assert overlap((a, b), (c, d)) == overlap((c, d), (a, b)) == common


def test_every_form_says_the_same() -> None:
    table = small_table("active", "marginal")
    active, marginal = (row.name for row in table.blocks[0].rows)
    results = {active: {"summary": SUMMARY}, marginal: {"missing": "pip install something"}}
    page = markdown(table, results, "npro-aif reproduce table1")
    (line,) = (line for line in page.splitlines() if line.startswith("| F_active"))
    cells = [part.strip() for part in line.strip("|").split("|")]
    assert cells == [
        "F_active", f"50% [43, 57] {MARK}", "100% [98, 100]", f"+0.00 ± 1.00 {MARK}", "+1.00 ± 0.00",
        "100% [98, 100]", "100% [98, 100]", "4.00 ± 0.00", "4.00 ± 0.00", "0.0100",
    ]  # fmt: skip
    assert "200 episodes, seeds 0 to 199" in page
    assert "npro-aif reproduce table1" in page
    assert "F_marginal: pip install something" in page
    lines = list(csv.DictReader(io.StringIO(csv_text(table, results))))
    assert [line["measure"] for line in lines] == [*table.measures] * 2
    by_measure = {line["measure"]: line for line in lines[: len(table.measures)]}
    assert by_measure["success"]["overlap"] == "False"
    assert by_measure["cue"]["overlap"] == "True"
    assert float(by_measure["success"]["ours"]) == 0.5
    assert float(by_measure["reward"]["ours_low"]) == pytest.approx(interval(SUMMARY, "reward")[0])
    assert {line["missing"] for line in lines[len(table.measures) :]} == {"pip install something"}
    console = quiet()
    console.print(rich_table(table, results))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"50% [43,57]{MARK}" in shown
    assert "pip install something" in shown
    figure = picture(table, results)
    assert [axes.get_title() for axes in figure.axes] == [MEASURES[m] for m in table.measures]


def test_a_row_runs_once_and_again_when_its_settings_change(tmp_path: Path, quick_compile: None) -> None:
    table = small_table("active")
    files, first = make(table, tmp_path, 3)
    assert all(file.stat().st_size > 0 for file in files)
    assert {file.suffix for file in files} == {".md", ".csv", ".png", ".pdf"}
    assert "done: 3 episodes" in first
    path = tmp_path / "rows" / "table1-coordinate-active.json"
    found = json.loads(path.read_text())
    assert found["settings"]["episodes"] == 3
    assert "planning_correction=True" in found["settings"]["switches"]
    assert found["summary"]["success"] == found["summary"]["cue"] == 1.0
    assert not (tmp_path / "unfinished" / "table1-coordinate-active").exists()
    written = path.read_text()
    _, second = make(table, tmp_path, 3)
    assert "same settings, kept" in second
    assert path.read_text() == written
    _, third = make(table, tmp_path, 2)
    assert "settings changed" in third
    assert json.loads(path.read_text())["summary"]["episodes"] == 2


def test_finished_rows_are_kept_after_an_interruption(
    tmp_path: Path, played: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = small_table("active", "marginal", "planning")
    play: Callable[..., dict[str, Any]] = command.play

    def stops(row: Row, *arguments: Any) -> dict[str, Any]:
        if row.settings.objective == "planning":
            raise KeyboardInterrupt
        return play(row, *arguments)

    monkeypatch.setattr(command, "play", stops)
    with pytest.raises(KeyboardInterrupt):
        make(table, tmp_path, 4)
    assert played == ["table1-coordinate-active", "table1-coordinate-marginal"]
    monkeypatch.setattr(command, "play", play)
    _, text = make(table, tmp_path, 4)
    assert played[2:] == ["table1-coordinate-planning"]
    assert text.count("same settings, kept") == 2


def test_decisions_of_a_row_that_was_stopped_are_taken_over(tmp_path: Path) -> None:
    folder = tmp_path / "unfinished"
    solutions = Solutions(*command._kept(folder, {"episodes": 3}))
    with solutions.clock():
        pass
    solutions.add({"problem": Solved(np.array([0.5, 0.5]), 3, True)}, 0.1)
    assert "problem" in Solutions(*command._kept(folder, {"episodes": 3}))
    assert "problem" not in Solutions(*command._kept(folder, {"episodes": 4}))


def test_a_method_that_cannot_run_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, played: list[str]) -> None:
    def refuse(*_: Any) -> Any:
        raise SettingsError("pymdp is not installed: pip install 'npro-aif[baselines]'")

    monkeypatch.setattr(command, "prepare", refuse)
    files, text = make(small_table("active"), tmp_path, 2)
    assert "left out: pymdp is not installed" in text
    assert "pip install" in files[0].read_text()
    assert not (tmp_path / "rows").exists()
    assert played == []


def test_the_command_line_refuses_what_there_is_not() -> None:
    result = CliRunner().invoke(app, ["reproduce", "table4"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 2
    assert "'table1', 'table2', 'table3'" in result.output
    with pytest.raises(SettingsError, match="expected one of table1"):
        command.reproduce("table4", Path("nowhere"))


def test_an_interrupted_command_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "make_table", stop)
    result = CliRunner().invoke(app, ["reproduce", "table1", "--out", str(tmp_path)])
    assert result.exit_code == 130
    assert "the same command goes on" in result.output
