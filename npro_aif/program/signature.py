"""The sites of a planning problem: their names, sizes and labels, and flat indices over several sites.

A signature is static (hashable, no arrays), so that it can ride inside a pytree and key a cache.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.typing import ArrayLike


@dataclass(frozen=True)
class Site:
    """One site of a slice, by the name that the user gave it."""

    name: str
    size: int
    labels: tuple[str, ...] | None = None
    hidden: bool | None = None  # of a state: True where the policy does not see it; None where nothing was said

    def label(self, value: int) -> str:
        return self.labels[value] if self.labels else str(value)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Signature:
    """All sites by role, in program order; each role's flat index runs over the product in C order."""

    parameter: tuple[Site, ...]
    state: tuple[Site, ...]
    control: tuple[Site, ...]
    observation: tuple[Site, ...]
    sensor: tuple[Site, ...]  # observations with plan=False
    preference: tuple[str, ...]
    memory: tuple[Site, ...] = ()  # what the policy remembers of what was observed

    @property
    def visible(self) -> tuple[Site, ...]:
        """The state sites that the policy sees."""
        return tuple(site for site in self.state if not site.hidden)

    @property
    def policy(self) -> tuple[Site, ...]:
        """What the policy sees: the visible states and the memories."""
        return self.visible + self.memory

    @property
    def is_closed(self) -> bool:
        """Whether the policy sees anything other than exactly all states."""
        return bool(self.memory) or len(self.visible) < len(self.state)

    @property
    def num_visible(self) -> int:
        return product(self.visible)

    @property
    def num_memories(self) -> int:
        return product(self.memory)

    @property
    def num_parameters(self) -> int:
        return product(self.parameter)

    @property
    def num_states(self) -> int:
        return product(self.state)

    @property
    def num_controls(self) -> int:
        return product(self.control)

    @property
    def num_observations(self) -> int:
        return product(self.observation)

    def sites(self, role: str) -> tuple[Site, ...]:
        return getattr(self, role)

    def find(self, name: str) -> tuple[str, Site]:
        """The role and the site called ``name``."""
        for role in ("parameter", "state", "control", "observation", "sensor", "memory"):
            for site in self.sites(role):
                if site.name == name:
                    return role, site
        names = [site.name for role in ("parameter", "state", "control", "observation") for site in self.sites(role)]
        raise KeyError(f"site '{name}' is not in the model; its sites are {', '.join(names)}")


def product(sites: tuple[Site, ...]) -> int:
    return math.prod(site.size for site in sites)


def split(flat: Any, sites: tuple[Site, ...]) -> dict[str, Any]:
    """The value of each site in a flat index (a number or an array of any kind).

    >>> {k: int(v) for k, v in split(7, (Site("a", 2), Site("b", 5))).items()}
    {'a': 1, 'b': 2}
    """
    values, stride = {}, product(sites)
    for site in sites:
        stride //= site.size
        values[site.name] = flat // stride % site.size
    return values


def join(values: Mapping[str, ArrayLike], sites: tuple[Site, ...]) -> Array:
    """The flat index of the sites' values: the inverse of :func:`split`."""
    flat: Any = 0
    for site in sites:
        flat = flat * site.size + values[site.name]
    return flat


def flat_index(value: object, sites: tuple[Site, ...], what: str) -> int:
    """A role's value from a caller (an int, or a dict by site) as one flat index; checked."""
    if isinstance(value, Mapping):
        missing = [site.name for site in sites if site.name not in value]
        if missing:
            raise ValueError(f"{what}: site '{missing[0]}' is missing, found {sorted(map(str, value))}")
        unknown = [name for name in value if name not in {site.name for site in sites}]
        if unknown:
            raise ValueError(f"{what}: found {unknown[0]!r}, expected the sites {[site.name for site in sites]} only")
        numbers = [_checked(value[site.name], site.size, f"{what} '{site.name}'") for site in sites]
        return int(np.ravel_multi_index(tuple(numbers), tuple(site.size for site in sites)))
    return _checked(value, product(sites), what)


def _checked(value: object, size: int, what: str) -> int:
    array = np.asarray(value)
    if array.shape != () or not np.issubdtype(array.dtype, np.integer) or not 0 <= int(array) < size:
        raise ValueError(f"{what}: found {value!r}, expected a whole number from 0 to {size - 1}")
    return int(array)


def marginalize(table: Any, sites: tuple[Site, ...], name: str) -> Any:
    """The marginal of one site from a table whose last axis is flat over ``sites``."""
    axis = [site.name for site in sites].index(name)
    cube = table.reshape(table.shape[:-1] + tuple(site.size for site in sites))
    first = table.ndim - 1
    return cube.sum(tuple(first + i for i in range(len(sites)) if i != axis))
