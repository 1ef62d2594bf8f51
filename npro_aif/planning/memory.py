"""The memory of a device that a plan will take, estimated before anything is allocated."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from npro_aif.inference.objectives import Objective
from npro_aif.program.signature import Signature
from npro_aif.shards import Shards
from npro_aif.sizes import memory_bytes

# Tables (U, S, Θ) that exist at once, in a slice of a sweep. DoorKey-16x16 on two processes with 7,007 layouts each had
# a peak of 7.4 GB, of which Python, JAX and beliefs took about 1.2, flows 3.2 and tables 0.2. Row by row
# (npro_aif.tables.live) the peak is 5.8 GB, so that this number is then an upper bound.
MOVES = 6


class Memory(NamedTuple):
    """The bytes of a plan on one device."""

    tables: int  # of the world: transitions, observations, preferences
    flows: int  # q(θ, s_t) at all times, and what stands in for it where it has no mass: (T+1) · S · Θ numbers each
    moves: int  # costs and weights of a slice: some tables of U · S · Θ numbers

    @property
    def total(self) -> int:
        return sum(self)


def num_flows(solver: Any, objective: Objective) -> int:
    """The number of tables (T+1, S, Θ) that exist at once, as the solver declares it: one where it does not."""
    declared = getattr(solver, "num_flows", None)
    return 1 if declared is None else declared(objective)


def plan_memory(world: Any, signature: Signature, num_parameters: int, num_steps: int, flows: int) -> Memory:
    """The bytes of a plan with ``num_parameters`` parameters on a device.

    :param world: the shapes of the device's tables.
    :param flows: as :func:`num_flows` counts them.
    """
    item = jnp.dtype(jnp.result_type(float)).itemsize
    num_controls = signature.num_controls
    entries = signature.num_states * signature.num_memories * num_parameters
    tables = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(world))
    return Memory(tables, flows * (num_steps + 1) * entries * item, MOVES * num_controls * entries * item)


def check_device_memory(memory: Memory, shards: Shards) -> None:
    """Refuse a plan for which this process's devices have no room."""
    limit, owner = device_limit(shards)
    if memory.total > limit:
        gb = [f"{part / 2**30:.2f}" for part in memory]
        raise MemoryError(
            f"mesh: found a plan that takes {memory.total / 2**30:.2f} GB on each of {shards.count} devices (tables "
            f"{gb[0]}, flows {gb[1]}, moves {gb[2]}), expected at most {limit / 2**30:.2f} GB ({owner}): take more "
            "devices, plan fewer steps ahead (max_horizon), or use max_parameters"
        )


def device_limit(shards: Shards) -> tuple[int, str]:
    """The bytes that a device may take, and in words of what they are a share."""
    device = shards.mesh.local_devices[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"]), "the device's memory"
    return memory_bytes() // 2 // shards.local, f"half of the machine's memory for {shards.local} devices of a process"
