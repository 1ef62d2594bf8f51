"""One episode with everything that can be asked about it afterwards: what was seen, planned and done, step by step.

Runs over many episodes keep their outcomes only, as plans are large; this is for looking closely at one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from npro_aif.acting.agent import Agent
from npro_aif.acting.episodes import Episode
from npro_aif.acting.run import run_episodes
from npro_aif.analysis.view.drawing import Drawing
from npro_aif.analysis.view.page import DEPTH, write_page
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

    @property
    def objective(self) -> str:
        """What the agent minimised, in short: F_active, for example."""
        return f"F_{type(self.plans[0].origin.objective).__name__.lower()}" if self.plans else "no plan"

    def to_html(
        self,
        path: str | Path,
        beside: Mapping[str, Recording] | None = None,
        *,
        name: str | None = None,
        title: str | None = None,
        drawing: Drawing | None = None,
        depth: int = DEPTH,
    ) -> Path:
        """Write one HTML file in which to look through the episode: what was true, believed and planned at every step.

        It needs no server and no network. Worlds that come with the package are drawn; of others there are tables, or
        what ``drawing`` says.

        :param beside: further recordings of the same world to compare this one with, by the name to give them.
        :param name: of this one; by default its objective's.
        :param title: of the page; by default the world's.
        :param depth: how many steps of a contingent tree are shown.
        """
        recordings = {name or self.objective: self, **(beside or {})}
        return write_page(recordings, path, title=title, drawing=drawing, depth=depth)


def record_episode(env: Any, agent: Agent, seed: int, *, options: dict[str, Any] | None = None) -> Recording:
    """Run the episode of this seed, as :func:`npro_aif.run_episodes` does, and keep all of it.

    :param env: a gymnasium environment; with a ``render_mode`` its frames are kept.
    :param options: what the environment's ``reset`` is given beside the seed.

    >>> import npro_aif as aif
    >>> from npro_aif.envs import TMaze
    >>> from npro_aif.models import tmaze
    >>> planner = aif.Planner(tmaze.tmaze, solver=aif.CoordinateSolver(max_sweeps=20), max_horizon=4)
    >>> recording = record_episode(TMaze(), aif.Agent(planner, tmaze.initial_belief(), max_steps=4), seed=0)
    >>> [tmaze.CONTROLS[u] for u in recording.episode.controls[:3]], len(recording.plans)
    (['South', 'North', 'North'], 4)
    """
    recorder = _Recorder(env, agent)
    (episode,) = run_episodes(_Begun(env, options), recorder, [seed]).episodes
    return Recording(episode, tuple(recorder.agent.plans), tuple(recorder.observations), tuple(recorder.frames))


class _Begun:
    """An environment that always begins with the same options."""

    def __init__(self, env: Any, options: dict[str, Any] | None):
        self.env, self.options, self.step = env, options, env.step

    def reset(self, *, seed: int) -> Any:
        return self.env.reset(seed=seed) if self.options is None else self.env.reset(seed=seed, options=self.options)


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
