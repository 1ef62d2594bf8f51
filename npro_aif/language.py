"""The modelling language: roles for NumPyro sites, and the rollout into the future.

A model is an ordinary NumPyro program. Every role is a ``numpyro.sample`` site with a :class:`Role` in its
``infer`` dictionary, a preference is a ``numpyro.factor``, and :func:`rollout` unrolls one step into the
sites ``u_1, x_1, y_1, u_2, …`` unless a handler (see :mod:`npro_aif.program.reader`) reads the step just once.
"""

import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike

from npro_aif._numpyro import send
from npro_aif.distributions import DeterministicCategorical as DeterministicCategorical  # a part of the language
from npro_aif.distributions import SparseCategorical as SparseCategorical
from npro_aif.errors import ModelError
from npro_aif.numerics import is_concrete, whole_number
from npro_aif.sites import ROLE as ROLE
from npro_aif.sites import Role, check_name, draw, draw_joint, inside, is_sensing, now, outside, sample_site
from npro_aif.sites import chain as chain
from npro_aif.sites import clock as clock
from npro_aif.sites import sensing as sensing
from npro_aif.sizes import MOST_CONTENTS


def parameter(name: str, fn: dist.Distribution, *, labels: Sequence[str] | None = None) -> Array:
    """A parameter θ of the world: drawn once, before the rollout, and constant in time.

    >>> with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as sites:
    ...     theta = parameter("theta", dist.Categorical(probs=jnp.array([0.0, 1.0])), labels=("left", "right"))
    >>> int(theta), list(sites)
    (1, ['theta'])
    """
    outside("parameter", name)
    return draw("parameter", name, fn, labels)


def parameters(
    sizes: Mapping[str, int], probs: ArrayLike, *, labels: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Array]:
    """Several parameters from one joint table, flat in C order over the sites.

    :param sizes: the number of categories of each site, in order.
    :param probs: (…, product of sizes).
    :return: the drawn values by site name.

    >>> with numpyro.handlers.seed(rng_seed=0):
    ...     theta = parameters({"key": 2, "door": 3}, jnp.eye(6)[4])
    >>> int(theta["key"]), int(theta["door"])
    (1, 1)
    """
    outside("parameter", ", ".join(sizes))
    return draw_joint("parameter", sizes, probs, labels or {})


def state(
    name: str, fn: dist.Distribution, *, labels: Sequence[str] | None = None, hidden: bool | None = None
) -> Array:
    """A state x: before the rollout the present one (``x_0``), inside a step the next one (``x_t``).

    :param hidden: True hides it from the policy of a plan; by default the policy sees every state. (An agent knows of
        any state what its belief says.)

    >>> with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as sites:
    ...     x = state("x", dist.Categorical(probs=jnp.array([0.0, 0.0, 1.0])))
    ...     x = rollout(lambda x, t: state("x", DeterministicCategorical((x + 1) % 3, 3)), x, 2)
    >>> {name: int(site["value"]) for name, site in sites.items()}
    {'x_0': 2, 'x_1': 0, 'x_2': 1}
    """
    return draw("state", name, fn, labels, hidden)


def initial_state(
    sizes: Mapping[str, int], probs: ArrayLike, *, labels: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Array]:
    """The present state's sites from one joint table, flat in C order over the sites.

    :param sizes: the number of categories of each site, in order.
    :param probs: (…, product of sizes), for instance ``belief.state[theta]``.
    :return: the drawn values by site name.

    >>> with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as sites:
    ...     x = initial_state({"location": 2, "knob": 2}, jnp.array([0.0, 0.0, 1.0, 0.0]))
    >>> {name: int(site["value"]) for name, site in sites.items()}
    {'location_0': 1, 'knob_0': 0}
    """
    outside("initial_state", ", ".join(sizes))
    return draw_joint("state", sizes, probs, labels or {})


def control(name: str, fn: dist.Distribution, *, labels: Sequence[str] | None = None) -> Array:
    """A control u_t with its prior, which may depend on the previous state.

    >>> with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as sites:
    ...     _ = rollout(lambda _, t: control("u", dist.Categorical(probs=jnp.full(4, 0.25))), None, 2)
    >>> list(sites)
    ['u_1', 'u_2']
    """
    inside("control", name)
    return draw("control", name, fn, labels)


def observation(
    name: str, fn: dist.Distribution, *, plan: bool = True, labels: Sequence[str] | None = None
) -> Array | None:
    """An observation y_t of the new state, the parameters and the control.

    :param plan: with ``plan=False`` the observation is used in belief updates only: it is emitted there and
        nowhere else, and the call returns None elsewhere.

    >>> def step(x, t):
    ...     observation("cue", dist.Categorical(probs=jnp.array([0.5, 0.5])))
    ...     observation("place", DeterministicCategorical(x, 5), plan=False)
    ...     return x
    >>> with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as sites:
    ...     _ = rollout(step, jnp.array(3), 2)
    >>> list(sites)
    ['cue_1', 'cue_2']
    """
    inside("observation", name)
    if plan:
        return draw("observation", name, fn, labels)
    return draw("sensor", name, fn, labels) if is_sensing() else None


def memory(name: str, value: ArrayLike, size: int, *, labels: Sequence[str] | None = None) -> Array:
    """What the policy remembers: its first content before the rollout, its new content inside a step.

    Inside a step it comes after the observations. The policy of a plan sees it beside the visible states, so that later
    controls can depend on what was observed.

    :param value: a whole number from 0 to ``size - 1``, computed from the old content, visible states, the control and
        observations (before the rollout from visible states only).
    :return: the content, for the rollout's carry.

    >>> def step(told, t):
    ...     y = observation("y", DeterministicCategorical(jnp.asarray(1), 2))
    ...     return memory("told", jnp.maximum(told, y + 1), 3)
    >>> with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as sites:
    ...     _ = rollout(step, memory("told", 0, 3), 2)
    >>> {name: int(site["value"]) for name, site in sites.items()}
    {'told_0': 0, 'y_1': 1, 'told_1': 2, 'y_2': 1, 'told_2': 2}
    """
    if not jnp.issubdtype(jnp.result_type(value), jnp.integer):
        raise ModelError(f"memory '{name}': found {jnp.result_type(value)}, expected integers from 0 to {size - 1}")
    size = whole_number(size, f"memory '{name}': its size", 1)
    if size > MOST_CONTENTS:
        raise ModelError(f"memory '{name}': found {size:,} contents, expected at most {MOST_CONTENTS:,}")
    return send("memory", _remember, name, value, size, None if labels is None else tuple(labels))


def history(
    name: str, length: int, sizes: Mapping[str, int], past: ArrayLike | None = None, **values: ArrayLike
) -> Array:
    """A memory of the last steps: before the rollout an empty one, inside a step the old one with this step's values.

    :param length: how many steps are remembered; (values of a step + 1)^length contents, a million of them at most.
    :param sizes: by name, the number of values of everything remembered (visible states, controls, observations).
    :param past: inside a step, what was remembered before.
    :param values: inside a step, this step's values by name.

    >>> def step(past, t):
    ...     y = observation("y", DeterministicCategorical(jnp.asarray(1), 2))
    ...     return history("past", 2, {"y": 2}, past, y=y)
    >>> with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as sites:
    ...     _ = rollout(step, history("past", 2, {"y": 2}), 2)
    >>> [int(sites[name]["value"]) for name in ("past_0", "past_1", "past_2")]  # in base 3: 00, 02, 22
    [0, 2, 8]
    """
    length = whole_number(length, f"history '{name}': its length", 1)
    check_history(f"history '{name}'", length, sizes)
    base = _each_step(sizes)
    if past is None:
        return memory(name, 0, base**length, labels=_history_labels(sizes, length))
    if values.keys() != sizes.keys():
        raise ModelError(f"history '{name}': found values of {sorted(values)}, expected those of {sorted(sizes)}")
    digit: Any = 0
    for what, size in sizes.items():
        digit = digit * size + values[what]
    return memory(name, past % base ** (length - 1) * base + digit + 1, base**length)  # never above it


def check_history(what: str, length: int, sizes: Mapping[str, int]) -> None:
    """Refuse a history with more contents than a memory may have, before any of them is listed."""
    each = _each_step(sizes)

    def fits(steps: int) -> bool:
        return each ** min(steps, MOST_CONTENTS.bit_length()) <= MOST_CONTENTS  # as every step has two values or more

    if not fits(length):
        longest = next(steps for steps in itertools.count() if not fits(steps + 1))
        raise ModelError(
            f"{what}: found {length} steps of {each:,} values each, {each:,}^{length} contents; expected at most "
            f"{MOST_CONTENTS:,}, a length of {longest} (aif.SearchSolver with a RecallGuide remembers everything)"
        )


def _each_step(sizes: Mapping[str, int]) -> int:
    """The number of values of one remembered step; 0 stands for one that has not happened yet."""
    return math.prod(int(size) for size in sizes.values()) + 1


def _history_labels(sizes: Mapping[str, int], length: int) -> tuple[str, ...]:
    """Each content in words, the oldest step first."""
    steps = ["–"] + [
        " ".join(f"{name}{value}" for name, value in zip(sizes, values, strict=True))
        for values in itertools.product(*(range(size) for size in sizes.values()))
    ]
    return tuple(", ".join(parts) for parts in itertools.product(steps, repeat=length))


def _remember(name: str, value: ArrayLike, size: int, labels: tuple[str, ...] | None) -> Array:
    """Under plain NumPyro a memory is a deterministic site."""
    if is_concrete(value) and np.size(value):
        low, high = int(np.min(np.asarray(value))), int(np.max(np.asarray(value)))
        if low < 0 or high >= size:
            raise ModelError(f"memory '{name}': found {low}..{high}, expected 0..{size - 1} (its size is {size})")
    return numpyro.deterministic(f"{name}_{now()}", jnp.asarray(value))


def preference(name: str, log_factor: ArrayLike) -> None:
    """A preference log p̂ (up to a constant): finite, and not jointly dependent on a control and an observation.

    >>> with numpyro.handlers.trace() as sites:
    ...     _ = rollout(lambda x, t: preference("goal", jnp.where(t == 2, 4.0, 0.0)), None, 2)
    >>> {name: float(site["fn"].log_factor) for name, site in sites.items()}
    {'goal_1': 0.0, 'goal_2': 4.0}
    """
    inside("preference", name)
    check_name("preference", name)
    try:
        log = jnp.asarray(log_factor)
    except (TypeError, ValueError) as error:
        raise ModelError(f"preference '{name}': found {log_factor!r}, expected a number") from error
    if not (log.dtype == bool or jnp.issubdtype(log.dtype, jnp.integer) or jnp.issubdtype(log.dtype, jnp.floating)):
        raise ModelError(f"preference '{name}': found {log.dtype}, expected real numbers")
    unit = dist.Unit(log)  # as of numpyro.factor, with a role
    infer = {"is_auxiliary": True, ROLE: Role("preference", name)}
    sample_site(f"{name}_{now()}", unit, infer, obs=unit.sample(None))


def rollout(step: Callable[[Any, Any], Any], carry: Any, horizon: int | Array) -> Any:
    """Roll the world into the future: ``carry = step(carry, t)`` for t = 1 … horizon.

    The carry is whatever the step needs of the last slice's states. Under plain NumPyro the steps unroll
    into time-indexed sites; a planner reads the step once, with ``t`` an array, so neither ``t`` nor a
    site may steer a Python ``if``.

    >>> rollout(lambda carry, t: carry + [t], [], 3)
    [1, 2, 3]
    """
    check_horizon(horizon)
    if now() != 0:
        raise ModelError("rollout: found a rollout inside a step, expected exactly one rollout in a model")
    return send("rollout", _unroll, step, carry, horizon)


def check_horizon(horizon: int | Array, name: str = "horizon") -> None:
    """Refuse a horizon that is not a positive whole number (where its value is known)."""
    if not is_concrete(horizon):
        return
    if np.ndim(horizon) != 0 or not np.issubdtype(np.asarray(horizon).dtype, np.integer) or int(horizon) < 1:
        raise ModelError(f"{name}: found {horizon!r}, expected a whole number of steps, at least 1")


def declared_horizon(model: Callable[..., Any]) -> int | None:
    """The horizon that a model declares in its signature, ``horizon=4``; None if it declares none."""
    declared = inspect.signature(model).parameters.get("horizon")
    return declared.default if declared is not None and isinstance(declared.default, int) else None


def default_horizon(model: Callable[..., Any]) -> int:
    """The horizon that a model declares in its signature; refused if it declares none."""
    declared = declared_horizon(model)
    if declared is None:
        raise ValueError("horizon: found None, expected a number of steps (the model declares no default)")
    return declared


def _unroll(step: Callable[[Any, Any], Any], carry: Any, horizon: int | Array) -> Any:
    if not is_concrete(horizon):
        raise ModelError(
            "rollout: found a traced horizon while unrolling under plain NumPyro, expected a Python int "
            "(a traced horizon works in a Planner)"
        )
    for t in range(1, int(horizon) + 1):
        with clock(t):
            carry = step(carry, t)
    return carry
