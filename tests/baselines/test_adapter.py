"""The mapping to pymdp's arrays: exact where it says so, and refused where pymdp has no words for the world."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import npro_aif as aif
from npro_aif.baselines import Arrays, Tables, TooLarge, Translation, dense_tables, pymdp_arrays
from npro_aif.baselines.adapter import LOUDNESS, check_size
from npro_aif.baselines.tables import MAX_BYTES
from npro_aif.models import reactivity_maze, tmaze
from npro_aif.program.signature import Signature, Site
from tests.worlds import random_world

pytestmark = pytest.mark.usefixtures("quick_compile")

LAYOUT = Signature(  # DoorKey-8x8's
    parameter=(Site("key", 24), Site("door", 20)),
    state=(Site("position", 36), Site("direction", 4), Site("status", 4)),
    control=(Site("u", 5),),
    observation=tuple(Site(f"cell_{k}", 8) for k in range(9)),
    sensor=(Site("facing", 4),),
    preference=("goal",),
)


@pytest.fixture(scope="module")
def reactivity() -> Tables:
    return dense_tables(reactivity_maze.reactivity_maze, reactivity_maze.initial_belief(), horizon=2)


def full(table: np.ndarray, factors: list[int], sizes: list[int]) -> np.ndarray:
    """A modality's table with an axis for every factor: (outcomes, *sizes)."""
    shape = [sizes[f] if f in factors else 1 for f in range(len(sizes))]
    return np.broadcast_to(table.reshape(len(table), *shape), (len(table), *sizes))


def sizes(arrays: Arrays) -> list[int]:
    return [len(d) for d in arrays.D]


def test_sites_become_factors_and_modalities(reactivity: Tables) -> None:
    arrays = pymdp_arrays(reactivity)
    assert arrays.factors == ("location", "knob", "theta", "clock")
    assert arrays.modalities == ("cue", "seen_location", "seen_knob", "goal")
    assert arrays.A_dependencies == [[0, 2], [0], [1], [0, 1, 2, 3]]
    assert arrays.B_dependencies == [[0, 1], [1], [2], [3]]
    assert [b.shape[-1] for b in arrays.B] == [8, 8, 1, 1]
    for table in (*arrays.A, *arrays.B):
        np.testing.assert_allclose(table.sum(0), 1.0, atol=1e-12)


def test_transitions_are_the_products_of_their_factors(reactivity: Tables) -> None:
    arrays = pymdp_arrays(reactivity)
    together = np.einsum("aknu,bnu->knuab", arrays.B[0], arrays.B[1])
    expected = reactivity.transition[0].reshape(7, 5, 8, 7, 5)
    np.testing.assert_allclose(together, expected, atol=1e-12)


@pytest.mark.parametrize("goal", ["silent", "seen"])
@pytest.mark.parametrize("timing", ["model", "every"])
@pytest.mark.parametrize("factors", ["sites", "joint"])
def test_the_goals_expected_c_is_the_preference(reactivity: Tables, goal: str, timing: str, factors: str) -> None:
    arrays = pymdp_arrays(reactivity, Translation(goal, timing, factors))  # type: ignore[arg-type]
    outcome = full(arrays.A[-1], arrays.A_dependencies[-1], sizes(arrays))
    value = np.einsum("o...,o->...", outcome, arrays.C[-1])
    expected = np.moveaxis(reactivity.preference, 1, -1)  # (T, X, Θ)
    if timing == "every":
        np.testing.assert_allclose(value.ravel(), expected[-1].ravel(), atol=1e-6)
    else:
        np.testing.assert_allclose(value.reshape(70, 3)[:, 1:].T, expected.reshape(2, 70), atol=1e-6)
    assert not any(c.any() for c in arrays.C[:-1])


def test_the_silent_goal_tells_next_to_nothing(reactivity: Tables) -> None:
    outcome = pymdp_arrays(reactivity).A[-1].reshape(2, -1)
    for weight in np.random.default_rng(0).dirichlet(np.full(outcome.shape[1], 0.05), size=20):
        seen = outcome @ weight
        given = -(outcome * np.log(outcome)).sum(0) @ weight
        assert 0 <= -(seen * np.log(seen)).sum() - given <= LOUDNESS**2 / 2


def test_the_clock_runs_on_when_the_horizon_shrinks() -> None:
    tables = dense_tables(tmaze.tmaze, tmaze.initial_belief(), horizon=1)
    assert "clock" not in pymdp_arrays(tables).factors
    arrays = pymdp_arrays(tables, clock=3)
    assert arrays.factors[-1] == "clock"
    assert len(arrays.D[-1]) == 4


def test_new_values_that_depend_on_each_other_need_one_factor(reactivity: Tables) -> None:
    linked = np.zeros_like(reactivity.transition)
    linked[..., 0] = linked[..., 6] = 0.5  # location and knob are both 0, or both 1
    tables = reactivity._replace(transition=linked)
    with pytest.raises(aif.ModelError, match=r"location, knob.*depend on each other.*factors='joint'"):
        pymdp_arrays(tables)
    assert pymdp_arrays(tables, Translation(factors="joint")).B[0].shape == (70, 70, 1)


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        (2, "preference 'move': found a dependence on the previous state"),
        (3, "preference 'control': found a dependence on the control"),
        (6, "control: found a prior that depends on the state"),
        (22, "transition: found a dependence on time"),
    ],
)
def test_what_pymdp_cannot_say_is_refused(seed: int, message: str) -> None:
    random = random_world(seed)
    with pytest.raises(aif.ModelError, match=message):
        dense_tables(random.model, random.belief(), random.horizon)


@pytest.mark.parametrize("plan", [True, False])
def test_observations_of_the_control_are_refused_by_name(plan: bool) -> None:
    rows = jnp.array([[0.9, 0.1], [0.2, 0.8]])

    def model(belief: aif.Belief, horizon: int = 1) -> None:
        x = aif.state("x", dist.Categorical(probs=belief.state[0]))

        def step(x: jnp.ndarray, t: jnp.ndarray) -> jnp.ndarray:
            u = aif.control("u", dist.Categorical(probs=jnp.array([0.5, 0.5])))
            x = aif.state("x", dist.Categorical(probs=rows[x]))
            aif.observation("place", dist.Categorical(probs=rows[x]))
            aif.observation("heard", dist.Categorical(probs=rows[(x + u) % 2]), plan=plan)
            return x

        aif.rollout(step, x, horizon)

    belief = aif.Belief(state=jnp.array([0.5, 0.5]))
    with pytest.raises(aif.ModelError, match="observation 'heard': found a dependence on the control"):
        dense_tables(model, belief, 1)
    if not plan:
        assert list(dense_tables(model, belief, 1, sensors=False).observation) == ["place"]


@pytest.mark.parametrize("horizon", [20, 1_000])
def test_plans_beyond_counting_are_refused_with_their_number(horizon: int) -> None:
    with pytest.raises(TooLarge, match=rf"5\^{horizon} plans of {horizon} steps, expected at most"):
        check_size(LAYOUT, horizon, "efe", MAX_BYTES)


@pytest.mark.parametrize(("method", "what"), [("efe", r"5\^20 plans"), ("sophisticated", "branches of one node")])
def test_doorkey_is_refused_with_its_size(method: str, what: str) -> None:
    with pytest.raises(TooLarge, match=f"80.2 MiB for A, 232.0 MiB for B and .*{what}"):
        check_size(LAYOUT, 20, method, MAX_BYTES)  # type: ignore[arg-type]


def test_a_world_with_too_many_states_is_refused() -> None:
    def wide(belief: aif.Belief, horizon: int = 1) -> None:
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        x = aif.state("x", dist.Categorical(probs=belief.state[theta]))

        def step(x: jnp.ndarray, t: jnp.ndarray) -> jnp.ndarray:
            u = aif.control("u", dist.Categorical(probs=jnp.full(8, 1 / 8)))
            x = aif.state("x", aif.DeterministicCategorical((x + u) % 8000, 8000))
            aif.observation("y", aif.DeterministicCategorical(x % 2, 2))
            return x

        aif.rollout(step, x, horizon)

    belief = aif.Belief(jnp.ones(1), jnp.full((1, 8000), 1 / 8000))
    with pytest.raises(TooLarge, match=r"would take 3\.8 GiB, expected at most 2\.0 GiB"):
        dense_tables(wide, belief, 1)
