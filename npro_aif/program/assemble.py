"""The World of kernels, put together from the tables that one evaluation of a program records.

Every recorded table is checked for the axes that it may have, and its axes are ordered (t, θ, x, u, x'); an axis on
which it does not depend keeps size 1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.errors import ModelError
from npro_aif.program.axes import (
    CONTROL,
    FIRST_OBSERVATION,
    MEMORY,
    NEXT,
    NEXT_MEMORY,
    NUM_SLICE_AXES,
    RESERVED,
    STATE,
    THETA,
    TIME,
    axis_name,
    axis_sizes,
    observed_on,
)
from npro_aif.program.memories import class_members, lay_memories, make_loop
from npro_aif.program.reading import Draw, Reading
from npro_aif.program.signature import Signature, Site, join, split
from npro_aif.tables.dense import DenseEmission, DenseTransition
from npro_aif.tables.index import IndexEmission, IndexTransition
from npro_aif.tables.joint import merge_certain
from npro_aif.tables.kernels import Emission, Transition
from npro_aif.tables.sparse import SparseTransition
from npro_aif.tables.world import World

MAY_DEPEND = {  # kind: the axes that its table may have
    "parameter": {THETA},
    "initial": {THETA, STATE},
    "control": {TIME, STATE, CONTROL},
    "state": {TIME, THETA, STATE, CONTROL, NEXT},
    "observation": {TIME, THETA, CONTROL, NEXT},
    "sensor": {TIME, THETA, CONTROL, NEXT},
}
REMEDY = {
    "parameter": "draw parameters from the belief alone",
    "initial": "draw the present state from the belief given the parameters",
    "control": "a control's prior may depend on the previous state only (the agent does not see θ, and what it "
    "observed is in its belief)",
    "state": "a state depends on the previous state, the controls and the parameters",
    "observation": "put what it needs (the previous state) into the state, as a further state site",
}
ONLY_THE_POLICY = "only the policy and the next memory may read a memory"


def assemble(reading: Reading, signature: Signature, num_steps: int, horizon: Array, theta: Array) -> World:
    """Put the recorded tables of one evaluation together into a World."""
    sizes = axis_sizes(signature, len(theta), num_steps)
    lay = functools.partial(_lay, signature=signature, sizes=sizes)
    groups: dict[str, list[Draw]] = {"parameter": [], "initial": [], "control": [], "state": []}
    sights: dict[str, dict[str, Draw]] = {"observation": {}, "sensor": {}}
    for draw in reading.draws:
        kind = "initial" if draw.initial else draw.kind
        laid = draw._replace(
            log=None if draw.log is None else lay(draw.log, draw.names[0], kind, outcome=True),
            index=None if draw.index is None else lay(draw.index, draw.names[0], kind, outcome=draw.log is not None),
        )
        if kind in sights:
            sights[kind][draw.names[0]] = laid
        else:
            groups[kind].append(laid)

    state_values = split(np.arange(signature.num_states), signature.state)
    control_values = split(np.arange(signature.num_controls), signature.control)
    parameter = _product(groups["parameter"], split(theta, signature.parameter), THETA)
    initial = _product(groups["initial"], state_values, STATE)
    control = _product(groups["control"], control_values, CONTROL)
    edges, by_observation = _preferences(reading, signature, lay)
    num = signature.num_states
    memory = lay_memories(reading, signature, sizes)
    reads_control = memory.reads_control or any(_reads_control(draw) for draw in sights["observation"].values())
    num_controls = signature.num_controls if reads_control else 1
    observation = {name: _emission(draw, num, num_controls) for name, draw in sights["observation"].items()}
    sensor = {  # sites that only belief updates use have the axis of controls by itself
        name: _emission(draw, num, signature.num_controls if _reads_control(draw) else 1)
        for name, draw in sights["sensor"].items()
    }
    members = class_members(signature)
    return World(
        parameter=jnp.broadcast_to(parameter.reshape(-1), (len(theta),)),
        initial=jnp.broadcast_to(initial[0, :, :, 0, 0], (len(theta), num)),
        control=control[:, 0, :, :, 0],
        state=_transition(groups["state"], signature, state_values),
        observation=observation,
        sensor=sensor,
        preference=edges,
        observation_preference=by_observation,
        horizon=horizon,
        theta=theta,
        loop=make_loop(signature, memory, members, num_controls),
        certain=merge_certain(observation, jnp.asarray(members), num_controls),
        signature=signature,
    )


def _lay(table: Array, name: str, kind: str, *, outcome: bool, signature: Signature, sizes: dict[int, int]) -> Array:
    """Check the axes of a recorded table and order them (t, θ, x, u, x'[, outcome])."""
    ndim = len(sizes)
    batch = table.shape[: table.ndim - outcome]
    fits = len(batch) <= ndim and all(size in (1, sizes[i - len(batch)]) for i, size in enumerate(batch))
    if not fits:
        raise ModelError(
            f"site '{name}': found a table of batch shape {batch} that does not fit the axes of the sites; an "
            "index broadcasts wrongly: expected TABLE[x, u] with the outcome last, not TABLE[:, x]"
        )
    for i, size in enumerate(batch):
        axis = i - len(batch)
        if size > 1 and axis not in MAY_DEPEND[kind]:
            remedy = ONLY_THE_POLICY if axis in (MEMORY, NEXT_MEMORY) else REMEDY.get(kind, REMEDY["observation"])
            raise ModelError(
                f"site '{name}': found a distribution that depends on {axis_name(axis, signature)}; expected: {remedy}"
            )
    table = table.reshape((1,) * (ndim - len(batch)) + table.shape)
    table = table.reshape(table.shape[ndim - NUM_SLICE_AXES :])  # the axes of memories and observations are all 1
    order = [NUM_SLICE_AXES + axis for axis in (TIME, THETA, STATE, CONTROL, NEXT, RESERVED)]
    table = table.transpose(*order, *([NUM_SLICE_AXES] if outcome else []))
    return table.squeeze(NUM_SLICE_AXES - 1)


def _product(draws: list[Draw], values: Mapping[str, Array], axis: int) -> Array:
    """Σ over draws of log p at the values along their shared flat axis, (t, θ, x, u, x') ordered."""
    position = {THETA: 1, STATE: 2, CONTROL: 3, NEXT: 4}[axis]
    total = jnp.zeros((1,) * 5)
    for draw in draws:
        sites = tuple(Site(n, s) for n, s in zip(draw.names, draw.sizes, strict=True))
        outcome = join(values, sites)
        log = draw.log if draw.log is not None else IndexTransition(draw.index, sites[0].size).table()
        if log.shape[position] == 1:  # (…, 1, …, K) → outcome onto the shared axis
            chosen = jnp.moveaxis(jnp.take(log, outcome, axis=-1), -1, position).squeeze(position + 1)
        else:
            index = outcome.reshape((-1,) + (1,) * (5 - position))
            chosen = jnp.take_along_axis(log, index.reshape((1,) * position + index.shape), axis=-1)[..., 0]
        total = total + chosen
    return total


def _transition(draws: list[Draw], signature: Signature, values: Mapping[str, Array]) -> Transition:
    """The state sites of a slice as one kernel; one index table if all of them are certain."""
    if any(draw.index is not None and draw.log is not None for draw in draws):
        return _sparse_transition(draws, signature)
    if any(draw.index is None for draw in draws):
        return DenseTransition(_product(draws, values, NEXT))
    strides = _strides(signature)
    flat: Array = jnp.zeros((1,) * 5, jnp.int32)  # earlier sites' outcomes, later ones still at zero
    for draw in draws:
        index = draw.index
        if index.shape[4] > 1:  # depends on a state site drawn before it in the same slice
            shape = jnp.broadcast_shapes(flat.shape[:4], index.shape[:4])
            index = jnp.take_along_axis(
                jnp.broadcast_to(index, (*shape, index.shape[4])), jnp.broadcast_to(flat, (*shape, 1)), axis=-1
            )
        flat = flat + index * strides[draw.names[0]]
    return IndexTransition(flat[..., 0], signature.num_states)


def _strides(signature: Signature) -> dict[str, int]:
    """By state site, how far apart its values are in the flat index."""
    strides = {}
    stride = signature.num_states
    for site in signature.state:
        stride //= site.size
        strides[site.name] = stride
    return strides


def _sparse_transition(draws: list[Draw], signature: Signature) -> Transition:
    """The state sites of a slice as one kernel of entries: the product of each site's few outcomes."""
    strides = _strides(signature)
    flat: Array = jnp.zeros((1,) * 5, jnp.int32)  # (t, θ, x, u, K): earlier sites' outcomes, later ones still at zero
    log: Array = jnp.zeros((1,) * 5)
    for draw in draws:
        if draw.index is None:
            index, own = jnp.arange(draw.sizes[0], dtype=jnp.int32).reshape((1,) * 5 + (-1,)), draw.log
        elif draw.log is None:
            index, own = draw.index[..., None], jnp.zeros((1,) * 6)
        else:
            index, own = draw.index, draw.log
        index, own = (_follow(table, flat) for table in (index, own))  # (t, θ, x, u, K, k)
        flat = flat[..., None] + index * strides[draw.names[0]]
        log = log[..., None] + own
        shape = jnp.broadcast_shapes(flat.shape, log.shape)
        flat, log = (jnp.broadcast_to(table, shape).reshape(*shape[:4], -1) for table in (flat, log))
    full = (*flat.shape[:2], signature.num_states, *flat.shape[3:])
    return SparseTransition(jnp.broadcast_to(flat, full), jnp.broadcast_to(log, full), signature.num_states)


def _follow(table: Array, flat: Array) -> Array:
    """A table (t, θ, x, u, x', k) at the outcomes so far (t, θ, x, u, K): (t, θ, x, u, K|1, k)."""
    if table.shape[4] == 1:
        return table
    shape = jnp.broadcast_shapes(table.shape[:4], flat.shape[:4])
    table = jnp.broadcast_to(table, (*shape, *table.shape[4:]))
    return jnp.take_along_axis(table, jnp.broadcast_to(flat, (*shape, flat.shape[4]))[..., None], axis=4)


def _reads_control(draw: Draw) -> bool:
    """Whether an observation depends on the control, by its table (t, θ, 1, u, x'[, y])."""
    return (draw.log if draw.index is None else draw.index).shape[3] > 1


def _emission(draw: Draw, num_states: int, num_controls: int) -> Emission:
    """(t, θ, 1, u, x'[, y]) → (t, θ, x'·u[, y])."""
    table = jnp.swapaxes((draw.log if draw.index is None else draw.index)[:, :, 0], 2, 3)
    table = jnp.broadcast_to(table, (*table.shape[:2], num_states, num_controls, *table.shape[4:]))
    table = table.reshape(*table.shape[:2], num_states * num_controls, *table.shape[4:])
    return DenseEmission(table) if draw.index is None else IndexEmission(table, draw.sizes[0])


def _preferences(
    reading: Reading, signature: Signature, lay: Callable[..., Array]
) -> tuple[dict[str, Array], dict[str, tuple[Array, ...]]]:
    """Split the preferences into those on (x, u, x', θ) and those on an observation (with x', θ)."""
    edges: dict[str, Array] = {}
    by_observation: dict[str, tuple[Array, ...]] = {site.name: () for site in signature.observation}
    for factor in reading.factors:
        shape = dict(zip(range(-factor.log.ndim, 0), factor.log.shape, strict=True))
        involved = [axis for axis, size in shape.items() if axis <= FIRST_OBSERVATION and size > 1]
        if not involved:
            edges[factor.name] = lay(factor.log, factor.name, "state", outcome=False)
            continue
        names = [observed_on(axis, signature).name for axis in reversed(involved)]  # in program order
        if len(names) > 1:
            raise ModelError(
                f"preference '{factor.name}': found a dependence on the observations {' and '.join(names)} jointly, "
                "expected one observation site"
            )
        if names[0] not in by_observation:
            raise ModelError(
                f"preference '{factor.name}': found a dependence on '{names[0]}', which has plan=False, expected an "
                "observation that takes part in planning"
            )
        for axis in (STATE, CONTROL, MEMORY, NEXT_MEMORY):
            if shape[axis] > 1:
                raise ModelError(
                    f"preference '{factor.name}': found a dependence on the observation '{names[0]}' and on "
                    f"{axis_name(axis, signature)} jointly, expected one or the other"
                )
        by_observation[names[0]] += (_lay_observed(factor.log, involved[0]),)
    return edges, by_observation


def _lay_observed(log: Array, axis: int) -> Array:
    """A preference on one observation, ordered (t, θ, x', y)."""
    log = jnp.moveaxis(log, axis, -1)  # (…, x', u, x, θ, t, reserved, y): the axes left of x' are all 1
    log = log.reshape(log.shape[-NUM_SLICE_AXES - 1 :])
    return log.transpose(4, 3, 0, 6, 1, 2, 5)[..., 0, 0, 0]
