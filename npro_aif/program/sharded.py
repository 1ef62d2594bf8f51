"""Beliefs and tables of a program whose parameters are laid over devices: each device makes those of its own.

A device has a contiguous stretch of the parameters; impossible ones are left out of its tables. No device and no
process holds all parameters.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from npro_aif.belief import ROW_SUM_TOLERANCE, Belief, check_sums, is_sparse
from npro_aif.errors import ModelError
from npro_aif.numerics import safe_log
from npro_aif.program.blank import blank_belief, check_blank
from npro_aif.program.checks import check_belief, check_size
from npro_aif.program.program import Fixed, Program
from npro_aif.program.signature import Signature
from npro_aif.shards import Shards
from npro_aif.tables.world import World

FEW_ROWS, GROWTH_FEW = 256, 4  # up to so many compiling costs far more than what it compiles: 16, 64 and 256
PARAMETERS = 0  # the axis of a belief's tables that is laid over the devices


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("parameter", "state"), meta_fields=("num_parameters", "shards")
)
@dataclass(frozen=True)
class ShardedBelief:
    """A joint belief p(θ) p(x|θ) whose parameters are laid over devices.

    :param num_parameters: how many parameters there are; rows beyond that are padding, with no belief.

    >>> import jax, numpy as np
    >>> from npro_aif.models.tmaze import initial_belief
    >>> mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("parameter",))
    >>> whole = initial_belief()
    >>> belief = ShardedBelief.of(mesh, lambda theta: Belief(whole.parameter[theta], whole.state[theta]), 2)
    >>> belief.whole().parameter.tolist()
    [0.5, 0.5]
    """

    parameter: Array  # (Θ',) p(θ)
    state: Array  # (Θ', X) p(x|θ)
    num_parameters: int
    shards: Shards

    @classmethod
    def of(cls, mesh: Mesh, rows: Callable[[np.ndarray], Belief], num_parameters: int) -> ShardedBelief:
        """The belief whose rows a function makes, which is called once for each device of this process.

        :param rows: from the flat indices of parameters, (K,), to a belief with their p(θ), (K,), and p(x|θ), (K, X).
        """
        shards = Shards(mesh)
        shards.check_context()
        _check_arguments(rows, num_parameters)
        per_device = shards.padded(num_parameters) // shards.count
        parts = []
        for place, device in enumerate(shards.mesh.devices.flat):
            if device.process_index == jax.process_index():
                first = min(place * per_device, num_parameters - 1)  # a device may hold nothing but padding
                theta = np.arange(first, max(first + 1, min((place + 1) * per_device, num_parameters)), dtype=np.int32)
                part = _padded(_checked(rows(theta), theta), per_device, empty=place * per_device >= num_parameters)
                parts.append(jax.device_put(part, device))
        _check_states(parts, shards)

        parameter, state = jax.tree.map(lambda *tables: _joined(list(tables), shards), *parts)
        belief = cls(parameter, state, num_parameters, shards)
        total = float(_total(belief.parameter, shards))
        if not abs(total - 1) <= ROW_SUM_TOLERANCE:
            raise ModelError(f"belief.parameter: found rows that sum to {total:.6g} on all devices, expected 1")
        return belief

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of parameters and states, without padding."""
        return self.num_parameters, self.state.shape[1]

    def whole(self) -> Belief:
        """The whole belief, on every process; a belief that was laid over devices because of its size may not fit."""
        return Belief(*(jnp.asarray(_everywhere(t, self.shards)[: self.num_parameters]) for t in self.tables))

    @property
    def tables(self) -> Belief:
        return Belief(self.parameter, self.state)

    def _replace(self, **tables: Array) -> ShardedBelief:
        """The belief with other tables, as ``Belief._replace``."""
        return replace(self, **tables)  # type: ignore[arg-type]

    def each_device(self, function: Callable[[Belief], np.ndarray]) -> np.ndarray:
        """The numbers that a function makes of every device's rows, (D, K), on every process.

        :param function: from a device's rows to (K,) numbers; it is called once for each device of this process.
        """
        parts = []
        for device_shards in zip(*(table.addressable_shards for table in self.tables), strict=True):
            rows = function(Belief(*(np.asarray(shard.data) for shard in device_shards)))
            parts.append(jax.device_put(rows[None], device_shards[0].device))
        return _everywhere(_joined(parts, self.shards), self.shards)


def num_bytes(belief: Belief | ShardedBelief) -> int:
    """The bytes of a belief; of one over devices those on all of them together, the same number on every process."""
    return sum(table.nbytes for table in (belief.tables if isinstance(belief, ShardedBelief) else belief))


def mean_state(belief: Belief | ShardedBelief) -> np.ndarray:
    """p(x), (X,), on every process."""
    if isinstance(belief, ShardedBelief):
        return belief.each_device(lambda own: np.asarray(own.parameter) @ np.asarray(own.state)).sum(0)
    return np.asarray(belief.parameter) @ (belief.state if is_sparse(belief) else np.asarray(belief.state))


def lay(belief: Belief | ShardedBelief, shards: Shards, signature: Signature) -> ShardedBelief:
    """A belief of a program over these devices; a whole belief, which every process holds, is divided."""
    shards.check_context()
    if isinstance(belief, ShardedBelief):
        check_size(belief.shape, signature)
        if belief.shards != shards:
            raise ValueError(
                f"belief: found one that is laid over {belief.shards.mesh}, expected the planner's or filter's own "
                f"mesh, {shards.mesh}"
            )
        return belief
    check_belief(belief, signature)
    share, states = np.asarray(belief.parameter), belief.state if is_sparse(belief) else np.asarray(belief.state)
    return ShardedBelief.of(shards.mesh, lambda theta: Belief(share[theta], states[theta]), len(share))


def _check_arguments(rows: Any, num_parameters: Any) -> None:
    if not callable(rows):
        raise ValueError(f"rows: found {type(rows).__name__}, expected a function from indices of parameters to rows")
    whole = isinstance(num_parameters, numbers.Integral) and not isinstance(num_parameters, bool)
    if not whole or num_parameters < 1:
        raise ValueError(f"num_parameters: found {num_parameters!r}, expected how many there are, at least 1")


def _check_states(parts: list[Belief], shards: Shards) -> None:
    """Refuse devices with different numbers of states; every process sees those of all."""
    own = [jax.device_put(np.array([part.state.shape[1]], np.int32), part.parameter.device) for part in parts]
    sizes = _everywhere(_joined(own, shards), shards).tolist()
    if len(set(sizes)) > 1:
        raise ModelError(
            f"belief.state: found rows of {sizes} states, device by device, expected as many on every device"
        )


def _joined(parts: list[Array], shards: Shards) -> Array:
    """One array from the parts that this process's devices hold, laid over all devices along its first axis."""
    shape = parts[0].shape[0] * shards.count, *parts[0].shape[1:]
    return jax.make_array_from_single_device_arrays(shape, shards.sharding(PARAMETERS), parts)


def _checked(part: Any, theta: np.ndarray) -> Belief:
    """The rows that a function made for some parameters, checked."""
    if not isinstance(part, Belief):
        raise ModelError(
            f"rows: found a function that returns {type(part).__name__}, expected aif.Belief(parameter, state) with "
            "p(θ) and p(x|θ) of the parameters that it is asked for"
        )
    count = len(theta)
    shapes = tuple(np.shape(table) for table in part)
    if shapes[0] != (count,) or len(shapes[1]) != 2 or len(part.state) != count:
        raise ModelError(f"belief: found rows of shapes {shapes}, expected ({count},) and ({count}, X)")
    share = np.asarray(part.parameter)
    states = np.asarray(part.state)
    check_sums(states, first=int(theta[0]))
    if (share < 0).any() or (states < 0).any():
        raise ModelError("belief: found a negative probability, expected at least 0")
    dtype = jnp.result_type(float)
    return Belief(share.astype(dtype), states.astype(dtype))


def _padded(part: Belief, count: int, *, empty: bool) -> Belief:
    extra = count - len(part.parameter)
    share = np.zeros_like(part.parameter) if empty else part.parameter
    return Belief(np.pad(share, (0, extra)), np.pad(part.state, ((0, extra), (0, 0)), mode="edge"))


def _total(parameter: Array, shards: Shards) -> np.ndarray:
    return np.asarray(jax.jit(jnp.sum, out_shardings=shards.sharding())(parameter))


def _everywhere(table: Array, shards: Shards) -> np.ndarray:
    return np.asarray(_copied(table, shards))


@functools.partial(jax.jit, static_argnums=1)
def _copied(table: Array, shards: Shards) -> Array:
    return jax.lax.with_sharding_constraint(table, shards.sharding())


# --- Some of the rows ---------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """Some parameters of one device and the belief about them; padding comes last and has no belief."""

    theta: Array  # (K,) flat indices
    valid: Array  # (K,) False for padding
    parameter: Array  # (K,) p(θ)
    state: Array  # (K, X) p(x|θ)
    place: Array  # (K,) their places among all rows of the device, and one beyond the last for padding


def num_possible(belief: ShardedBelief) -> np.ndarray:
    """How many parameters are possible on each device."""
    return np.asarray(_num_possible(belief.parameter, belief.shards))


@functools.partial(jax.jit, static_argnums=1)
def _num_possible(parameter: Array, shards: Shards) -> Array:
    counts = (parameter > 0).reshape(shards.count, -1).sum(1)
    return jax.lax.with_sharding_constraint(counts, shards.sharding())


def possible_rows(belief: Belief, count: int, shards: Shards, num_parameters: int) -> Rows:
    """A device's possible parameters, at most ``count``.

    :param belief: the device's rows of a belief.
    """
    size = len(belief.parameter)
    place = jnp.nonzero(belief.parameter > 0, size=count, fill_value=size)[0]
    inside = jnp.minimum(place, size - 1)
    first = jax.lax.axis_index(shards.axes) * size
    return Rows(
        theta=jnp.minimum(first + inside, num_parameters - 1).astype(jnp.int32),
        valid=place < size,
        parameter=jnp.where(place < size, belief.parameter[inside], 0.0),
        state=belief.state[inside],
        place=place,
    )


def rounded(count: int, most: int, *, finely: bool = False) -> int:
    """The size that ``count`` rows are padded to: each compiles once, and a belief that narrows meets few of them.

    :param finely: in steps of at most an eighth and not of at most a half, for what takes longer than compiling.

    >>> [rounded(count, 10_000) for count in (1, 5, 70, 600, 2500, 9000)]
    [16, 16, 256, 768, 3072, 10000]
    >>> [rounded(count, 10_000, finely=True) for count in (70, 600, 2500, 9000)]
    [256, 640, 2560, 9216]
    """
    size = FEW_ROWS // GROWTH_FEW**2
    while size < min(count, FEW_ROWS):
        size *= GROWTH_FEW
    if count > FEW_ROWS:
        step = 1 << (count - 1).bit_length() - (4 if finely else 2)
        size = -(-count // step) * step
    return max(2, min(most, size))  # with one the tables would not show that θ matters


# --- The tables ---------------------------------------------------------------------------------------------


def check_program(program: Program) -> None:
    """Refuse a program whose tables cannot be made for some parameters from their part of the belief alone."""
    check_blank(program, "mesh")


def bind_rows(program: Program, fixed: Fixed, horizon: Array | int, rows: Rows, control: Array | None = None) -> World:
    """The world of some parameters, from their part of the belief; see :meth:`Program.bind`."""
    world = program.bind(fixed, blank_belief(program.signature), horizon, rows.theta, None, control)
    return world._replace(parameter=safe_log(rows.parameter), initial=safe_log(rows.state))


def parameter_axes(tables: Callable[[int], Any]) -> list[int | None]:
    """The axis of parameters of each array, which is the one that grows with their number; None where there is none.

    :param tables: from a number of parameters to arrays (or their shapes).
    """

    def axis(few: Any, more: Any) -> int | None:
        grown = [i for i, (a, b) in enumerate(zip(few.shape, more.shape, strict=True)) if a != b]
        assert len(grown) <= 1, (few.shape, more.shape)
        return grown[0] if grown else None

    return [axis(*pair) for pair in zip(jax.tree.leaves(tables(3)), jax.tree.leaves(tables(4)), strict=True)]


def readable(belief: Any) -> Any:
    """A belief with which a program can be read: one that is laid over devices is replaced by one of its shape."""
    if not isinstance(belief, ShardedBelief):
        return belief
    shapes = belief.shape[:1], belief.shape
    return Belief(*(jnp.full(shape, 1 / shape[-1]) for shape in shapes))
