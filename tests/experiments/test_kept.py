"""Rows that the repository keeps: reproductions take them over, and the docs say what they say."""

from __future__ import annotations

import io
import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from npro_aif.experiments import convergence, doorkey_convergence, figures, kept, reproduce
from npro_aif.experiments.rows import EPISODES, TABLES, Row
from npro_aif.experiments.worlds import WORLDS_TABLE

ROOT = Path(__file__).parents[2]
ROWS = kept.kept_rows()


def row_named(name: str) -> Row:
    return next(row for table in TABLES.values() for block in table.blocks for row in block.rows if row.name == name)


def test_a_kept_row_is_taken_over_unless_it_shall_be_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []

    def play(row: Row, episodes: int, *_: Any) -> dict[str, Any]:
        runs.append(row.name)
        return {"compile_seconds": 0.0, "problems": 0, "seconds_per_decision": 0.0, "episodes": episodes}

    class Bar:
        def advance(self) -> None: ...

        def watch(self, _: Any) -> None: ...

    monkeypatch.setattr(reproduce, "play", play)
    monkeypatch.setattr(reproduce, "prepare", lambda *_: None)
    row, folder, bar = row_named("table1-coordinate-active"), tmp_path / "kept", Bar()
    made, _ = reproduce.make_row(row, 7, tmp_path / "first", bar)  # type: ignore[arg-type]
    assert runs == [row.name]
    folder.mkdir()
    made["settings"]["version"] = "0.0.1"  # of whichever version
    (folder / f"{row.name}.json").write_text(json.dumps(made))
    monkeypatch.setattr(reproduce, "kept_row", lambda name, settings: kept.kept_row(name, settings, folder))
    content, how = reproduce.make_row(row, 7, tmp_path / "second", bar)  # type: ignore[arg-type]
    assert content == made
    assert "the repository keeps it (docs/rows, version 0.0.1); --fresh runs it" in how
    assert runs == [row.name]
    reproduce.make_row(row, 8, tmp_path / "second", bar)  # type: ignore[arg-type]
    reproduce.make_row(row, 7, tmp_path / "third", bar, fresh=True)  # type: ignore[arg-type]
    assert runs == [row.name] * 3


@pytest.mark.parametrize("name", ROWS)
def test_what_a_kept_row_holds(name: str) -> None:
    content = ROWS[name]
    assert {"settings", "summary"} <= content.keys()
    assert content["settings"]["version"]
    if name.startswith("table"):
        assert row_named(name)
        table = name.split("-")[0]
        most = row_named(name).episodes or EPISODES[table]
        assert content["summary"]["episodes"] == content["settings"]["episodes"] == most


def test_a_reproduction_takes_over_every_row_that_is_kept() -> None:
    """No row was made with other settings than a reproduction has now."""
    for table in (*TABLES.values(), WORLDS_TABLE):
        for row in (row for block in table.blocks for row in block.rows if row.name in ROWS):
            count = min(table.published_episodes, row.episodes or table.published_episodes)
            settings = reproduce.row_settings(reproduce.task_of(row), row, count)
            assert kept.kept_row(row.name, settings) is not None, (row.name, settings)


def test_the_results_are_what_the_rows_say() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "results.py"), run_name="results")
    page = (ROOT / "docs" / "results.md").read_text()
    assert script["refreshed"](page) == page, "run `python docs/results.py`"


def test_the_page_of_the_appendices_is_what_the_studies_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(figure: Figure, path: Path) -> list[Path]:
        return [path.with_suffix(".png")]

    def run(path: Path, *_: Any) -> dict[str, Any]:
        raise AssertionError(f"{path.stem} is not kept in docs/rows/convergence")

    monkeypatch.setattr(convergence, "run_study", run)
    for module in (convergence, doorkey_convergence):
        monkeypatch.setattr(module, "save_figure", save)
    files = convergence.make_convergence(tmp_path / "convergence", console=Console(file=io.StringIO()))
    page = (ROOT / "docs" / "convergence.md").read_text()
    assert (tmp_path / "convergence.md").read_text() == page
    pictures = {file.name for file in files if file.suffix == ".png"}
    assert pictures == {path.name for path in (ROOT / "docs" / "convergence").glob("*.png")}


FIGURES = ROOT / "docs" / "rows" / "figures"


def test_every_picture_of_numbers_has_them_beside_it() -> None:
    """Pictures of the docs that `reproduce figures` makes; the others are photographs of the viewer."""
    pictures = {path.stem for path in (ROOT / "docs").glob("*.png")} & figures.FIGURES.keys()
    assert pictures == {path.stem for path in FIGURES.glob("tmaze_*.json")}


def test_the_paper_page_has_the_opacities_of_the_picture() -> None:
    steps = json.loads((FIGURES / "tmaze_published.json").read_text())["F_marginal"]
    shown = ", ".join(f"{max(step['q(u_1)']):.2f}".removeprefix("0") for step in steps)
    assert f"({shown} for F_marginal)" in (ROOT / "docs" / "paper.md").read_text()


def rate(name: str) -> str:
    """A success rate with its interval, as the README writes it."""
    summary = ROWS[name]["summary"]
    low, high = (100 * summary[f"success_{end}"] for end in ("low", "high"))
    return f"{summary['success']:.0%}".replace("%", " %") + f" [{low:.0f}, {high:.0f}]"


def steps(name: str) -> str:
    return f"{ROWS[name]['summary']['steps']:.2f}"


def test_the_readmes_results_are_what_the_rows_say() -> None:
    """Every rate and number of steps of ours that it has."""
    text = (ROOT / "README.md").read_text()
    for task, claims in TASKS.items():
        line = next(line for line in text.splitlines() if line.startswith(f"| {task}"))
        for name, claim in claims.items():
            assert claim.format(rate=rate(name), steps=steps(name)) in line, (name, line)


TASKS = {
    "T-maze": {
        "table1-coordinate-active": "F_active {rate}",
        "run-tmaze-told": "with a memory {rate}",
    },
    "Reactivity Maze": {
        "table2-coordinate-active": "F_active {rate}",
        "run-reactivity-told": "with a memory {rate}",
    },
    "MiniGrid DoorKey-8x8": {
        "table3-search-active": "F_active and F_planning {rate} in {steps} steps",
        "table3-search-planning": "F_active and F_planning {rate} in {steps} steps",
        "table3-every-step-active": "F_active in closed form {rate} in {steps}",
        "table3-paper-active": "F_active {rate} in {steps} steps",
        "table3-paper-planning": "F_planning {rate} in {steps}",
    },
}


def test_console_says_that_a_row_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's words, with a table of one row that is kept."""
    name = "table1-coordinate-active"
    content = {"settings": {"version": "1"}, "summary": SUMMARY}
    monkeypatch.setattr(reproduce, "kept_row", lambda *_: content)
    monkeypatch.setattr(reproduce, "save_figure", lambda *_: [])
    table = TABLES["table1"]
    block = next(block for block in table.blocks if any(row.name == name for row in block.rows))
    short = table._replace(blocks=(block._replace(rows=(row_named(name),)),))
    console = Console(file=io.StringIO(), width=200)
    reproduce.make_table(short, tmp_path, episodes=None, quick=False, console=console)
    assert "not run, as the repository keeps it" in console.file.getvalue()  # type: ignore[attr-defined]


SUMMARY = {
    "seed": 0, "episodes": 200, "seconds_per_decision": 0.01, "compile_seconds": 1.0, "success": 1.0,
    "success_low": 0.98, "success_high": 1.0, "cue": 1.0, "cue_low": 0.98, "cue_high": 1.0, "safe": None,
    "reward": 1.0, "reward_std": 0.0, "steps": 4.0, "steps_std": 0.0,
}  # fmt: skip
