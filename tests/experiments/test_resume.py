"""A folder of decisions is taken over only by a run that would make the same ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import npro_aif as aif
from npro_aif.acting.solutions import Solutions, Solved
from npro_aif.experiments import reproduce
from npro_aif.experiments import run as command
from npro_aif.experiments.files import stored
from npro_aif.experiments.run import run
from npro_aif.experiments.tasks import Settings, SettingsError, make_task
from npro_aif.pomdp.program import find_file

pytestmark = pytest.mark.usefixtures("quick_compile")

QUIET = Console(quiet=True)


def test_a_folder_of_other_settings_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run("tmaze", Settings(), 2, folder=tmp_path, console=QUIET)
    again = run("tmaze", Settings(), 2, folder=tmp_path, console=QUIET)
    assert again["problems"] == first["problems"]  # nothing was solved again
    kept = json.loads((tmp_path / "settings.json").read_text())
    assert kept["version"] == aif.__version__

    def other_sweeps(*args: Any, **options: Any) -> Any:
        return make_task(*args, **options)._replace(sweeps=aif.CoordinateSolver(max_sweeps=1))

    with monkeypatch.context() as patch:
        patch.setattr(command, "make_task", other_sweeps)
        with pytest.raises(SettingsError, match=r"resume: .*other settings \(solver\)"):
            run("tmaze", Settings(), 2, folder=tmp_path, console=QUIET)
    (tmp_path / "settings.json").write_text(json.dumps(kept | {"version": "0.0.1"}))
    with pytest.raises(SettingsError, match=r"resume: .*other settings \(version\)"):
        run("tmaze", Settings(), 2, folder=tmp_path, console=QUIET)
    assert json.loads((tmp_path / "settings.json").read_text())["version"] == "0.0.1"  # left as it was


def test_descents_are_told_apart(tmp_path: Path) -> None:
    settings = Settings(solver="svi", num_steps=3)
    run("tmaze", settings, 1, folder=tmp_path, console=QUIET)
    for other, what in ((settings._replace(num_steps=4), "num_steps"), (settings._replace(paper=True), "switches")):
        with pytest.raises(SettingsError, match=rf"other settings \(.*{what}"):
            run("tmaze", other, 1, folder=tmp_path, console=QUIET)


PROBLEM = "0123456789abcdef" * 2  # a name as problems have


def folder_with_a_solution(folder: Path) -> Path:
    """A folder of one solved problem; its file."""
    solutions = Solutions(folder, {"task": "none"})
    with solutions.clock():
        pass
    solutions.add({PROBLEM: Solved(np.array([0.25, 0.75]), 3, True)}, 0.5)
    return folder / f"{PROBLEM}.json"


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"control": {}, "seconds": 1, "compile_seconds": 0}'])
def test_a_damaged_solution_is_named_and_solved_again(tmp_path: Path, content: str) -> None:
    file = folder_with_a_solution(tmp_path)
    assert Solutions(tmp_path, {"task": "none"})[PROBLEM].tolist() == [0.25, 0.75]
    file.write_text(content)
    with pytest.warns(UserWarning, match=rf"{PROBLEM}\.json: found no solution .* solved again"):
        solutions = Solutions(tmp_path, {"task": "none"})
    file.unlink()
    assert PROBLEM not in solutions
    assert (solutions.problems, solutions.told) == (0, 0)


@pytest.mark.parametrize("content", ["", "[]", '{"task"'])
def test_settings_that_cannot_be_read_are_named_and_nothing_is_removed(tmp_path: Path, content: str) -> None:
    file = folder_with_a_solution(tmp_path)
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(ValueError, match=r"settings\.json: found no settings that can be read"):
        Solutions(tmp_path, {"task": "none"})
    with pytest.raises(SettingsError, match=r"out: .*settings\.json: found no settings"):
        reproduce._kept(tmp_path, {"task": "none"})
    assert file.exists()


def test_a_row_with_a_damaged_solution_keeps_its_finished_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_with_a_solution(tmp_path / "row").write_text("")
    block = tmp_path / "row" / "blocks" / "0-31.json"
    block.parent.mkdir()
    block.write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="solved again"):
        store = reproduce._kept(Path("row"), {"task": "none"})
    assert store.folder == tmp_path / "row"  # which workers find from wherever they are
    assert block.exists()


def test_a_summary_may_lie_in_the_folder(tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    for _ in range(2):
        run("tmaze", Settings(), 2, folder=tmp_path, json_file=summary, console=QUIET)
    assert json.loads(summary.read_text())["episodes"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folder": "file"}, r"resume: found '.*file', where no files can be written"),
        ({"folder": "file/deep"}, r"resume: found '.*deep', where no files can be written"),
        ({"json_file": "file/deep.json"}, r"json: found '.*file', where no files can be written"),
        ({"table_file": "."}, r"table: found the folder '.*', expected the name of a file"),
        ({"folder": "run", "json_file": "run/settings.json"}, r"json: found '.*', which --resume keeps for itself"),
        ({"table_file": "one", "json_file": "one"}, r"table: found '.*one', as for --json"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], message: str
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(command, "Played", None)  # nothing is played
    with pytest.raises(SettingsError, match=message):
        run("tmaze", Settings(), 2, console=QUIET, **{name: tmp_path / path for name, path in options.items()})


def test_a_folder_of_results_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"out: found '.*file', where no files can be written"):
        reproduce.reproduce("table1", tmp_path / "file", console=QUIET)


def test_workers_find_a_file_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.POMDP").write_text(find_file("tiger.POMDP").read_text())
    recipes = []

    def played(recipe: Any, *_: Any) -> Any:
        recipes.append(recipe)
        raise ValueError("enough")

    monkeypatch.setattr(command, "Played", played)
    monkeypatch.chdir(tmp_path)
    for name in ("mine.POMDP", "tiger.POMDP"):  # the second comes with the package
        with pytest.raises(SettingsError, match="enough"):
            run(name, Settings(objective="planning", solver="coordinate"), 1, console=QUIET)
    monkeypatch.chdir("/")
    for recipe in recipes:
        worlds, _ = recipe()
        worlds().reset(seed=0)


def test_a_result_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "row.json").write_text('{"settings"')
    with pytest.raises(SettingsError, match=r"row\.json: found no result that can be read"):
        stored(tmp_path / "row.json", {})
