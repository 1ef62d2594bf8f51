"""The axes of an evaluated program: where the values of each role's sites lie, counted from the right as in NumPyro.

The last axis stays 1, so that an index such as ``A[:, x]``, which moves it, is noticed.
"""

from typing import Any

import numpy as np

from npro_aif.program.signature import Signature, Site, product, split

RESERVED, TIME, THETA, STATE, CONTROL, NEXT, MEMORY, NEXT_MEMORY, FIRST_OBSERVATION = -1, -2, -3, -4, -5, -6, -7, -8, -9
NUM_SLICE_AXES = 6  # all axes but those of memories and observations, which lie further left


def site_axes(signature: Signature) -> dict[int, tuple[tuple[Site, ...], str]]:
    """Each axis with the sites that share it and the time suffix of their names."""
    axes = {
        THETA: (signature.parameter, ""),
        STATE: (signature.state, "_0"),
        CONTROL: (signature.control, "_t"),
        NEXT: (signature.state, "_t"),
        MEMORY: (signature.memory, "_0"),
        NEXT_MEMORY: (signature.memory, "_t"),
    }
    for i, site in enumerate(signature.observation + signature.sensor):
        axes[FIRST_OBSERVATION - i] = ((site,), "_t")
    return axes


def axis_name(axis: int, signature: Signature) -> str:
    """An axis in words, for messages."""
    if axis == TIME:
        return "t"
    if axis <= FIRST_OBSERVATION:
        return f"the observation '{observed_on(axis, signature).name}'"
    names = {
        THETA: "the parameter",
        STATE: "the previous state",
        CONTROL: "the control",
        NEXT: "the new state",
        MEMORY: "the memory",
        NEXT_MEMORY: "the new memory",
    }
    sites = site_axes(signature)[axis][0]
    return f"{names[axis]} {', '.join(repr(site.name) for site in sites)}"


def observed_on(axis: int, signature: Signature) -> Site:
    return (signature.observation + signature.sensor)[FIRST_OBSERVATION - axis]


def on_axis(values: Any, axis: int) -> Any:
    """Values (n,) laid along one axis."""
    return values.reshape(values.shape + (1,) * (-axis - 1))


def axis_sizes(signature: Signature, num_parameters: int, num_steps: int) -> dict[int, int]:
    sizes = {axis: product(sites) for axis, (sites, _) in site_axes(signature).items()}
    return sizes | {RESERVED: 1, TIME: num_steps, THETA: num_parameters}


def enumerated_values(signature: Signature, theta: np.ndarray) -> dict[str, np.ndarray]:
    """Every site's values on its axis by full name; the sites of one role share a flat axis."""
    values = {}
    for axis, (sites, suffix) in site_axes(signature).items():
        flat = theta if axis == THETA else np.arange(product(sites), dtype=np.int32)
        for name, value in split(flat, sites).items():
            values[name + suffix] = on_axis(value, axis)
    return values
