"""A problem as a `.POMDP` file states it: names, probabilities, rewards, and where it starts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Problem(NamedTuple):
    """The numbers of a file; costs are negative rewards."""

    name: str
    discount: float
    states: tuple[str, ...]
    controls: tuple[str, ...]
    observations: tuple[str, ...]  # empty where the state itself is seen
    start: np.ndarray  # (X,)
    transition: np.ndarray  # (U, X, X') p(x'|x,u)
    emission: np.ndarray  # (U, X', Y) p(y|x',u)
    rewards: tuple[np.ndarray, ...]  # by control (X, X'|1, Y|1): only the axes that make a difference

    @property
    def is_hidden(self) -> bool:
        """Whether the states are hidden."""
        return bool(self.observations)

    def reward(self, x: int, u: int, new: int, y: int) -> float:
        """R(u, x, x', y)."""
        table = self.rewards[u]
        return float(table[x, new if table.shape[1] > 1 else 0, y if table.shape[2] > 1 else 0])

    def mean_rewards(self) -> np.ndarray:
        """Σ_y p(y|x',u) R(u, x, x', y), (X, U, X'|1): the last axis is 1 where the next state makes no difference."""
        means = [
            table[..., 0] if table.shape[2] == 1 else (table * self.emission[u]).sum(-1)
            for u, table in enumerate(self.rewards)
        ]
        width = max(table.shape[1] for table in means)
        return np.stack([np.broadcast_to(table, (len(self.states), width)) for table in means], axis=1)
