"""Sparse transitions against the dense ones of the same numbers: plans, beliefs, free energies and gradients."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
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
        "learned": lambda kernel: jnp.exp(kernel.learned(cost).table()),
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
    """dF/d(logits of the policy and of the states) by numpyro's own loss."""
    numbers = Numbers(4, sees_parameters=True)
    belief, found = numbers.belief(), []
    for sparse in (True, False):
        model = numbers.model(sparse)
        guide = TemporalGuide(model, aif.guides.FACTORS)
        world = program_of(model, belief, 2).world(belief, 2)
        tables = guide.tables(world, 2)
        params = {name: 0.1 * jax.random.normal(KEY, table.shape) for name, table in tables.items()}

        def loss(params: Any, guide: Any = guide, world: Any = world) -> Any:
            return aif.Active(gradient="through").free_energy(world, guide.posterior(world, params, 2))

        found.append(jax.jit(jax.value_and_grad(loss))(params))
    assert_close(found[0][0], found[1][0], 1e-5)
    for name, gradient in found[1][1].items():
        assert_close(found[0][1][name], gradient, 1e-5, name)


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


def test_a_slippery_grid_is_worth_what_value_iteration_says() -> None:
    """Against scipy's sparse matrices, from every cell."""
    side, horizon = 9, 12
    cells, goal, to = side * side, 40, targets(side, side)
    mix = 0.1 + 0.6 * np.eye(4)  # which way each control goes
    index = np.broadcast_to(to[:, None], (cells, 4, 4))

    def model(belief: aif.Belief, horizon: int = horizon) -> None:
        x = aif.state("x", dist.Categorical(probs=belief.state[0]))

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=jnp.ones(4) / 4))
            x = aif.state("x", aif.SparseCategorical(jnp.asarray(index)[x, u], jnp.asarray(mix)[u], cells))
            aif.preference("goal", jnp.where(x == goal, 1.0, 0.0))
            return x

        aif.rollout(step, x, horizon)

    rows = np.repeat(np.arange(cells), 4)
    moves = [csr_matrix((np.tile(mix[u], cells), (rows, to.ravel())), (cells, cells)) for u in range(4)]
    value = np.zeros(cells)
    for _ in range(horizon):
        value = np.max([move @ (value + np.eye(cells)[goal]) for move in moves], axis=0)
    start = np.random.default_rng(0).dirichlet(np.ones(cells))
    bound = aif.perfect_information(model, aif.Belief(state=jnp.asarray(start)), horizon)
    assert horizon * np.log(4) - float(bound) == pytest.approx(start @ value, rel=1e-5)
