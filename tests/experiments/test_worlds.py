"""The table of the three grid worlds: what its rows are, and one of them made."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from npro_aif.acting.episodes import Episode
from npro_aif.acting.run import run_episodes
from npro_aif.experiments import reproduce, worlds
from npro_aif.experiments.agents import make_agent
from npro_aif.experiments.tasks import Settings, make_task
from npro_aif.models import frozen_lake


def test_rows_have_names_of_their_own() -> None:
    rows = [row for block in worlds.WORLDS_TABLE.blocks for row in block.rows]
    assert len({row.name for row in rows}) == len(rows) == 16
    assert sum(row.memory is not None for row in rows) == sum(row.settings.solver == "search" for row in rows) == 2
    low, high = rows[3].published["success"].interval(1000)
    assert low < 0.959 < high


def test_a_short_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_compile: None) -> None:
    """Who plans without looking takes no rock, and leaves."""
    block = worlds.WORLDS_TABLE.blocks[-1]
    short = worlds.WORLDS_TABLE._replace(blocks=(block._replace(rows=block.rows[1:2]),))
    monkeypatch.setattr(worlds, "WORLDS_TABLE", short)
    files = reproduce.reproduce("worlds", tmp_path, episodes=2, console=Console(file=io.StringIO()))
    text = files[0].read_text()
    assert "RockSample(4,3)" in text
    assert "1.00 ± 0.00" in text


def twenty(world: str, settings: Settings, preference: str | None = None, memory: str | None = None) -> list[Episode]:
    """Twenty episodes on seeds that the table does not have."""
    task = make_task(world, preference=preference, memory=memory)
    return list(run_episodes(task.worlds(), make_agent(task, settings), range(20)).episodes)


def successes(episodes: list[Episode]) -> int:
    return sum(episode.reward > 0 for episode in episodes)


def test_twenty_episodes_by_search(quick_compile: None) -> None:
    """With far fewer looks than the table's a plan already promises more than the 30 % of controls done blindly."""
    task = make_task("wumpus", preference="reward")
    settings = Settings(objective="planning", solver="search", max_nodes=10, first_nodes=1000)
    agent: Any = make_agent(task, settings)
    episodes = list(run_episodes(task.worlds(), agent, range(20)).episodes)
    assert agent.planner.certificates[0].upper < -10  # nats; a success counts −100, and 16 controls 25
    assert successes(episodes) >= 4


@pytest.mark.slow
def test_twenty_episodes_without_a_look(quick_compile: None) -> None:
    planning = Settings(objective="planning")
    assert {episode.reward for episode in twenty("rock-sample", planning)} == {1.0}
    lake = twenty("frozen-lake", planning)
    assert not any(frozen_lake.SCAN in episode.controls for episode in lake)
    assert 6 <= successes(lake) <= 16


@pytest.mark.slow
@pytest.mark.parametrize(("world", "least"), [("frozen-lake", 17), ("wumpus", 5)])
def test_twenty_episodes_that_look(world: str, least: int) -> None:
    episodes = twenty(world, Settings(objective="active"))
    assert successes(episodes) >= least
    if world == "frozen-lake":
        assert np.mean([episode.controls.count(frozen_lake.SCAN) for episode in episodes]) == pytest.approx(1, abs=0.2)


@pytest.mark.slow
def test_twenty_episodes_with_rocks() -> None:
    """Bad rocks are left, good ones taken: within .15 of full information."""
    for settings, preference in (
        (Settings(objective="active"), None),
        (Settings(objective="planning", solver="search", max_nodes=200, first_nodes=5000), "reward"),
    ):
        episodes = twenty("rock-sample", settings, preference)
        known = np.mean([1 + 2 * bin(episode.infos[0]["theta"]).count("1") for episode in episodes])
        assert np.mean([episode.reward for episode in episodes]) > known - 0.15


@pytest.mark.slow
def test_twenty_episodes_on_the_lake_with_a_memory() -> None:
    assert successes(twenty("frozen-lake", Settings(objective="planning"), memory="told")) >= 17
