"""The T-maze: five places, a cue that tells which arm holds the reward, and four steps to use it.

The places are cue 0, start 1, left arm 2, junction 3, right arm 4; cue, start and junction lie in one line
from south to north and the arms are west and east of the junction.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from npro_aif.envs import gym

CUE, START, LEFT_ARM, JUNCTION, RIGHT_ARM = range(5)
NORTH, EAST, SOUTH, WEST = range(4)
PLACES = ("cue", "start", "left arm", "junction", "right arm")
ARM_OF_THETA = (LEFT_ARM, RIGHT_ARM)
NEIGHBOURS = {
    (CUE, NORTH): START,
    (START, NORTH): JUNCTION,
    (START, SOUTH): CUE,
    (JUNCTION, EAST): RIGHT_ARM,
    (JUNCTION, SOUTH): START,
    (JUNCTION, WEST): LEFT_ARM,
    (LEFT_ARM, EAST): JUNCTION,
    (RIGHT_ARM, WEST): JUNCTION,
}

TILE = 32  # pixels along the edge of one drawn tile
GREY, ORANGE, GREEN, RED, BLUE = (
    (200, 200, 200),
    (240, 160, 60),
    (90, 190, 90),
    (210, 90, 80),
    (40, 80, 200),
)
_DRAWN_AT = {LEFT_ARM: (0, 0), JUNCTION: (0, 1), RIGHT_ARM: (0, 2), START: (1, 1), CUE: (2, 1)}


def draw_theta(rng: np.random.Generator, options: dict[str, Any] | None) -> int:
    """θ as `options` give it (`{"theta": 0}`), else drawn uniformly from {0, 1}."""
    drawn = int(rng.integers(2))  # drawn in any case, so that giving θ leaves a seed's later draws as they are
    theta = (options or {}).get("theta", drawn)
    if theta not in (0, 1):
        raise ValueError(f"options['theta'] is {theta!r}, but θ is 0 or 1")
    return int(theta)


def check_render_mode(env: Any, mode: str | None) -> str | None:
    """`mode` if the environment can draw it, else an error that lists what it can draw."""
    modes = env.metadata["render_modes"]
    if mode is not None and mode not in modes:
        raise ValueError(f"render_mode is {mode!r}, expected one of {modes} or None")
    return mode


def check_action(env: Any, action: Any) -> int:
    """`action` as a Python int, refused where the action space does not hold it."""
    control = int(action)  # agents may hand over a zero-dimensional array
    if not env.action_space.contains(control):
        raise ValueError(f"action is {action!r}, which {env.action_space} does not hold")
    return control


def paint(tiles: dict[tuple[int, int], tuple[int, int, int]], agents: set[tuple[int, int]]) -> np.ndarray:
    """An image of coloured tiles by (row, column), with a blue mark on those in `agents`."""
    rows, columns = (1 + max(corner) for corner in zip(*tiles, strict=True))
    image = np.full((rows * TILE, columns * TILE, 3), 255, dtype=np.uint8)
    for (row, column), colour in tiles.items():
        tile = image[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
        tile[1:-1, 1:-1] = colour
        if (row, column) in agents:
            tile[TILE // 4 : -TILE // 4, TILE // 4 : -TILE // 4] = BLUE
    return image


class TMaze(gym.Env[dict[str, int], int]):
    """Reward +1 in the arm that θ names (0 left, 1 right) and −1 in the other; either ends the episode.

    Controls are North 0, East 1, South 2, West 3; a wall means staying. Observed are `place`, and `cue`, which
    equals θ at the cue (with probability `cue_accuracy`, drawn anew at every look) and is uniformly random
    elsewhere. `info` holds the true `theta` and `state` (the place). `arm_shortcut` leads South from an arm to
    the start, as the authors' maze does; as entering an arm ends the episode, it only shows to a caller that
    steps on.

    >>> env = TMaze()
    >>> observation, info = env.reset(seed=0, options={"theta": 1})
    >>> observation["place"], info["theta"]
    (1, 1)
    >>> observation, reward, terminated, truncated, info = env.step(SOUTH)
    >>> observation
    {'cue': 1, 'place': 0}
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 2}

    def __init__(
        self,
        arm_shortcut: bool = False,
        max_steps: int = 4,
        render_mode: str | None = None,
        cue_accuracy: float = 1.0,
    ):
        if not 0 <= cue_accuracy <= 1:
            raise ValueError(f"cue_accuracy: found {cue_accuracy!r}, expected a probability")
        self.observation_space = gym.Dict({"cue": gym.Discrete(2), "place": gym.Discrete(5)})
        self.action_space = gym.Discrete(4)
        self.render_mode = check_render_mode(self, render_mode)
        self.max_steps = max_steps
        self.cue_accuracy = cue_accuracy
        self._moves = dict(NEIGHBOURS)
        if arm_shortcut:
            self._moves |= {(LEFT_ARM, SOUTH): START, (RIGHT_ARM, SOUTH): START}
        self._theta, self._place, self._steps = 0, START, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, int], dict[str, Any]]:
        super().reset(seed=seed)
        self._theta = draw_theta(self.np_random, options)
        self._place, self._steps = START, 0
        return self._observe(), self._info()

    def step(self, action: int) -> tuple[dict[str, int], float, bool, bool, dict[str, Any]]:
        self._place = self._moves.get((self._place, check_action(self, action)), self._place)
        self._steps += 1
        terminated = self._place in ARM_OF_THETA
        reward = (1.0 if self._place == ARM_OF_THETA[self._theta] else -1.0) if terminated else 0.0
        truncated = not terminated and self._steps >= self.max_steps
        return self._observe(), reward, terminated, truncated, self._info()

    def render(self) -> np.ndarray | str | None:
        if self.render_mode == "ansi":
            return f"step {self._steps}: at the {PLACES[self._place]}, reward in the {self._goal()}"
        if self.render_mode == "rgb_array":
            colours = {CUE: ORANGE, START: GREY, JUNCTION: GREY, LEFT_ARM: RED, RIGHT_ARM: RED}
            colours[ARM_OF_THETA[self._theta]] = GREEN
            return paint({_DRAWN_AT[p]: c for p, c in colours.items()}, {_DRAWN_AT[self._place]})
        return None

    def _goal(self) -> str:
        return PLACES[ARM_OF_THETA[self._theta]]

    def _observe(self) -> dict[str, int]:
        return {"cue": self._word(), "place": self._place}

    def _word(self) -> int:
        """What the cue says here."""
        if self._place != CUE:
            return int(self.np_random.integers(2))
        right = self.cue_accuracy == 1 or self.np_random.random() < self.cue_accuracy
        return self._theta if right else 1 - self._theta

    def _info(self) -> dict[str, Any]:
        return {"theta": self._theta, "state": self._place}
