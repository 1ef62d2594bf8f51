"""Beliefs that have their states by their entries: the same updates and plans as with tables, and what is refused."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import npro_aif as aif
from npro_aif import states
from npro_aif.acting import filter as beliefs
from npro_aif.acting import sparse
from npro_aif.acting.filter import Filter
from npro_aif.acting.solutions import fingerprint
from npro_aif.envs import DoorKey
from npro_aif.guides import RecallGuide
from npro_aif.models import doorkey
from npro_aif.program import program as programs
from npro_aif.program import traced
from npro_aif.program.program import program_of
from npro_aif.states import SparseStates
from tests.layouts import PLACES, THETA, ring, ring_belief
from tests.worlds import random_world

KEY = jax.random.key(0)

pytestmark = pytest.mark.usefixtures("quick_compile")


def by_entries(belief: aif.Belief) -> aif.Belief:
    return belief._replace(state=SparseStates.of(belief.state))


def joint(belief: aif.Belief) -> np.ndarray:
    return np.asarray(belief.parameter)[:, None] * np.asarray(belief.state)


@pytest.fixture(params=[pytest.param("ordinary", marks=pytest.mark.slow), "large"])
def size(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A world of which all tables are kept, or one that counts as large; its updates then go in small parts."""
    if request.param == "large":
        monkeypatch.setattr(traced, "MOST_FROZEN", 0)
        monkeypatch.setattr(programs, "_known", collections.OrderedDict())
        monkeypatch.setattr(beliefs, "MOST_UPDATED", 2 * PLACES)
        monkeypatch.setattr(sparse, "ENTRIES_AT_ONCE", 7)
    return request.param


# --- Updates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [16, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (4, 20))])
def test_updates_of_random_worlds_are_the_same(seed: int, x64: None) -> None:
    world, rng = random_world(seed), np.random.default_rng(seed)
    dense = few = Filter(world.model, world.belief())
    belief, own = world.belief(), by_entries(world.belief())
    for control in (None, 0, int(rng.integers(world.tables.control.shape[-1]))):
        moved = dense(belief, control, None)
        seen = {}
        for i, name in enumerate(world.shapes.observation):  # what is possible, so that nothing is left out
            predicted = np.einsum("ix,ixy->y", joint(moved), world.tables.observations[i][0])
            seen[name] = int(np.argmax(predicted))
            try:
                dense(belief, control, seen)
            except aif.ImpossibleObservation:
                del seen[name]
        belief, own = dense(belief, control, seen or None), few(own, control, seen or None)
        assert isinstance(own.state, SparseStates)
        np.testing.assert_allclose(joint(own), joint(belief), atol=1e-12)


@pytest.mark.parametrize(
    "kind",
    [{}, pytest.param({"dense": True}, marks=pytest.mark.slow), {"noise": 0.2}],
    ids=["certain", "rows", "chance"],
)
def test_updates_are_the_same(kind: Any, size: str) -> None:
    belief = ring_belief(THETA)
    own, update = by_entries(belief), Filter(ring(**kind), belief)
    assert (update.program.sample is None) == (size == "ordinary")
    assert update._sparse.certain == (not kind)
    for control, seen in ((None, {"here": 0}), (2, {"ahead": 0}), (2, None), (0, {"ahead": 0, "here": 0})):
        belief, own = update(belief, control, seen), update(own, control, seen)
        np.testing.assert_allclose(joint(own), joint(belief), atol=1e-6)
        np.testing.assert_allclose(np.asarray(own.state.probs).sum(-1), 1, atol=1e-6)
    assert own.state.probs.shape[1] <= PLACES


@pytest.mark.parametrize("kind", [{}, pytest.param({"noise": 0.2}, marks=pytest.mark.slow)], ids=["certain", "chance"])
def test_what_is_impossible_is_named_or_left_out(kind: Any, size: str) -> None:
    belief = aif.Belief(
        jnp.ones(THETA) / THETA, SparseStates(np.zeros((THETA, 1), np.int32), np.ones((THETA, 1)), PLACES)
    )
    update = Filter(ring(**kind), belief)
    with pytest.raises(aif.ImpossibleObservation, match="site 'here' at step 3: observed 1"):
        update(belief, None, {"ahead": 1, "here": 1}, step=3)
    left = update(belief, None, {"ahead": 1, "here": 1}, ignore_impossible=True)
    np.testing.assert_allclose(joint(left), joint(update(belief, None, {"ahead": 1})), atol=1e-6)


@functools.cache
def two_sites() -> Callable[..., None]:
    """A world in which the second state is where the first one goes, and the third follows the second."""

    def model(belief: aif.Belief, horizon: Any = 2) -> None:
        start = aif.initial_state({"a": 3, "b": 3}, belief.state[0])

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=jnp.ones(2) / 2))
            a = aif.state("a", aif.DeterministicCategorical((x["a"] + u) % 3, 3))
            b = aif.state("b", aif.DeterministicCategorical((a + x["b"]) % 3, 3))
            aif.observation("y", aif.DeterministicCategorical(b, 3))
            return {"a": a, "b": b}

        aif.rollout(step, start, horizon)

    return model


def test_a_state_may_read_the_one_before_it() -> None:
    rng = np.random.default_rng(0)
    belief = aif.Belief(state=jnp.asarray(rng.dirichlet(np.ones(9))))
    update = Filter(two_sites(), belief)
    found, expected = (update(b, 1, {"y": 2}) for b in (by_entries(belief), belief))
    np.testing.assert_allclose(joint(found), joint(expected), atol=1e-6)


# --- Observations that read the control ----------------------------------------------------------------------


HEARD = jnp.stack([0.85 * jnp.eye(3) + 0.05, 0.25 * jnp.eye(3) + 0.25])  # by control and θ


def listening(belief: aif.Belief, horizon: Any = 2) -> None:
    """What is heard depends on the control, what is seen does not."""
    theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
    x = aif.state("x", dist.Categorical(probs=belief.state[theta]))

    def step(x: Any, t: Any) -> Any:
        u = aif.control("u", dist.Categorical(probs=jnp.ones(2) / 2))
        x = aif.state("x", aif.DeterministicCategorical((x + u) % 3, 3))
        aif.observation("heard", dist.Categorical(probs=HEARD[u, theta]))
        aif.observation("seen", aif.DeterministicCategorical((x == theta).astype(jnp.int32), 2))
        return x

    aif.rollout(step, x, horizon)


@pytest.mark.parametrize("few", [False, True], ids=["table", "entries"])
def test_nothing_is_heard_of_a_control_before_the_first(few: bool, size: str) -> None:
    rng = np.random.default_rng(0)
    belief = aif.Belief(jnp.asarray(rng.dirichlet(np.ones(3))), jnp.asarray(rng.dirichlet(np.ones(3), 3)))
    own = by_entries(belief) if few else belief
    update = Filter(listening, belief)
    assert (update.program.sample is None) == (size == "ordinary")
    before = joint(belief)
    sight = np.eye(3)  # p(seen = 1 | x, θ)
    found = joint(update(own, None, {"heard": 2, "seen": 0}))
    np.testing.assert_allclose(found, before * (1 - sight) / (before * (1 - sight)).sum(), atol=1e-6)
    moved = np.roll(before, 1, axis=1)  # after the control 1, of which 0.5 is heard right
    heard = np.where(np.arange(3) == 2, 0.5, 0.25)[:, None]
    expected = moved * heard * sight
    found = joint(update(own, 1, {"heard": 2, "seen": 1}))
    np.testing.assert_allclose(found, expected / expected.sum(), atol=1e-6)


# --- Plans and agents ----------------------------------------------------------------------------------------


def test_searches_are_the_same(size: str) -> None:
    model, belief = ring(), ring_belief(THETA)
    plans = [
        aif.Planner(model, RecallGuide(model), aif.Planning(), aif.SearchSolver(), max_horizon=4)(KEY, b)
        for b in (belief, by_entries(belief))
    ]
    assert all(plan.info.optimal for plan in plans)
    np.testing.assert_allclose(plans[1].info.upper, plans[0].info.upper, atol=1e-5)
    np.testing.assert_allclose(plans[1].control_cost, plans[0].control_cost, atol=1e-4)


@pytest.mark.slow
def test_sweeps_are_the_same(size: str) -> None:
    model, belief = ring(), ring_belief(5)
    solver = aif.CoordinateSolver(max_sweeps=4, restarts=1)
    planner = aif.Planner(model, objective=aif.Planning(), solver=solver, max_horizon=3)
    plans = [planner(KEY, b) for b in (belief, by_entries(belief))]
    np.testing.assert_allclose(plans[1].free_energy, plans[0].free_energy, atol=1e-5)
    np.testing.assert_allclose(plans[1].state, plans[0].state, atol=1e-5)
    assert plans[1].world().initial.shape == plans[0].world().initial.shape


@pytest.mark.slow
def test_an_episode_is_the_same() -> None:
    model, prior = functools.partial(doorkey.doorkey, size=5), doorkey.initial_belief(5)
    played = []
    for belief in (prior, by_entries(prior)):
        planner = aif.Planner(model, RecallGuide(model), aif.Planning(), aif.SearchSolver(), max_horizon=35)
        agent = aif.Agent(planner, belief, max_steps=35)
        played.append([e.controls for e in aif.run_episodes(lambda: DoorKey(size=5), agent, range(3)).episodes])
    assert played[0] == played[1]


def test_doorkeys_prior_has_the_same_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = doorkey.initial_belief(6)
    monkeypatch.setattr(doorkey, "EXACT_UP_TO", 5)
    few = doorkey.initial_belief(6)
    assert isinstance(few.state, SparseStates)
    np.testing.assert_allclose(joint(few), joint(dense), atol=1e-9)
    assert fingerprint(few) == fingerprint(dense)


# --- What is refused -----------------------------------------------------------------------------------------


def sharpened(belief: aif.Belief, horizon: Any = 2) -> None:
    x = aif.state("x", dist.Categorical(logits=2 * jnp.log(belief.state[0] + 1e-9)))

    def step(x: Any, t: Any) -> Any:
        u = aif.control("u", dist.Categorical(probs=jnp.ones(2) / 2))
        return aif.state("x", aif.DeterministicCategorical((x + u) % 3, 3))

    aif.rollout(step, x, horizon)


def test_a_program_that_changes_the_belief_is_refused() -> None:
    belief = aif.Belief(state=SparseStates(np.array([[0, 1]]), np.array([[0.5, 0.5]]), 3))
    with pytest.raises(ValueError, match=r"SparseStates.*uses the belief for more than"):
        aif.update_belief(sharpened, belief, 0, None)
    with pytest.raises(ValueError, match=r"SparseStates.*uses the belief for more than"):
        aif.Planner(sharpened, objective=aif.Planning(), max_horizon=2)(KEY, belief)


@pytest.mark.parametrize(
    ("index", "probs", "message"),
    [
        ([[0, 3]], [[0.5, 0.5]], "states 0..3, expected 0..2"),
        ([[0, 1]], [[0.5, 0.4]], "row 0 sums to 0.9"),
        ([[0, 1]], [[1.5, -0.5]], "negative probability"),
        ([[0.0, 1.0]], [[0.5, 0.5]], "expected whole numbers"),
        ([[0]], [[0.5, 0.5]], "as many probabilities"),
        (np.zeros((1, 0), int), np.zeros((1, 0)), "no states at all"),
    ],
)
def test_entries_that_are_no_rows_are_refused(index: Any, probs: Any, message: str) -> None:
    belief = aif.Belief(state=SparseStates(np.array(index), np.array(probs), 3))
    with pytest.raises(aif.ModelError, match=message):
        aif.update_belief(sharpened, belief, 0, None)


def test_entries_in_lists_are_taken_as_tables_in_lists_are() -> None:
    """With the state alone they become arrays; beside a parameter, where arrays are expected, they are named."""
    states = SparseStates([[0, 2]], [[0.25, 0.75]], 3)
    np.testing.assert_array_equal(np.asarray(aif.Belief(state=states).state), [[0.25, 0, 0.75]])
    for entries, field in (
        (states, "index"),
        (SparseStates(np.array([[0, 2]]), [[0.25, 0.75]], 3), "probs"),
    ):
        with pytest.raises(aif.ModelError, match=rf"belief\.state\.{field}: found list, expected an array"):
            aif.update_belief(sharpened, aif.Belief(np.ones(1), entries), 0, None)
    with pytest.raises(aif.ModelError, match=r"belief\.state\.num_states: found 3\.0, expected a whole number"):
        aif.update_belief(sharpened, aif.Belief(state=SparseStates([[0]], [[1.0]], 3.0)), 0, None)  # type: ignore[arg-type]


def test_a_table_that_would_be_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "MOST_FROZEN", 5)
    table = SparseStates(np.zeros((2, 1), np.int32), np.ones((2, 1)), 3)
    assert table[1].tolist() == [1, 0, 0]
    assert table[1, 0] == 1
    with pytest.raises(aif.ModelError, match="where a table of all of them is needed"):
        np.asarray(table)


def test_a_point_in_a_world_of_many_states_takes_no_table() -> None:
    """A thousand parameters and 10⁵ states: a belief of 100 MB as a table, of 8 kB by its entries."""
    parameters, num_states = 1000, 100_000

    def model(belief: aif.Belief, horizon: Any = 2) -> None:
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        x = aif.state("x", dist.Categorical(probs=belief.state[theta]))

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=jnp.ones(2) / 2))
            x = aif.state("x", aif.DeterministicCategorical((x + u + theta) % num_states, num_states))
            aif.observation("y", aif.DeterministicCategorical(x % 7, 7))
            return x

        aif.rollout(step, x, horizon)

    point = SparseStates(np.full((parameters, 1), 5, np.int32), np.ones((parameters, 1), np.float32), num_states)
    belief = Filter(program_of(model, aif.Belief(jnp.ones(parameters) / parameters, point), 1))(
        aif.Belief(jnp.ones(parameters) / parameters, point), 1, {"y": 3}
    )
    kept = np.flatnonzero(np.asarray(belief.parameter))
    np.testing.assert_array_equal(kept, [i for i in range(parameters) if (6 + i) % 7 == 3])
    np.testing.assert_array_equal(belief.state.index[kept, 0], 6 + kept)
