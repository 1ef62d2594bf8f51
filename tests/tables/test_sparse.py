"""Sparse transitions against the dense ones of the same numbers: plans, beliefs, free energies and gradients."""

from __future__ import annotations

import collections
import tracemalloc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from scipy.sparse import csr_matrix

import npro_aif as aif
from npro_aif.guides import TemporalGuide
from npro_aif.models.grids import targets
from npro_aif.program.program import program_of
from npro_aif.tables import sparse as sparse_tables
from npro_aif.tables.dense import DenseTransition
from npro_aif.tables.sparse import SparseTransition
from tests.support import assert_close

pytestmark = pytest.mark.usefixtures("quick_compile")

KEY = jax.random.key(0)
SEES_PARAMETERS = pytest.mark.parametrize("sees_parameters", [pytest.param(False, marks=pytest.mark.slow), True])
NUM_PARAMETERS, NUM_STATES, NUM_CONTROLS, ENTRIES = 3, 7, 2, 3
STAY = 2  # the values of a second site


class Numbers:
    """A random world with few outcomes a row, some of them twice and some impossible."""

    def __init__(self, seed: int, sees_parameters: bool):
        rng = np.random.default_rng(seed)
        shape = (NUM_PARAMETERS if sees_parameters else 1, NUM_STATES, NUM_CONTROLS, ENTRIES)
        self.index = rng.integers(NUM_STATES, size=shape)
        self.probs = rng.dirichlet(np.ones(ENTRIES), shape[:-1])
        self.probs[:, 0, 0] = [0.0, 0.25, 0.75]
        self.index[:, 1, 1] = self.index[:, 1, 1, :1]  # one outcome, three times
        self.rows = np.zeros((*shape[:-1], NUM_STATES))
        for place in np.ndindex(*shape):
            self.rows[place[:-1]][self.index[place]] += self.probs[place]
        self.words = rng.dirichlet(np.ones(2), (NUM_PARAMETERS, NUM_STATES))
        self.goal = rng.normal(size=(NUM_PARAMETERS, NUM_STATES, NUM_CONTROLS, NUM_STATES))
        self.flags = rng.dirichlet(np.ones(STAY), (NUM_STATES, STAY))  # by the new x, and the old flag

    def belief(self) -> aif.Belief:
        rng = np.random.default_rng(9)
        states = rng.dirichlet(np.ones(NUM_STATES * STAY), NUM_PARAMETERS)
        return aif.Belief(jnp.asarray(rng.dirichlet(np.ones(NUM_PARAMETERS))), jnp.asarray(states))

    def model(self, sparse: bool) -> Callable[..., None]:
        index, probs, rows = map(jnp.asarray, (self.index, self.probs, self.rows))
        words, goal, flags = map(jnp.asarray, (self.words, self.goal, self.flags))

        def model(belief: aif.Belief, horizon: int = 3) -> None:
            theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
            start = aif.initial_state({"x": NUM_STATES, "flag": STAY}, belief.state[theta])

            def step(carry: tuple[Any, Any], t: Any) -> tuple[Any, Any]:
                x, flag = carry
                u = aif.control("u", dist.Categorical(probs=jnp.full(NUM_CONTROLS, 1 / NUM_CONTROLS)))
                place = (theta if len(index) > 1 else 0, x, u)
                few = aif.SparseCategorical(index[place], probs[place], NUM_STATES)
                new = aif.state("x", few if sparse else dist.Categorical(probs=rows[place]))
                flag = aif.state("flag", dist.Categorical(probs=flags[new, flag]))
                aif.observation("y", dist.Categorical(probs=words[theta, new]))
                aif.preference("goal", goal[theta, x, u, new])
                return new, flag

            aif.rollout(step, (start["x"], start["flag"]), horizon)

        return model


@pytest.mark.parametrize(
    ("objective", "sees_parameters"),
    [
        (aif.Planning(), False),
        (aif.Active(), True),
        pytest.param(aif.Marginal(), True, marks=pytest.mark.slow),  # tilted rows: to the entry, below
    ],
)
def test_plans_are_those_of_the_dense_world(objective: Any, sees_parameters: bool) -> None:
    numbers = Numbers(1, sees_parameters)
    belief = numbers.belief()
    learn = aif.guides.FACTORS if isinstance(objective, aif.Marginal) else ("control",)
    plans = []
    for sparse in (True, False):
        model = numbers.model(sparse)
        planner = aif.Planner(model, TemporalGuide(model, learn), objective, aif.CoordinateSolver(), 3)
        plans.append(planner(KEY, belief))
    few, dense = plans
    assert isinstance(few.world().state, SparseTransition)
    assert isinstance(dense.world().state, DenseTransition)
    assert_close(few.free_energy[-1], dense.free_energy[-1], 1e-5)
    for name in ("control", "policy", "state", "parameter"):
        assert_close(getattr(few, name), getattr(dense, name), 1e-5, name)
    for name, term in dense.terms.items():
        assert_close(few.terms[name], term, 1e-5, name)


@SEES_PARAMETERS
def test_beliefs_are_those_of_the_dense_world(sees_parameters: bool) -> None:
    numbers = Numbers(2, sees_parameters)
    few, dense = (aif.update_belief(numbers.model(sparse), numbers.belief(), 1, 0) for sparse in (True, False))
    assert_close(few.parameter, dense.parameter, 1e-5)
    assert_close(few.state, dense.state, 1e-5)


@SEES_PARAMETERS
def test_kernels_agree_to_the_entry(sees_parameters: bool, x64: None) -> None:
    """Every method, prepared and not, with values and gradients."""
    numbers = Numbers(3, sees_parameters)
    belief, rng = numbers.belief(), np.random.default_rng(0)
    worlds = [program_of(numbers.model(sparse), belief, 1).world(belief, 1) for sparse in (True, False)]
    few, dense = (world.state.at(0) for world in worlds)
    assert few.source is not None
    num = NUM_STATES * STAY
    before = jnp.asarray(rng.dirichlet(np.ones(num * NUM_PARAMETERS)).reshape(num, NUM_PARAMETERS))
    policy = jnp.asarray(rng.dirichlet(np.ones(NUM_CONTROLS), num))
    value = jnp.asarray(rng.normal(size=(num, NUM_PARAMETERS)))
    cost = jnp.asarray(rng.normal(size=(NUM_PARAMETERS, 1, NUM_CONTROLS, num)))
    scattered = SparseTransition(few.index, few.log, few.size)
    calls: dict[str, Callable[[Any], Any]] = {
        "push": lambda kernel: kernel.push(before, policy),
        "pull": lambda kernel: kernel.pull(value),
        "spread": lambda kernel: kernel.spread(before),
        "expect": lambda kernel: kernel.expect(cost),
        "expect one": lambda kernel: kernel.expect(cost[..., :1]),
        "tilt": lambda kernel: kernel.tilt(cost)[1],
        "tilted": lambda kernel: kernel.tilt(cost)[0].pull(value),
        "divergence": lambda kernel: kernel.tilt(cost)[0].divergence(kernel),
        "learned": lambda kernel: jnp.exp(kernel.learned(kernel.at_entries(cost)).table()),
        "given": lambda kernel: kernel.given(1).push(before, policy[:, :1]),
        "row": lambda kernel: kernel.row(jnp.array([0, 1]), jnp.array([3, 4]), jnp.array([1, 0])),
        "table": lambda kernel: jnp.exp(kernel.table()),
        "possible": lambda kernel: kernel.possible,
    }

    def push_squared(flow: Any, kernel: Any) -> Any:
        return (kernel.push(flow, policy) ** 2).sum()

    def spread_squared(flow: Any, kernel: Any) -> Any:
        return (kernel.spread(flow) ** 2).sum()

    @jax.jit
    def results(kernel: Any) -> dict[str, Any]:
        gradients = {f.__name__: jax.grad(f)(before, kernel) for f in (push_squared, spread_squared)}
        return {name: call(kernel) for name, call in calls.items()} | gradients

    expected = results(dense)
    for kernel in (few, scattered):
        for name, found in results(kernel).items():
            assert_close(np.broadcast_to(found, expected[name].shape), expected[name], 1e-9, name)


def test_gradients_of_free_energies() -> None:
    """dF/d(logits of the policy and of the states) by numpyro's own loss; a sparse state has logits for its entries."""
    numbers = Numbers(4, sees_parameters=True)
    belief, found = numbers.belief(), []
    models = [numbers.model(sparse) for sparse in (False, True)]
    worlds = [program_of(model, belief, 2).world(belief, 2) for model in models]
    kernel = worlds[1].state
    shapes = TemporalGuide(models[0], aif.guides.FACTORS).tables(worlds[0], 2)
    params = {name: 0.1 * jax.random.normal(KEY, table.shape) for name, table in shapes.items()}
    for model, world in zip(models, worlds, strict=True):
        guide = TemporalGuide(model, aif.guides.FACTORS)
        if world.state is kernel:
            params["state_logits"] = kernel.at_entries(params["state_logits"])
        assert {name: table.shape for name, table in guide.tables(world, 2).items()} == {
            name: values.shape for name, values in params.items()
        }

        def loss(params: Any, guide: Any = guide, world: Any = world) -> Any:
            return aif.Active(gradient="through").free_energy(world, guide.posterior(world, params, 2))

        found.append(jax.jit(jax.value_and_grad(loss))(params))
    (dense, slopes), (few, own) = found
    assert_close(few, dense, 1e-5)
    there = kernel.log > -jnp.inf  # an outcome that is there twice has one logit that counts
    slopes["state_logits"] = jnp.where(there, kernel.at_entries(slopes["state_logits"]), 0.0)
    for name, slope in slopes.items():
        assert_close(own[name], slope, 1e-5, name)


def test_a_gradient_reaches_entries_of_probability_zero(x64: None) -> None:
    """An entry of zero, and another one of the same outcome: against differences, which are the same in both forms."""
    index = jnp.array([1, 1, 0])

    def loss(probs: Any, sparse: bool) -> Any:
        scaled = probs / probs.sum()
        row = jnp.zeros(2).at[index].add(scaled)

        def model(belief: aif.Belief, horizon: int = 1) -> None:
            x = aif.state("x", dist.Categorical(probs=belief.state[0]))

            def step(x: Any, t: Any) -> Any:
                aif.control("u", dist.Categorical(probs=jnp.ones(1)))
                few = aif.SparseCategorical(jnp.stack([index] * 2)[x], jnp.stack([scaled] * 2)[x], 2)
                x = aif.state("x", few if sparse else dist.Categorical(probs=jnp.stack([row] * 2)[x]))
                aif.preference("worth", jnp.where(x == 1, 3.0, 0.0))
                return x

            aif.rollout(step, x, horizon)

        belief = aif.Belief(state=jnp.array([1.0, 0.0]))
        return aif.Planner(model, objective=aif.Planning())(KEY, belief).free_energy[-1]

    probs = jnp.array([0.0, 0.4, 0.6])
    expected = [-3 * (1 - 0.4), -3 * (1 - 0.4), 3 * 0.4]  # F = −3 (p_0 + p_1) / Σ p
    for sparse in (True, False):
        assert_close(jax.grad(loss)(probs, sparse), np.array(expected), 1e-9, sparse)


def test_negative_entries_of_observations_are_refused() -> None:
    def model(belief: aif.Belief, horizon: int = 1) -> None:
        x = aif.state("x", dist.Categorical(probs=belief.state[0]))

        def step(x: Any, t: Any) -> Any:
            aif.control("u", dist.Categorical(probs=jnp.ones(1)))
            x = aif.state("x", aif.DeterministicCategorical(x, 2))
            probs = jnp.array([[0.5, 0.6, -0.1], [0.2, 0.9, -0.1]])
            aif.observation("y", aif.SparseCategorical(jnp.arange(3), probs[x], 3))
            return x

        aif.rollout(step, x, horizon)

    with pytest.raises(aif.ModelError, match=r"site 'y': found a .*(row that sums to 1\.1|negative probability -0\.1)"):
        aif.update_belief(model, aif.Belief(state=jnp.ones(2) / 2), 0, 1)


def test_learned_states_take_memory_by_entries() -> None:
    """One logit for each entry, by updates and by gradients; a table over pairs of these states would take 100 GB."""
    side, horizon = 100, 2
    model, _ = grid(side, goal=side * side // 2, horizon=horizon)
    belief = aif.Belief(jnp.ones(1), aif.SparseStates(np.zeros((1, 1), int), np.ones((1, 1)), side * side))
    guide = TemporalGuide(model, ("control", "state"))
    world = program_of(model, belief, horizon).world(belief, horizon)
    assert guide.tables(world, horizon)["state_logits"].shape == (horizon, 1, side * side, 4, 4)
    for solver in (aif.CoordinateSolver(max_sweeps=3, restarts=1), aif.SVISolver(optax.adam(0.05), 3)):
        plan = aif.Planner(model, guide, aif.Marginal(), solver, horizon)(KEY, belief)
        assert np.isfinite(plan.free_energy[-1])


def test_search_takes_memory_by_entries() -> None:
    """A few steps in a grid that is too large for tables over pairs of states, against value iteration by scipy."""
    side, horizon, goal = 60, 4, 1830
    model, moves = grid(side, goal, horizon, seen=True)
    start = goal - 2
    belief = aif.Belief(jnp.ones(1), aif.SparseStates(np.array([[start]]), np.ones((1, 1)), side * side))
    planner = aif.Planner(model, aif.guides.RecallGuide(model), aif.Planning(), aif.SearchSolver(), horizon)
    tracemalloc.start()
    plan = planner(KEY, belief)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * side**4  # bytes of one table over pairs of states, without controls
    value = np.zeros(side * side)
    for _ in range(horizon):
        value = np.max([move @ (value + np.eye(1, side * side, goal)[0]) for move in moves], axis=0)
    assert plan.info.optimal
    assert horizon * np.log(4) - float(plan.info.upper) == pytest.approx(value[start], rel=1e-5)


def chain(num_states: int) -> Callable[..., None]:
    """States in a ring, written as dense rows with few entries."""
    step = np.zeros((num_states, 2, num_states))
    places = np.arange(num_states)
    for u, way in enumerate((1, -1)):
        step[places, u, (places + way) % num_states] = 0.7
        step[places, u, (places + 2 * way) % num_states] += 0.2
        step[places, u, places] += 0.1
    rows, worth = jnp.asarray(step), jnp.asarray(np.random.default_rng(0).normal(size=num_states))

    def model(belief: aif.Belief, horizon: int = 5) -> None:
        x = aif.state("x", dist.Categorical(probs=belief.state[0]))

        def move(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=jnp.ones(2) / 2))
            x = aif.state("x", dist.Categorical(probs=rows[x, u]))
            aif.preference("worth", worth[x])
            return x

        aif.rollout(move, x, horizon)

    return model


def test_dense_rows_with_few_entries_are_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 2 * sparse_tables.SPARSE_FROM
    belief, model = aif.Belief(state=jax.nn.one_hot(3, size)), chain(size)
    few = aif.Planner(model, objective=aif.Planning())(KEY, belief)
    assert isinstance(few.world().state, SparseTransition)
    monkeypatch.setattr(sparse_tables, "SPARSE_FROM", 10**9)
    model = chain(size)  # another program
    monkeypatch.setattr("npro_aif.program.program._known", collections.OrderedDict())
    dense = aif.Planner(model, objective=aif.Planning())(KEY, belief)
    assert isinstance(dense.world().state, DenseTransition)
    for name in ("control", "policy", "state"):
        assert_close(getattr(few, name), getattr(dense, name), 1e-5, name)
    assert_close(few.free_energy[-1], dense.free_energy[-1], 1e-5)
    assert int(few.info.iterations) == 1  # nothing is unknown: the first backward pass is the solution
    assert bool(few.info.converged)


def test_it_is_an_ordinary_distribution() -> None:
    fn = aif.SparseCategorical(jnp.array([[7, 2, 7], [0, 1, 2]]), jnp.array([0.5, 0.25, 0.25]), 9)
    draws = fn.sample(KEY, (4000,))
    assert draws.shape == (4000, 2)
    assert_close((draws[:, 0] == 7).mean(), 0.75, 0.03)
    assert_close(jnp.exp(fn.log_prob(fn.enumerate_support())).sum(0), np.ones(2), 1e-6)
    with numpyro.handlers.seed(rng_seed=0):
        assert int(numpyro.sample("x", fn)[0]) in (2, 7)


def test_mistakes_are_named() -> None:
    with pytest.raises(aif.ModelError, match="index must be integers"):
        aif.SparseCategorical(jnp.ones(2), jnp.ones(2) / 2, 3)
    with pytest.raises(aif.ModelError, match="as many of the one as of the other"):
        aif.SparseCategorical(jnp.ones(2, int), jnp.ones(3) / 3, 3)
    with pytest.raises(aif.ModelError, match=r"found \(2, 0\) outcomes and .* along the last axis, and at least one"):
        aif.SparseCategorical(jnp.ones((2, 0), int), jnp.ones((2, 0)), 3)
    for wrong in (4.7, 4.0, "4", 0):
        with pytest.raises(
            aif.ModelError, match=f"SparseCategorical: num_categories: found {wrong!r}, expected a whole"
        ):
            aif.SparseCategorical(jnp.zeros(1, int), jnp.ones(1), wrong)  # type: ignore[arg-type]

    def model(belief: aif.Belief, horizon: int = 2, last: int = 5, total: float = 1.0) -> None:
        x = aif.state("x", dist.Categorical(probs=belief.state[0]))

        def step(x: Any, t: Any) -> Any:
            aif.control("u", dist.Categorical(probs=jnp.ones(2) / 2))
            index = jnp.stack([x, jnp.full_like(x, last)], -1)
            return aif.state("x", aif.SparseCategorical(index, total * jnp.array([0.5, 0.5]), 3))

        aif.rollout(step, x, horizon)

    belief = aif.Belief(state=jnp.ones(3) / 3)
    with pytest.raises(aif.ModelError, match=r"site 'x': found an index that runs over 0..5, expected 0..2"):
        aif.Planner(model)(KEY, belief)
    with pytest.raises(aif.ModelError, match=r"site 'x': found a probability row that sums to 0\.9"):
        aif.Planner(lambda belief, horizon=2: model(belief, horizon, 1, 0.9))(KEY, belief)


def grid(side: int, goal: int, horizon: int, *, seen: bool = False) -> tuple[Callable[..., None], list[csr_matrix]]:
    """A slippery grid with a cell that is worth 1 a step, and p(x'|x,u) of each control.

    :param seen: whether the agent observes its cell.
    """
    cells, to = side * side, targets(side, side)
    mix = 0.1 + 0.6 * np.eye(4)  # which way each control goes
    index = np.broadcast_to(to[:, None], (cells, 4, 4))

    def model(belief: aif.Belief, horizon: int = horizon) -> None:
        x = aif.state("x", dist.Categorical(probs=belief.state[0]))

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=jnp.ones(4) / 4))
            x = aif.state("x", aif.SparseCategorical(jnp.asarray(index)[x, u], jnp.asarray(mix)[u], cells))
            if seen:
                aif.observation("cell", aif.DeterministicCategorical(x, cells), plan=False)
            aif.preference("goal", jnp.where(x == goal, 1.0, 0.0))
            return x

        aif.rollout(step, x, horizon)

    rows = np.repeat(np.arange(cells), 4)
    return model, [csr_matrix((np.tile(mix[u], cells), (rows, to.ravel())), (cells, cells)) for u in range(4)]


def test_a_slippery_grid_is_worth_what_value_iteration_says() -> None:
    """Against scipy's sparse matrices, from every cell."""
    side, horizon = 9, 12
    cells, goal = side * side, 40
    model, moves = grid(side, goal, horizon)
    value = np.zeros(cells)
    for _ in range(horizon):
        value = np.max([move @ (value + np.eye(cells)[goal]) for move in moves], axis=0)
    start = np.random.default_rng(0).dirichlet(np.ones(cells))
    bound = aif.perfect_information(model, aif.Belief(state=jnp.asarray(start)), horizon)
    assert horizon * np.log(4) - float(bound) == pytest.approx(start @ value, rel=1e-5)
