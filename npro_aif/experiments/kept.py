"""The rows behind the published tables, kept in the repository: `docs/rows/*.json`, one file for each row.

A reproduction uses a row if its settings are the same, and says so; ``--fresh`` runs it again. The same holds for the
convergence studies in `docs/rows/convergence`. An installed package has none of these files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from npro_aif.experiments.files import same_settings, store, stored

FOLDER = Path(__file__).parents[2] / "docs" / "rows"
STUDIES = FOLDER / "convergence"
DIGITS = 5  # after the point, of the free energies that are kept


def kept_rows(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Every row that is kept, by its name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def kept_row(name: str, settings: dict[str, Any], folder: Path = FOLDER) -> dict[str, Any] | None:
    """The kept content of a row, if it was made with these settings, by any version."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    row = json.loads(path.read_text())
    return row if same_settings(row["settings"], settings, but=("version",)) else None


def kept_study(
    path: Path, settings: dict[str, Any], say: Callable[[str], None], *, fresh: bool = False
) -> dict[str, Any] | None:
    """The content of a study from a file, or else from the repository, if it has the same settings.

    :param fresh: ignore the repository's.
    """
    content = stored(path, settings)
    if content is not None:
        say(f"{path.stem}: finished before with the same settings, kept")
        return content
    content = None if fresh else kept_row(path.stem, settings, STUDIES)
    if content is not None:
        say(f"{path.stem}: not run, as the repository keeps it (docs/rows/convergence); --fresh runs it")
    return content


def run_study(
    path: Path, settings: dict[str, Any], study: Callable[[], dict[str, Any]], say: Callable[[str], None]
) -> dict[str, Any]:
    """Run a study and write it."""
    say(f"{path.stem}: running")
    return store(path, settings, study())


def rounded(values: np.ndarray) -> list[float]:
    """Numbers for a file that is kept, with as many digits as a figure can show.

    >>> rounded(np.array([1.23456789, 2.0]))
    [1.23457, 2.0]
    """
    return [round(float(value), DIGITS) for value in values]
