"""The place where episodes are played: this process, processes of this machine, or the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from npro_aif.acting.distributed import Workers
from npro_aif.experiments.tasks import SettingsError
from npro_aif.extras import missing

SECONDS = 20  # to wait for a scheduler


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
    where = {"address": dask} if "://" in dask else {"scheduler_file": dask}
    try:
        client = Client(**where, timeout=SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise SettingsError(f"dask: found no scheduler at {dask} ({error}), expected one that runs") from error
    try:
        yield client.get_executor(pure=False)
    finally:
        client.close(timeout=2)
