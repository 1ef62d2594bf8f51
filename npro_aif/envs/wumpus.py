"""Wumpus World: gold among pits and one wumpus, and senses that must be used to be of use."""

from __future__ import annotations

from typing import ClassVar

from npro_aif.envs.grids import GridWorld
from npro_aif.envs.tmaze import GREEN, ORANGE, RED
from npro_aif.models.wumpus import CONTROLS, FALSE_ALARM, HIT, LAYOUTS, MAX_STEPS, SENSE, SIDE, SITES, SLIP, START


class Wumpus(GridWorld):
    """Gold is worth 1, a pit or the wumpus −1, and each ends the episode; controls are left, down, right, up, sense.

    >>> env = Wumpus()
    >>> observation, info = env.reset(seed=1, options={"theta": 0})
    >>> observation, *_ = env.step(SENSE)
    >>> observation["stench"], observation["seen_sensed"], observation["over"]
    (1, 1, 0)
    """

    side, start, controls, num_layouts = SIDE, START, CONTROLS, len(LAYOUTS)
    sites: ClassVar[dict[str, int]] = {**dict.fromkeys(SITES, 2), "seen_cell": SIDE**2, "seen_sensed": 2, "over": 2}

    def __init__(self, max_steps: int = MAX_STEPS, render_mode: str | None = None):
        super().__init__(max_steps, render_mode)
        self.sensed = 0

    def begin(self) -> None:
        self.sensed = 0

    def act(self, control: int) -> tuple[float, bool]:
        self.sensed = int(control == SENSE)
        if not self.sensed:
            self.cell = self.slide(control, SLIP)
        return self._reward(), self._reward() != 0

    def _reward(self) -> float:
        pits, beast, gold = LAYOUTS[self.theta]
        return 1.0 if self.cell == gold else -1.0 if self.cell in (*pits, beast) else 0.0

    def observe(self) -> dict[str, int]:
        pits, beast, gold = LAYOUTS[self.theta]
        beside = {self.neighbour(direction) for direction in range(4)} - {self.cell}
        true = {"breeze": bool(beside & set(pits)), "stench": beast in beside, "glitter": self.cell == gold}
        seen = {site: self.coin((HIT if true[site] else FALSE_ALARM) if self.sensed else 0.5) for site in SITES}
        return {**seen, "seen_cell": self.cell, "seen_sensed": self.sensed, "over": int(self._reward() != 0)}

    def state(self) -> int:
        return 2 * self.cell + self.sensed

    def colours(self) -> dict[int, tuple[int, int, int]]:
        pits, beast, gold = LAYOUTS[self.theta]
        return {**dict.fromkeys(pits, RED), beast: ORANGE, gold: GREEN}
