"""Episodes on workers: the same table as in one process, whoever runs them, and nothing lost when a worker dies."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npro_aif as aif
from npro_aif.acting.distributed import Store, iterate_blocks
from npro_aif.acting.episodes import Episode
from npro_aif.acting.pools import Workers, WorkersLost
from npro_aif.acting.solutions import write
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
    """Does a few jobs, and then breaks: what it has yet to do fails, or nothing more is accepted."""

    def __init__(self, lasts: int, refuses: bool = False):
        self.left, self.jobs, self.refuses = lasts, 0, refuses

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.left -= 1
        if self.left < 0 and self.refuses:
            raise BrokenExecutor("a worker has gone")
        if self.left < 0:
            future.set_exception(BrokenExecutor("a worker has gone"))
        else:
            self.jobs += 1
            future.set_result(function(*arguments, **options))
        return future


@pytest.mark.parametrize("refuses", [False, True])
def test_what_was_finished_before_an_executor_broke_is_kept(tmp_path: Path, expected: list[Any], refuses: bool) -> None:
    store, first, second = Store(tmp_path, {"task": "wandering"}), Fragile(2, refuses), Fragile(99)
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


class Locked(Wanderer):
    """Has what no other process can have."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Faulty(TMaze):
    """Ends with an error."""

    def step(self, control: Any) -> Any:
        raise OSError("the robot fell over")


def test_what_cannot_be_pickled_is_named() -> None:
    locked = Locked()
    with ThreadPoolExecutor(1) as executor:
        with pytest.raises(pickle.PicklingError, match=r"agent: .*cannot be pickled \(Locked: cannot pickle '_thr"):
            aif.run_episodes(TMaze, locked, [1], executor=executor)
        with pytest.raises(pickle.PicklingError, match=r"env: .*cannot be pickled \(partial: cannot pickle '_thr"):
            aif.run_episodes(partial(TMaze, locked.lock), Wanderer(), [1], executor=executor)


def test_an_error_on_a_worker_names_its_episodes() -> None:
    with ThreadPoolExecutor(1) as executor, pytest.raises(OSError, match="the robot fell over") as caught:
        aif.run_episodes(Faulty, Wanderer(), range(7, 10), executor=executor)
    assert any("the seeds 7 to 9" in note for note in caught.value.__notes__)


class Precise(Wanderer):
    """Remembers the precision in which it acts."""

    def act(self, observation: Any) -> int:
        return 1 if jnp.zeros(()).dtype == jnp.float64 else 2


def test_workers_compute_in_the_precision_of_the_caller(x64: None) -> None:
    with ThreadPoolExecutor(1) as executor:  # whose thread is in float32 by itself, as another process is
        assert executor.submit(lambda: jnp.zeros(()).dtype).result() == jnp.float32
        outcomes = aif.run_episodes(TMaze, Precise(), [1], executor=executor)
        with jax.enable_x64(False):
            single = aif.run_episodes(TMaze, Precise(), [1], executor=executor)
    assert set(outcomes.episodes[0].controls) == {1}
    assert set(single.episodes[0].controls) == {2}


@pytest.mark.parametrize(
    "content", ["", '{"seeds": [100', "{}", "[]", '{"episodes": [], "certificates": [], "effort": []}']
)
def test_a_damaged_block_is_named_and_played_again(tmp_path: Path, content: str) -> None:
    store, seeds = Store(tmp_path, {"task": "wandering"}), range(100, 103)
    before = list(iterate_blocks(wanderers, seeds, Fragile(1), store))
    file = tmp_path / "blocks" / "100-102.json"
    file.write_text(content)
    with pytest.warns(UserWarning, match=r"blocks/100-102\.json: found no whole block .* played again"):
        again = list(iterate_blocks(wanderers, seeds, Fragile(1), store))
    assert rows(again[0].episodes) == rows(before[0].episodes)
    assert rows(next(iterate_blocks(wanderers, seeds, Fragile(0), store)).episodes) == rows(before[0].episodes)


def test_threads_that_share_a_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"

    def write_often(number: int) -> None:
        for _ in range(50):
            write(file, {"number": number})
            assert "number" in file.read_text()

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(write_often, range(4)))
    assert list(tmp_path.iterdir()) == [file]


def test_a_job_that_kills_dask_workers_is_told() -> None:
    distributed = pytest.importorskip("distributed")

    class Deadly(Executor):
        """As Dask's executor ends a job that killed its workers."""

        def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_exception(distributed.KilledWorker("run_block", SimpleNamespace(address="tcp://first:1"), 3))
            return future

    with pytest.raises(WorkersLost, match="every worker that played the episodes with the seeds 1 to 2 died"):
        list(iterate_blocks(wanderers, [1, 2], Deadly()))


PARENT = """
import time
from npro_aif.acting.pools import Workers
if __name__ == "__main__":
    pool = Workers(1).pool()
    pool.submit(time.sleep, 0).result()
    pool.submit(time.sleep, 600)
    print(*pool._processes, flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_the_process_that_started_them(tmp_path: Path, by: signal.Signals) -> None:
    file = tmp_path / "parent.py"
    file.write_text(PARENT)
    with subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = Path("/proc") / parent.stdout.readline().strip() / "cmdline"
        assert b"spawn_main" in worker.read_bytes()
        parent.send_signal(by)
    end = time.monotonic() + 60
    while worker.exists() and worker.read_bytes():  # empty for one that nobody waited for
        assert time.monotonic() < end
        time.sleep(0.02)


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
