"""RockSample(4,3): sense rocks from afar, sample the good ones, leave on the right."""

from __future__ import annotations

from typing import ClassVar

from npro_aif.envs.grids import GridWorld
from npro_aif.envs.tmaze import GREEN, ORANGE, RED
from npro_aif.models.rock_sample import BEST, CONTROLS, MAX_STEPS, ROCKS, SAMPLE, SAMPLE_RIGHT, SENSE, SIDE, START

BAD, GOOD, NONE = range(3)
GOOD_REWARD, BAD_REWARD, EXIT_REWARD = 2.0, -3.0, 1.0
NOTHING, SAMPLED = 0, 4  # events; 1 to 3 are those of the sensors


class RockSample(GridWorld):
    """A good rock is worth 2, a bad one −3, the exit 1, and ends; controls are four moves, three sensors, sample.

    >>> env = RockSample()
    >>> observation, info = env.reset(seed=0, options={"theta": 2})
    >>> observation, *_ = env.step(SENSE + 1)
    >>> observation["rock_0"], observation["rock_1"], observation["seen_event"]
    (2, 1, 2)
    """

    side, start, controls, num_layouts = SIDE, START, CONTROLS, 2 ** len(ROCKS)
    sites: ClassVar[dict[str, int]] = {
        **{f"rock_{j}": 3 for j in range(len(ROCKS))},
        **{"seen_cell": SIDE**2, "seen_taken": 2 ** len(ROCKS), "seen_event": 5},
    }

    def __init__(self, max_steps: int = MAX_STEPS, render_mode: str | None = None):
        super().__init__(max_steps, render_mode)
        self.taken: set[int] = set()
        self.event = NOTHING

    def begin(self) -> None:
        self.taken, self.event = set(), NOTHING

    def act(self, control: int) -> tuple[float, bool]:
        self.event = NOTHING
        if control < SENSE:
            self.cell = self.neighbour(control)
            leaves = self.cell % SIDE == SIDE - 1
            return (EXIT_REWARD if leaves else 0.0), leaves
        if control < SAMPLE:
            self.event = control - SENSE + 1
            return 0.0, False
        here = {j for j, place in enumerate(ROCKS) if place == self.cell} - self.taken
        self.taken |= here
        self.event = SAMPLED if here else NOTHING
        return sum(GOOD_REWARD if self._is_good(j) else BAD_REWARD for j in here), False

    def _is_good(self, rock: int) -> bool:
        return f"{self.theta:0{len(ROCKS)}b}"[rock] == "1"

    def observe(self) -> dict[str, int]:
        words = {f"rock_{j}": self._word(j) for j in range(len(ROCKS))}
        return {**words, "seen_cell": self.cell, "seen_taken": self._mask(), "seen_event": self.event}

    def _word(self, rock: int) -> int:
        """What is heard of a rock."""
        (row, column), (own_row, own_column) = divmod(ROCKS[rock], SIDE), divmod(self.cell, SIDE)
        away = max(abs(row - own_row), abs(column - own_column))
        if self.event == SAMPLED and away == 0:
            right = self.coin(SAMPLE_RIGHT)
        elif self.event == rock + 1:
            right = self.coin(min(BEST, 0.5 + 0.5 * 2 ** (-away / 2)))
        else:
            return NONE
        return GOOD if self._is_good(rock) == bool(right) else BAD

    def _mask(self) -> int:
        return sum(2 ** (len(ROCKS) - 1 - j) for j in self.taken)

    def state(self) -> int:
        return (self.cell * 2 ** len(ROCKS) + self._mask()) * 5 + self.event

    def colours(self) -> dict[int, tuple[int, int, int]]:
        exits = dict.fromkeys(range(SIDE - 1, SIDE**2, SIDE), ORANGE)
        rocks = {place: GREEN if self._is_good(j) else RED for j, place in enumerate(ROCKS) if j not in self.taken}
        return exits | rocks
