"""Processes that play episodes: spawned, one core each, and gone as soon as the process that started them is.

:class:`Workers` makes pools of this machine's processes; :func:`opened` lends one, or an executor that was given.
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

LOOK_EVERY = 5.0  # seconds between two looks whether the scheduler is still there


class WorkersLost(RuntimeError):
    """The workers that played the episodes are gone; the blocks they had finished are kept if there is a folder."""


@dataclass(frozen=True)
class Workers:
    """Processes of this machine: spawned, never forked, with one core each where there are enough."""

    count: int

    def pool(self) -> ProcessPoolExecutor:
        """A new pool."""
        context = multiprocessing.get_context("spawn")
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        return _Pool(self.count, context, initializer=_settle, initargs=(context.Value("i", 0), cores))


class _Pool(ProcessPoolExecutor):
    """Processes that do not see Ctrl-C: it reaches the process that started them, which then ends them."""

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        """Submit a job; this is what starts processes, which inherit the signals that are blocked."""
        if not hasattr(signal, "pthread_sigmask"):
            return super().submit(function, *arguments, **options)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(function, *arguments, **options)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def renews(executor: Any) -> bool:
    """Whether an executor can make a new pool after one broke."""
    return hasattr(executor, "pool")


@contextmanager
def opened(executor: Executor | Workers) -> Iterator[Any]:
    """The executor to submit to: the given one, which is not shut down, or a pool of its own, which ends here."""
    if not renews(executor):
        yield executor
        return
    pool: Any = executor.pool()  # type: ignore[union-attr]
    try:
        yield pool
    finally:
        processes = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:  # nobody waits for their blocks any more
            process.terminate()


def completed(futures: Iterable[Future[Any]], executor: Any) -> Iterator[Future[Any]]:
    """The futures as they end; of a Dask client whose scheduler died some may never do so, and are left out then."""
    waiting = set(futures)
    while waiting:
        done, waiting = concurrent.futures.wait(waiting, LOOK_EVERY, concurrent.futures.FIRST_COMPLETED)
        if not done and _lost_its_scheduler(executor):
            return
        yield from done


def _lost_its_scheduler(executor: Any) -> bool:
    """Whether an executor is Dask's and its client has given up."""
    dask, client = _dask(), getattr(executor, "_client", None)
    return dask is not None and isinstance(client, dask.Client) and client.status == "closed"


def killed_its_workers(error: BaseException) -> bool:
    """Whether Dask gave up a job because all the workers that tried it died."""
    dask = _dask()
    return dask is not None and isinstance(error, dask.KilledWorker)


def _dask() -> Any:
    """The module of Dask's executors, which whoever made one has imported; or None."""
    return sys.modules.get("distributed")


# --- In a worker --------------------------------------------------------------------------------------------


def _settle(counter: Any, cores: Sequence[int]) -> None:
    """End with the parent, and pin a new worker to the next core: two on all cores are slower than with one each."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()
    with counter.get_lock():
        number, counter.value = counter.value, counter.value + 1
    if cores:
        os.sched_setaffinity(0, {cores[number % len(cores)]})


def _end_after(sentinel: Any) -> None:
    """End this process at once when its parent has ended, however that happened: nobody reads its results."""
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
