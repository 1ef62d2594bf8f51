"""The ways to compute decisions from beliefs: the choice is made here and nowhere else, by one meaning of "small".

In a small world a call costs as much as its computation, so problems are solved together; a large one fills a core.
"""

from __future__ import annotations

import enum

from npro_aif.sizes import TOGETHER_FROM, is_small, num_cores


class Way(enum.Enum):
    """One way to compute decisions, in words."""

    FUSED = "perception and planning in one compiled call"
    ALONE = "one after the other"
    TOGETHER = "together, in vectorised batches padded to a power of two"
    THREADS = "side by side, one on each core"


def is_vectorized(num_parameters: int, num_states: int, num_controls: int) -> bool:
    """Whether problems of this size are solved together in a batch."""
    return is_small(num_parameters, num_states, num_controls)


def choose_way(
    num_parameters: int, num_states: int, num_controls: int, count: int, *, quick: bool, fusable: bool = False
) -> Way:
    """The way to compute some decisions.

    :param num_parameters: the number of parameters in each plan.
    :param count: the number of problems.
    :param quick: whether the solver solves a small problem in less time than a thread takes to start.
    :param fusable: whether one compiled call can update the belief and plan.

    >>> choose_way(2, 5, 4, 1, quick=True, fusable=True).name, choose_way(2, 5, 4, 100, quick=True).name
    ('FUSED', 'TOGETHER')
    >>> choose_way(300, 576, 5, 1, quick=True).name, choose_way(2, 5, 4, 3, quick=True).name
    ('ALONE', 'ALONE')
    """
    small = is_small(num_parameters, num_states, num_controls)
    if count == 1:
        return Way.FUSED if fusable and small else Way.ALONE
    if small and count >= TOGETHER_FROM:
        return Way.TOGETHER
    if (small and quick) or num_cores() == 1:
        return Way.ALONE
    return Way.THREADS
