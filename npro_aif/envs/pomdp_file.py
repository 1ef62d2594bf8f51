"""A `.POMDP` file as an environment: states, observations and rewards are drawn as the file says."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from npro_aif.envs import gym
from npro_aif.envs.tmaze import check_action, check_render_mode
from npro_aif.numerics import whole_number
from npro_aif.pomdp.program import default_horizon, read_problem


class PomdpFile(gym.Env[dict[str, int], int]):
    """The problem of a file; its episodes end after `max_steps`, by default the default horizon of its plans.

    The observation is `y` after every control, and an empty dict at the start, where the format has none (which is why
    the class is not registered with gymnasium). In a file without observations `seen` is the state. The reward is the
    file's times γ^t, so that the sum over an episode is its discounted return; `info` holds the true `state`.

    >>> env = PomdpFile("tiger.POMDP", max_steps=2)
    >>> env.reset(seed=0)[0]
    {}
    >>> observation, reward, terminated, truncated, info = env.step(0)
    >>> reward, truncated
    (-1.0, False)
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 2}

    def __init__(self, path: str | Path, max_steps: int | None = None, render_mode: str | None = None):
        self.problem = read_problem(path)
        self._site = "y" if self.problem.is_hidden else "seen"
        size = len(self.problem.observations or self.problem.states)
        self.observation_space = gym.Dict({self._site: gym.Discrete(size)})
        self.action_space = gym.Discrete(len(self.problem.controls))
        self.render_mode = check_render_mode(self, render_mode)
        self.max_steps = default_horizon(self.problem) if max_steps is None else whole_number(max_steps, "max_steps", 1)
        self._state: int | None = None  # before the first reset
        self._steps, self._last = 0, ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, int], dict[str, Any]]:
        super().reset(seed=seed)
        state = self._state = self._draw(self.problem.start)
        self._steps, self._last = 0, ""
        return ({} if self.problem.is_hidden else {"seen": state}), {"state": state}

    def step(self, action: int) -> tuple[dict[str, int], float, bool, bool, dict[str, Any]]:
        control, before = check_action(self, action), self._present("step")
        state = self._state = self._draw(self.problem.transition[control, before])
        seen = self._draw(self.problem.emission[control, state]) if self.problem.is_hidden else state
        reward = self.problem.reward(before, control, state, seen)
        discounted = self.problem.discount**self._steps * reward
        self._steps += 1
        names = self.problem.observations or self.problem.states
        self._last = f"{self.problem.controls[control]}, {names[seen]}, reward {reward:g}; "
        return {self._site: seen}, discounted, False, self._steps >= self.max_steps, {"state": state}

    def render(self) -> str | None:
        if self.render_mode != "ansi":
            return None
        state = self.problem.states[self._present("render")]
        return f"step {self._steps}: {self._last}in {state}"

    def _present(self, call: str) -> int:
        if self._state is None:
            raise RuntimeError(f"{call}: found no episode, expected env.reset() before it")
        return self._state

    def _draw(self, probs: np.ndarray) -> int:
        return int(self.np_random.choice(len(probs), p=probs))
