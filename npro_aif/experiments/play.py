"""The episodes of one row of a table, and what came of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from npro_aif.acting.episodes import Episode, effort, iterate_episodes
from npro_aif.acting.solutions import Solutions
from npro_aif.experiments.files import prepare
from npro_aif.experiments.rows import Row
from npro_aif.experiments.summary import summarize


def play(
    row: Row,
    episodes: int,
    advance: Callable[[], None] = lambda: None,
    solutions: Solutions | None = None,
    *,
    solver_seed: int | None = None,
) -> dict[str, Any]:
    """Run the episodes of a row and summarise them.

    :param solutions: decisions to start from, and to add to.
    :param solver_seed: of the solver's initial values, where they are others than the row's.
    """
    task, agent = prepare(row.task, row.settings, row.preference, row.memory)
    if solver_seed is not None and hasattr(agent, "seed"):
        agent = copy.copy(agent)
        agent.seed = solver_seed
    solutions = solutions or Solutions()
    ended: list[Episode] = []
    seeds = range(row.settings.seed, row.settings.seed + episodes)
    for episode in iterate_episodes(task.worlds(), agent, seeds, solutions=solutions):
        ended.append(episode)
        advance()
    ended.sort(key=lambda episode: episode.seed)
    return {"seed": row.settings.seed} | summarize(task, ended, effort(solutions))
