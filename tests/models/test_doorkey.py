"""The DoorKey program against MiniGrid itself: transitions, the nine cells, occlusion and the prior.

MiniGrid is driven directly here, without the environment wrapper, and its layouts are read off its grid.
"""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from minigrid.core.grid import Grid
from minigrid.core.world_object import Key, Wall
from minigrid.envs import DoorKeyEnv
from numpyro.handlers import seed, substitute, trace
from scipy import stats

from npro_aif.models import doorkey as model

ACTIONS = (0, 1, 2, 3, 5)  # MiniGrid's left, right, forward, pickup, toggle
OBJECTS = {0: 0, 1: 1, 2: 2, 5: 3, 8: 4}  # MiniGrid's unseen, empty, wall, key, goal → our categories
DOORS = {0: 5, 1: 6, 2: 7}  # open, closed, locked


def find(env, kind):
    place = next(i for i, o in enumerate(env.grid.grid) if o is not None and o.type == kind)
    return place % env.width, place // env.width


def layout_of(env):
    """(key, door) as the model counts them: row by row over the columns that are possible."""
    columns = env.width - 4
    (key_x, key_y), (door_x, door_y) = find(env, "key"), find(env, "door")
    return (key_y - 1) * columns + key_x - 1, (door_y - 1) * columns + door_x - 2


def state_of(env):
    door = env.grid.get(*find(env, "door"))
    status = 0 if env.carrying is None else 1 if door.is_locked else 2 if door.is_open else 3
    x, y = env.agent_pos
    return (int(y) - 1) * (env.width - 2) + int(x) - 1, int(env.agent_dir), status


def cells_of(image):
    return [
        DOORS[int(image[i, j, 2])] if image[i, j, 0] == 4 else OBJECTS[int(image[i, j, 0])]
        for j in range(3)
        for i in range(3)
    ]


def record(env, rng, episodes, steps):
    """Rows of (key, door, state, action, next state, cells) of partly purposeful random play."""
    rows = []
    for _ in range(episodes):
        env.reset(seed=int(rng.integers(2**31)))
        theta = layout_of(env)
        for _ in range(steps):
            before = state_of(env)
            front = env.grid.get(*env.front_pos)
            kind = None if front is None or front.can_overlap() else front.type
            useful = {"key": 3, "door": 4}.get(kind, 2)
            # Key and door are used more often than chance would, so that all statuses are met in short play.
            action = useful if rng.random() < 0.4 else int(rng.integers(5))
            observation, _, terminated, _, _ = env.step(ACTIONS[action])
            rows.append((*theta, *before, action, *state_of(env), *cells_of(observation["image"])))
            if terminated:
                break
    return np.array(rows)


def predictions(rows, size):
    """The model's next states and the cells it then shows, one row each."""
    key, door, position, direction, status, action = jnp.asarray(rows[:, :6].T, dtype=jnp.int32)
    layout = model.Layout(key, door)
    new = model.next_state(model.State(position, direction, status), action, layout, size)
    return np.stack([*new, *model.view(new, layout, size)], axis=1)


def compare(size, episodes, steps):
    env = DoorKeyEnv(size=size, agent_view_size=3)
    rows = record(env, np.random.default_rng(size), episodes, steps)
    np.testing.assert_array_equal(predictions(rows, size), rows[:, 6:])
    return rows


@pytest.mark.parametrize(
    ("size", "episodes", "steps"), [(5, 30, 80), pytest.param(6, 30, 80, marks=pytest.mark.slow), (8, 15, 400)]
)
def test_random_play_agrees_with_minigrid(size, episodes, steps):
    rows = compare(size, episodes, steps)
    assert set(rows[:, 4]) == {0, 1, 2, 3}  # every status was met,
    assert set(rows[:, 9:].ravel()) == set(range(8))  # and every category seen
    assert (rows[:, 6] == (size - 2) ** 2 - 1).any()  # and the goal reached


@pytest.mark.slow
@pytest.mark.parametrize("size", [5, 6, 8, 16])
def test_random_play_agrees_with_minigrid_long(size):
    compare(size, 300, 300)


def put(env, layout, state):
    """Arrange MiniGrid's own objects: the layout's key and door, the agent and what it has done so far."""
    size = env.width
    (key_row, key_column), (door_row, wall) = (divmod(v, size - 4) for v in layout)
    key_at, door_at = (key_column + 1, key_row + 1), (wall + 2, door_row + 1)
    for x in range(1, size - 1):
        for y in range(1, size - 1):
            if (x, y) != (size - 2, size - 2):
                env.grid.set(x, y, Wall() if x == door_at[0] else None)
    position, env.agent_dir, status = state
    env.door.is_locked, env.door.is_open = status < 2, status == 2
    env.grid.set(*door_at, env.door)
    env.carrying = Key("yellow") if status else None
    if not status:
        env.grid.set(*key_at, Key("yellow"))
    env.agent_pos = (position % (size - 2) + 1, position // (size - 2) + 1)


def exhaustive(size):
    """Every possible layout, every state the agent can be in, every control."""
    env = DoorKeyEnv(size=size, agent_view_size=3)
    env.reset(seed=0)
    env.door = env.grid.get(*find(env, "door"))
    n = size - 2
    rows, starts = [], []
    for key, door in itertools.product(range(n * (n - 2)), range((n - 1) * (n - 2))):
        wall, door_row = door % (n - 2) + 1, door // (n - 2)
        if key % (n - 2) >= wall:
            continue
        for position, direction, status in itertools.product(range(n * n - 1), range(4), range(4)):
            row, column = divmod(position, n)
            in_wall = column == wall and not (row == door_row and status == 2)
            on_key = status == 0 and (row, column) == divmod(key, n - 2)
            if in_wall or on_key:
                continue
            for action in range(5):
                put(env, (key, door), (position, direction, status))
                if action == 0:
                    starts.append((key, door, position, direction, status, *cells_of(env.gen_obs()["image"])))
                observation, *_ = env.step(ACTIONS[action])
                door_now = env.door
                status_now = 0 if env.carrying is None else 1 if door_now.is_locked else 2 if door_now.is_open else 3
                x, y = env.agent_pos
                after = ((int(y) - 1) * n + int(x) - 1, int(env.agent_dir), status_now)
                rows.append((key, door, position, direction, status, action, *after, *cells_of(observation["image"])))
    rows, starts = np.array(rows), np.array(starts)
    np.testing.assert_array_equal(predictions(rows, size), rows[:, 6:])
    key, door, *state = jnp.asarray(starts[:, :5].T, dtype=jnp.int32)
    seen = np.stack(model.view(model.State(*state), model.Layout(key, door), size), axis=1)
    np.testing.assert_array_equal(seen, starts[:, 5:])
    return len(rows)


def test_every_state_of_size_5_agrees_with_minigrid():
    assert exhaustive(5) > 2_000


@pytest.mark.slow
@pytest.mark.parametrize("size", [6, 8])
def test_every_state_agrees_with_minigrid(size):
    assert exhaustive(size) > 20_000


def test_occlusion_is_minigrids_in_all_cases():
    opaque = np.array(list(itertools.product([False, True], repeat=9)))  # (512, 9), row by row
    expected = np.zeros_like(opaque)
    for case, walls in enumerate(opaque):
        grid = Grid(3, 3)
        for k in np.flatnonzero(walls):
            grid.set(k % 3, k // 3, Wall())
        expected[case] = grid.process_vis((1, 2)).T.ravel()
    seen = model.visible([jnp.asarray(~opaque[:, k]) for k in range(9)])
    np.testing.assert_array_equal(np.stack(seen, axis=1), expected)


def test_goal_is_absorbing():
    for size in (5, 8):
        goal = (size - 2) ** 2 - 1
        shape = (4, 4, 5)
        direction, status, control = (jnp.asarray(a, dtype=jnp.int32) for a in np.indices(shape))
        state = model.State(jnp.full(shape, goal), direction, status)
        new = model.next_state(state, control, model.Layout(jnp.int32(0), jnp.int32(0)), size)
        for before, after in zip(state, new, strict=True):
            np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(("size", "layouts"), [(5, 6), (6, 36), (8, 300)])
def test_prior_counts_minigrids_layouts(size, layouts):
    belief = model.initial_belief(size)
    parameter = np.asarray(belief.parameter, dtype=np.float64)
    assert (parameter > 0).sum() == layouts
    assert parameter.sum() == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(np.asarray(belief.state).sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize(("size", "resets"), [(5, 2000), pytest.param(6, 6000, marks=pytest.mark.slow)])
def test_prior_is_minigrids(size, resets):
    """Layouts and starts of MiniGrid's resets pass a chi-square test against p(θ) and p(x0 | θ)."""
    belief = model.initial_belief(size)
    env = DoorKeyEnv(size=size, agent_view_size=3)
    doors = (size - 3) * (size - 4)
    n_states = (size - 2) ** 2 * 16
    counts = np.zeros((belief.parameter.size, n_states))
    env.reset(seed=0)
    for _ in range(resets):
        env.reset()
        (key, door), (position, direction, status) = layout_of(env), state_of(env)
        counts[key * doors + door, (position * 4 + direction) * 4 + status] += 1
    joint = np.asarray(belief.parameter, dtype=np.float64)[:, None] * np.asarray(belief.state, dtype=np.float64)
    assert (counts[joint == 0] == 0).all()
    for axis in (1, 0):  # layouts, then starts
        observed, expected = counts.sum(axis), resets * joint.sum(axis) / joint.sum()
        possible = expected > 0
        assert expected[possible].min() > 5
        assert stats.chisquare(observed[possible], expected[possible] * 1.0).pvalue > 1e-3
    # The agent's cell given the layout, pooled over directions: every cell but the key's equally often.
    place = counts.reshape(counts.shape[0], -1, 16).sum(-1)
    expected = place.sum(-1, keepdims=True) * np.asarray(belief.state).reshape(counts.shape[0], -1, 16).sum(-1)
    possible = expected > 0
    statistic = ((place - expected)[possible] ** 2 / expected[possible]).sum()
    assert stats.chi2.sf(statistic, possible.sum() - (place.sum(-1) > 0).sum()) > 1e-3


def test_tables_of_size_8_are_built_at_once():
    """All 300 layouts × 576 states: the next states under every control, and the nine cells."""
    belief = model.initial_belief(8)
    theta = np.flatnonzero(np.asarray(belief.parameter))
    layout = model.Layout(*(jnp.asarray(v, dtype=jnp.int32)[:, None, None] for v in np.divmod(theta, 20)))
    flat = np.unravel_index(np.arange(576), (36, 4, 4))
    state = model.State(*(jnp.asarray(v, dtype=jnp.int32)[:, None] for v in flat))
    new = model.next_state(state, jnp.arange(5), layout, 8)
    cells = model.view(state, layout, 8)
    assert new.position.shape == (300, 576, 5)
    assert {c.shape for c in cells} <= {(300, 576, 1), (576, 1)}


@pytest.mark.parametrize("size", [5, 8])
def test_program_gives_minigrids_paths_probability_one(size):
    """Given layout, start and controls, the program assigns MiniGrid's own path no surprise at all."""
    env, rng, horizon = DoorKeyEnv(size=size, agent_view_size=3), np.random.default_rng(0), 6
    rows = np.zeros((0, 18), dtype=int)
    while len(rows) < horizon:  # an episode that did not end early
        rows = record(env, rng, 1, horizon)
    values = dict(zip(("key", "door", "position_0", "direction_0", "status_0"), rows[0], strict=False))
    for t, row in enumerate(rows, start=1):
        names = ["u", "position", "direction", "status", *(f"cell_{k}" for k in range(9))]
        values |= {f"{name}_{t}": value for name, value in zip(names, row[5:], strict=True)}
    program = substitute(seed(model.doorkey, 0), {k: jnp.int32(v) for k, v in values.items()})
    sites = trace(program).get_trace(model.initial_belief(size), horizon=horizon, size=size)
    assert set(sites) - {f"goal_{t}" for t in range(1, horizon + 1)} <= set(values)
    for name, site in sites.items():
        log_prob = float(site["fn"].log_prob(site["value"]))
        if name.startswith(("position", "direction", "status", "cell")) and not name.endswith("_0"):
            assert log_prob == 0, name
        assert np.isfinite(log_prob), name


@pytest.mark.parametrize(("preference", "expected"), [("every-step", [0.5, 0.5, 2.5]), ("terminal", [0, 0, 2.5])])
def test_preference_for_the_goal(preference, expected):
    belief = model.initial_belief(5)
    at_goal = {"key": 0, "door": 0, "position_0": 8, "direction_0": 0, "status_0": 2}
    program = substitute(seed(model.doorkey, 0), {k: jnp.int32(v) for k, v in at_goal.items()})
    sites = trace(program).get_trace(belief, horizon=3, size=5, preference=preference)
    assert [float(sites[f"goal_{t}"]["fn"].log_factor) for t in (1, 2, 3)] == pytest.approx(expected)


def test_mistakes_are_refused():
    with pytest.raises(ValueError, match="expected one of"):
        seed(model.doorkey, 0)(model.initial_belief(5), size=5, preference="sometimes")
    with pytest.raises(ValueError, match="at least 5"):
        model.initial_belief(4)
