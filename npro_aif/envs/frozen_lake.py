"""Frozen Lake with hidden holes: slippery ice, a scan that shows nearly everything, and 15 steps to the goal."""

from __future__ import annotations

from typing import ClassVar

from npro_aif.envs.grids import GridWorld
from npro_aif.envs.tmaze import GREEN, RED
from npro_aif.models.frozen_lake import (
    CONTROLS,
    FAR,
    FARTHEST,
    GOAL,
    HOLES,
    MAX_STEPS,
    NEAR,
    SCAN,
    SCANNED_NOISE,
    SIDE,
    SITES,
    SLIP,
    START,
)


class FrozenLake(GridWorld):
    """The goal is worth 1 and ends the episode, as a hole does; controls are left, down, right, up, scan.

    >>> env = FrozenLake()
    >>> observation, info = env.reset(seed=0, options={"theta": 0})
    >>> observation, *_ = env.step(SCAN)
    >>> observation["hole_3"], observation["seen_cell"], observation["seen_scanned"]
    (1, 0, 1)
    """

    side, start, controls, num_layouts = SIDE, START, CONTROLS, len(HOLES)
    sites: ClassVar[dict[str, int]] = {**dict.fromkeys(SITES, 2), "seen_cell": SIDE**2, "seen_scanned": 2}

    def __init__(self, max_steps: int = MAX_STEPS, render_mode: str | None = None):
        super().__init__(max_steps, render_mode)
        self.scanned = 0

    def begin(self) -> None:
        self.scanned = 0

    def act(self, control: int) -> tuple[float, bool]:
        if control == SCAN:
            self.scanned = 1
        else:
            self.cell = self.slide(control, SLIP)
        return float(self.cell == GOAL), self.cell == GOAL or self.cell in HOLES[self.theta]

    def observe(self) -> dict[str, int]:
        seen = {site: self._looks_like_a_hole(cell) for cell, site in enumerate(SITES)}
        return {**seen, "seen_cell": self.cell, "seen_scanned": self.scanned}

    def _looks_like_a_hole(self, cell: int) -> int:
        (row, column), (own_row, own_column) = divmod(cell, SIDE), divmod(self.cell, SIDE)
        away = abs(row - own_row) + abs(column - own_column)
        noise = SCANNED_NOISE if self.scanned else NEAR + FAR * away / FARTHEST
        return self.coin(1 - noise if cell in HOLES[self.theta] else noise)

    def state(self) -> int:
        return 2 * self.cell + self.scanned

    def colours(self) -> dict[int, tuple[int, int, int]]:
        return {GOAL: GREEN, **dict.fromkeys(HOLES[self.theta], RED)}
