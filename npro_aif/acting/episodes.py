"""Episodes: an agent in an environment, one after the other or many in step, and a table of what came of it.

In lockstep all live episodes plan together at every step; problems that are exactly the same (belief, horizon,
initial values) are solved once, also across steps and (with a folder) across runs that were stopped.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from npro_aif.acting.agent import Agent
from npro_aif.acting.decisions import Solutions, fingerprint
from npro_aif.language import Belief
from npro_aif.planning.batches import VECTORIZE_BELOW
from npro_aif.planning.threads import on_all_cores
from npro_aif.solvers import CoordinateSolver

LOCKSTEP = 128  # how many episodes go in step at most: their beliefs are in memory together,
MOST_BELIEF_BYTES = 2**31  # and take no more than this
TOGETHER_FROM = 16  # fewer new problems are solved one after the other: batches of every size would compile


class Acting(Protocol):
    """What an agent must be able to do."""

    def reset(self, key: Any = None) -> None:
        """Begin an episode; the key breaks ties."""

    def act(self, observation: Any) -> Any:
        """The control to do next."""


class Episode(NamedTuple):
    """What happened in one episode."""

    seed: int  # of the environment
    reward: float  # the sum over the episode
    steps: int
    terminated: bool  # ended by the environment's rules, not by its step limit
    controls: tuple[Any, ...]  # (steps,)
    infos: tuple[dict[str, Any], ...]  # (steps + 1,) what the environment tells beside the observation

    def record(self) -> dict[str, Any]:
        """The flat part."""
        return {name: getattr(self, name) for name in ("seed", "reward", "steps", "terminated")}


class Effort(NamedTuple):
    """What the decisions took."""

    decisions: int  # controls that were chosen
    problems: int  # different planning problems that were solved for them
    seconds: float  # in planning; compiling included
    compile_seconds: float  # of these, in tracing and compiling
    warm_problems: int = 0  # problems in whose stretch nothing was compiled
    warm_seconds: float = 0.0  # in planning for them

    @property
    def seconds_per_decision(self) -> float:
        """Seconds of planning for each problem that was solved warm; if none was, for each, without compiling."""
        if self.warm_problems:
            return self.warm_seconds / self.warm_problems
        return max(0.0, self.seconds - self.compile_seconds) / max(1, self.problems)


class Outcomes(NamedTuple):
    """A table of episodes, in the order of their seeds, and what it took."""

    episodes: tuple[Episode, ...]
    effort: Effort

    def records(self) -> list[dict[str, Any]]:
        """One flat dict for each episode."""
        return [episode.record() for episode in self.episodes]


def run_episodes(
    env: Any,
    agent: Acting,
    seeds: Sequence[int],
    progress: Callable[[Episode], None] | None = None,
    *,
    solutions: Solutions | None = None,
    lockstep: int = LOCKSTEP,
) -> Outcomes:
    """Run one episode for each seed.

    :param env: a gymnasium environment, in which the episodes follow each other; or a function that makes one, so that
        they go in lockstep (with an :class:`Agent`).
    :param agent: an :class:`Agent`, or anything with ``reset(key)`` and ``act(observation)``.
    :param seeds: the environments' seeds; ties are broken by keys made from them.
    :param progress: called with every episode that ends.
    :param solutions: solved problems to start from, and to add to.
    :param lockstep: how many episodes at most go together.

    >>> import npro_aif as aif
    >>> from npro_aif.envs import TMaze
    >>> from npro_aif.models import tmaze
    >>> planner = aif.Planner(tmaze.tmaze, solver=aif.CoordinateSolver(max_sweeps=20), max_horizon=4)
    >>> outcomes = run_episodes(TMaze, aif.Agent(planner, tmaze.initial_belief(), max_steps=4), range(10))
    >>> sum(episode.reward for episode in outcomes.episodes)
    10.0
    """
    solutions = Solutions() if solutions is None else solutions
    ended: dict[int, Episode] = {}
    for episode in iterate_episodes(env, agent, seeds, solutions=solutions, lockstep=lockstep):
        ended[episode.seed] = episode
        if progress is not None:
            progress(episode)
    return Outcomes(tuple(ended[seed] for seed in seeds), effort(solutions))


def effort(solutions: Solutions) -> Effort:
    """The effort that the solutions have counted."""
    return Effort(
        solutions.decisions,
        solutions.problems,
        solutions.seconds,
        solutions.compile_seconds,
        solutions.warm_problems,
        solutions.warm_seconds,
    )


def iterate_episodes(
    env: Any, agent: Acting, seeds: Sequence[int], *, solutions: Solutions, lockstep: int = LOCKSTEP
) -> Iterator[Episode]:
    """The episodes of :func:`run_episodes` as they end, so that a caller can stop in between."""
    if len(set(seeds)) != len(seeds):
        raise ValueError("seeds: found some more than once, expected different ones")
    makes = env if isinstance(env, type) or not hasattr(env, "step") else None
    if makes is not None and isinstance(agent, Agent):
        belief_bytes = sum(np.asarray(table).nbytes for table in agent.initial_belief)
        lockstep = min(lockstep, max(1, MOST_BELIEF_BYTES // belief_bytes))
        together = [makes() for _ in range(min(lockstep, len(seeds)))]
        for first in range(0, len(seeds), lockstep):
            yield from _in_step(together, agent, seeds[first : first + lockstep], solutions)
        return
    one = makes() if makes is not None else env
    for seed in seeds:
        yield from (
            _in_step([one], agent, [seed], solutions)
            if isinstance(agent, Agent)
            else [_alone(one, agent, seed, solutions)]
        )


def tie_key(seed: int) -> jax.Array:
    """The key that breaks the ties of an episode."""
    return jax.random.fold_in(jax.random.key(0), seed)


class _Live:
    """An episode that is under way."""

    def __init__(self, env: Any, seed: int):
        self.env, self.seed = env, int(seed)
        self.observation, info = env.reset(seed=self.seed)
        self.infos, self.controls = [info], []  # type: ignore[var-annotated]
        self.reward, self.over, self.terminated = 0.0, False, False

    def step(self, control: Any) -> None:
        self.observation, reward, terminated, truncated, info = self.env.step(control)
        self.infos.append(info)
        self.controls.append(control)
        self.reward += float(reward)
        self.terminated, self.over = bool(terminated), bool(terminated or truncated)

    def episode(self) -> Episode:
        return Episode(
            self.seed, self.reward, len(self.controls), self.terminated, tuple(self.controls), tuple(self.infos)
        )


def _alone(env: Any, agent: Acting, seed: int, solutions: Solutions) -> Episode:
    """One episode of any agent; each of its decisions counts as a problem, unless the agent remembered it."""
    live = _Live(env, seed)
    _prepare(agent, solutions)
    agent.reset(tie_key(seed))
    while not live.over:
        with solutions.clock():
            control = agent.act(live.observation)
        solutions.decisions += 1
        if not getattr(agent, "remembered", False):
            solutions.count_one()
        live.step(control)
    return live.episode()


def _prepare(agent: Acting, solutions: Solutions) -> None:
    """Let an agent set itself up, if it has a way to; all of that counts as compiling."""
    start = time.perf_counter()
    getattr(agent, "prepare", lambda: None)()
    took = time.perf_counter() - start
    solutions.seconds += took
    solutions.compile_seconds += took


def _in_step(envs: Sequence[Any], agent: Agent, seeds: Sequence[int], solutions: Solutions) -> Iterator[Episode]:
    """Episodes of one agent's copies, all live ones planning together at each step."""
    live = [(_Live(env, seed), copy.copy(agent)) for env, seed in zip(envs, seeds, strict=False)]
    for episode, own in live:
        own.reset(tie_key(episode.seed))
    while live:
        _update_beliefs(live)
        chosen = _solve([own for _, own in live], solutions)
        for (episode, own), probs in zip(live, chosen, strict=True):
            episode.step(own.choose(probs))
        yield from (episode.episode() for episode, _ in live if episode.over)
        live = [(episode, own) for episode, own in live if not episode.over]


def _update_beliefs(live: list[tuple[_Live, Agent]]) -> None:
    """Update all beliefs; equal beliefs that saw the same are updated once and stay one object."""
    known: dict[Any, Belief] = {}
    for episode, own in live:
        seen = episode.observation
        what = tuple(sorted(seen.items())) if isinstance(seen, dict) else seen
        case = id(own.belief), own.control, what
        if case not in known:
            before = own.belief
            own.observe(seen)
            known[case] = own.belief
            known[(*case, "kept")] = before  # so that no other belief takes its id meanwhile
        own.belief = known[case]


def _solve(agents: list[Agent], solutions: Solutions) -> list[np.ndarray]:
    """q(u_1) for each agent's next problem; those that were not solved before are solved together, each once."""
    first = agents[0]  # copies of one agent at one step differ in their beliefs only
    beliefs = {id(own.belief): own.belief for own in agents}
    names = {key: fingerprint(belief, first.steps_ahead(), first.seed, first.step) for key, belief in beliefs.items()}
    fresh = {names[key]: belief for key, belief in beliefs.items() if names[key] not in solutions}
    if fresh:
        with solutions.clock():
            controls, seconds = _first_controls(first, list(fresh.values()))
        solutions.add(dict(zip(fresh, controls, strict=True)), seconds)
    solutions.decisions += len(agents)
    return [solutions[names[id(own.belief)]] for own in agents]


def _first_controls(agent: Agent, beliefs: Sequence[Belief]) -> tuple[list[np.ndarray], float]:
    """q(u_1), (U,), from each of the beliefs, and the seconds that they took, each for itself."""
    key, horizon, planner = agent.planning_key(), agent.steps_ahead(), agent.planner
    signature = agent.filter.program.signature
    small = signature.num_states * signature.num_controls < VECTORIZE_BELOW
    if small and len(beliefs) >= TOGETHER_FROM:
        start = time.perf_counter()
        together = jax.tree.map(lambda *leaves: np.stack(leaves), *beliefs)
        plans = planner.batch(jnp.stack([key] * len(beliefs)), together, horizon)
        return list(np.asarray(plans.control)[:, 0]), time.perf_counter() - start

    def solve(belief: Belief) -> tuple[np.ndarray, float]:
        start = time.perf_counter()
        found = np.asarray(planner.first_control(key, belief, horizon))
        return found, time.perf_counter() - start

    quick = small and isinstance(planner.solver, CoordinateSolver)  # a thread would cost as much as a problem
    solved = [solve(belief) for belief in beliefs] if quick else on_all_cores(solve, beliefs)
    return [found for found, _ in solved], sum(seconds for _, seconds in solved)
