"""The environments: gymnasium's contract, and 10,000 random steps of the paper's three against its text.

The expectations are written out here in plain NumPy; nothing of an environment's own tables is imported.
"""

import warnings

import gymnasium as gym
import minigrid  # noqa: F401  (registers MiniGrid's own environments, which the wrapper is compared with)
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import npro_aif.envs as envs

GRIDS = ("npro_aif/FrozenLake-v0", "npro_aif/Wumpus-v0", "npro_aif/RockSample-v0")
NAMES = ("npro_aif/TMaze-v0", "npro_aif/ReactivityMaze-v0", "npro_aif/DoorKey-v0", *GRIDS)
STEPS = 10_000


@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_accepts_it(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(name).unwrapped)


@pytest.mark.parametrize("name", NAMES)
def test_registration_is_idempotent(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs.register()
        envs.register()
    assert gym.spec(name).id == name


@pytest.mark.parametrize("name", NAMES)
def test_renders_text_and_images(name):
    text, image = gym.make(name, render_mode="ansi"), gym.make(name, render_mode="rgb_array")
    text.reset(seed=0)
    image.reset(seed=0)
    assert isinstance(text.render(), str)
    assert image.render().dtype == np.uint8
    assert image.render().ndim == 3
    with pytest.raises(ValueError, match="render_mode is 'human'"):
        gym.make(name).unwrapped.__class__(render_mode="human")


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_fixes_the_episode(name):
    def episode():
        env = gym.make(name)
        record = [env.reset(seed=7)]
        env.action_space.seed(7)
        while len(record) < 4:
            record.append(env.step(env.action_space.sample()))
        return record

    assert episode() == episode()


@pytest.mark.parametrize("name", NAMES)
def test_an_impossible_action_is_refused(name):
    env = gym.make(name).unwrapped
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action is 99"):
        env.step(99)


@pytest.mark.parametrize("name", NAMES[:2])
def test_theta_can_be_given(name):
    env = gym.make(name).unwrapped
    for theta in (0, 1):
        assert {env.reset(seed=s, options={"theta": theta})[1]["theta"] for s in range(20)} == {theta}
    assert {env.reset(seed=s)[1]["theta"] for s in range(20)} == {0, 1}
    with pytest.raises(ValueError, match="theta"):
        env.reset(options={"theta": 2})


def random_episodes(env, steps, seed=0):
    """Random steps: info before, action, observation, reward, terminated, truncated, info, step number."""
    rng = np.random.default_rng(seed)
    episode, taken = 0, 0
    while taken < steps:
        _, info = env.reset(seed=seed + episode)
        episode, number, over = episode + 1, 0, False
        while not over:
            action = int(rng.integers(env.action_space.n))
            observation, reward, terminated, truncated, after = env.step(action)
            number, taken = number + 1, taken + 1
            yield info, action, observation, reward, terminated, truncated, after, number
            info, over = after, terminated or truncated


@pytest.mark.parametrize("arm_shortcut", [False, True])
def test_tmaze_follows_the_paper(arm_shortcut):
    cue, start, left, junction, right = range(5)
    north, east, south, west = range(4)
    # (place, control) → place on a plane, from the figure: the stem runs south, the arms lie west and east.
    at = {cue: (0, -2), start: (0, -1), junction: (0, 0), left: (-1, 0), right: (1, 0)}
    step = {north: (0, 1), east: (1, 0), south: (0, -1), west: (-1, 0)}
    place_at = {xy: place for place, xy in at.items()}

    env = gym.make("npro_aif/TMaze-v0", arm_shortcut=arm_shortcut).unwrapped
    cues, lengths = {place: [] for place in at}, []
    for info, action, seen, reward, terminated, truncated, after, number in random_episodes(env, STEPS):
        x, y = at[info["state"]]
        dx, dy = step[action]
        place = place_at.get((x + dx, y + dy), info["state"])
        assert (after["state"], seen["place"], after["theta"]) == (place, place, info["theta"])
        assert terminated == (place in (left, right))
        assert truncated == (number == 4 and not terminated)
        good = (left, right)[info["theta"]]
        assert reward == (0 if not terminated else 1 if place == good else -1)
        cues[place].append(seen["cue"] == info["theta"])
        if terminated or truncated:
            lengths.append(number)
    assert cues[cue]
    assert all(cues[cue])
    for place in (start, junction, left, right):  # a fair coin, within four standard deviations
        n = len(cues[place])
        assert abs(np.mean(cues[place]) - 0.5) < 4 * 0.5 / np.sqrt(n)
    assert max(lengths) == 4


@pytest.mark.parametrize(("arm_shortcut", "expected"), [(False, 2), (True, 1)])
def test_tmaze_south_of_an_arm(arm_shortcut, expected):
    env = gym.make("npro_aif/TMaze-v0", arm_shortcut=arm_shortcut).unwrapped
    env.reset(seed=0)
    for action in (0, 3):
        env.step(action)
    assert env.step(2)[-1]["state"] == expected


def reactivity_reward(location, knob, theta):
    """The four cases of the paper's R_T, and zero where none applies."""
    if location == theta and knob == 4:
        return 1.0
    if location != theta and location < 5 and knob == 4:
        return -1.0
    if location == 5:
        return 0.33
    if location != 5 and knob < 4:
        return -0.33
    return 0.0


def reactivity_targets(location, knob, action):
    """The locations that the paper's equations allow next."""
    if location == 5:
        return {5}
    if location == 6:
        return {0, 1, 2, 3, 4}
    if action == 7:
        return {6}
    target = (location + action) % 5 if action <= 4 else location
    return {target} if knob == 4 else {5} if knob == 0 else {target, 5}


def test_reactivity_maze_follows_the_paper():
    env = gym.make("npro_aif/ReactivityMaze-v0").unwrapped
    uninformative, starts = [], []
    for info, action, seen, reward, terminated, truncated, after, number in random_episodes(env, STEPS):
        location, knob = divmod(info["state"], 5)
        new_location, new_knob = divmod(after["state"], 5)
        if number == 1:
            assert knob == 4
            assert location < 5
            starts.append(location)
        assert new_location in reactivity_targets(location, knob, action)
        assert new_knob == {5: max(0, knob - 1), 6: min(4, knob + 1)}.get(action, knob)
        assert (seen["seen_location"], seen["seen_knob"]) == (new_location, new_knob)
        assert (terminated, truncated) == (number == 5, False)
        assert reward == (reactivity_reward(new_location, new_knob, info["theta"]) if number == 5 else 0)
        if new_location == 6:
            assert seen["cue"] == info["theta"]
        else:
            uninformative.append(seen["cue"] == info["theta"])
    assert abs(np.mean(uninformative) - 0.5) < 4 * 0.5 / np.sqrt(len(uninformative))
    assert np.bincount(starts).min() > 0.8 * len(starts) / 5


@pytest.mark.parametrize("size", [5, 6, 8])
def test_doorkey_is_minigrids_own(size):
    """Same seed, same actions: layout, image, reward and end are those of MiniGrid's own environment."""
    ours = gym.make("npro_aif/DoorKey-v0", size=size).unwrapped
    theirs = gym.make(f"MiniGrid-DoorKey-{size}x{size}-v0", agent_view_size=3).unwrapped

    def category(kind, state):
        """MiniGrid's unseen, empty, wall, key and goal, and its door (4) by state: open, closed, locked."""
        return 5 + int(state) if kind == 4 else {0: 0, 1: 1, 2: 2, 5: 3, 8: 4}[int(kind)]

    rng = np.random.default_rng(size)
    episode, taken = 0, 0
    while taken < STEPS // 3 + 1:
        _, info = ours.reset(seed=episode)
        their, _ = theirs.reset(seed=episode)
        key = next(i for i, o in enumerate(theirs.grid.grid) if o is not None and o.type == "key")
        door = next(i for i, o in enumerate(theirs.grid.grid) if o is not None and o.type == "door")
        n = size - 4  # columns that the wall, or the key, can be in
        assert info["key"] == (key // size - 1) * n + key % size - 1
        assert info["door"] == (door // size - 1) * n + door % size - 2
        assert info["theta"] == info["key"] * n * (size - 3) + info["door"]
        episode += 1
        for number in range(1, 36):
            front = theirs.grid.get(*theirs.front_pos)
            kind = None if front is None or front.can_overlap() else front.type
            useful = {"key": 3, "door": 4}.get(kind, 2)
            # Random, but key and door are used more often than by chance, so that the goal is reached at times.
            action = useful if rng.random() < 0.5 else int(rng.integers(5))
            seen, reward, terminated, truncated, after = ours.step(action)
            their, their_reward, their_end, their_cut, _ = theirs.step((0, 1, 2, 3, 5)[action])
            taken += 1
            cells = [seen[f"cell_{k}"] for k in range(9)]
            expected = [category(*their["image"][i, j][[0, 2]]) for j in range(3) for i in range(3)]
            assert (cells, seen["heading"]) == (expected, their["direction"])
            assert (reward, terminated, False) == (their_reward, their_end, their_cut)
            assert truncated == (number == 35 and not terminated)
            position, direction = divmod(after["state"] // 4, 4)
            row, column = divmod(position, size - 2)
            assert (column + 1, row + 1, direction) == (*theirs.agent_pos, theirs.agent_dir)
            assert (after["state"] % 4 > 0) == (theirs.carrying is not None)
            if terminated:
                assert reward == pytest.approx(1 - 0.9 * number / (10 * size**2))
                break


@pytest.mark.parametrize("size", [5, 6, 8])
def test_doorkey_ends_at_the_goal(size):
    """One step north of the goal, facing it; also where that step is the last one that the deadline allows."""
    for max_steps in (1, 35):
        env = gym.make("npro_aif/DoorKey-v0", size=size, max_steps=max_steps).unwrapped
        env.reset(seed=0)
        env.minigrid.agent_pos, env.minigrid.agent_dir = (size - 2, size - 3), 1
        _, reward, terminated, truncated, info = env.step(2)
        assert reward == pytest.approx(1 - 0.9 / (10 * size**2))
        assert (terminated, truncated) == (True, False)
        assert info["state"] // 16 == (size - 2) ** 2 - 1


def test_doorkey_truncates_at_the_deadline_given():
    env = gym.make("npro_aif/DoorKey-v0", size=6, max_steps=3).unwrapped
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]
    assert env.minigrid.max_steps == 10 * 6**2
    with pytest.raises(ValueError, match="at least 5"):
        gym.make("npro_aif/DoorKey-v0", size=4)
