"""The Reactivity Maze's program against the paper's equations and against the environment's frequencies."""

import gymnasium as gym
import jax
import numpy as np
import pytest
from numpyro.handlers import seed, substitute, trace
from scipy import stats

import npro_aif.envs  # noqa: F401  (registers the environments)
from npro_aif.models import reactivity_maze as model


def test_tables_are_distributions():
    assert model.LOCATION.shape == (7, 5, 8, 7)
    np.testing.assert_allclose(model.LOCATION.sum(-1), 1)
    np.testing.assert_allclose(model.CUE_GIVEN.sum(-1), 1)


def test_locations_follow_the_paper():
    for location in range(5):
        for knob in range(5):
            for u in range(7):
                row = np.zeros(7)
                row[(location + u) % 5 if u < 5 else location] = knob / 4
                row[5] = 1 - knob / 4
                np.testing.assert_allclose(model.LOCATION[location, knob, u], row)
            assert model.LOCATION[location, knob, 7, 6] == 1
    np.testing.assert_allclose(model.LOCATION[5, :, :, 5], 1)
    np.testing.assert_allclose(model.LOCATION[6, :, :, :5], 0.2)


def test_rewards_follow_the_paper():
    for theta in (0, 1):
        for knob in range(5):
            assert model.REWARD[5, knob, theta] == 0.33
            for location in (0, 1, 2, 3, 4):
                full = 1.0 if location == theta else -1.0
                assert model.REWARD[location, knob, theta] == (full if knob == 4 else -0.33)
            assert model.REWARD[6, knob, theta] == (0 if knob == 4 else -0.33)


def test_initial_belief():
    belief = model.initial_belief()
    np.testing.assert_allclose(belief.parameter, 0.5)
    state = np.asarray(belief.state).reshape(2, 7, 5)
    np.testing.assert_allclose(state[:, :5, 4], 0.2)
    assert state.sum() == pytest.approx(2)


def test_program_scores_a_path_by_the_paper():
    """The log-probability of one path is the sum of the logs written out by hand."""
    values = {"theta": 1, "location_0": 2, "knob_0": 4, "u_1": 5, "location_1": 2, "knob_1": 3, "cue_1": 0}
    values |= {
        "u_2": 4,
        "location_2": 1,
        "knob_2": 3,
        "cue_2": 1,
        "u_3": 7,
        "location_3": 6,
        "knob_3": 3,
        "cue_3": 1,
    }
    program = substitute(seed(model.reactivity_maze, 0), {k: np.int32(v) for k, v in values.items()})
    sites = trace(program).get_trace(model.initial_belief(), horizon=3)
    assert set(values) | {"reward_1", "reward_2", "reward_3"} == set(sites)
    log_prob = {name: float(s["fn"].log_prob(s["value"])) for name, s in sites.items()}
    other, cue = 1 / (7 + 1 / 1.2), (1 / 1.2) / (7 + 1 / 1.2)
    probability = 0.5 * 0.2 * other * 0.5 * (other * 0.75 * 0.5) * cue
    assert sum(v for k, v in log_prob.items() if "reward" not in k) == pytest.approx(np.log(probability), rel=1e-5)
    assert [log_prob[f"reward_{t}"] for t in (1, 2, 3)] == pytest.approx([0, 0, -0.33])


def test_controls_other_than_the_cue_are_equally_likely():
    sites = trace(seed(model.reactivity_maze, 0)).get_trace(model.initial_belief(), horizon=1, cue_cost=2.0)
    probs = np.asarray(jax.nn.softmax(sites["u_1"]["fn"].logits))
    np.testing.assert_allclose(probs[:7] / probs[7], 2, rtol=1e-5)


def frequencies(steps, seed):
    """Counts of (location, knob, u, location') over random steps of the environment."""
    env = gym.make("npro_aif/ReactivityMaze-v0").unwrapped
    rng = np.random.default_rng(seed)
    counts = np.zeros((7, 5, 8, 7))
    _, info = env.reset(seed=seed)
    for _ in range(steps):
        u = int(rng.integers(8))
        _, _, terminated, _, after = env.step(u)
        location, knob = divmod(info["state"], 5)
        counts[location, knob, u, after["state"] // 5] += 1
        assert after["state"] % 5 == model.KNOB[knob, u]
        info = env.reset()[1] if terminated else after
    return counts


def chi_square(counts, table):
    """p-value of the counts under the table, rows with any expected count below five left out."""
    expected = counts.sum(-1, keepdims=True) * table
    assert (counts[expected == 0] == 0).all()  # what the model thinks impossible never happens
    usable = ((expected >= 5) | (expected == 0)).all(-1) & ((expected > 0).sum(-1) > 1)
    possible = expected[usable] > 0
    statistic = ((counts[usable] - expected[usable])[possible] ** 2 / expected[usable][possible]).sum()
    freedom = (possible.sum(-1) - 1).sum()
    assert freedom > 20
    return stats.chi2.sf(statistic, freedom)


def test_frequencies_of_the_environment_match_the_table():
    counts = frequencies(10_000, seed=0)
    assert chi_square(counts, model.LOCATION) > 1e-3
    # The test can fail: a knob whose probabilities are (knob/4)² in place of knob/4 is noticed.
    other = model.LOCATION.copy()
    other[:5, :, :7, :5] **= 2
    other[:5, :, :7, 5] = 1 - other[:5, :, :7, :5].sum(-1)
    assert chi_square(counts, other) < 1e-3


@pytest.mark.slow
def test_frequencies_of_the_environment_match_the_table_long():
    assert chi_square(frequencies(300_000, seed=1), model.LOCATION) > 1e-3
