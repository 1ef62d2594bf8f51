"""The Reactivity Maze: a knob sets how surely the agent moves, a cue tells which goal is the right one.

Locations 0–4 are for navigation, 5 is an absorbing safe sink and 6 the cue; the reward comes only with the
last of five steps and asks for the right goal at full reactivity.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from npro_aif.envs import gym
from npro_aif.envs.tmaze import GREEN, GREY, ORANGE, RED, check_action, check_render_mode, draw_theta, paint

NAVIGATION, KNOBS = 5, 5  # locations 0–4, knob values 0–4
SINK, CUE = 5, 6
FULL = KNOBS - 1  # the knob value at which moves never fail
KNOB_DOWN, KNOB_UP, VISIT_CUE = 5, 6, 7


class ReactivityMaze(gym.Env[dict[str, int], int]):
    """Controls 0–4 move by that many locations, 5 and 6 turn the knob down and up, 7 visits the cue.

    Observed are `seen_location`, `seen_knob`, and `cue`, which equals θ at the cue and is uniformly random
    elsewhere. `info` holds the true `theta` and `state` (location · 5 + knob). The episode is `max_steps`
    long by its own rules (the reward is defined at its end), so it terminates there and never truncates.

    >>> env = ReactivityMaze()
    >>> observation, info = env.reset(seed=0, options={"theta": 0})
    >>> observation["seen_knob"]
    4
    >>> observation, reward, terminated, truncated, info = env.step(VISIT_CUE)
    >>> observation
    {'cue': 0, 'seen_location': 6, 'seen_knob': 4}
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 2}

    def __init__(self, max_steps: int = 5, render_mode: str | None = None):
        sites = {"cue": 2, "seen_location": NAVIGATION + 2, "seen_knob": KNOBS}
        self.observation_space = gym.Dict({site: gym.Discrete(n) for site, n in sites.items()})
        self.action_space = gym.Discrete(8)
        self.render_mode = check_render_mode(self, render_mode)
        self.max_steps = max_steps
        self._theta, self._location, self._knob, self._steps = 0, 0, FULL, 0
        self._before = 0  # where the agent was

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, int], dict[str, Any]]:
        super().reset(seed=seed)
        self._theta = draw_theta(self.np_random, options)
        self._location, self._knob, self._steps = int(self.np_random.integers(NAVIGATION)), FULL, 0
        return self._observe(), self._info()

    def step(self, action: int) -> tuple[dict[str, int], float, bool, bool, dict[str, Any]]:
        control = check_action(self, action)
        self._before = self._location
        self._location, self._knob = self._next_location(control), self._next_knob(control)
        self._steps += 1
        terminated = self._steps >= self.max_steps
        return self._observe(), self._reward() if terminated else 0.0, terminated, False, self._info()

    def render(self) -> np.ndarray | str | None:
        if self.render_mode == "ansi":
            place = {SINK: "the sink", CUE: "the cue"}.get(self._location, f"location {self._location}")
            return f"step {self._steps}: at {place}, knob {self._knob}, goal {self._theta}"
        if self.render_mode == "rgb_array":
            colours = {SINK: GREY, CUE: ORANGE, self._theta: GREEN}
            tiles = {(0, place): colours.get(place, RED) for place in range(NAVIGATION + 2)}
            tiles |= {(1, knob): GREY for knob in range(KNOBS)}
            return paint(tiles, {(0, self._location), (1, self._knob)})
        return None

    def _next_location(self, control: int) -> int:
        if self._location == SINK:
            return SINK
        if self._location == CUE:
            return int(self.np_random.integers(NAVIGATION))
        if control == VISIT_CUE:
            return CUE
        if not self._stays_up():
            return SINK
        return (self._location + control) % NAVIGATION if control < NAVIGATION else self._location

    def _stays_up(self) -> bool:
        """Whether a move succeeds; if not, the agent falls into the sink."""
        return bool(self.np_random.random() < self._knob / FULL)

    def _next_knob(self, control: int) -> int:
        if control == KNOB_DOWN:
            return max(0, self._knob - 1)
        if control == KNOB_UP:
            return min(FULL, self._knob + 1)
        return self._knob

    def _reward(self) -> float:
        if self._location == SINK:
            return 0.33
        if self._knob < FULL:
            return -0.33
        if self._location == CUE:
            return 0.0  # the paper's reward has no case for ending at the cue with the knob at 4
        return 1.0 if self._location == self._theta else -1.0

    def _observe(self) -> dict[str, int]:
        cue = self._theta if self._location == CUE else int(self.np_random.integers(2))
        return {"cue": cue, "seen_location": self._location, "seen_knob": self._knob}

    def _info(self) -> dict[str, Any]:
        return {"theta": self._theta, "state": self._location * KNOBS + self._knob}
