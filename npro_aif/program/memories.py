"""The loop of a world (what its policy sees, and the table of its memories) from one evaluation of a program."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.errors import ModelError
from npro_aif.numerics import is_concrete
from npro_aif.program.axes import CONTROL, FIRST_OBSERVATION, MEMORY, NEXT, STATE, TIME, axis_name
from npro_aif.program.reading import Memory, Reading
from npro_aif.program.signature import Signature, join, split
from npro_aif.tables.closed_loop import ClosedLoop
from npro_aif.tables.loop import Loop
from npro_aif.tables.open_loop import OpenLoop
from npro_aif.tables.world import World

REMEDY = "a memory is made of its old content, visible states, the control and planned observations"


class Memories(NamedTuple):
    """All memory sites together."""

    first: Array  # (X|1,) the first content, flat
    update: Array  # (T|1, M, X'|1, U|1, Y) the next content, flat; Y over the sites that it reads, in C order
    read: tuple[str, ...]

    @property
    def reads_control(self) -> bool:
        return self.update.shape[3] > 1


def lay_memories(reading: Reading, signature: Signature, sizes: dict[int, int]) -> Memories:
    """The memories' tables, checked for the axes that they may have."""
    names = [site.name for site in signature.observation]
    first: Array = jnp.zeros((1,), jnp.int32)
    update: Array = jnp.zeros((1,) * (4 + len(names)), jnp.int32)  # (t, m, x', u, y_1, y_2, …)
    strides, stride = {}, signature.num_memories
    for site in signature.memory:
        stride //= site.size
        strides[site.name] = stride
    for memory in reading.memories:
        allowed = {STATE} if memory.initial else {TIME, MEMORY, NEXT, CONTROL}
        seen = [] if memory.initial else [FIRST_OBSERVATION - i for i in range(len(names))]
        table = _with_all_axes(memory, sizes, allowed | set(seen), signature)
        value = jnp.clip(table, 0, memory.size - 1) * strides[memory.name]  # values out of range are reported later
        order = [STATE] if memory.initial else [TIME, MEMORY, NEXT, CONTROL, *seen]
        content = jnp.transpose(value, [*(len(sizes) + axis for axis in order), *_rest(order, len(sizes))])
        content = content.reshape(content.shape[: len(order)])
        if memory.initial:
            first = first + content
        else:
            update = update + content
    read = tuple(name for name, size in zip(names, update.shape[4:], strict=True) if size > 1)
    shape = (update.shape[0], signature.num_memories, *update.shape[2:])
    return Memories(first, jnp.broadcast_to(update, shape).reshape(*shape[:4], -1), read)


def _rest(order: list[int], ndim: int) -> list[int]:
    return [i for i in range(ndim) if i - ndim not in order]


def _with_all_axes(memory: Memory, sizes: dict[int, int], allowed: set[int], signature: Signature) -> Array:
    shape = memory.value.shape
    if len(shape) > len(sizes) or any(n not in (1, sizes[i - len(shape)]) for i, n in enumerate(shape)):
        raise ModelError(
            f"memory '{memory.name}': found a table of shape {shape} that does not fit the axes of the sites; an index "
            "broadcasts wrongly: expected TABLE[m, y], not TABLE[:, m]"
        )
    for i, size in enumerate(shape):
        axis = i - len(shape)
        if size > 1 and axis not in allowed:
            raise ModelError(
                f"memory '{memory.name}': found a content that depends on {axis_name(axis, signature)}; expected: "
                f"{REMEDY}"
            )
    return memory.value.reshape((1,) * (len(sizes) - len(shape)) + shape)


def class_members(signature: Signature) -> np.ndarray:
    """The states x of each visible state v, (V, H)."""
    values = split(np.arange(signature.num_states), signature.state)
    visible = np.broadcast_to(np.asarray(join(values, signature.visible)), (signature.num_states,))
    return np.argsort(visible, kind="stable").reshape(signature.num_visible, -1).astype(np.int32)


def make_loop(signature: Signature, memory: Memories, members: np.ndarray, num_controls: int) -> Loop:
    """The loop of a world.

    :param num_controls: how many controls are told apart after the move.
    """
    if not signature.is_closed and num_controls == 1:
        return OpenLoop()
    visible = np.empty(signature.num_states, np.int32)
    visible[members] = np.arange(signature.num_visible, dtype=np.int32)[:, None]
    return ClosedLoop(
        visible=jnp.asarray(visible),
        members=jnp.asarray(members),
        first=jnp.broadcast_to(memory.first, (signature.num_states,)),
        update=memory.update,
        num_memories=signature.num_memories,
        num_controls=num_controls,
        read=memory.read,
    )


def check_loop(world: World) -> None:
    """Refuse a control prior or a memory that sees a hidden state (in a world whose numbers are known)."""
    signature = world.signature
    hidden = [site.name for site in signature.state if site.hidden]
    if not hidden or not is_concrete(world.control):
        return
    members = class_members(signature)
    what = f"the hidden state {' or '.join(map(repr, hidden))}"

    def sees(table: Array, axis: int) -> bool:
        if table.shape[axis] == 1:
            return False
        rows = np.take(np.asarray(table), members, axis)
        return bool((rows != np.take(rows, [0], axis + 1)).any())

    if sees(world.control, 1):
        raise ModelError(
            f"site '{signature.control[0].name}': found a prior that depends on {what}, expected visible states only "
            "(the policy does not see it)"
        )
    loop = world.loop
    for table, axis in ((loop.first, 0), (loop.update, 2)):  # type: ignore[attr-defined]
        if sees(table, axis):
            name = signature.memory[0].name
            raise ModelError(f"memory '{name}': found a content that depends on {what}; expected: {REMEDY}")
