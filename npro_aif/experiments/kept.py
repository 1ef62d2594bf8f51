"""The rows behind the published tables, kept in the repository: `docs/rows/*.json`, one file for each row.

A reproduction takes them over where their settings are its own, and says so; ``--fresh`` runs them again. An installed
package has none.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from npro_aif.experiments.files import same_settings

FOLDER = Path(__file__).parents[2] / "docs" / "rows"


def kept_rows(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Every row that is kept, by its name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def kept_row(name: str, settings: dict[str, Any], folder: Path = FOLDER) -> dict[str, Any] | None:
    """What is kept of a row, if it was made with these settings, by whichever version."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    row = json.loads(path.read_text())
    return row if same_settings(row["settings"], settings, but=("version",)) else None
