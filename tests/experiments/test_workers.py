"""The command line with workers that are killed: the same table, and nothing lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

EPISODES = 1000
COMMAND = [str(Path(sys.executable).with_name("npro-aif")), "run", "tmaze", "--episodes", str(EPISODES)]
SECONDS = 900

Start = Callable[..., "subprocess.Popen[str]"]


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts processes that end with the test."""
    processes = []

    def begin(*words: str) -> subprocess.Popen[str]:
        output = subprocess.PIPE if words[0] == COMMAND[0] else subprocess.DEVNULL
        processes.append(subprocess.Popen(words, stdout=output, stderr=output, text=True, cwd=tmp_path))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("alone") / "table.csv"
    subprocess.run([*COMMAND, "--table", str(file)], check=True, capture_output=True)
    return file.read_bytes()


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """The worker processes that a command has spawned."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(c) for c in children if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes()]


def finished(folder: Path) -> dict[str, int]:
    """The finished blocks in a folder, and when each was written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("blocks/*.json")}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
def test_a_worker_killed_after_the_first_result_changes_nothing(start: Start, tmp_path: Path, expected: bytes) -> None:
    table, folder = tmp_path / "two.csv", tmp_path / "run"
    run = start(*COMMAND, "--workers", "2", "--resume", str(folder), "--table", str(table))
    wait_for(lambda: finished(folder), run)
    early, workers = finished(folder), workers_of(run)
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    output, error = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, error
    assert table.read_bytes() == expected
    assert early.items() <= finished(folder).items()  # what was there stayed
    assert len(early) < len(finished(folder)) == -(-EPISODES // 32)
    assert str(EPISODES) in output


@pytest.mark.slow
def test_a_killed_scheduler_is_told_and_the_same_command_goes_on(start: Start, tmp_path: Path, expected: bytes) -> None:
    pytest.importorskip("distributed")
    table, folder, file = tmp_path / "dask.csv", tmp_path / "run", tmp_path / "scheduler.json"
    dask = sys.executable, "-m", "dask"
    words = [*COMMAND, "--dask", str(file), "--resume", str(folder), "--table", str(table)]

    def cluster() -> subprocess.Popen[str]:
        here = "--host", "127.0.0.1", "--scheduler-file", str(file), "--no-dashboard"
        scheduler = start(*dask, "scheduler", "--port", "0", *here)
        wait_for(file.exists)
        for _ in range(2):
            start(*dask, "worker", "--nthreads", "1", *here)
        return scheduler

    scheduler = cluster()
    first = start(*words)
    wait_for(lambda: finished(folder), first)
    scheduler.kill()
    _, error = first.communicate(timeout=SECONDS)
    early = finished(folder)
    assert first.returncode == 1
    assert "executor: found it broken" in error
    assert error.rstrip().endswith(f"The same command goes on from {folder}.")  # after what Dask itself logs
    file.unlink()
    cluster()
    second = start(*words)
    _, error = second.communicate(timeout=SECONDS)
    assert second.returncode == 0, error
    assert table.read_bytes() == expected
    assert early.items() <= finished(folder).items()
