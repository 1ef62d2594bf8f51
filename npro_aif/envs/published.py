"""The environments as the paper's own code has them, so that its rows can be played again to the digit.

Its authors draw with Python's generator: the T-maze's θ from one stream over the episodes, the Reactivity Maze
everything from one stream that runs through all of them, one after the other. Their DoorKey has all of MiniGrid's
actions.
"""

from __future__ import annotations

import functools
import random
from typing import Any

from minigrid.core.actions import Actions

from npro_aif.envs import gym
from npro_aif.envs.doorkey import DoorKey
from npro_aif.envs.reactivity_maze import CUE, FULL, NAVIGATION, SINK, ReactivityMaze
from npro_aif.envs.tmaze import TMaze

TMAZE_SEED, REACTIVITY_SEED = 18, 42  # of Python's generator


@functools.cache
def published_sides(count: int, stream: int = TMAZE_SEED) -> tuple[int, ...]:
    """θ of the first episodes in the T-maze.

    :param stream: the seed of Python's generator.

    >>> published_sides(200).count(0)  # the published 48 % of F_marginal are these
    95
    """
    draws = random.Random(stream)
    return tuple(draws.choice((0, 1)) for _ in range(count))


class PublishedTMaze(TMaze):
    """The authors' T-maze: South from an arm leads to the start, and the episode of the seed k has the k-th drawn θ.

    :param stream: the seed of Python's generator that draws them; 18 in Table 1, 42 to 46 in appendix B.
    """

    def __init__(self, max_steps: int = 4, render_mode: str | None = None, *, stream: int = TMAZE_SEED):
        super().__init__(arm_shortcut=True, max_steps=max_steps, render_mode=render_mode)
        self.stream = stream

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, int], dict[str, Any]]:
        if seed is None and "theta" not in (options or {}):
            raise ValueError("seed: found None, expected the number of the episode (or θ in the options)")
        drawn = {} if seed is None else {"theta": published_sides(seed + 1, self.stream)[seed]}
        return super().reset(seed=seed, options=drawn | (options or {}))


class PublishedReactivityMaze(ReactivityMaze):
    """The authors' Reactivity Maze: its episodes follow each other in one stream of draws.

    :param details: also with the details of their code that the text does not have: the knob stands still at the cue
        and in the sink, and the cue shows a third word (2) everywhere else.
    :param stream: the seed of Python's generator that draws them.
    :param first_look: whether there is an observation before the first control; for the three objectives there is none.

    >>> env = PublishedReactivityMaze()
    >>> [env.reset(seed=k)[1] for k in range(2)]
    [{'theta': 0, 'state': 4}, {'theta': 0, 'state': 9}]
    """

    def __init__(
        self, max_steps: int = 5, *, details: bool = False, first_look: bool = True, stream: int = REACTIVITY_SEED
    ):
        super().__init__(max_steps)
        self.details, self.first_look = details, first_look
        self._stream = random.Random(stream)
        self._next_episode = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, int], dict[str, Any]]:
        if options:
            raise ValueError(f"options: found {options!r}, expected none (the stream draws everything)")
        if seed not in (None, self._next_episode):
            raise ValueError(
                f"seed: found {seed}, expected {self._next_episode}: the episodes are one stream, one after the other "
                "from 0 on"
            )
        self._next_episode += 1
        self._theta = self._stream.randint(0, 1)
        self._location, self._knob, self._steps = self._stream.randint(0, NAVIGATION - 1), FULL, 0
        observation = self._observe()
        return observation if self.first_look else {}, self._info()

    def _next_location(self, control: int) -> int:
        if self._location == CUE:
            return self._stream.randint(0, NAVIGATION - 1)
        return super()._next_location(control)

    def _stays_up(self) -> bool:
        return self._stream.random() < self._knob / FULL

    def _next_knob(self, control: int) -> int:
        return self._knob if self.details and self._before in (CUE, SINK) else super()._next_knob(control)

    def _observe(self) -> dict[str, int]:
        drawn = int(self._stream.random() >= 1 / 2)  # drawn at every step, and used where the cue says nothing
        cue = self._theta if self._location == CUE else 2 if self.details else drawn
        return {"cue": cue, "seen_location": self._location, "seen_knob": self._knob}


class PublishedDoorKey(DoorKey):
    """DoorKey with MiniGrid's seven actions in MiniGrid's order; `drop` really drops the key, `done` does nothing.

    >>> PublishedDoorKey().action_space.n
    np.int64(7)
    """

    actions = tuple(Actions)

    def __init__(self, size: int = 8, max_steps: int = 35, render_mode: str | None = None):
        super().__init__(size, max_steps, render_mode)
        self.action_space = gym.Discrete(len(self.actions))
