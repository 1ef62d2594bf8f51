"""Files of a reproduction: written in one go or not at all, and reused only with the same settings."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npro_aif.acting.episodes import Acting
from npro_aif.acting.solutions import write
from npro_aif.experiments.agents import make_agent
from npro_aif.experiments.tasks import Settings, SettingsError, Task, make_task

if TYPE_CHECKING:  # a run draws nothing, and Matplotlib takes a fifth of the time of its imports
    from matplotlib.figure import Figure


def stored(path: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """What a file holds, if it was made with these settings."""
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise SettingsError(
            f"{path}: found no result that can be read ({error}), expected one; without the file it is made again"
        ) from error
    return content if same_settings(content.get("settings"), settings) else None


def same_settings(stored: dict[str, Any] | None, settings: dict[str, Any], but: tuple[str, ...] = ()) -> bool:
    """Whether settings that were read from a file are these.

    :param but: the names of those that do not matter.
    """
    ours = json.loads(json.dumps(settings))
    return stored is not None and all(
        stored.get(name) == ours.get(name) for name in (stored.keys() | ours.keys()) - set(but)
    )


def check_folder(option: str, folder: Path) -> None:
    """Refuse a folder in which no files can be written; it is made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SettingsError(
            f"{option}: found {str(folder)!r}, where no files can be written ({error}), expected a folder that can be "
            "made or written to"
        ) from error


def check_file(option: str, path: Path) -> None:
    """Refuse a file that cannot be written; its folder is made if it is not there."""
    if path.is_dir():
        raise SettingsError(f"{option}: found the folder {str(path)!r}, expected the name of a file")
    check_folder(option, path.parent)


def store(path: Path, settings: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """Write a result with its settings, and return both together."""
    whole = {"settings": settings} | content
    write(path, whole)
    return whole


def save_figure(figure: Figure, path: Path) -> list[Path]:
    """Save a figure as PNG and as PDF."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [path.with_suffix(suffix) for suffix in (".png", ".pdf")]
    for file in files:
        figure.savefig(file, dpi=150)
    return files


@functools.lru_cache(maxsize=64)  # what was compiled for a table serves the figures too
def prepare(
    name: str, settings: Settings, preference: str | None = None, memory: str | None = None
) -> tuple[Task, Acting]:
    """A task and an agent for it."""
    task = make_task(
        name,
        method=settings.method,
        preference=preference,
        memory=memory,
        paper=settings.paper,
        details=settings.details,
    )
    return task, make_agent(task, settings)
