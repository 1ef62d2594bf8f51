"""MiniGrid's DoorKey as a NumPyro program: θ is the layout (key, door), x is (position, direction, status).

Every rule is computed for the given values, from tables no larger than the grid, so that a belief with few layouts
costs little. Cells are counted in the interior, row by row, so that MiniGrid's columns and rows are ours plus one.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif

LEFT, RIGHT, FORWARD, PICKUP, TOGGLE = range(5)
NO_KEY, HAS_KEY, OPEN, CLOSED = range(4)  # HAS_KEY: carried, door still locked; CLOSED: closed but unlocked
UNSEEN, EMPTY, WALL, KEY, GOAL, OPEN_DOOR, CLOSED_DOOR, LOCKED_DOOR = range(8)

CONTROLS = ("left", "right", "forward", "pickup", "toggle")
STATUSES = ("no key", "has key", "open", "closed")
DIRECTIONS = ("east", "south", "west", "north")
CELLS = ("unseen", "empty", "wall", "key", "goal", "open door", "closed door", "locked door")

VIEW = 3  # cells along the edge of the view; the agent stands in the middle of its near row
CELL_SITES = tuple(f"cell_{k}" for k in range(VIEW * VIEW))
OWN_CELL = VIEW * VIEW - 1 - VIEW // 2

# By status: what the door shows, and its status after it is toggled.
DOOR_SHOWN = np.array([LOCKED_DOOR, LOCKED_DOOR, OPEN_DOOR, CLOSED_DOOR], dtype=np.int32)
TOGGLED = np.array([NO_KEY, OPEN, CLOSED, OPEN], dtype=np.int32)

# Defaults that suit this world: dynamics and observations are known exactly, and moves as such tell nothing. Chosen on
# seeds 2000–2199 (docs/paper.md); with a weight of 1 the agent dawdles where it learns.
LEARN = ("control",)
WEIGHT, ENTROPY = 0.05, 0.0
# Search proves plans optimal in milliseconds up to this size, and they are better than those of sweeps.
SEARCHED_UP_TO = 8
# The first sweeps plan for the goal alone, later ones for information too; off the plan the prior stands in for q.
SWEEPS, LEAD, UNVISITED = 8, 3, "prior"
STEP_PREFERENCE, LAST_PREFERENCE = 0.5, 2.5  # log-preference for the goal: at a step, and at the last one
PREFERENCES = ("every-step", "terminal")
EXACT_UP_TO, MOST_LAYOUTS = 10, 64  # in larger grids a plan considers this many of the possible layouts


class State(NamedTuple):
    """The agent: integer arrays that broadcast against each other."""

    position: jax.Array
    direction: jax.Array
    status: jax.Array


class Layout(NamedTuple):
    """The cells of key and door: integer arrays that broadcast against the state's."""

    key: jax.Array
    door: jax.Array


def check_size(size: int) -> None:
    """Refuse grids in which MiniGrid cannot draw a layout."""
    if size < 5:
        raise ValueError(f"size is {size}, but DoorKey needs a grid of at least 5×5 (outer walls included)")


# --- How layouts and states are counted --------------------------------------------------------------------


def site_sizes(size: int) -> tuple[dict[str, int], dict[str, int]]:
    """The parameter and state sites with their numbers of categories.

    The wall stands in one of the interior columns 1 … n−2 of n, the door in any row but the last, and the key
    left of the wall, so in the columns 0 … n−3. Keys at or behind the wall are counted, with zero prior.

    >>> site_sizes(8)
    ({'key': 24, 'door': 20}, {'position': 36, 'direction': 4, 'status': 4})
    """
    check_size(size)
    n = size - 2
    return {"key": n * (n - 2), "door": (n - 1) * (n - 2)}, {"position": n * n, "direction": 4, "status": 4}


def key_index(column: int, row: int, size: int) -> int:
    """The value of `key` for a key at this interior cell."""
    return row * (size - 4) + column


def door_index(column: int, row: int, size: int) -> int:
    """The value of `door` for a wall in this interior column with its door in this row."""
    return row * (size - 4) + column - 1


def theta_index(key: int, door: int, size: int) -> int:
    """The flat index of a layout in `Belief.parameter`."""
    return key * site_sizes(size)[0]["door"] + door


def state_index(column: int, row: int, direction: int, status: int, size: int) -> int:
    """The flat index of a state in the last axis of `Belief.state`."""
    return ((row * (size - 2) + column) * 4 + direction) * 4 + status


def lookup(table: np.ndarray, *index: jax.Array) -> jax.Array:
    """`table[index]`, for arrays that may be traced."""
    return jnp.asarray(table)[index]


# --- MiniGrid's rules --------------------------------------------------------------------------------------


class Tables(NamedTuple):
    """The geometry of one size; cell P, one past the interior's P cells, stands for everything outside."""

    near: np.ndarray  # (P, 4, 3, 3) by position, direction: the cell 0, 1, 2 ahead and left, middle, right
    column: np.ndarray  # (P + 1,) a cell's column; −1 outside
    bare: np.ndarray  # (P + 1,) the content of a cell without key, wall and door
    key_cell: np.ndarray  # (keys,)
    door_cell: np.ndarray  # (doors and those of the last row,)


@functools.lru_cache
def tables(size: int) -> Tables:
    """The lookup tables of a size."""
    n = size - 2
    sizes, _ = site_sizes(size)
    row, column = np.divmod(np.arange(n * n), n)
    along, down = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]]).T[..., None, None]  # by direction
    ahead, aside = np.arange(VIEW)[:, None], np.arange(VIEW) - VIEW // 2
    # Columns run east and rows run south, so the direction to the right of (along, down) is (−down, along).
    to_column = column[:, None, None, None] + ahead * along - aside * down
    to_row = row[:, None, None, None] + ahead * down + aside * along
    inside = (to_column >= 0) & (to_column < n) & (to_row >= 0) & (to_row < n)
    bare = np.full(n * n + 1, EMPTY)
    bare[-2:] = GOAL, WALL
    key_row, key_column = np.divmod(np.arange(sizes["key"]), n - 2)
    door_row, wall = np.divmod(np.arange(n * (n - 2)), n - 2)  # with the last row, where MiniGrid puts none
    whole = Tables(
        near=np.where(inside, to_row * n + to_column, n * n),
        column=np.append(column, -1),
        bare=bare,
        key_cell=key_row * n + key_column,
        door_cell=door_row * n + wall + 1,
    )
    return Tables(*(table.astype(np.int32) for table in whole))


def contents(cell: jax.Array, status: jax.Array, layout: Layout, size: int) -> jax.Array:
    """The content of a cell: a category of `CELLS`, never unseen."""
    table = tables(size)
    door_cell = lookup(table.door_cell, layout.door)
    here = lookup(table.bare, cell)
    here = jnp.where((cell == lookup(table.key_cell, layout.key)) & (status == NO_KEY), KEY, here)
    here = jnp.where(lookup(table.column, cell) == lookup(table.column, door_cell), WALL, here)
    return jnp.where(cell == door_cell, lookup(DOOR_SHOWN, status), here)


def cell_at(state: State, ahead: int, aside: int, size: int) -> jax.Array:
    """The cell ``ahead`` steps ahead of the agent and ``aside`` steps to its right (negative: to its left)."""
    return lookup(tables(size).near[:, :, ahead, aside + VIEW // 2], state.position, state.direction)


def look(state: State, layout: Layout, ahead: int, aside: int, size: int) -> jax.Array:
    """The content of the cell ``ahead`` steps ahead of the agent and ``aside`` steps to its right."""
    return contents(cell_at(state, ahead, aside, size), state.status, layout, size)


# Compiled as a whole, in 0.9 s; otherwise each operation would be compiled for each shape, in 2.4 s.
@functools.partial(jax.jit, static_argnames=("size", "absorbing"))
def next_state(state: State, control: jax.Array, layout: Layout, size: int, absorbing: bool = True) -> State:
    """The state that follows; the goal is absorbing, as the episode ends there.

    :param absorbing: False if the agent can leave the goal again.
    """
    n = size - 2
    at_goal = (state.position == n * n - 1) & absorbing
    front = look(state, layout, 1, 0, size)

    free = (front == EMPTY) | (front == GOAL) | (front == OPEN_DOOR)
    moves = (control == FORWARD) & free & ~at_goal
    position = jnp.where(moves, cell_at(state, 1, 0, size), state.position)

    turn = (control == RIGHT).astype(jnp.int32) - (control == LEFT)
    direction = jnp.where(at_goal, state.direction, (state.direction + turn) % 4)

    facing_door = (front == OPEN_DOOR) | (front == CLOSED_DOOR) | (front == LOCKED_DOOR)
    status = jnp.where((control == PICKUP) & (front == KEY), HAS_KEY, state.status)
    status = jnp.where((control == TOGGLE) & facing_door, lookup(TOGGLED, state.status), status)
    return State(position, direction, jnp.where(at_goal, state.status, status))


def visible(clear: list[jax.Array]) -> list[jax.Array]:
    """Which cells of the view are seen, given which ones can be seen through (row by row, far row first).

    Light starts in the agent's cell. In each row, near to far, it spreads sideways through clear cells, and
    from every lit clear cell to the three next to it in the row ahead; on three columns this is MiniGrid's
    `process_vis` exactly (the tests compare all 512 cases).
    """
    seen: list[jax.Array] = [jnp.zeros_like(c) for c in clear]
    lit = [jnp.zeros_like(clear[0]), jnp.ones_like(clear[0]), jnp.zeros_like(clear[0])]
    for first in reversed(range(0, VIEW * VIEW, VIEW)):
        left, middle, right = clear[first : first + VIEW]
        lit[1] = lit[1] | (lit[0] & left) | (lit[2] & right)
        lit[0], lit[2] = lit[0] | (lit[1] & middle), lit[2] | (lit[1] & middle)
        seen[first : first + VIEW] = lit
        through_left, through_middle, through_right = lit[0] & left, lit[1] & middle, lit[2] & right
        lit = [
            through_left | through_middle,
            through_left | through_middle | through_right,
            through_middle | through_right,
        ]
    return seen


@functools.partial(jax.jit, static_argnames="size")
def view(state: State, layout: Layout, size: int) -> list[jax.Array]:
    """The nine cells of the view as categories of `CELLS`, row by row from far left to near right."""
    cells = [look(state, layout, ahead, aside, size) for ahead in (2, 1, 0) for aside in (-1, 0, 1)]
    clear = [(c != WALL) & (c != CLOSED_DOOR) & (c != LOCKED_DOOR) for c in cells]
    shown = [jnp.where(s, c, UNSEEN) for s, c in zip(visible(clear), cells, strict=True)]
    # In its own cell the agent sees the object that it carries, whatever it stands on.
    shown[OWN_CELL] = jnp.where(state.status == NO_KEY, EMPTY, KEY)
    return shown


# --- The belief and the program ----------------------------------------------------------------------------


def max_layouts(size: int) -> int | None:
    """The number of layouts that a plan considers: all (None), unless that would take minutes in a large grid.

    After the first look at a grid of size 16 some 13,000 of its 14,196 layouts are possible; a plan to the deadline
    takes about 0.1 s for each of them, and 1 MB. Belief updates always consider all.

    >>> max_layouts(8), max_layouts(16)
    (None, 64)
    """
    return None if size <= EXACT_UP_TO else MOST_LAYOUTS


def initial_belief(size: int = 8) -> aif.Belief:
    """MiniGrid's own prior over layouts and starts, before the first observation.

    MiniGrid draws the wall's column and the door's row uniformly, puts the agent on a uniform cell left of
    the wall and then the key on a uniform one of the others. So the key's cell is uniform too, and given it
    the agent's is uniform over the others; all directions are equally likely.

    In larger grids p(x|θ) is kept by its entries: as a table it would have 330 MB at size 16.

    >>> belief = initial_belief(8)
    >>> belief.parameter.shape, int((belief.parameter > 0).sum()), belief.state.shape
    ((480,), 300, (480, 576))
    """
    theta = np.arange(num_layouts(size))
    if size <= EXACT_UP_TO:
        return aif.Belief(*map(jnp.asarray, belief_rows(theta, size)))
    parameter, free = starts(theta, size)
    states = np.arange(free.shape[1])[:, None] * 16 + np.arange(4) * 4 + NO_KEY  # (position, direction)
    count = free.sum(-1)
    order = np.argsort(~free, axis=-1, kind="stable")[:, : count.max()]  # the free cells first
    probs = np.where(np.arange(count.max()) < count[:, None], 1 / (4 * count[:, None]), 0).astype(np.float32)
    entries = states[order].reshape(len(theta), -1), np.repeat(probs, 4, axis=1)
    return aif.Belief(
        jnp.asarray(parameter), aif.SparseStates(entries[0].astype(np.int32), entries[1], states.size * 4)
    )


def num_layouts(size: int) -> int:
    """The number of layouts that are counted, including those without prior.

    >>> num_layouts(8), num_layouts(16)
    (480, 26208)
    """
    return math.prod(site_sizes(size)[0].values())


def belief_rows(theta: np.ndarray, size: int = 8) -> aif.Belief:
    """The rows of :func:`initial_belief` for some layouts (flat indices), for beliefs that are laid over devices."""
    _, states = site_sizes(size)
    parameter, free = starts(theta, size)
    start = free / free.sum(-1, keepdims=True)  # also a distribution where the layout has no prior
    state = np.zeros((*free.shape, states["direction"], states["status"]), dtype=np.float32)
    state[..., NO_KEY] = start[..., None] / states["direction"]
    return aif.Belief(parameter, state.reshape(len(theta), -1))


def starts(theta: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The prior of some layouts (flat indices), (K,), and the cells where the agent may start, (K, P)."""
    parameters, _ = site_sizes(size)
    n = size - 2
    key, door = np.divmod(theta, parameters["door"])
    wall = door % (n - 2) + 1
    key_row, key_column = np.divmod(key, n - 2)
    layout = (key_column < wall) / (wall * n) / parameters["door"]  # the key lies left of the wall
    cell = np.arange(n * n)
    return layout, (cell % n < wall[:, None]) & (cell != (key_row * n + key_column)[:, None])


def doorkey(
    belief: aif.Belief,
    horizon: int | jax.Array = 35,
    *,
    size: int = 8,
    preference: str = "every-step",
) -> None:
    """DoorKey with a 3×3 view; the agent does not observe its position.

    :param size: cells along the grid's edge, outer walls included, as MiniGrid counts.
    :param preference: being at the goal is preferred at every step ("every-step"), or as in the paper at the last one
        only ("terminal").

    >>> from numpyro.handlers import seed, trace
    >>> sites = trace(seed(doorkey, 0)).get_trace(initial_belief(5), horizon=1, size=5)
    >>> [name for name in sites][:9]
    ['key', 'door', 'position_0', 'direction_0', 'status_0', 'u_1', 'position_1', 'direction_1', 'status_1']
    """
    if preference not in PREFERENCES:
        raise ValueError(f"preference is {preference!r}, expected one of {PREFERENCES}")
    parameters, states = site_sizes(size)
    before_last = STEP_PREFERENCE if preference == "every-step" else 0.0
    goal = states["position"] - 1
    prior = jnp.full(len(CONTROLS), 1 / len(CONTROLS))

    layout = Layout(**aif.parameters(parameters, belief.parameter))
    theta = layout.key * parameters["door"] + layout.door
    start = aif.initial_state(states, belief.state[theta])

    def step(state: State, t: int | jax.Array) -> State:
        u = aif.control("u", dist.Categorical(probs=prior), labels=CONTROLS)
        after = next_state(state, u, layout, size)
        new = State(
            # The position is unknown at first but soon known: as a hidden state it would make the plans blind.
            aif.state("position", aif.DeterministicCategorical(after.position, states["position"]), hidden=False),
            aif.state("direction", aif.DeterministicCategorical(after.direction, 4), labels=DIRECTIONS, hidden=False),
            aif.state("status", aif.DeterministicCategorical(after.status, 4), labels=STATUSES, hidden=False),
        )
        for k, cell in enumerate(view(new, layout, size)):
            # The agent's own cell shows the status alone, never θ: it would add nothing to planning.
            seen = aif.DeterministicCategorical(cell, len(CELLS))
            aif.observation(CELL_SITES[k], seen, plan=k != OWN_CELL, labels=CELLS)
        heading = aif.DeterministicCategorical(new.direction, 4)
        aif.observation("heading", heading, plan=False, labels=DIRECTIONS)
        log_preference = jnp.where(t == horizon, LAST_PREFERENCE, before_last)
        aif.preference("goal", jnp.where(new.position == goal, log_preference, 0.0))
        return new

    aif.rollout(step, State(**start), horizon)
