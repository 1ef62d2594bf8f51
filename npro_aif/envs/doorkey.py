"""MiniGrid's own DoorKey seen through a 3×3 window, with its image given site by site.

Only the interface is here: layouts, rules, view, occlusion and reward are MiniGrid's, and the encoding of
layouts, states and cells is that of the model in `npro_aif.models.doorkey`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from npro_aif.envs import gym
from npro_aif.envs.tmaze import check_action, check_render_mode
from npro_aif.extras import missing
from npro_aif.models.doorkey import (
    CELL_SITES,
    CELLS,
    CLOSED,
    HAS_KEY,
    NO_KEY,
    OPEN,
    VIEW,
    check_size,
    door_index,
    key_index,
    state_index,
    theta_index,
)

try:
    from minigrid.core.actions import Actions
    from minigrid.core.constants import OBJECT_TO_IDX, STATE_TO_IDX
    from minigrid.core.world_object import Door
    from minigrid.envs import DoorKeyEnv
except ImportError as error:
    raise missing(error, "The environment DoorKey") from error

# The model's controls. `drop` is left out (the key's new place would be part of the state), and so is `done`.
ACTIONS = (Actions.left, Actions.right, Actions.forward, Actions.pickup, Actions.toggle)

# MiniGrid's (object, state) pairs as the model's cell categories; only doors have a state.
_CATEGORY = {(OBJECT_TO_IDX[name], 0): CELLS.index(name) for name in ("unseen", "empty", "wall", "key", "goal")}
_CATEGORY |= {
    (OBJECT_TO_IDX["door"], STATE_TO_IDX[name]): CELLS.index(f"{name} door") for name in ("open", "closed", "locked")
}


class DoorKey(gym.Env[dict[str, int], int]):
    """Fetch the key, unlock the door, reach the goal; controls are left, right, forward, pickup, toggle.

    Observed are `cell_0` … `cell_8`, the view row by row from far left to near right (the agent stands in
    `cell_7`), and `heading`. MiniGrid's limit of 10·size² steps stays, as its reward refers to it; the
    episode is truncated after `max_steps`. `info` holds the true `theta`, `key`, `door` and `state`, as the
    model counts them. It is an environment that owns MiniGrid's rather than a `gymnasium.Wrapper`: unwrapping
    would drop the sites and the deadline.

    >>> env = DoorKey(size=5)
    >>> observation, info = env.reset(seed=0)
    >>> sorted(info)
    ['door', 'key', 'state', 'theta']
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 10}
    actions: ClassVar[tuple[Actions, ...]] = ACTIONS  # by control

    def __init__(self, size: int = 8, max_steps: int = 35, render_mode: str | None = None):
        check_size(size)
        cells = {site: gym.Discrete(len(CELLS)) for site in CELL_SITES}
        self.observation_space = gym.Dict({**cells, "heading": gym.Discrete(4)})
        self.action_space = gym.Discrete(len(ACTIONS))
        self.render_mode = check_render_mode(self, render_mode)
        self.size, self.max_steps = size, max_steps
        self.minigrid = DoorKeyEnv(size=size, agent_view_size=VIEW, render_mode="rgb_array")
        self._key, self._door, self._door_place = 0, 0, (0, 0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, int], dict[str, Any]]:
        super().reset(seed=seed)
        # With a seed the layout is that of MiniGrid's own environment; without one its generator runs on.
        image, _ = self.minigrid.reset(seed=seed)
        self._key = key_index(*self._find("key"), self.size)
        wall, row = self._find("door")
        self._door = door_index(wall, row, self.size)
        self._door_place = wall + 1, row + 1  # in MiniGrid's coordinates, which count the outer wall
        return self._observe(image), self._info()

    def step(self, action: int) -> tuple[dict[str, int], float, bool, bool, dict[str, Any]]:
        control = self.actions[check_action(self, action)]
        image, reward, terminated, truncated, _ = self.minigrid.step(control)
        truncated = not terminated and (truncated or self.minigrid.step_count >= self.max_steps)
        return self._observe(image), float(reward), terminated, truncated, self._info()

    def render(self) -> np.ndarray | str | None:
        if self.render_mode == "ansi":
            return str(self.minigrid.pprint_grid())
        if self.render_mode == "rgb_array":
            return np.asarray(self.minigrid.render())
        return None

    def close(self) -> None:
        self.minigrid.close()

    def _find(self, kind: str) -> tuple[int, int]:
        """Interior (column, row) of the one object of this kind."""
        items = enumerate(self.minigrid.grid.grid)
        (place,) = (i for i, item in items if item is not None and item.type == kind)
        row, column = divmod(place, self.size)
        return column - 1, row - 1

    def _status(self) -> int:
        if self.minigrid.carrying is None:
            return NO_KEY
        door = self.minigrid.grid.get(*self._door_place)
        assert isinstance(door, Door)
        if door.is_locked:
            return HAS_KEY
        return OPEN if door.is_open else CLOSED

    def _observe(self, image: dict[str, Any]) -> dict[str, int]:
        # MiniGrid's image is [column, row, channel]; the sites go row by row.
        cells = np.swapaxes(image["image"], 0, 1).reshape(-1, 3)
        seen = {
            site: _CATEGORY[int(kind), int(state)] for site, (kind, _, state) in zip(CELL_SITES, cells, strict=True)
        }
        return {**seen, "heading": int(image["direction"])}

    def _info(self) -> dict[str, Any]:
        column, row = self.minigrid.agent_pos
        return {
            "theta": theta_index(self._key, self._door, self.size),
            "key": self._key,
            "door": self._door,
            "state": state_index(
                int(column) - 1, int(row) - 1, int(self.minigrid.agent_dir), self._status(), self.size
            ),
        }
