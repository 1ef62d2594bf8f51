"""The command line with workers that are killed: the same table, and nothing lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from npro_aif.experiments import workers
from npro_aif.experiments.tasks import SettingsError
from npro_aif.experiments.workers import scheduler_address, workplace

EPISODES = 1000
COMMAND = [str(Path(sys.executable).with_name("npro-aif")), "run", "tmaze", "--episodes", str(EPISODES)]
SECONDS = 900

Start = Callable[..., "subprocess.Popen[str]"]


def test_an_address_may_be_short(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text('{"type": "Scheduler", "address": "tcp://10.0.0.1:8786"}')
    addresses = [scheduler_address(word) for word in ("first:8786", "tls://first:8786", "[::1]:8786", str(file))]
    assert addresses == ["tcp://first:8786", "tls://first:8786", "tcp://[::1]:8786", "tcp://10.0.0.1:8786"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("", "found the address ''"),
        ("foo://x:1", "found the address 'foo://x:1'"),
        ("tcp://", "found the address 'tcp://'"),
        ("tcp://first", "found the address 'tcp://first'"),
        ("first:99999", "found no file 'first:99999'"),
        ("nosuch.json", "found no file 'nosuch.json'"),
        ("empty.json", "found no address of a scheduler in the file 'empty.json'"),
        ("garbage.json", "found no address of a scheduler in the file 'garbage.json'"),
        ("other.json", "found no address of a scheduler in the file 'other.json'"),
    ],
)
def test_what_is_no_scheduler_is_named(
    word: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    for name, text in (("empty", ""), ("garbage", '{"address": "tcp:'), ("other", '{"seeds": []}')):
        (tmp_path / f"{name}.json").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(workers, "SECONDS", 0.1)
    with pytest.raises(SettingsError, match=message) as caught, workplace(None, word):
        pass
    assert "expected host:port, tcp://host:port or the file" in str(caught.value)


def test_what_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(workers, "SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        word = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(SettingsError, match=f"found no scheduler at tcp://{word}"), workplace(None, word):
            pass


def test_a_scheduler_without_workers_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(workers, "WORKERS_SECONDS", 0.2)
    options = {"n_workers": 0, "processes": False, "protocol": "tcp", "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster:
        address = cluster.scheduler_address
        with (
            pytest.raises(SettingsError, match=f"found no workers at the scheduler {address}"),
            workplace(None, address),
        ):
            pass
        assert "has no workers yet" in capsys.readouterr().err
        cluster.scale(1)
        cluster.wait_for_workers(1)
        with workplace(None, address.removeprefix("tcp://")) as executor:
            assert executor.submit(sum, (1, 2)).result() == 3  # type: ignore[union-attr]


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
