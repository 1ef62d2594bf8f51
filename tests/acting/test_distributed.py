"""Episodes on workers: the same table as in one process, whoever runs them, and nothing lost when a worker dies."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import npro_aif as aif
from npro_aif.acting.distributed import Store, Workers, iterate_blocks
from npro_aif.acting.episodes import Episode
from npro_aif.envs import TMaze
from npro_aif.models import tmaze
from npro_aif.sizes import LOCKSTEP

SEEDS = range(100, 100 + 3 * LOCKSTEP + 5)  # four blocks, the last one shorter


class Wanderer:
    """Random controls, by the key."""

    def __init__(self, pause: float = 0.0):
        self.pause = pause

    def reset(self, key: jax.Array | None = None) -> None:
        self.rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))

    def act(self, observation: Any) -> int:
        time.sleep(self.pause)
        return int(self.rng.integers(4))


def wanderers(pause: float = 0.0) -> tuple[Any, Wanderer]:
    """A recipe that workers can import."""
    return TMaze, Wanderer(pause)


def rows(episodes: Any) -> list[tuple[Any, ...]]:
    return sorted((e.seed, e.controls, e.reward, e.steps, e.infos, e.observations) for e in episodes)


@pytest.fixture(scope="module")
def expected() -> list[tuple[Any, ...]]:
    return rows(aif.run_episodes(TMaze, Wanderer(), SEEDS).episodes)


def test_any_executor_gives_the_same_table(expected: list[Any]) -> None:
    ended: list[Episode] = []
    with ThreadPoolExecutor(2) as executor:
        outcomes = aif.run_episodes(TMaze, Wanderer(), SEEDS, ended.append, executor=executor)
    assert [episode.seed for episode in outcomes.episodes] == list(SEEDS)
    assert rows(outcomes.episodes) == expected == rows(ended)
    assert outcomes.effort.decisions == sum(episode.steps for episode in outcomes.episodes)


def test_an_agent_that_plans_travels(quick_compile: None) -> None:
    planner = aif.Planner(tmaze.tmaze, solver=aif.CoordinateSolver(max_sweeps=20), max_horizon=4)
    agent = aif.Agent(planner, tmaze.initial_belief(), max_steps=4)
    with ThreadPoolExecutor(1) as executor:
        outcomes = aif.run_episodes(TMaze, agent, range(LOCKSTEP + 2), executor=executor)
    assert {(episode.reward, episode.steps) for episode in outcomes.episodes} == {(1.0, 4)}
    assert outcomes.effort.problems == 7  # the second block knows what the first one solved


class Fragile(Executor):
    """Does a few jobs, and then breaks."""

    def __init__(self, lasts: int):
        self.left, self.jobs = lasts, 0

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.left -= 1
        if self.left < 0:
            future.set_exception(BrokenExecutor("a worker has gone"))
        else:
            self.jobs += 1
            future.set_result(function(*arguments, **options))
        return future


def test_what_was_finished_before_an_executor_broke_is_kept(tmp_path: Path, expected: list[Any]) -> None:
    store, first, second = Store(tmp_path, {"task": "wandering"}), Fragile(2), Fragile(99)
    ended: list[Episode] = []
    going = iterate_blocks(wanderers, SEEDS, first, store)
    with pytest.raises(RuntimeError, match=r"executor: found it broken \(BrokenExecutor: a worker has gone\) with 2 b"):
        ended.extend(episode for block in going for episode in block.episodes)
    assert len(ended) == 2 * LOCKSTEP
    blocks = list(iterate_blocks(wanderers, SEEDS, second, store))
    assert rows(episode for block in blocks for episode in block.episodes) == expected
    assert (first.jobs, second.jobs) == (2, 2)  # nothing was done twice


def test_what_cannot_travel_is_refused() -> None:
    with ThreadPoolExecutor(1) as executor:
        with pytest.raises(ValueError, match="executor: found it with the environment TMaze, in which episodes follow"):
            aif.run_episodes(TMaze(), Wanderer(), SEEDS, executor=executor)
        with pytest.raises(ValueError, match="seeds: found some more than once"):
            aif.run_episodes(TMaze, Wanderer(), [1, 1], executor=executor)


def test_a_worker_that_is_killed_costs_only_its_block(tmp_path: Path, expected: list[Any]) -> None:
    store = Store(tmp_path, {"task": "wandering"})
    killed: list[int | None] = []

    def kill_one() -> None:
        while not list(tmp_path.glob("blocks/*.json")):
            time.sleep(0.01)
        worker = multiprocessing.active_children()[0]
        worker.kill()
        killed.append(worker.pid)

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    blocks = list(iterate_blocks(partial(wanderers, 0.02), SEEDS, Workers(2), store))
    killer.join(1)
    assert killed
    assert rows(episode for block in blocks for episode in block.episodes) == expected


# --- Dask ----------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Path, list[subprocess.Popen[str]]]]:
    """A scheduler and two workers in processes of their own; the scheduler's file, and all of them."""
    pytest.importorskip("distributed")
    file, dask = tmp_path / "scheduler.json", (sys.executable, "-m", "dask")
    home = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}  # so that workers find this module

    def start(*words: str) -> subprocess.Popen[str]:
        command = [*dask, *words, "--host", "127.0.0.1", "--scheduler-file", str(file)]
        return subprocess.Popen(
            command, env=home, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path
        )

    processes = [start("scheduler", "--port", "0", "--no-dashboard")]
    processes += [start("worker", "--nthreads", "1", "--no-dashboard") for _ in range(2)]
    yield file, processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_table(cluster: tuple[Path, list[Any]], expected: list[Any]) -> None:
    from npro_aif.experiments.workers import workplace

    with workplace(None, str(cluster[0])) as executor:
        outcomes = aif.run_episodes(TMaze, Wanderer(), SEEDS, executor=executor)  # type: ignore[arg-type]
    assert rows(outcomes.episodes) == expected


@pytest.mark.slow
def test_a_scheduler_that_dies_is_told(cluster: tuple[Path, list[Any]], tmp_path: Path) -> None:
    from npro_aif.experiments.workers import workplace

    store = Store(tmp_path / "run", {"task": "wandering"})
    seen = []

    def stop_after_one(executor: Any) -> None:
        for block in iterate_blocks(partial(wanderers, 0.05), SEEDS, executor, store):
            seen.append(block)
            cluster[1][0].kill()

    with (
        workplace(None, str(cluster[0])) as executor,
        pytest.raises(RuntimeError, match=r"executor: found it broken .* what was finished is kept"),
    ):
        stop_after_one(executor)
    assert len(seen) == len(list(tmp_path.glob("run/blocks/*.json"))) >= 1
