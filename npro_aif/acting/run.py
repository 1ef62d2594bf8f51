"""Run episodes: an agent, an environment and seeds in, a table of outcomes out; in this process or on workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from npro_aif.acting.distributed import Given, iterate_blocks, total
from npro_aif.acting.episodes import Acting, Episode, Outcomes, check_seeds, effort, is_one, iterate_episodes
from npro_aif.acting.solutions import Solutions
from npro_aif.sizes import LOCKSTEP


def run_episodes(
    env: Any,
    agent: Acting,
    seeds: Sequence[int],
    progress: Callable[[Episode], None] | None = None,
    *,
    solutions: Solutions | None = None,
    lockstep: int = LOCKSTEP,
    executor: Executor | None = None,
) -> Outcomes:
    """Run one episode for each seed.

    :param env: a gymnasium environment, in which the episodes follow each other; or a function that makes one, so that
        they go in lockstep (with an :class:`Agent`, unless a subclass has an ``act`` or ``reset`` of its own).
    :param agent: an :class:`Agent`, or anything with ``reset(key)`` and ``act(observation)``.
    :param seeds: the environments' seeds; ties are broken by keys made from them.
    :param progress: called with every episode that ends.
    :param solutions: problems solved before; new ones are added.
    :param lockstep: the most episodes that go together.
    :param executor: any ``concurrent.futures.Executor`` whose workers run the blocks of episodes, in other processes or
        on other machines, with the same results. ``env`` is then a function that makes environments; it and the agent
        travel by pickle.

    >>> import npro_aif as aif
    >>> from npro_aif.envs import TMaze
    >>> from npro_aif.models import tmaze
    >>> planner = aif.Planner(tmaze.tmaze, solver=aif.CoordinateSolver(max_sweeps=20), max_horizon=4)
    >>> outcomes = run_episodes(TMaze, aif.Agent(planner, tmaze.initial_belief(), max_steps=4), range(10))
    >>> sum(episode.reward for episode in outcomes.episodes)
    10.0
    """
    check_seeds(seeds)
    ended: dict[int, Episode] = {}
    if executor is not None:
        _check_portable(env, solutions)
        blocks = []
        for block in iterate_blocks(Given(env, agent), seeds, executor):
            blocks.append(block)
            for episode in block.episodes:
                ended[episode.seed] = episode
                if progress is not None:
                    progress(episode)
        return Outcomes(tuple(ended[seed] for seed in seeds), total(blocks))
    solutions = Solutions() if solutions is None else solutions
    for episode in iterate_episodes(env, agent, seeds, solutions=solutions, lockstep=lockstep):
        ended[episode.seed] = episode
        if progress is not None:
            progress(episode)
    return Outcomes(tuple(ended[seed] for seed in seeds), effort(solutions))


def _check_portable(env: Any, solutions: Solutions | None) -> None:
    """Refuse arguments that cannot be sent to workers."""
    if is_one(env):
        raise ValueError(
            f"executor: found it with the environment {type(env).__name__}, in which episodes follow each other, "
            "expected a function that makes one, such as its class"
        )
    if solutions is not None:
        raise ValueError("solutions: found some with an executor, expected none: every worker keeps its own")
