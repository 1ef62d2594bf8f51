"""Episodes in other processes and on other machines: blocks of seeds as jobs of a ``concurrent.futures.Executor``.

A job carries a recipe (a function that makes the environments and the agent) and the seeds of one block; it returns
:class:`Episode` records. A block gives the same results on every worker, so that results do not depend on the number
of workers or on their order; if a worker dies, its block is run again.
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

FRUITLESS = 3  # after this many new pools in a row that finish nothing, the job itself must be killing its worker


class WorkersLost(RuntimeError):
    """The workers that played the episodes are gone; the blocks they had finished are kept if there is a folder."""


class Store(NamedTuple):
    """A folder in which solved problems and finished blocks are kept, and what they depend on."""

    folder: Path
    settings: Mapping[str, Any]


class Job(NamedTuple):
    """One block of episodes."""

    recipe: bytes  # a pickled Recipe
    seeds: tuple[int, ...]
    store: Store | None = None  # the folder in which workers share the problems that they solved


class Block(NamedTuple):
    """The result of a job."""

    episodes: tuple[Episode, ...]
    effort: Effort
    certificates: tuple[Certificate, ...] = ()  # the bounds that each search of the block proved


# --- In a worker --------------------------------------------------------------------------------------------

_local = threading.local()  # the worker's own: environments, agent and solutions by recipe


def run_block(job: Job) -> Block:
    """Run a job; a worker builds the agent once and uses it for later jobs too."""
    worlds, agent, solutions = _built(job)
    before, shown = effort(solutions), len(_certificates(agent))
    episodes = tuple(iterate_episodes(worlds, agent, job.seeds, solutions=solutions))
    spent = Effort(*(now - then for now, then in zip(effort(solutions), before, strict=True)))  # type: ignore[arg-type]
    order = {seed: i for i, seed in enumerate(job.seeds)}
    ordered = tuple(sorted(episodes, key=lambda episode: order[episode.seed]))
    return Block(ordered, spent, tuple(_certificates(agent)[shown:]))


def _built(job: Job) -> tuple[Any, Acting, Solutions]:
    built = vars(_local).setdefault("built", {})
    name = hashlib.blake2b(job.recipe + repr(job.store).encode(), digest_size=16).hexdigest()
    if name not in built:
        solutions = Solutions() if job.store is None else Solutions(job.store.folder, job.store.settings)
        built[name] = (*pickle.loads(job.recipe)(), solutions)
    return built[name]


def _certificates(agent: Any) -> Sequence[Certificate]:
    return getattr(getattr(agent, "planner", None), "certificates", ())


# --- Where the jobs come from -------------------------------------------------------------------------------


def iterate_blocks(
    recipe: Recipe, seeds: Sequence[int], executor: Executor | Workers, store: Store | None = None
) -> Iterator[Block]:
    """The blocks of :func:`npro_aif.run_episodes` as they end; blocks that the folder already holds come first.

    If an executor breaks, the blocks that it had finished are handed over (and kept), and then an error is raised;
    :class:`Workers` instead makes a new pool and runs the lost blocks again.
    """
    payload = dumps(recipe)
    waiting: dict[int, Job] = {}
    for block in blocks_of(seeds):
        finished = None if store is None else _read(store, block)
        if finished is None:
            waiting[block[0]] = Job(payload, block, store)
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
                        result = future.result()
                    except (BrokenExecutor, concurrent.futures.CancelledError) as error:
                        broken = error
                        continue
                    job = waiting.pop(futures[future])
                    if store is not None:
                        _write(store, job.seeds, result)
                    yield result
            except BaseException:  # Ctrl-C, an error in a job, or the caller has stopped iterating
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
    """The effort of all blocks together."""
    none = Effort(0, 0, 0.0, 0.0)
    return Effort(*(sum(values) for values in zip(none, *(block.effort for block in blocks), strict=True)))


@dataclass(frozen=True)
class Given:
    """A recipe from environments and an agent that exist already; they travel by value."""

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
    """Pin a new worker to the next core: two workers on all cores are slower than two with one core each."""
    with counter.get_lock():
        number, counter.value = counter.value, counter.value + 1
    if cores:
        os.sched_setaffinity(0, {cores[number % len(cores)]})


def _renews(executor: Any) -> bool:
    """Whether an executor can make a new pool after one broke."""
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
        for process in processes:  # nobody waits for their blocks any more
            process.terminate()


def _cancel(futures: Mapping[Future[Block], int]) -> None:
    for future in futures:
        future.cancel()


# --- Finished blocks in a folder ----------------------------------------------------------------------------


def _path(store: Store, seeds: Sequence[int]) -> Path:
    return store.folder / "blocks" / f"{seeds[0]}-{seeds[-1]}.json"


def _write(store: Store, seeds: Sequence[int], block: Block) -> None:
    """Write a block to its file, without plans."""
    rows = [{name: _plain(value) for name, value in e._asdict().items() if name != "plans"} for e in block.episodes]
    certificates = [_plain(list(certificate)) for certificate in block.certificates]
    content = {"seeds": list(seeds), "episodes": rows, "effort": list(block.effort), "certificates": certificates}
    write(_path(store, seeds), content)


def _read(store: Store, seeds: tuple[int, ...]) -> Block | None:
    path = _path(store, seeds)
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
