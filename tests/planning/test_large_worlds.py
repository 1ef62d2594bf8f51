"""Large worlds, whose tables are evaluated only for the parameters that are asked for: the same plans and beliefs.

The limits are lowered until small worlds count as large; what they give then must be what they give ordinarily.
"""

from __future__ import annotations

import collections
import functools
import resource
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import npro_aif as aif
from npro_aif.acting import episodes
from npro_aif.acting import filter as beliefs
from npro_aif.acting.filter import Filter
from npro_aif.envs import DoorKey
from npro_aif.guides import TemporalGuide
from npro_aif.models import doorkey
from npro_aif.planning import support
from npro_aif.planning.support import thin
from npro_aif.program import program as programs
from npro_aif.program import traced
from npro_aif.program.program import new_program, program_of
from tests.layouts import CONTROLS, DOORS, HORIZON, PLACES, PRIZES, THETA, ring, ring_belief
from tests.support import assert_close

KEY = jax.random.key(0)
GIGABYTE = 2**30

pytestmark = pytest.mark.usefixtures("quick_compile")


@pytest.fixture
def lower(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make every world large that is compiled from then on, and every belief update go in parts of two parameters."""

    def limits() -> None:
        monkeypatch.setattr(traced, "MOST_FROZEN", 0)
        monkeypatch.setattr(programs, "_known", collections.OrderedDict())  # those that were read before are not large
        monkeypatch.setattr(beliefs, "MOST_UPDATED", 2 * PLACES)

    return limits


def planner_of(model: Any, objective: Any, horizon: int = HORIZON, learn: Any = ("control",)) -> aif.Planner:
    guide = TemporalGuide(model, learn=learn)
    return aif.Planner(model, guide, objective, aif.CoordinateSolver(max_sweeps=4, restarts=1), max_horizon=horizon)


def assert_same_plan(found: aif.Plan, expected: aif.Plan) -> None:
    for name in ("control", "policy", "state", "parameter", "free_energy", "terms", "observation"):
        for a, b in zip(*(jax.tree.leaves(getattr(plan, name)) for plan in (found, expected)), strict=True):
            assert_close(a, b, 1e-6, name)


def assert_same_belief(found: aif.Belief, expected: aif.Belief) -> None:
    assert_close(found.parameter, expected.parameter, 1e-6)
    assert_close(*(np.asarray(b.parameter)[:, None] * np.asarray(b.state) for b in (found, expected)), 1e-6)


def test_only_tables_without_parameters_are_kept(lower: Callable[[], None]) -> None:
    ordinary = new_program(ring(), ring_belief(THETA), HORIZON)
    lower()
    large = new_program(ring(), ring_belief(THETA), HORIZON)
    assert ordinary.sample is None
    assert ordinary.fixed.tables.state.index.shape[1] == THETA
    assert large.sample is not None
    assert len(large.sample) == 2
    tables = large.fixed.tables
    assert tables.state is None
    assert tables.observation == {"ahead": None, "here": None}
    assert tables.control.shape == (1, 1, CONTROLS)
    found, expected = large.example(), ordinary.example()
    np.testing.assert_array_equal(found.theta, large.sample)
    np.testing.assert_array_equal(found.state.index, expected.state.index[:, large.sample])
    np.testing.assert_array_equal(found.preference["goal"], expected.preference["goal"][:, large.sample])


@pytest.mark.parametrize(
    ("model", "objective", "learn", "counts"),
    [
        (ring, aif.Active(), ("control",), (10, 9)),
        pytest.param(ring, aif.Active(), ("control",), (THETA,), marks=pytest.mark.slow),
        pytest.param(
            *(functools.partial(ring, noise=0.25), aif.Planning(), ("parameter", "control", "state"), (10,)),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["index", "all", "dense"],
)
def test_plans_are_the_same(model: Any, objective: Any, learn: Any, counts: Any, lower: Callable[[], None]) -> None:
    """From all parameters, from some, and from a few; each size compiles once, as ordinarily."""
    believed = [ring_belief(count) for count in counts]
    ordinary = planner_of(model(), objective, learn=learn)
    expected = [ordinary(KEY, belief) for belief in believed]
    lower()
    large = planner_of(model(), objective, learn=learn)
    for belief, plan in zip(believed, expected, strict=True):
        found = large(KEY, belief)
        assert_same_plan(found, plan)
    assert large.program(believed[0]).sample is not None
    assert large.num_traces == ordinary.num_traces == len(set(counts) - {9})
    assert_close(objective.free_energy(found.world(), found.complete()), plan.free_energy[-1], 1e-5)


@pytest.mark.parametrize("dense", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["index", "dense"])
def test_belief_updates_are_the_same(dense: bool, lower: Callable[[], None]) -> None:
    ordinary = Filter(program_of(ring(dense), ring_belief(THETA), 1))
    history = [ring_belief(THETA)]
    controls, rng = (None, 2, 2, 0, 1), np.random.default_rng(0)
    seen: list[dict[str, int]] = []
    for control in controls:
        possible = [{"ahead": a, "here": h} for a in (0, 1) for h in (0, 1)]
        for i in rng.permutation(4):
            try:
                history.append(ordinary(history[-1], control, possible[i]))
            except aif.ImpossibleObservation:
                continue
            seen.append(possible[i])
            break
    lower()
    large = Filter(program_of(ring(dense), ring_belief(THETA), 1))
    belief = history[0]
    for control, observation, expected in zip(controls, seen, history[1:], strict=True):
        belief = large(belief, control, observation)
        assert_same_belief(belief, expected)
        np.testing.assert_allclose(np.asarray(belief.state).sum(-1), 1, atol=1e-6)
    assert large._update._cache_size() <= 2  # all parameters, and at most 16 of them


def test_impossible_observations_in_parts(lower: Callable[[], None]) -> None:
    """What is impossible for every part is refused by name, or left out alone; what one part denies is not."""
    at_zero = np.eye(PLACES)[np.zeros(THETA, int)]
    belief = aif.Belief(jnp.full(THETA, 1 / THETA), jnp.asarray(at_zero))
    lower()
    update = Filter(program_of(ring(), belief, 1))
    seen = {"ahead": 1, "here": 1}  # the door is here for some; the prize lies at 1 … 5
    with pytest.raises(aif.ImpossibleObservation, match=r"site 'here' at step 2: observed 1"):
        update(belief, None, seen, step=2)
    found = update(belief, None, seen, ignore_impossible=True)
    expected = np.repeat(np.arange(DOORS) == 0, PRIZES) / PRIZES
    assert_close(found.parameter, expected, 1e-6)
    assert np.isfinite(np.asarray(found.state)).all()
    with pytest.raises(aif.ModelError, match=r"belief.state: found that row 0 sums to 0, expected 1"):
        update(aif.Belief(belief.parameter, 0 * belief.state), None, None, ignore_impossible=True)


def test_many_sites_do_not_underflow(lower: Callable[[], None]) -> None:
    """Twenty readings of probability 1e-3 each: less than any float32, in every part."""
    sites = 20
    rates = jnp.linspace(1e-3, 2e-3, THETA)

    def model(belief: aif.Belief, horizon: Any = 1) -> None:
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        x = aif.state("x", dist.Categorical(probs=belief.state[theta]))

        def step(x: Any, t: Any) -> Any:
            aif.control("u", dist.Categorical(probs=jnp.ones(1)))
            x = aif.state("x", aif.DeterministicCategorical(x, PLACES))
            for i in range(sites):
                rate = rates[theta]
                aif.observation(f"y{i}", dist.Categorical(probs=jnp.stack([1 - rate, rate], -1)), plan=False)
            return x

        aif.rollout(step, x, horizon)

    belief = aif.Belief(jnp.full(THETA, 1 / THETA), jnp.full((THETA, PLACES), 1 / PLACES))
    lower()
    found = aif.update_belief(model, belief, None, {f"y{i}": 1 for i in range(sites)})
    log = sites * np.log(np.asarray(rates, float))
    expected = np.exp(log - log.max())
    assert_close(found.parameter, expected / expected.sum(), 1e-5)


@pytest.mark.slow
def test_a_doorkey_episode_is_the_same(lower: Callable[[], None]) -> None:
    """An agent that acts: its beliefs and plans, without compiling anything on the way."""
    size, steps = 5, 6
    prior = doorkey.initial_belief(size)

    def episode() -> tuple[aif.Agent, list[aif.Belief]]:
        model = functools.partial(doorkey.doorkey, size=size)
        agent = aif.Agent(planner_of(model, aif.Active(weight=doorkey.WEIGHT), steps), prior, max_steps=steps)
        env, held = DoorKey(size=size), []
        observation, _ = env.reset(seed=3)
        for _ in range(steps):
            control = agent.act(observation)
            held.append(agent.belief)
            observation, _, terminated, *_ = env.step(control)
            if terminated:
                break
        return agent, held

    ordinary, expected = episode()
    lower()
    large, found = episode()
    assert large.filter.program.sample is not None
    assert large.planner.num_traces == 1
    assert large.filter._update._cache_size() == 1
    for mine, theirs in zip(found, expected, strict=True):
        assert_same_belief(mine, theirs)
    for mine, theirs in zip(large.plans, ordinary.plans, strict=True):
        assert_same_plan(mine, theirs)


def faulty(fault: str) -> Callable[..., None]:
    """A ring of places with one mistake in it."""
    square = jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(PLACES), PLACES))

    def model(belief: aif.Belief, horizon: Any = 2) -> None:
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        x = aif.state("x", dist.Categorical(probs=belief.state[theta]))

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=jnp.ones(2) / 2))
            target = (x + u) % PLACES
            x = aif.state("x", aif.DeterministicCategorical(target + (fault == "range") * (theta + 1), PLACES))
            rows = square[:, x] if fault == "broadcast" else square[x]
            scale = 1 + 0.1 * (fault == "sum") * (theta + 1)
            aif.observation("y", dist.Categorical(probs=rows * scale[..., None]))
            liking = jnp.where(x == theta % PLACES, -jnp.inf if fault == "infinite" else -1.0, 0.0)
            aif.preference("goal", liking)
            return x

        aif.rollout(step, x, horizon)

    return model


@pytest.mark.parametrize("large", [False, True], ids=["ordinary", "large"])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("range", r"site 'x': found an index that runs over \d+\.\.\d+, expected 0\.\.7"),
        ("broadcast", r"site 'y': .*index broadcasts wrongly"),
        ("sum", r"site 'y': found a probability row that sums to"),
        ("infinite", r"preference 'goal': found -inf"),
    ],
)
def test_mistakes_are_named(fault: str, message: str, large: bool, lower: Callable[[], None]) -> None:
    if large:
        lower()
    with pytest.raises(aif.ModelError, match=message):
        new_program(faulty(fault), ring_belief(THETA), 2)


def test_a_mistake_beyond_the_sample_stays_within_the_tables(lower: Callable[[], None]) -> None:
    """Nobody checked this parameter; its outcome is taken to be the last one, not what lies beyond the table."""
    lower()
    sample = new_program(faulty("none"), ring_belief(THETA), 2).sample
    assert sample is not None
    unchecked = int(np.setdiff1d(np.arange(THETA), sample)[0])

    def model(belief: aif.Belief, horizon: Any = 2) -> None:
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        x = aif.state("x", dist.Categorical(probs=belief.state[theta]))

        def step(x: Any, t: Any) -> Any:
            aif.control("u", dist.Categorical(probs=jnp.ones(2) / 2))
            return aif.state("x", aif.DeterministicCategorical(x + 100 * (theta == unchecked), PLACES))

        aif.rollout(step, x, horizon)

    program = new_program(model, ring_belief(THETA), 2)
    index = np.asarray(program.world(ring_belief(THETA), 2).state.index)[0, :, :, 0]
    expected = np.where(np.arange(THETA)[:, None] == unchecked, PLACES - 1, np.arange(PLACES))
    np.testing.assert_array_equal(index, expected)


def test_thinning_draws_by_probability_and_keeps_what_it_can() -> None:
    rng = np.random.default_rng(1)
    parameter = rng.dirichlet(np.ones(500))
    kept = thin(parameter, 40)
    assert (kept > 0).sum() == 40
    assert_close(kept.sum(), 1, 1e-12)
    likely = parameter > np.median(parameter)
    assert (kept[likely] > 0).sum() > 2 * (kept[~likely] > 0).sum()
    narrowed = np.where(rng.random(500) < 0.5, parameter, 0)
    again = thin(narrowed / narrowed.sum(), 40)
    assert (again > 0).sum() == 40
    assert set(np.flatnonzero(again)) >= set(np.flatnonzero((kept > 0) & (narrowed > 0)))
    np.testing.assert_array_equal(thin(parameter, 500), parameter)


def test_a_thinned_plan_is_the_plan_from_the_thinned_belief() -> None:
    model, belief = ring(), ring_belief(THETA)
    guide, solver = TemporalGuide(model, learn=("control",)), aif.CoordinateSolver(max_sweeps=4, restarts=1)
    thinning = aif.Planner(model, guide, aif.Planning(), solver, max_horizon=HORIZON, max_parameters=4)
    few = aif.Belief(jnp.asarray(thin(np.asarray(belief.parameter), 4)), belief.state)
    whole = aif.Planner(model, guide, aif.Planning(), solver, max_horizon=HORIZON)
    plan = thinning(KEY, belief)
    assert_same_plan(plan, whole(KEY, few))
    assert_close(plan.belief.parameter, few.parameter, 1e-7)
    batch = thinning.batch(jnp.stack([KEY, KEY]), jax.tree.map(lambda *rows: jnp.stack(rows), belief, few))
    for i in range(2):
        assert_close(batch.control[i], plan.control, 1e-6)
    with pytest.raises(ValueError, match="max_parameters: found 0, expected at least 1"):
        aif.Planner(model, max_parameters=0)


def test_a_plan_that_cannot_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = 2 * (HORIZON + 1) * THETA * PLACES * 4
    monkeypatch.setattr(support, "memory_bytes", lambda: 2 * needed - 2)
    planner = planner_of(ring(), aif.Planning())
    with pytest.raises(MemoryError, match=r"found 20 parameters .* max_parameters"):
        planner(KEY, ring_belief(THETA))


def test_large_beliefs_go_in_step_in_small_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    prior = doorkey.initial_belief(5)
    sizes = sum(np.asarray(table).nbytes for table in prior)
    monkeypatch.setattr(episodes, "MOST_BELIEF_BYTES", 2 * sizes)
    made: list[DoorKey] = []

    def make() -> DoorKey:
        made.append(DoorKey(size=5, max_steps=1))
        return made[-1]

    model = functools.partial(doorkey.doorkey, size=5)
    agent = aif.Agent(planner_of(model, aif.Planning(), 1), prior, max_steps=1)
    assert len(aif.run_episodes(make, agent, range(5)).episodes) == 5
    assert len(made) == 2


@pytest.mark.slow
def test_doorkey_of_size_16() -> None:
    """26,208 layouts of 3136 states: an episode's beliefs, and a plan once 16 layouts are left, within 8 GB."""
    size, horizon = 16, 6
    model = functools.partial(doorkey.doorkey, size=size)
    agent = aif.Agent(planner_of(model, aif.Active(weight=doorkey.WEIGHT), horizon), doorkey.initial_belief(size))
    assert agent.filter.program.sample is not None
    env = DoorKey(size=size)
    observation, info = env.reset(seed=0)
    counts = []
    for control in (2, 2, 1, 2):
        agent.observe(observation)
        parameter = np.asarray(agent.belief.parameter)
        counts.append(int((parameter > 0).sum()))
        assert parameter[info["theta"]] > 0
        assert agent.belief.state[info["theta"], info["state"]] > 0
        agent.state = agent.state._replace(control=control)
        observation, _, _, _, info = env.step(control)
    assert 14196 >= counts[0] >= counts[-1] > 16
    agent.observe(observation)
    possible = np.flatnonzero(np.asarray(agent.belief.parameter))
    held = np.append(np.random.default_rng(0).choice(possible, 15, replace=False), info["theta"])
    parameter = np.zeros(len(agent.belief.parameter), np.float32)
    parameter[held] = 1
    belief = aif.Belief(jnp.asarray(parameter / parameter.sum()), agent.belief.state)
    plan = agent.planner(KEY, belief)
    assert np.isfinite(np.asarray(plan.free_energy)).all()
    assert_close(plan.control.sum(-1), np.ones(horizon), 1e-5)
    # The tables of the plan are the model's rules at these layouts.
    tables = plan.world()
    flat = np.unravel_index(np.arange(3136), (196, 4, 4))
    state = doorkey.State(*(jnp.asarray(v, jnp.int32)[None, :, None] for v in flat))
    layout = doorkey.Layout(*(jnp.asarray(v, jnp.int32)[:, None, None] for v in np.divmod(plan.theta, 156)))
    after = doorkey.next_state(state, jnp.arange(5), layout, size)
    np.testing.assert_array_equal(tables.state.index[0], (after.position * 4 + after.direction) * 4 + after.status)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < 8 * GIGABYTE
