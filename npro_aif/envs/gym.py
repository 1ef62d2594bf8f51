"""The classes that environments take from gymnasium, or stand-ins for them where it is not installed.

With a stand-in an environment can be stepped by hand or by an agent as usual; ``gymnasium.make``, wrappers and
vectors need gymnasium itself (``pip install 'npro-aif[envs]'``).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np


class PlainEnv:
    """An environment's random numbers, seeded as gymnasium seeds them."""

    def __class_getitem__(cls, _: Any) -> type:
        return cls

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None or not hasattr(self, "np_random"):
            self.np_random = np.random.default_rng(seed)


class PlainDiscrete:
    """The integers from 0 to n − 1.

    >>> PlainDiscrete(2).contains(1), PlainDiscrete(2).contains(2)
    (True, False)
    """

    def __init__(self, n: int):
        self.n = n

    def contains(self, value: Any) -> bool:
        return isinstance(value, int | np.integer) and 0 <= int(value) < self.n

    def __repr__(self) -> str:
        return f"Discrete({self.n})"


class PlainDict(dict[str, Any]):
    """Spaces by name."""

    def contains(self, value: Any) -> bool:
        return isinstance(value, Mapping) and set(value) == set(self) and all(self[k].contains(value[k]) for k in self)


gymnasium: Any
try:
    gymnasium = importlib.import_module("gymnasium")
except ImportError:
    gymnasium = None

Env: Any = PlainEnv if gymnasium is None else gymnasium.Env
Discrete: Any = PlainDiscrete if gymnasium is None else gymnasium.spaces.Discrete
Dict: Any = PlainDict if gymnasium is None else gymnasium.spaces.Dict


def register(entry_points: Mapping[str, str]) -> None:
    """Register environments with gymnasium, where it is installed; a second call changes nothing."""
    if gymnasium is None:
        return
    for name, entry_point in entry_points.items():
        if name not in gymnasium.registry:  # a second registration under one name would warn
            gymnasium.register(id=name, entry_point=entry_point)
