"""What the modelling language is made of: NumPyro sites with a role, the time in their names, and who reads them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike

from npro_aif._numpyro import send
from npro_aif.errors import ModelError
from npro_aif.numerics import normalize

ROLE = "npro_aif"  # the key of a site's Role in its `infer` dictionary
SLICE = "t"  # the clock's reading while one step stands for all times


class Role(NamedTuple):
    """What a site is in the planning problem."""

    kind: str  # "parameter", "state", "control", "observation", "sensor" (one with plan=False) or "preference"
    site: str  # the name that the user gave, without the time index
    labels: tuple[str, ...] | None = None
    hidden: bool | None = None  # of a state: True where the policy does not see it


class Expecting(Protocol):
    """A reader of programs, which is told of every site before and after the site is drawn."""

    def expect(self, full_name: str) -> None: ...

    def arrived(self, full_name: str) -> None: ...


_CLOCK: ContextVar[int | str] = ContextVar("npro_aif_clock", default=0)
_SENSING: ContextVar[bool] = ContextVar("npro_aif_sensing", default=False)
_READER: ContextVar[Expecting | None] = ContextVar("npro_aif_reader", default=None)


@contextlib.contextmanager
def _set(variable: ContextVar, value: Any) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def now() -> int | str:
    """The time index of the sites that are drawn now."""
    return _CLOCK.get()


def is_sensing() -> bool:
    """Whether observations marked ``plan=False`` are emitted now."""
    return _SENSING.get()


def clock(value: int | str) -> contextlib.AbstractContextManager[None]:
    """Let the sites drawn inside carry the time index ``value``."""
    return _set(_CLOCK, value)


def read_by(reader: Expecting | None) -> contextlib.AbstractContextManager[None]:
    """Tell ``reader`` of the sites drawn inside: it then knows of those that a handler hides from it."""
    return _set(_READER, reader)


def sensing() -> contextlib.AbstractContextManager[None]:
    """Let the observations marked ``plan=False`` be emitted inside."""
    return _set(_SENSING, True)


def outside(what: str, name: str) -> None:
    if _CLOCK.get() != 0:
        raise ModelError(f"site '{name}': found {what} inside a rollout's step, expected it before the rollout")


def inside(what: str, name: str) -> None:
    if _CLOCK.get() == 0:
        raise ModelError(f"site '{name}': found {what} outside a rollout, expected it inside the step")


def draw(
    kind: str, name: str, fn: dist.Distribution, labels: Sequence[str] | None = None, hidden: bool | None = None
) -> Array:
    check_name("site", name)
    if not isinstance(fn, dist.Distribution):
        raise ModelError(f"site '{name}': found {type(fn).__name__}, expected a NumPyro distribution")
    role = Role(kind, name, None if labels is None else tuple(labels), hidden)
    full_name = name if kind == "parameter" else f"{name}_{_CLOCK.get()}"
    return sample_site(full_name, fn, {ROLE: role})  # a fresh dict: handlers write into it


def sample_site(full_name: str, fn: dist.Distribution, infer: dict[str, Any], obs: Any = None) -> Array:
    reader = _READER.get()
    if reader is None:
        return numpyro.sample(full_name, fn, obs=obs, infer=infer)
    reader.expect(full_name)
    value = numpyro.sample(full_name, fn, obs=obs, infer=infer, rng_key=unused_key())
    reader.arrived(full_name)
    return value


@functools.cache
def unused_key() -> Array:
    """A key for a site whose value is given: a ``seed`` handler would otherwise make one, and keep a traced value."""
    with jax.ensure_compile_time_eval():
        return jax.random.key(0)


def check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not name:
        raise ModelError(f"{what} '{name}': found no name, expected a string that is not empty")


def draw_joint(
    kind: str, sizes: Mapping[str, int], probs: ArrayLike, labels: Mapping[str, Sequence[str]]
) -> dict[str, Array]:
    total = int(np.prod(list(sizes.values())))
    if jnp.ndim(probs) < 1 or jnp.shape(probs)[-1] != total:
        raise ModelError(
            f"sites {', '.join(map(repr, sizes))}: found a joint table whose last axis is "
            f"{jnp.shape(probs)[-1:]}, expected {total} (the product of {dict(sizes)})"
        )
    return send("joint_draw", _chain, kind, dict(sizes), probs, dict(labels))


def _chain(
    kind: str, sizes: Mapping[str, int], probs: ArrayLike, labels: Mapping[str, Sequence[str]]
) -> dict[str, Array]:
    draws = {name: functools.partial(draw, kind, name, labels=labels.get(name)) for name in sizes}
    return chain(draws, list(sizes.values()), jnp.asarray(probs))


def chain(
    draws: Mapping[str, Callable[[dist.Distribution], Array]], sizes: Sequence[int], probs: Array
) -> dict[str, Array]:
    """Draw several sites from one joint table (…, product of sizes), each given those before it."""
    values: dict[str, Array] = {}
    for (name, draw), size in zip(draws.items(), sizes, strict=True):
        probs = probs.reshape((*probs.shape[:-1], size, -1))  # (…, this site, all after it)
        values[name] = draw(dist.Categorical(probs=normalize(probs.sum(-1))))
        probs = take_row(probs, values[name])
    return values


def take_row(table: Array, index: ArrayLike) -> Array:
    """Row ``index`` of the second last axis of ``table`` (…, n, m), where index broadcasts against …: (…, m)."""
    index = jnp.asarray(index)
    ndim = max(table.ndim - 2, index.ndim)
    table = table.reshape((1,) * (ndim + 2 - table.ndim) + table.shape)
    index = index.reshape((1,) * (ndim - index.ndim) + index.shape)
    if ndim == 0:
        return jax.lax.dynamic_index_in_dim(table, index, 0, keepdims=False)
    return jnp.take_along_axis(table, index[..., None, None], axis=-2)[..., 0, :]
