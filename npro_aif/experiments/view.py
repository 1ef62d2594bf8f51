"""The command ``npro-aif view``: one episode of each objective, with the same seed, on a page to look through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from npro_aif.analysis.recording import Recording, record_episode
from npro_aif.analysis.view.page import write_page
from npro_aif.experiments.agents import check_settings, vfe_agent
from npro_aif.experiments.tasks import Settings, SettingsError, make_task
from npro_aif.pomdp.program import SUFFIX

# Whose agents are shown where nothing is said; in a larger world each takes half a minute to compile.
COMPARED = {"tmaze": ("active", "planning"), "reactivity": ("active", "planning")}


def view(
    name: str,
    settings: Settings,
    out: Path | None = None,
    *,
    objectives: tuple[str, ...] = (),
    console: Console | None = None,
    **task_options: Any,
) -> Path:
    """Run the episodes, write the page, and return where it is.

    :param name: of the task, or of a `.POMDP` file.
    :param settings: of every agent but for its objective; the episode has its seed.
    :param out: where to write; by default view_<task>.html, here.
    :param objectives: whose agents to show side by side; by default active, in the small mazes planning beside it, and
        planning alone for a file.
    :param task_options: of :func:`~npro_aif.experiments.tasks.make_task`.
    """
    console = console or Console()
    objectives = objectives or _by_default(name)
    if len(set(objectives)) < len(objectives):
        raise SettingsError(f"objective: found {', '.join(objectives)}, expected different ones")
    task = make_task(name, horizon=settings.horizon, **task_options)
    variants = [settings._replace(objective=objective) for objective in objectives]
    for variant in variants:
        check_settings(task, variant)
    agents = [vfe_agent(task, variant) for variant in variants]
    recordings: dict[str, Recording] = {}
    for agent, variant in zip(agents, variants, strict=True):
        with console.status(f"episode {settings.seed}, {variant.objective}"):
            recording = record_episode(task.environment(), agent, settings.seed)
        recordings[recording.objective] = recording
        episode = recording.episode
        console.print(f"{recording.objective}: reward {episode.reward:.2f} in {episode.steps} steps", highlight=False)
    with console.status("writing the page"):
        title = Path(name).stem if name.endswith(SUFFIX) else None
        path = write_page(recordings, out or Path(f"view_{Path(name).stem}.html"), title=title)
    console.print(f"{path} ({path.stat().st_size / 1e6:.2f} MB): open it in a browser", highlight=False, soft_wrap=True)
    return path


def _by_default(name: str) -> tuple[str, ...]:
    return ("planning",) if name.endswith(SUFFIX) else COMPARED.get(name, ("active",))
