"""A world as dense NumPy tables in float64: the common ground of the pymdp adapter and the exact references.

Both need everything enumerated, so a world is refused here if its tables would be too large (with their size) or if it
has features that they cannot express.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from npro_aif.belief import Belief
from npro_aif.errors import ModelError
from npro_aif.program.program import program_of
from npro_aif.program.signature import Signature
from npro_aif.tables.kernels import Kernel
from npro_aif.tables.world import World

MAX_BYTES = 2 * 1024**3  # of one world's dense tables


class TooLarge(ValueError):
    """A world whose arrays do not fit; the message says how large they would be."""


class Tables(NamedTuple):
    """The planning problem with every axis written out; X and Θ are flat over their sites."""

    joint: np.ndarray  # (Θ, X) the belief p(θ, x0)
    transition: np.ndarray  # (Θ, X, U, X') p(x'|x,u,θ)
    observation: dict[str, np.ndarray]  # by site, (Θ, X, Y) p(y|x,θ); sensors included where asked for
    preference: np.ndarray  # (T, Θ, X') E[log p̂_t | x_t, θ], preferences on observations averaged in
    control: np.ndarray  # (U,) log p(u)
    signature: Signature

    @property
    def horizon(self) -> int:
        return len(self.preference)

    @property
    def num_controls(self) -> int:
        return self.transition.shape[2]


def table_bytes(world: World) -> int:
    """The bytes of the world's transitions and observations in float64, every axis written out."""
    signature = world.signature
    pairs = signature.num_parameters * signature.num_states
    outcomes = sum(site.size for site in signature.observation + signature.sensor)
    return 8 * pairs * (signature.num_controls * signature.num_states + outcomes)


def dense_tables(model: Callable[..., Any], belief: Belief, horizon: int, *, sensors: bool = True) -> Tables:
    """The model's tables at a belief and a horizon.

    :param sensors: whether sites with ``plan=False`` are among the observations.

    >>> from npro_aif.models.tmaze import tmaze, initial_belief
    >>> tables = dense_tables(tmaze, initial_belief(), horizon=2)
    >>> tables.transition.shape, list(tables.observation)
    ((2, 5, 4, 5), ['cue', 'place'])
    """
    program = program_of(model, belief, horizon)
    world = program.world(belief, horizon)
    observed = world.signature.observation + (world.signature.sensor if sensors else ())
    for site in observed:
        if site.name in program.reads_control:
            raise ModelError(
                f"observation '{site.name}': found a dependence on the control, expected one on the new state and the "
                "parameters (the baselines have no observations of the control)"
            )
    needed = table_bytes(world)
    if needed > MAX_BYTES:
        raise TooLarge(f"model: its dense tables would take {in_words(needed)}, expected at most {in_words(MAX_BYTES)}")
    signature = world.signature
    theta, x, u = signature.num_parameters, signature.num_states, signature.num_controls
    kernels = world.observation | world.sensor
    observation = {  # in program order
        site.name: _static(kernels[site.name], f"observation '{site.name}'", (theta, x, site.size)) for site in observed
    }
    return Tables(
        joint=_normalized(np.exp(_float64(world.parameter))[:, None] * np.exp(_float64(world.initial))),
        transition=_static(world.state, "the states' transition", (theta, x, u, x)),
        observation=observation,
        preference=_preference(world, observation, (horizon, theta, x)),
        control=_control(world),
        signature=signature,
    )


def reread(tables: Tables, goal: str = "silent", timing: str = "model") -> Tables:
    """The tables under another reading of the preferences: see :class:`npro_aif.baselines.adapter.Translation`.

    With ``goal="seen"`` the levels of the last step's preference are observed; ``timing="every"`` has it at every step.
    """
    last, observation = tables.preference[-1], dict(tables.observation)
    if goal == "seen":
        levels, which = np.unique(last.round(6), return_inverse=True)
        observation["goal"] = np.eye(len(levels))[which.reshape(last.shape)]
    preference = np.repeat(last[None], tables.horizon, axis=0) if timing == "every" else tables.preference
    return tables._replace(observation=observation, preference=preference)


def _static(kernel: Kernel, what: str, shape: tuple[int, ...]) -> np.ndarray:
    if kernel.num_times > 1:
        raise ModelError(f"{what}: found a dependence on time, expected none (the baselines' tables have no time axis)")
    return _normalized(np.broadcast_to(np.exp(_float64(kernel.table()[0])), shape))


def _preference(world: World, observation: dict[str, np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """E[log p̂_t | x_t, θ], (T, Θ, X): preferences on observations are averaged over them."""
    total = np.zeros(shape)
    for name, table in world.preference.items():
        if table.shape[2] > 1 or table.shape[3] > 1:
            what = "the previous state" if table.shape[2] > 1 else "the control"
            raise ModelError(
                f"preference '{name}': found a dependence on {what}, expected one on the new state and the parameters "
                "(the baselines have no preferences over moves)"
            )
        total += _float64(table)[:, :, 0, 0, :]
    for site, parts in world.observation_preference.items():
        for part in parts:
            total += (observation[site] * _float64(part)).sum(-1)
    return total


def _control(world: World) -> np.ndarray:
    if world.control.shape[0] > 1 or world.control.shape[1] > 1:
        parent = "time" if world.control.shape[0] > 1 else "the state"
        raise ModelError(f"control: found a prior that depends on {parent}, expected one for all steps and states")
    return _float64(world.control)[0, 0]


def _float64(table: Any) -> np.ndarray:
    return np.asarray(table, dtype=np.float64)


def _normalized(table: np.ndarray) -> np.ndarray:
    """Rows that sum to one in float64 too: the program's numbers may be float32."""
    axes = (0, 1) if table.ndim == 2 else (-1,)
    return table / table.sum(axes, keepdims=True)


def in_words(size: float) -> str:
    """A number of bytes for people.

    >>> in_words(3 * 1024**3)
    '3.0 GiB'
    """
    if size >= 1e300:  # more than a float can say, so that the plans of a long horizon may be
        return f"10^{math.log10(size):.0f} bytes"
    if size < 1024:
        return f"{size:.0f} bytes"
    power = min(int(math.log(size, 1024)), 8)
    value = size / 1024**power
    unit = ["", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"][power]
    return f"{value:.1f} {unit}" if value < 1024 else f"{value:.1e} {unit}"
