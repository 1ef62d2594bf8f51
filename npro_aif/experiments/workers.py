"""The place where episodes are played: this process, processes of this machine, or the workers of a Dask cluster."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from rich.console import Console

from npro_aif.acting.pools import Workers
from npro_aif.experiments.tasks import SettingsError
from npro_aif.extras import missing

SECONDS = 20  # to wait for a scheduler or for its file, which is written when it starts
WORKERS_SECONDS = 600  # to wait for the first worker, which a queue may hold back

PROTOCOLS = ("tcp", "tls", "ws", "wss", "ucx")
ADDRESS = re.compile(rf"(?:({'|'.join(PROTOCOLS)})://)?(\[[^\]\s]+\]|[^:/\s\[\]]+):([0-9]{{1,5}})")
EXPECTED = "expected host:port, tcp://host:port or the file that a scheduler wrote"


@contextmanager
def workplace(workers: int | None, dask: str | None) -> Iterator[Executor | Workers | None]:
    """The executor that plays the episodes; None for this process.

    :param workers: how many processes of this machine.
    :param dask: the address of a Dask scheduler, or the path of a scheduler file.
    """
    if workers is not None and dask is not None:
        raise SettingsError("workers: found it with dask, expected one of the two")
    if workers is not None and workers < 1:
        raise SettingsError(f"workers: found {workers}, expected at least 1")
    if dask is None:
        yield None if workers is None else Workers(workers)
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise SettingsError(str(missing(error, "--dask"))) from error
    address = scheduler_address(dask)
    client = _connected(lambda: Client(address, timeout=SECONDS, set_as_default=False), address)
    try:
        _await_workers(client, address)
        yield client.get_executor(pure=False)
    finally:
        client.close(timeout=2)


def _connected(connect: Callable[[], Any], address: str) -> Any:
    """A Dask client; what takes the connection and never answers, as the dashboard does, is given up, too."""
    ends: SimpleQueue[Any] = SimpleQueue()

    def attempt() -> None:
        try:
            ends.put(connect())
        except Exception as error:  # also what Dask does not tell: protocols that are not set up, and the like
            ends.put(error)

    threading.Thread(target=attempt, daemon=True).start()
    try:
        client = ends.get(timeout=2 * SECONDS)
    except Empty:
        client = TimeoutError("it takes connections and does not answer: is this the port of the dashboard?")
    if isinstance(client, Exception):
        raise SettingsError(f"dask: found no scheduler at {address} ({client}), expected one that runs") from client
    return client


def scheduler_address(dask: str) -> str:
    """The address that is meant by host:port, by a whole address, or by the file that a scheduler wrote.

    >>> scheduler_address("first:8786")
    'tcp://first:8786'
    """
    match = ADDRESS.fullmatch(dask)
    if match is not None and 0 < int(match[3]) < 2**16:
        return f"{match[1] or 'tcp'}://{match[2]}:{match[3]}"
    if "://" in dask or not dask.strip():
        raise SettingsError(f"dask: found the address {dask!r}, {EXPECTED}")
    return _address_in(Path(dask))


def _address_in(path: Path) -> str:
    """The address in a scheduler's file; a file that is about to be written is waited for."""
    end = time.monotonic() + SECONDS
    if not path.exists() and path.parent.is_dir() and path.suffix:
        _say(f"dask: waiting for the file {path} for up to {SECONDS} s")
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.1)
    if not path.exists():
        raise SettingsError(f"dask: found no file {str(path)!r}, {EXPECTED}")
    try:
        text = path.read_text()
        while not text and time.monotonic() < end:  # made, and not yet written
            time.sleep(0.1)
            text = path.read_text()
        address = json.loads(text)["address"]
        if ADDRESS.fullmatch(address) is not None:
            return address
        found = f"the address {address!r}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        found = f"{type(error).__name__}: {error}"
    raise SettingsError(f"dask: found no address of a scheduler in the file {str(path)!r} ({found}), {EXPECTED}")


def _await_workers(client: Any, address: str) -> None:
    """Wait for the first worker by giving it something to do, as some clusters start workers only then."""
    if client.nthreads():
        return
    _say(f"dask: the scheduler at {address} has no workers yet; waiting for up to {WORKERS_SECONDS} s")
    future = client.submit(int, pure=False)
    try:
        future.result(timeout=WORKERS_SECONDS)
    except TimeoutError as error:
        raise SettingsError(
            f"dask: found no workers at the scheduler {address} within {WORKERS_SECONDS} s, expected at least one: "
            f"dask worker {address} --nthreads 1"
        ) from error
    finally:
        future.cancel()


def _say(text: str) -> None:
    Console(stderr=True).print(text, highlight=False, soft_wrap=True)
