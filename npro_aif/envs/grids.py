"""The base of grid worlds: one of several layouts, a place on a grid, a limit of steps, and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from npro_aif.envs import gym
from npro_aif.envs.tmaze import GREY, check_action, check_render_mode, paint

LEFT, DOWN, RIGHT, UP = range(4)


class GridWorld(gym.Env[dict[str, int], int]):
    """A world whose agent is in one of ``side`` × ``side`` cells; subclasses say what controls do and what is seen.

    `info` holds the true `theta` and `state`, as the model of the same name counts them.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4}
    side: ClassVar[int]
    start: ClassVar[int]
    controls: ClassVar[tuple[str, ...]]
    num_layouts: ClassVar[int]
    sites: ClassVar[Mapping[str, int]]  # what is seen, and how many values it has

    def __init__(self, max_steps: int, render_mode: str | None = None):
        self.observation_space = gym.Dict({name: gym.Discrete(size) for name, size in self.sites.items()})
        self.action_space = gym.Discrete(len(self.controls))
        self.render_mode = check_render_mode(self, render_mode)
        self.max_steps = max_steps
        self.theta, self.cell, self.steps = 0, self.start, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, int], dict[str, Any]]:
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(self.num_layouts))  # in any case: a seed's later draws stay as they are
        self.theta = (options or {}).get("theta", drawn)
        if self.theta not in range(self.num_layouts):
            raise ValueError(f"options['theta']: found {self.theta!r}, expected a number below {self.num_layouts}")
        self.cell, self.steps = self.start, 0
        self.begin()
        return self.observe(), self.info()

    def step(self, action: int) -> tuple[dict[str, int], float, bool, bool, dict[str, Any]]:
        reward, terminated = self.act(check_action(self, action))
        self.steps += 1
        truncated = not terminated and self.steps >= self.max_steps
        return self.observe(), reward, terminated, truncated, self.info()

    def begin(self) -> None:
        """Forget the last episode."""

    def act(self, control: int) -> tuple[float, bool]:
        """Do a control: the reward, and whether the episode is over."""
        raise NotImplementedError

    def observe(self) -> dict[str, int]:
        """What is seen now, by site."""
        raise NotImplementedError

    def state(self) -> int:
        """The state as the model counts it."""
        raise NotImplementedError

    def colours(self) -> dict[int, tuple[int, int, int]]:
        """The colours of the cells that are not grey."""
        raise NotImplementedError

    def neighbour(self, direction: int) -> int:
        """The cell to one side, or this one at the edge."""
        row, column = divmod(self.cell, self.side)
        row += {DOWN: 1, UP: -1}.get(direction, 0)
        column += {RIGHT: 1, LEFT: -1}.get(direction, 0)
        return row * self.side + column if row in range(self.side) and column in range(self.side) else self.cell

    def slide(self, direction: int, slip: float) -> int:
        """The end of a move that goes in another direction with probability ``slip``."""
        if self.np_random.random() < slip:
            direction = int(self.np_random.choice([other for other in range(4) if other != direction]))
        return self.neighbour(direction)

    def coin(self, probability: float) -> int:
        """1 with a probability."""
        return int(self.np_random.random() < probability)

    def info(self) -> dict[str, Any]:
        return {"theta": self.theta, "state": self.state()}

    def render(self) -> np.ndarray | str | None:
        if self.render_mode == "ansi":
            return f"step {self.steps}: at {divmod(self.cell, self.side)} in layout {self.theta}"
        if self.render_mode == "rgb_array":
            colours = self.colours()
            tiles = {divmod(cell, self.side): colours.get(cell, GREY) for cell in range(self.side**2)}
            return paint(tiles, {divmod(self.cell, self.side)})
        return None
