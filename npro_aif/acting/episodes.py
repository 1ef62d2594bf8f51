"""Episodes: an agent in an environment, one after the other or many in lockstep, and a table of the results.

In lockstep all live episodes plan together at every step. Equal problems (belief, horizon, initial values) are solved
once, also across steps and, with a folder, across runs that were stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import jax

from npro_aif.acting.agent import Agent, AgentState
from npro_aif.acting.solutions import Solutions
from npro_aif.planning.plan import Plan
from npro_aif.program.sharded import num_bytes
from npro_aif.sizes import LOCKSTEP, MOST_BELIEF_BYTES


class Acting(Protocol):
    """What an agent must be able to do."""

    def reset(self, key: Any = None) -> None:
        """Begin an episode; the key breaks ties."""

    def act(self, observation: Any) -> Any:
        """The control to do next."""


class Episode(NamedTuple):
    """The record of one episode.

    >>> Episode(seed=7, reward=1.0, steps=2, terminated=True, controls=(2, 0), infos=({}, {}, {})).record()
    {'seed': 7, 'reward': 1.0, 'steps': 2, 'terminated': True}
    """

    seed: int  # of the environment
    reward: float  # the sum over the episode
    steps: int
    terminated: bool  # ended by the environment's rules, not by its step limit
    controls: tuple[Any, ...]  # (steps,)
    infos: tuple[dict[str, Any], ...]  # (steps + 1,) what the environment returns beside the observation
    plans: tuple[Plan, ...] = ()  # (steps,) the plan behind each control, where the agent records plans
    observations: tuple[Any, ...] = ()  # (steps + 1,) what was observed before the first control, and after each

    def record(self) -> dict[str, Any]:
        """The fields that are single numbers, as a flat dict."""
        return {name: getattr(self, name) for name in ("seed", "reward", "steps", "terminated")}


class Effort(NamedTuple):
    """How much work the decisions were."""

    decisions: int  # controls that were chosen
    problems: int  # different planning problems that were solved for them
    seconds: float  # of planning, compiling included
    compile_seconds: float  # of these, seconds of tracing and compiling
    warm_problems: int = 0  # problems during which nothing was compiled
    warm_seconds: float = 0.0  # of planning for these
    told: int = 0  # problems whose solver reported the next two numbers
    iterations: int = 0  # of the solver, summed over these problems
    settled: int = 0  # how many of these problems settled

    @property
    def seconds_per_decision(self) -> float:
        """Seconds of planning per problem that was solved warm; if there is none, per problem, without compiling."""
        if self.warm_problems:
            return self.warm_seconds / self.warm_problems
        return max(0.0, self.seconds - self.compile_seconds) / max(1, self.problems)


class Outcomes(NamedTuple):
    """A table of episodes, in the order of their seeds, and the work behind it.

    >>> episode = Episode(seed=7, reward=1.0, steps=2, terminated=True, controls=(2, 0), infos=({}, {}, {}))
    >>> outcomes = Outcomes((episode,), Effort(decisions=2, problems=2, seconds=0.5, compile_seconds=0.1))
    >>> outcomes.records()[0]["reward"], outcomes.effort.seconds_per_decision
    (1.0, 0.2)
    """

    episodes: tuple[Episode, ...]
    effort: Effort

    def records(self) -> list[dict[str, Any]]:
        """One flat dict for each episode."""
        return [episode.record() for episode in self.episodes]


def effort(solutions: Solutions) -> Effort:
    """The effort that these solutions counted."""
    return Effort(
        solutions.decisions,
        solutions.problems,
        solutions.seconds,
        solutions.compile_seconds,
        solutions.warm_problems,
        solutions.warm_seconds,
        solutions.told,
        solutions.iterations,
        solutions.settled,
    )


def blocks_of(seeds: Sequence[int], size: int = LOCKSTEP) -> list[tuple[int, ...]]:
    """The seeds in blocks of one size, the last of which may be smaller.

    >>> blocks_of(range(5), 2)
    [(0, 1), (2, 3), (4,)]
    """
    return [tuple(map(int, seeds[first : first + size])) for first in range(0, len(seeds), size)]


def iterate_episodes(
    env: Any, agent: Acting, seeds: Sequence[int], *, solutions: Solutions, lockstep: int = LOCKSTEP
) -> Iterator[Episode]:
    """The episodes of :func:`npro_aif.run_episodes` as they end, so that a caller can stop in between."""
    check_seeds(seeds)
    makes = None if is_one(env) else env
    if not _goes_in_step(agent):
        one = env if makes is None else makes()
        for seed in seeds:
            yield _alone(one, agent, seed, solutions)
        return
    together: Any = agent
    belief_bytes = num_bytes(together.initial_belief)
    lockstep = 1 if makes is None else min(lockstep, max(1, MOST_BELIEF_BYTES // belief_bytes))
    envs = [env] if makes is None else [makes() for _ in range(min(lockstep, len(seeds)))]
    for block in blocks_of(seeds):
        for chunk in blocks_of(block, lockstep):
            yield from _in_step(envs, together, chunk, solutions)


def check_seeds(seeds: Sequence[int]) -> None:
    """Refuse seeds that are equal."""
    if len(set(seeds)) != len(seeds):
        raise ValueError("seeds: found some more than once, expected different ones")


def is_one(env: Any) -> bool:
    """Whether ``env`` is an environment, not a function (or class) that makes them."""
    return hasattr(env, "step") and not isinstance(env, type)


def _goes_in_step(agent: Acting) -> bool:
    """Whether an agent acts as :class:`Agent` does, so that several episodes can be decided at once."""
    kind = type(agent)
    return getattr(kind, "act", None) is Agent.act and getattr(kind, "reset", None) is Agent.reset


def tie_key(seed: int) -> jax.Array:
    """The key that breaks the ties of an episode."""
    return jax.random.fold_in(jax.random.key(0), seed)


class _Live:
    """An episode that is under way."""

    def __init__(self, env: Any, seed: int):
        self.env, self.seed = env, int(seed)
        first, info = env.reset(seed=self.seed)
        self.observation = None if first == {} else first  # a world without a first look
        self.infos, self.controls = [info], []  # type: ignore[var-annotated]
        self.observations = [self.observation]
        self.reward, self.over, self.terminated = 0.0, False, False

    def step(self, control: Any) -> None:
        self.observation, reward, terminated, truncated, info = self.env.step(control)
        self.infos.append(info)
        self.observations.append(self.observation)
        self.controls.append(control)
        self.reward += float(reward)
        self.terminated, self.over = bool(terminated), bool(terminated or truncated)

    def episode(self, plans: tuple[Plan, ...] = ()) -> Episode:
        return Episode(
            self.seed,
            self.reward,
            len(self.controls),
            self.terminated,
            tuple(self.controls),
            tuple(self.infos),
            plans,
            tuple(self.observations),
        )


def _alone(env: Any, agent: Acting, seed: int, solutions: Solutions) -> Episode:
    """One episode of any agent, by the agent's own ``reset`` and ``act``.

    An agent with an attribute ``solutions`` counts its problems there; for other agents each decision counts as one
    problem, unless the agent remembered it.
    """
    live = _Live(env, seed)
    _prepare(agent, solutions)
    agent.reset(tie_key(seed))
    counts = hasattr(agent, "solutions")
    if counts:
        agent.solutions = solutions  # type: ignore[attr-defined]
    try:
        while not live.over:
            with solutions.clock():
                control = agent.act(live.observation)
            if not counts:
                solutions.decisions += 1
                if not getattr(agent, "remembered", False):
                    solutions.count_last()
            live.step(control)
    finally:
        if counts:
            agent.solutions = None  # type: ignore[attr-defined]
    return live.episode(tuple(agent.plans) if getattr(agent, "record", False) else ())  # type: ignore[attr-defined]


def _prepare(agent: Acting, solutions: Solutions) -> None:
    """Let an agent set itself up, if it can; all of that time counts as compiling."""
    start = time.perf_counter()
    getattr(agent, "prepare", lambda: None)()
    seconds = time.perf_counter() - start
    solutions.seconds += seconds
    solutions.compile_seconds += seconds


def _in_step(envs: Sequence[Any], agent: Agent, seeds: Sequence[int], solutions: Solutions) -> Iterator[Episode]:
    """Episodes of one agent, all live ones deciding together at each step."""
    live: list[tuple[_Live, AgentState]] = [
        (_Live(env, seed), agent.begin(tie_key(seed))) for env, seed in zip(envs, seeds, strict=False)
    ]
    while live:
        seen = [episode.observation for episode, _ in live]
        decided = agent.decide([state for _, state in live], seen, solutions, record=bool(agent.record))
        going: list[tuple[_Live, AgentState]] = []
        for (episode, _), (control, state) in zip(live, decided, strict=True):
            episode.step(control)
            if episode.over:
                yield episode.episode(state.plans if agent.record else ())
            else:
                going.append((episode, state))
        live = going
