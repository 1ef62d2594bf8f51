"""Progress on the terminal: a bar over the episodes that have ended, and how many decisions were made.

Episodes in lockstep end nearly together, and a single one by SVI may take an hour: the decisions show progress.
"""

from __future__ import annotations

from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text


class Counter(Protocol):
    """What counts decisions."""

    @property
    def decisions(self) -> int: ...


class DecisionsColumn(ProgressColumn):
    """The decisions that a bar's counter has."""

    def render(self, task: Task) -> Text:
        counter: Counter | None = task.fields.get("counter")
        return Text("" if counter is None else f"{counter.decisions} decisions")


def bars(console: Console) -> Progress:
    """A display for bars, gone when it is left."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        DecisionsColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True)


class EpisodeBar:
    """The bar of one run of episodes."""

    def __init__(self, progress: Progress, title: str, episodes: int):
        self.progress, self.title = progress, title
        self._task = progress.add_task(title, total=episodes)

    def watch(self, counter: Counter) -> None:
        """Show the decisions that something counts."""
        self.progress.update(self._task, counter=counter)

    def say(self, text: str) -> None:
        """Say something of this run above the bars."""
        self.progress.console.print(f"{self.title}: {text}", highlight=False)

    def advance(self) -> None:
        """One more episode has ended."""
        self.progress.advance(self._task)

    def remove(self) -> None:
        """The run is over."""
        self.progress.remove_task(self._task)
