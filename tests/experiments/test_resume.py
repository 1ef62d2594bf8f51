"""A folder of decisions is taken over only by a run that would make the same ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import npro_aif as aif
from npro_aif.experiments import run as command
from npro_aif.experiments.run import run
from npro_aif.experiments.tasks import Settings, SettingsError, make_task

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
