"""What a plan from very many parameters may cost: fewer of them can be drawn, and what cannot fit is refused."""

from __future__ import annotations

import os

import numpy as np


def thin(parameter: np.ndarray, count: int) -> np.ndarray:
    """p(θ) with at most ``count`` of its parameters, drawn without replacement by their probabilities.

    The noise that draws them is the same every time (Gumbel's, of which the highest with log p are taken): while a
    belief narrows, those that were kept stay, and others follow for those that were ruled out.

    >>> thin(np.array([0.0, 0.2, 0.2, 0.2, 0.4]), 2).round(3).tolist()
    [0.0, 0.0, 0.5, 0.5, 0.0]
    """
    possible = np.flatnonzero(parameter > 0)
    if len(possible) <= count:
        return parameter
    score = np.log(parameter[possible]) + np.random.default_rng(0).gumbel(size=len(parameter))[possible]
    kept = possible[np.argsort(-score, kind="stable")[:count]]
    thinned = np.zeros_like(parameter)
    thinned[kept] = parameter[kept] / parameter[kept].sum()
    return thinned


def check_memory(size: int, num_states: int, num_steps: int, item_bytes: int) -> None:
    """Refuse a plan whose flows q(θ, x_t) and p(θ, x_t) alone would take more than half of the machine's memory."""
    needed, limit = 2 * (num_steps + 1) * size * num_states * item_bytes, memory() // 2
    if needed > limit:
        raise MemoryError(
            f"planner: found {size:,} parameters to plan with, whose {num_states:,} states at {num_steps} steps would "
            f"take {needed / 2**30:.1f} GB or more, expected at most {limit / 2**30:.1f} GB (half of the memory): plan "
            "fewer steps ahead, or with max_parameters of them"
        )


def memory() -> int:
    """The machine's memory in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
