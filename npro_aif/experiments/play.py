"""The episodes of a run or of a row of a table: played here or by workers, with the effort so far."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any

from npro_aif.acting.distributed import Block, Recipe, Store, iterate_blocks, total
from npro_aif.acting.episodes import Acting, Effort, Episode, effort, iterate_episodes
from npro_aif.acting.pools import Workers
from npro_aif.acting.solutions import Solutions
from npro_aif.experiments.agents import follows_on
from npro_aif.experiments.files import prepare
from npro_aif.experiments.progress import EpisodeBar
from npro_aif.experiments.rows import Row
from npro_aif.experiments.summary import summarize
from npro_aif.experiments.tasks import Task
from npro_aif.solvers.search import Certificate


class Played:
    """Episodes in progress; iterating over the object plays them and yields them in the order in which they end.

    :param recipe: makes the environments and the agent.
    :param store: the folder to continue from, which keeps solved problems (and the blocks of workers).
    :param executor: whose workers play; by default they are played here.
    """

    def __init__(
        self,
        recipe: Recipe,
        seeds: Sequence[int],
        store: Store | None = None,
        executor: Executor | Workers | None = None,
    ):
        self.recipe, self.seeds, self.store, self.executor = recipe, seeds, store, executor
        self._solutions = Solutions() if store is None else Solutions(*store)
        self._ended: list[Episode] = []
        self._blocks: list[Block] = []
        self._agent: Any = None

    def __iter__(self) -> Iterator[Episode]:
        for episode in self._here() if self.executor is None else self._elsewhere(self.executor):
            self._ended.append(episode)
            yield episode

    def _here(self) -> Iterator[Episode]:
        worlds, self._agent = self.recipe()
        yield from iterate_episodes(worlds, self._agent, self.seeds, solutions=self._solutions)

    def _elsewhere(self, executor: Executor | Workers) -> Iterator[Episode]:
        for block in iterate_blocks(self.recipe, self.seeds, executor, self.store):
            self._blocks.append(block)
            yield from block.episodes

    @property
    def ended(self) -> list[Episode]:
        """Those that have ended, in the order of their seeds."""
        return sorted(self._ended, key=lambda episode: episode.seed)

    @property
    def decisions(self) -> int:
        """How many controls were chosen so far."""
        return self.effort.decisions

    @property
    def effort(self) -> Effort:
        """What it took so far."""
        return effort(self._solutions) if self.executor is None else total(self._blocks)

    @property
    def certificates(self) -> list[Certificate]:
        """What every search showed."""
        if self.executor is None:
            return list(getattr(getattr(self._agent, "planner", None), "certificates", ()))
        return [certificate for block in self._blocks for certificate in block.certificates]


def play(
    row: Row,
    episodes: int,
    bar: EpisodeBar | None = None,
    store: Store | None = None,
    executor: Executor | Workers | None = None,
) -> dict[str, Any]:
    """Play the episodes of a row and summarise them; those that have to follow each other are always played here."""
    task, _ = row_task(row)
    seeds = range(row.settings.seed, row.settings.seed + episodes)
    played = Played(
        functools.partial(row_recipe, row), seeds, store, None if follows_on(task, row.settings) else executor
    )
    if bar is not None:
        bar.watch(played)
    for _ in played:
        if bar is not None:
            bar.advance()
    return {"seed": row.settings.seed} | summarize(task, played.ended, played.effort)


def row_task(row: Row) -> tuple[Task, Acting]:
    """The row's task and agent."""
    return prepare(row.task, row.settings, row.preference, row.memory)


def row_recipe(row: Row) -> tuple[Any, Acting]:
    """The environments and the agent of a row."""
    task, agent = row_task(row)
    return task.worlds(), agent
