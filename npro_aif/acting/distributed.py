"""Episodes in other processes and on other machines: blocks of seeds as jobs of a ``concurrent.futures.Executor``.

A job carries a recipe (a function that makes the environments and the agent) and the seeds of one block; it returns
:class:`Episode` records. A block is the same whoever runs it and whenever, so that results do not depend on how many
workers there are, on their order, or on one of them dying: its block is then done again.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npro_aif.acting.episodes import Acting, Effort, Episode, blocks_of, effort, iterate_episodes
from npro_aif.acting.solutions import Solutions, write
from npro_aif.pickling import dumps
from npro_aif.solvers.search import Certificate

Recipe = Callable[[], tuple[Any, Acting]]  # makes what run_episodes takes: environments and an agent

FRUITLESS = 3  # so many new pools in a row that finish nothing: it is the job that kills its worker


class WorkersLost(RuntimeError):
    """Those who played the episodes are gone; what they had finished is kept where there is a folder."""


class Kept(NamedTuple):
    """A folder in which solved problems and finished blocks are kept, and what they depend on."""

    folder: Path
    settings: Mapping[str, Any]


class Job(NamedTuple):
    """One block of episodes."""

    recipe: bytes  # a pickled Recipe
    seeds: tuple[int, ...]
    kept: Kept | None = None  # where the problems that its workers solve are shared


class Block(NamedTuple):
    """What came of a job."""

    episodes: tuple[Episode, ...]
    effort: Effort
    certificates: tuple[Certificate, ...] = ()  # what each search of the block showed


# --- In a worker --------------------------------------------------------------------------------------------

_local = threading.local()  # the worker's own: environments, agent and solutions by recipe


def run_block(job: Job) -> Block:
    """Run a job; the agent is built once in a worker and serves its later jobs."""
    worlds, agent, solutions = _built(job)
    before, shown = effort(solutions), len(_certificates(agent))
    episodes = tuple(iterate_episodes(worlds, agent, job.seeds, solutions=solutions))
    used = Effort(*(now - then for now, then in zip(effort(solutions), before, strict=True)))  # type: ignore[arg-type]
    order = {seed: i for i, seed in enumerate(job.seeds)}
    ordered = tuple(sorted(episodes, key=lambda episode: order[episode.seed]))
    return Block(ordered, used, tuple(_certificates(agent)[shown:]))


def _built(job: Job) -> tuple[Any, Acting, Solutions]:
    built = vars(_local).setdefault("built", {})
    name = hashlib.blake2b(job.recipe + repr(job.kept).encode(), digest_size=16).hexdigest()
    if name not in built:
        solutions = Solutions() if job.kept is None else Solutions(job.kept.folder, job.kept.settings)
        built[name] = (*pickle.loads(job.recipe)(), solutions)
    return built[name]


def _certificates(agent: Any) -> Sequence[Certificate]:
    return getattr(getattr(agent, "planner", None), "certificates", ())


# --- Where the jobs come from -------------------------------------------------------------------------------


def iterate_blocks(
    recipe: Recipe, seeds: Sequence[int], executor: Executor | Workers, kept: Kept | None = None
) -> Iterator[Block]:
    """The blocks of :func:`npro_aif.run_episodes` as they end; those that a folder holds come first.

    A given executor that breaks raises, after what it had finished was handed over (and kept); :class:`Workers` makes a
    new pool and does the lost blocks again.
    """
    payload = dumps(recipe)
    waiting: dict[int, Job] = {}
    for block in blocks_of(seeds):
        finished = None if kept is None else _read(kept, block)
        if finished is None:
            waiting[block[0]] = Job(payload, block, kept)
        else:
            yield finished
    fruitless = 0
    while waiting:
        count, broken = len(waiting), None
        with _pool(executor) as pool:
            futures = {pool.submit(run_block, job): first for first, job in waiting.items()}
            try:
                for future in concurrent.futures.as_completed(futures):
                    try:
                        done = future.result()
                    except (BrokenExecutor, concurrent.futures.CancelledError) as error:
                        broken = error
                        continue
                    job = waiting.pop(futures[future])
                    if kept is not None:
                        _write(kept, job.seeds, done)
                    yield done
            except BaseException:  # Ctrl-C, an error in a job, or nobody asks any more
                _cancel(futures)
                raise
        if broken is not None and not _renews(executor):
            raise WorkersLost(
                f"executor: found it broken ({type(broken).__name__}: {broken}) with {len(waiting)} blocks of episodes "
                "left, expected one that lasts; what was finished is kept where there is a folder"
            ) from broken
        fruitless = fruitless + 1 if len(waiting) == count else 0
        if fruitless == FRUITLESS:
            raise WorkersLost(
                f"workers: found {FRUITLESS} pools in a row that broke before they finished a block, expected workers "
                "that live (do they have enough memory?)"
            ) from broken


def total(blocks: Sequence[Block]) -> Effort:
    """The effort of all of them together."""
    none = Effort(0, 0, 0.0, 0.0)
    return Effort(*(sum(values) for values in zip(none, *(block.effort for block in blocks), strict=True)))


@dataclass(frozen=True)
class Given:
    """A recipe of environments and an agent that are there already; they travel by value."""

    worlds: Any
    agent: Acting

    def __call__(self) -> tuple[Any, Acting]:
        return self.worlds, self.agent


@dataclass(frozen=True)
class Workers:
    """Processes of this machine: spawned, never forked, with one core each where there are enough."""

    count: int

    def pool(self) -> ProcessPoolExecutor:
        """A new pool."""
        context = multiprocessing.get_context("spawn")
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        return ProcessPoolExecutor(self.count, context, initializer=_settle, initargs=(context.Value("i", 0), cores))


def _settle(counter: Any, cores: Sequence[int]) -> None:
    """Hold a new worker to the next core: two that compute on all cores are slower than two on one each."""
    with counter.get_lock():
        number, counter.value = counter.value, counter.value + 1
    if cores:
        os.sched_setaffinity(0, {cores[number % len(cores)]})


def _renews(executor: Any) -> bool:
    """Whether it makes a new pool where one broke."""
    return hasattr(executor, "pool")


class _pool:
    """The executor to submit to: the given one, which is not shut down, or a pool of its own."""

    def __init__(self, executor: Executor | Workers):
        self.own: Any = executor.pool() if _renews(executor) else None  # type: ignore[union-attr]
        self.executor: Any = self.own or executor

    def __enter__(self) -> Executor:
        return self.executor

    def __exit__(self, *_: object) -> None:
        if self.own is None:
            return
        processes = list((getattr(self.own, "_processes", None) or {}).values())
        self.own.shutdown(wait=False, cancel_futures=True)
        for process in processes:  # a block that nobody waits for any more is not worth finishing
            process.terminate()


def _cancel(futures: Mapping[Future[Block], int]) -> None:
    for future in futures:
        future.cancel()


# --- Finished blocks in a folder ----------------------------------------------------------------------------


def _path(kept: Kept, seeds: Sequence[int]) -> Path:
    return kept.folder / "blocks" / f"{seeds[0]}-{seeds[-1]}.json"


def _write(kept: Kept, seeds: Sequence[int], block: Block) -> None:
    """Keep a block without its plans."""
    rows = [{name: _plain(value) for name, value in e._asdict().items() if name != "plans"} for e in block.episodes]
    certificates = [_plain(list(certificate)) for certificate in block.certificates]
    content = {"seeds": list(seeds), "episodes": rows, "effort": list(block.effort), "certificates": certificates}
    write(_path(kept, seeds), content)


def _read(kept: Kept, seeds: tuple[int, ...]) -> Block | None:
    path = _path(kept, seeds)
    if not path.exists():
        return None
    content = json.loads(path.read_text())
    if tuple(content["seeds"]) != seeds:
        return None
    series = ("controls", "infos", "observations")
    episodes = (row | {name: tuple(row[name]) for name in series} for row in content["episodes"])
    certificates = tuple(Certificate(*row) for row in content["certificates"])
    return Block(tuple(Episode(**row) for row in episodes), Effort(*content["effort"]), certificates)


def _plain(value: Any) -> Any:
    """Numbers and lists of Python's own, for JSON."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
