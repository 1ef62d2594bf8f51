"""Parameters laid over devices: each holds the tables of its own parameters, and sums are made over all of them.

Inside :func:`laid_over` arrays look whole and XLA divides them among the devices. Where an index hides which parameter
is meant, XLA would gather whole arrays; such computations go through :func:`summed` and :func:`each`. Inside
:meth:`Shards.run` arrays are one device's own.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

Laid = tuple[Array, int | None]  # an array and its axis of parameters, if it has one; its size may be 1


@dataclass(frozen=True)
class Shards:
    """Devices, each with as many parameters as the others.

    :param mesh: the devices; all its axes together are the one that parameters are laid along. Whatever the types of
        its axes (those of ``jax.make_mesh`` are explicit), arrays are laid out by :meth:`placed` and by XLA.

    >>> Shards(jax.make_mesh((1,), ("parameter",))) == Shards(Mesh(np.asarray(jax.devices()[:1]), ("parameter",)))
    True
    """

    mesh: Mesh

    def __post_init__(self) -> None:
        if not isinstance(self.mesh, Mesh) or self.mesh.empty:
            raise ValueError(
                f"mesh: found {self.mesh!r}, expected a jax.sharding.Mesh with devices: "
                'jax.sharding.Mesh(np.asarray(jax.devices()), ("parameter",))'
            )
        names = self.mesh.axis_names
        automatic = Mesh(self.mesh.devices, names, axis_types=(AxisType.Auto,) * len(names))
        object.__setattr__(self, "mesh", automatic)  # the class is frozen

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"mesh: found {self.mesh} in what is to be pickled, expected none, as devices belong to this process: make "
            "the planner, the filter or the belief where it is used, with a mesh of that process (belief.whole() is a "
            "belief without one, if it fits; to an executor give a planner without a mesh)"
        )

    def __copy__(self) -> Shards:
        return self

    def __deepcopy__(self, memo: Any) -> Shards:
        return self

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(self.mesh.axis_names)

    @property
    def count(self) -> int:
        """The number of devices."""
        return self.mesh.size

    @property
    def local(self) -> int:
        """How many of them belong to this process."""
        return len(self.mesh.local_devices)

    def spec(self, axis: int | None) -> PartitionSpec:
        """The layout of an array whose given axis is laid over the devices; with None it is the same on all of them."""
        return PartitionSpec() if axis is None else PartitionSpec(*([None] * axis), self.axes)

    def sharding(self, axis: int | None = None) -> NamedSharding:
        return NamedSharding(self.mesh, self.spec(axis))

    def placed(self, table: Array, axis: int | None = None) -> Array:
        """In compiled code: a table that is laid over the devices along an axis, or the same on all."""
        return jax.lax.with_sharding_constraint(table, self.sharding(axis))

    def padded(self, count: int) -> int:
        """The least number from ``count`` up that the devices share evenly.

        >>> Shards(Mesh(np.asarray(jax.devices()[:1]), ("parameter",))).padded(7)
        7
        """
        return -(-count // self.count) * self.count

    def check_context(self) -> None:
        """Refuse explicit axes that ``jax.set_mesh`` set around a call: XLA could not part arrays by itself."""
        around = jax.sharding.get_abstract_mesh()
        if AxisType.Explicit in around.axis_types:
            raise ValueError(
                f"mesh: found a call inside of jax.set_mesh with the explicit axes {around.axis_names}, expected it "
                "outside (the planner, the filter and the belief have the mesh that they were given)"
            )

    def everywhere(self, tree: Any) -> Any:
        """The same numbers on every device; every process must hold them."""
        return jax.tree.map(lambda leaf: self._put(leaf, None), tree)

    def parted(self, tree: Any) -> Any:
        """Arrays whose first axis is shared evenly by the devices; every process must hold all of it."""
        return jax.tree.map(lambda leaf: self._put(leaf, 0), tree)

    def _put(self, leaf: Any, axis: int | None) -> Array:
        if isinstance(leaf, Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            words = self._put(jax.random.key_data(leaf), axis)
            return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))
        if isinstance(leaf, Array) and leaf.sharding == self.sharding(axis):
            return leaf
        table = np.asarray(leaf)
        return jax.make_array_from_callback(table.shape, self.sharding(axis), lambda place: table[place])

    def run(
        self, function: Callable[..., Any], in_specs: Any, out_specs: Any, *, together: bool = True
    ) -> Callable[..., Any]:
        """A function of each device's own arrays.

        :param together: whether the devices hold the parameters of one problem, so that a sum over parameters is one
            over all devices; otherwise each device has problems of its own.
        """

        def own(*arguments: Any) -> Any:
            with _set(_OWN, self if together else None), _set(_APART, self):
                return function(*arguments)

        return jax.shard_map(own, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


_WHOLE: contextvars.ContextVar[Shards | None] = contextvars.ContextVar("_WHOLE", default=None)
_OWN: contextvars.ContextVar[Shards | None] = contextvars.ContextVar("_OWN", default=None)
_APART: contextvars.ContextVar[Shards | None] = contextvars.ContextVar("_APART", default=None)


@contextlib.contextmanager
def _set(variable: contextvars.ContextVar[Shards | None], shards: Shards | None) -> Iterator[None]:
    token = variable.set(shards)
    try:
        yield
    finally:
        variable.reset(token)


def laid_over(shards: Shards) -> contextlib.AbstractContextManager[None]:
    """A context for tracing code whose arrays have parameters laid over these devices."""
    return _set(_WHOLE, shards)


def are_laid() -> bool:
    """Whether the arrays that are being traced look whole, and have parameters laid over devices."""
    return _WHOLE.get() is not None


def laid_devices() -> Shards | None:
    """The devices over which they are laid."""
    return _WHOLE.get()


def are_own() -> bool:
    """Whether the arrays that are being traced are those of one device."""
    return _OWN.get() is not None


def are_apart() -> bool:
    """Whether code is being traced that each device runs by itself."""
    return _APART.get() is not None


def after(value: Array, array: Array) -> Array:
    """The same array, which compiled code has no earlier than ``value``, a number that is never NaN.

    XLA runs a loop and another computation in any order, or side by side, if neither depends on the other. Where
    devices sum in both, processes that took them in different orders would add up what does not belong together.
    """
    return jnp.where(jnp.isnan(value), jnp.zeros_like(array), array)


def of_all(count: int) -> int:
    """The number of parameters on all devices, from the number on each."""
    shards = _OWN.get()
    return count if shards is None else count * shards.count


def least_of_all(table: Array) -> Array:
    """The least over the last axis, that of parameters: those of all devices, where each holds its own."""
    least, shards = table.min(-1), _OWN.get()
    return least if shards is None else jax.lax.pmin(least, shards.axes)


def summed(function: Callable[..., Array], *laid: Laid, loops: bool = False) -> Array:
    """The sum over parameters that ``function`` computes; over devices, each first sums its own parameters.

    :param loops: whether the function has loops that begin with constants, which JAX cannot check; it must then not be
        differentiated.
    """
    return _joined(jax.lax.psum, function, laid, check=not loops)


def largest(function: Callable[..., Array], *laid: Laid) -> Array:
    """The largest of the values that ``function`` computes from each device's own parameters."""
    return _joined(jax.lax.pmax, function, laid, check=False)


def _joined(
    join: Callable[..., Array], function: Callable[..., Array], laid: tuple[Laid, ...], *, check: bool
) -> Array:
    shards = _WHOLE.get()
    if shards is None:
        return function(*(array for array, _ in laid))
    total = jax.shard_map(
        lambda *arrays: join(function(*arrays), shards.axes),
        mesh=shards.mesh,
        in_specs=_specs(shards, laid),
        out_specs=PartitionSpec(),
        check_vma=check,
    )
    return total(*(array for array, _ in laid))


def each(function: Callable[..., Any], out_axis: int, *laid: Laid) -> Any:
    """A function that treats every parameter by itself, so that each device runs it for its own."""
    shards = _WHOLE.get()
    if shards is None:
        return function(*(array for array, _ in laid))
    mapped = jax.shard_map(
        function, mesh=shards.mesh, in_specs=_specs(shards, laid), out_specs=shards.spec(out_axis), check_vma=False
    )
    return mapped(*(array for array, _ in laid))


def _specs(shards: Shards, laid: tuple[Laid, ...]) -> tuple[PartitionSpec, ...]:
    return tuple(shards.spec(axis if axis is not None and array.shape[axis] > 1 else None) for array, axis in laid)
