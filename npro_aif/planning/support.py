"""The parameters that a plan considers: those that its belief holds possible, padded to one of a few sizes.

Impossible parameters would cost as much as possible ones, and every size compiles once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from npro_aif.sizes import PRUNE_FROM, SMALLEST_SUPPORT, memory_bytes


class Support(NamedTuple):
    """The parameters that a plan considers; a batch of them has a leading axis."""

    theta: Array  # (K,) flat indices
    valid: Array  # (K,) False for padding

    @property
    def size(self) -> int:
        return self.theta.shape[-1]


class Sizes:
    """The sizes that supports are padded to: powers of two from 4 on, and one size beyond the largest of these.

    That last size is the size of the first larger support (as a rule the prior's, of which later ones are parts). If a
    still larger one follows, it becomes the number of all parameters.

    :param num_parameters: the number of all parameters.

    >>> sizes = Sizes(480)
    >>> [sizes.of(count) for count in (5, 300, 260, 256, 301)]
    [8, 300, 300, 256, 480]
    """

    def __init__(self, num_parameters: int):
        self.num_parameters = num_parameters
        self._last = 0

    @property
    def nothing_left_out(self) -> bool:
        """Whether every plan considers all parameters."""
        return self.num_parameters < PRUNE_FROM

    def of(self, count: int) -> int:
        """The size for a support of ``count`` parameters."""
        size = max(SMALLEST_SUPPORT, power_of_two(count))
        if size < self.num_parameters:
            return size
        if count > self._last:
            self._last = self.num_parameters if self._last else count
        return self._last

    def support(self, parameter: np.ndarray) -> Support | None:
        """The support of a belief's p(θ), (Θ,); None where nothing is left out."""
        possible = np.flatnonzero(parameter > 0)
        if self.nothing_left_out or not len(possible):
            return None
        size = self.of(len(possible))
        if size >= self.num_parameters:
            return None
        theta = np.append(possible, np.full(size - len(possible), possible[0])).astype(np.int32)
        valid = np.arange(size) < len(possible)
        return Support(*jax.device_put((theta, valid)))  # jnp.asarray would compile a copy for each size


def power_of_two(count: int) -> int:
    """The least power of two that is at least ``count``."""
    return 1 << (count - 1).bit_length()


def thin(parameter: np.ndarray, count: int) -> np.ndarray:
    """p(θ) with at most ``count`` of its parameters, drawn without replacement by their probabilities.

    The largest of log p plus Gumbel noise are taken, and the noise is the same every time: while a belief narrows,
    parameters that were drawn stay, and others replace those that are ruled out.

    >>> thin(np.array([0.0, 0.2, 0.2, 0.2, 0.4]), 2).round(3).tolist()
    [0.0, 0.0, 0.5, 0.5, 0.0]
    """
    possible = np.flatnonzero(parameter > 0)
    if len(possible) <= count:
        return parameter
    score = np.log(parameter[possible]) + np.random.default_rng(0).gumbel(size=len(parameter))[possible]
    chosen = possible[np.argsort(-score, kind="stable")[:count]]
    thinned = np.zeros_like(parameter)
    thinned[chosen] = parameter[chosen] / parameter[chosen].sum()
    return thinned


def check_memory(size: int, num_states: int, num_steps: int, item_bytes: int) -> None:
    """Refuse a plan whose flows q(θ, x_t) and p(θ, x_t) alone would take more than half of the machine's memory."""
    needed, limit = 2 * (num_steps + 1) * size * num_states * item_bytes, memory_bytes() // 2
    if needed > limit:
        raise MemoryError(
            f"planner: found {size:,} parameters to plan with, whose {num_states:,} states at {num_steps} steps would "
            f"take {needed / 2**30:.1f} GB or more, expected at most {limit / 2**30:.1f} GB (half of the memory): plan "
            "fewer steps ahead, or with max_parameters of them"
        )
