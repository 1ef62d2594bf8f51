"""DoorKey as the paper's own code models it, which differs from MiniGrid and from `models/doorkey.py`.

It has seven actions, of which `drop` and `done` do nothing; three statuses (no key, key, door open), so that an open
door stays open; 360 equally likely layouts, some with the door in the last row; and a goal that can be left again and
is preferred only at the last step.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif
from npro_aif.models.doorkey import (
    CELL_SITES,
    CELLS,
    DIRECTIONS,
    LAST_PREFERENCE,
    OPEN,
    OWN_CELL,
    Layout,
    State,
    check_size,
    lookup,
    next_state,
    view,
)

CONTROLS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
STATUSES = ("no key", "has key", "open")
OURS = np.array([0, 1, 2, 3, -1, 4, -1], dtype=np.int32)  # the control of `models/doorkey.py`; −1 does nothing


def site_sizes(size: int) -> tuple[dict[str, int], dict[str, int]]:
    """The parameter and state sites with their numbers of categories.

    >>> site_sizes(8)
    ({'key': 24, 'door': 24}, {'position': 36, 'direction': 4, 'status': 3})
    """
    check_size(size)
    n = size - 2
    return {"key": n * (n - 2), "door": n * (n - 2)}, {"position": n * n, "direction": 4, "status": len(STATUSES)}


def initial_belief(size: int = 8) -> aif.Belief:
    """Uniform over the layouts, and independently uniform over all states.

    >>> belief = initial_belief()
    >>> int((belief.parameter > 0).sum()), belief.state.shape
    (360, (576, 432))
    """
    parameters, states = site_sizes(size)
    n = size - 2
    wall = np.arange(parameters["door"]) % (n - 2) + 1
    key_column = np.arange(parameters["key"]) % (n - 2)
    possible = (key_column[:, None] < wall).ravel()  # the key lies left of the wall
    num_states = int(np.prod(list(states.values())))
    state = np.full((len(possible), num_states), 1 / num_states, dtype=np.float32)
    return aif.Belief(jnp.asarray(possible / possible.sum()), jnp.asarray(state))


def doorkey_published(belief: aif.Belief, horizon: int | jax.Array = 20, *, size: int = 8) -> None:
    """DoorKey as the paper's code models it.

    :param size: cells along the grid's edge, outer walls included, as MiniGrid counts.

    >>> from numpyro.handlers import seed, trace
    >>> sites = trace(seed(doorkey_published, 0)).get_trace(initial_belief(5), horizon=1, size=5)
    >>> [name for name in sites][:6]
    ['key', 'door', 'position_0', 'direction_0', 'status_0', 'u_1']
    """
    parameters, states = site_sizes(size)
    goal = states["position"] - 1
    prior = jnp.full(len(CONTROLS), 1 / len(CONTROLS))
    layout = Layout(**aif.parameters(parameters, belief.parameter))
    start = aif.initial_state(states, belief.state[layout.key * parameters["door"] + layout.door])

    def step(state: State, t: int | jax.Array) -> State:
        u = aif.control("u", dist.Categorical(probs=prior), labels=CONTROLS)
        after = next_state(state, lookup(OURS, u), layout, size, absorbing=False)
        status = jnp.where(state.status == OPEN, OPEN, after.status)
        new = State(
            aif.state("position", aif.DeterministicCategorical(after.position, states["position"]), hidden=False),
            aif.state("direction", aif.DeterministicCategorical(after.direction, 4), labels=DIRECTIONS, hidden=False),
            aif.state("status", aif.DeterministicCategorical(status, len(STATUSES)), labels=STATUSES, hidden=False),
        )
        for k, cell in enumerate(view(new, layout, size)):
            seen = aif.DeterministicCategorical(cell, len(CELLS))
            aif.observation(CELL_SITES[k], seen, plan=k != OWN_CELL, labels=CELLS)
        heading = aif.DeterministicCategorical(new.direction, 4)
        aif.observation("heading", heading, plan=False, labels=DIRECTIONS)
        aif.preference("goal", jnp.where((t == horizon) & (new.position == goal), LAST_PREFERENCE, 0.0))
        return new

    aif.rollout(step, State(**start), horizon)
