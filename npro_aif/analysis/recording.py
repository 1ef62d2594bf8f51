"""One episode with everything that can be asked about it afterwards: what was seen, planned and done, step by step.

Runs over many episodes keep their outcomes only, as plans are large; this is for looking closely at one.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from npro_aif.acting.agent import Agent
from npro_aif.acting.episodes import Episode
from npro_aif.acting.run import run_episodes
from npro_aif.extras import missing
from npro_aif.planning.plan import Plan

if TYPE_CHECKING:
    import arviz as az


class Recording(NamedTuple):
    """An episode and the plans behind it."""

    episode: Episode
    plans: tuple[Plan, ...]  # (steps,) the one that each control was taken from
    observations: tuple[Any, ...]  # (steps,) what was seen before each of them
    frames: tuple[Any, ...]  # (steps,) what the environment showed then; empty if it does not render

    def to_arviz(self) -> az.InferenceData:
        """The episode for ArviZ; see :func:`npro_aif.analysis.to_arviz.episode_to_arviz`."""
        try:
            from npro_aif.analysis.to_arviz import episode_to_arviz
        except ImportError as error:
            raise missing(error, "recording.to_arviz()") from error
        return episode_to_arviz(self.plans, observations=self.observations, episode=self.episode)


def record_episode(env: Any, agent: Agent, seed: int) -> Recording:
    """Run the episode of this seed, as :func:`npro_aif.run_episodes` does, and keep all of it.

    :param env: a gymnasium environment; with a ``render_mode`` its frames are kept.

    >>> import npro_aif as aif
    >>> from npro_aif.envs import TMaze
    >>> from npro_aif.models import tmaze
    >>> planner = aif.Planner(tmaze.tmaze, solver=aif.CoordinateSolver(max_sweeps=20), max_horizon=4)
    >>> recording = record_episode(TMaze(), aif.Agent(planner, tmaze.initial_belief(), max_steps=4), seed=0)
    >>> [tmaze.CONTROLS[u] for u in recording.episode.controls[:3]], len(recording.plans)
    (['South', 'North', 'North'], 4)
    """
    recorder = _Recorder(env, agent)
    (episode,) = run_episodes(env, recorder, [seed]).episodes
    return Recording(episode, tuple(recorder.agent.plans), tuple(recorder.observations), tuple(recorder.frames))


class _Recorder:
    """An agent that remembers what it saw; the given one is left as it is."""

    def __init__(self, env: Any, agent: Agent):
        self.env, self.agent = env, copy.copy(agent)
        self.agent.record = True
        self.observations: list[Any] = []
        self.frames: list[Any] = []

    def reset(self, key: Any = None) -> None:
        self.agent.reset(key)

    def act(self, observation: Any) -> Any:
        self.observations.append(observation)
        if getattr(self.env, "render_mode", None) is not None:
            self.frames.append(self.env.render())
        return self.agent.act(observation)
