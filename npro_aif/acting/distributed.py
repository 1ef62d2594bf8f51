"""Episodes in other processes and on other machines: blocks of seeds as jobs of a ``concurrent.futures.Executor``.

A job carries a recipe (a function that makes the environments and the agent) and the seeds of one block; it returns
:class:`Episode` records. A block gives the same results on every worker, so that results do not depend on the number
of workers or on their order; if a worker dies, its block is run again.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from npro_aif.acting.episodes import Acting, Effort, Episode, blocks_of, effort, iterate_episodes
from npro_aif.acting.pools import Workers, WorkersLost, completed, killed_its_workers, opened, renews
from npro_aif.acting.solutions import Solutions, write
from npro_aif.pickling import dumps
from npro_aif.solvers.search import Certificate

Recipe = Callable[[], tuple[Any, Acting]]  # makes what run_episodes takes: environments and an agent

FRUITLESS = 3  # after this many new pools in a row that finish nothing, the job itself must be killing its worker


class Store(NamedTuple):
    """A folder in which solved problems and finished blocks are kept, and what they depend on."""

    folder: Path
    settings: Mapping[str, Any]


class Job(NamedTuple):
    """One block of episodes."""

    recipe: bytes  # a pickled Recipe
    seeds: tuple[int, ...]
    store: Store | None = None  # the folder in which workers share the problems that they solved
    double: bool = False  # in float64, as where the job was made


class Block(NamedTuple):
    """The result of a job."""

    episodes: tuple[Episode, ...]
    effort: Effort
    certificates: tuple[Certificate, ...] = ()  # the bounds that each search of the block proved


# --- In a worker --------------------------------------------------------------------------------------------

_local = threading.local()  # the worker's own: environments, agent and solutions by recipe


def run_block(job: Job) -> Block:
    """Run a job; a worker builds the agent once and uses it for later jobs too."""
    with jax.enable_x64(job.double):
        return _run(job)


def _run(job: Job) -> Block:
    worlds, agent, solutions = _built(job)
    before, shown = effort(solutions), len(_certificates(agent))
    episodes = tuple(iterate_episodes(worlds, agent, job.seeds, solutions=solutions))
    spent = Effort(*(now - then for now, then in zip(effort(solutions), before, strict=True)))  # type: ignore[arg-type]
    order = {seed: i for i, seed in enumerate(job.seeds)}
    ordered = tuple(sorted(episodes, key=lambda episode: order[episode.seed]))
    return Block(ordered, spent, tuple(_certificates(agent)[shown:]))


def _built(job: Job) -> tuple[Any, Acting, Solutions]:
    built = vars(_local).setdefault("built", {})
    name = hashlib.blake2b(job.recipe + repr((job.store, job.double)).encode(), digest_size=16).hexdigest()
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
    payload, double = _portable(recipe), jnp.result_type(float) == jnp.float64
    waiting: dict[int, Job] = {}
    for block in blocks_of(seeds):
        finished = None if store is None else _read(store, block)
        if finished is None:
            waiting[block[0]] = Job(payload, block, store, double)
        else:
            yield finished
    fruitless = 0
    while waiting:
        count = len(waiting)
        broken: Exception | None = None
        with opened(executor) as pool:
            futures: dict[Future[Block], int] = {}
            try:
                try:
                    for first, job in waiting.items():
                        futures[pool.submit(run_block, job)] = first
                except BrokenExecutor as error:  # what was submitted before ends with it, or has ended well
                    broken = error
                for future in completed(futures, executor):
                    job = waiting[futures[future]]
                    try:
                        result = future.result()
                    except (BrokenExecutor, concurrent.futures.CancelledError) as error:
                        broken = error
                        continue
                    except Exception as error:
                        error.add_note(f"This happened on a worker, in the block of episodes with {_named(job.seeds)}.")
                        if killed_its_workers(error):
                            raise _deadly(error, job.seeds) from error
                        raise
                    del waiting[futures[future]]
                    if store is not None:
                        _write(store, job.seeds, result)
                    yield result
                if broken is None and not all(future.done() for future in futures):
                    broken = ConnectionError("its scheduler is gone")
            except BaseException:  # Ctrl-C, an error in a job, or the caller has stopped iterating
                if not renews(executor):  # a pool of its own ends here anyway
                    _cancel(futures)
                raise
        if broken is not None and not renews(executor):
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


def _named(seeds: Sequence[int]) -> str:
    return f"the seed {seeds[0]}" if len(seeds) == 1 else f"the seeds {seeds[0]} to {seeds[-1]}"


def _deadly(error: Exception, seeds: Sequence[int]) -> WorkersLost:
    return WorkersLost(
        f"executor: found that every worker that played the episodes with {_named(seeds)} died ({error}), expected an "
        "agent and an environment that let their process live (do workers have enough memory?)"
    )


def _portable(recipe: Recipe) -> bytes:
    """The bytes of a recipe; what cannot be sent to a worker is named."""
    try:
        return dumps(recipe)
    except Exception as error:  # pickle raises what the objects raise
        parts = recipe.parts() if isinstance(recipe, Given) else {"recipe": recipe}
        name, part = next(((name, part) for name, part in parts.items() if not _travels(part)), ("recipe", recipe))
        kind = part.__qualname__ if isinstance(part, type) else type(part).__qualname__
        raise pickle.PicklingError(
            f"{name}: found one for the executor that cannot be pickled ({kind}: {error}), expected one that can: "
            "locks, open files and the like should be made in the worker (in reset, or left out by __getstate__)"
        ) from error


def _travels(value: Any) -> bool:
    try:
        dumps(value)
    except Exception:
        return False
    return True


@dataclass(frozen=True)
class Given:
    """A recipe from environments and an agent that exist already; they travel by value."""

    worlds: Any
    agent: Acting

    def __call__(self) -> tuple[Any, Acting]:
        return self.worlds, self.agent

    def parts(self) -> dict[str, Any]:
        """What travels, by the names under which the user gave it."""
        return {"env": self.worlds, "agent": self.agent}


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
    """The block from its file; None if there is none, or only a damaged one, which is told."""
    path = _path(store, seeds)
    if not path.exists():
        return None
    try:
        block = _parse(json.loads(path.read_text()))
        if tuple(episode.seed for episode in block.episodes) == seeds:
            return block
        found = "other seeds"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        found = f"{type(error).__name__}: {error}"
    warnings.warn(
        f"{path}: found no whole block of {_named(seeds)} ({found}); its episodes are played again",
        stacklevel=3,
    )
    return None


def _parse(content: Any) -> Block:
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
