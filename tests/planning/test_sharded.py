"""Parameters laid over devices: several processes make the same plans together as one does alone.

The processes are started here and print what they found; what one process finds without a mesh is the other side.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import numpyro.handlers
import pytest

import npro_aif as aif
from npro_aif.acting.solutions import compiling
from npro_aif.guides import RecallGuide, SequenceGuide, TemporalGuide
from npro_aif.models import tmaze
from npro_aif.planning import memory
from npro_aif.program import sharded
from tests.layouts import HORIZON, PLACES, THETA, ring, ring_belief
from tests.planning.sharded_worlds import WORLDS, plan_of

KEY = jax.random.key(0)
SECONDS = 300  # after which a process that waits for another is ended


def run(names: str, processes: int, devices: int = 1, seconds: int = SECONDS, quick: bool = True) -> list[list[Any]]:
    """What every process prints of the worlds; with no processes, what one finds without a mesh."""
    with socket.socket() as held:
        held.bind(("localhost", 0))
        port = held.getsockname()[1]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    words = [sys.executable, "-m", "tests.planning.sharded_worlds", names, str(processes)]
    started = [
        subprocess.Popen(
            [*words, str(place), str(port), *["--quick"] * quick],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "XLA_FLAGS": flags},
            cwd=Path(__file__).parents[2],
        )
        for place in range(max(1, processes))
    ]
    try:
        with ThreadPoolExecutor(len(started)) as readers:  # all at once: they wait for each other at the end
            outputs = list(readers.map(lambda process: process.communicate(timeout=seconds), started))
    finally:
        for process in started:
            process.kill()
            process.communicate()
    for process, (_, error) in zip(started, outputs, strict=True):
        assert process.returncode == 0, error[-3000:]
    return [[json.loads(line) for line in out.splitlines() if line.startswith("{")] for out, _ in outputs]


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert [row["name"] for row in found] == [row["name"] for row in expected]
    for mine, other in zip(found, expected, strict=True):
        assert len(mine["leaves"]) == len(other["leaves"])
        for a, b in zip(mine["leaves"], other["leaves"], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=mine["name"])


def alone(names: str) -> list[Any]:
    """What this process finds without a mesh."""
    return [{"name": name, **WORLDS[name](None)} for name in names.split(",")]


def test_two_processes_plan_and_perceive_as_one_does(quick_compile: None) -> None:
    names = "tmaze,uneven"
    first, second = run(names, processes=2)
    assert_same(first, alone(names))
    assert [row["leaves"] for row in first] == [row["leaves"] for row in second]


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "devices"), [(1, 2), (2, 2), (3, 1)])
def test_processes_and_devices_of_any_number(processes: int, devices: int, quick_compile: None) -> None:
    names = "tmaze,certain,acting,scattered,noisy,batch"
    for found in run(names, processes, devices, seconds=900):
        assert_same(found, alone(names))


@pytest.mark.slow
def test_doorkey_on_two_processes_is_doorkey_on_one() -> None:
    for found in run("doorkey", processes=2, seconds=900, quick=False):
        assert_same(found, alone("doorkey"))


@pytest.mark.slow
def test_each_process_holds_little_more_than_half() -> None:
    (single,) = run("wide", processes=0, seconds=900, quick=False)
    pair = run("wide", processes=2, seconds=900, quick=False)
    for found in pair:
        assert_same(found, single)
        assert found[0]["peak"] <= 0.6 * single[0]["peak"]


# --- In one process --------------------------------------------------------------------------------------------------


@pytest.fixture
def mesh() -> jax.sharding.Mesh:
    return jax.sharding.Mesh(np.asarray(jax.devices()), ("parameter",))


@pytest.mark.slow
def test_a_batch_over_one_device_is_a_batch(mesh: jax.sharding.Mesh, quick_compile: None) -> None:
    found, expected = ([{"name": "batch", **WORLDS["batch"](m)}] for m in (mesh, None))
    assert_same(found, expected)


def test_the_memory_is_said_and_refused(mesh: jax.sharding.Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    belief = ring_belief(13)
    planner = aif.Planner(ring(), solver=aif.CoordinateSolver(max_sweeps=2), max_horizon=HORIZON, mesh=mesh)
    said = planner.memory(belief)
    rows = sharded.rounded(13, THETA)
    assert said.flows == 2 * (HORIZON + 1) * PLACES * rows * 4  # q(θ, s_t), and the prior-predictive flow
    assert said.total == said.tables + said.flows + said.moves
    monkeypatch.setattr(memory, "memory_bytes", lambda: 2 * (said.total - 1))
    with pytest.raises(
        MemoryError, match=r"mesh: found a plan that takes .* GB on each of 1 devices .* expected at most"
    ):
        planner(KEY, belief)


def test_beliefs_that_narrow_a_little_compile_nothing_anew(mesh: jax.sharding.Mesh, quick_compile: None) -> None:
    planner = aif.Planner(ring(), solver=aif.CoordinateSolver(max_sweeps=2), max_horizon=HORIZON, mesh=mesh)
    before, after = ring_belief(13), ring_belief(12)
    planner(KEY, before)
    seconds = compiling()
    planner(KEY, after)
    assert compiling()["xla_seconds"] == seconds["xla_seconds"]
    planner(KEY, ring_belief(18))
    assert compiling()["xla_seconds"] > seconds["xla_seconds"]  # it is counted


def test_refusals_by_name(mesh: jax.sharding.Mesh) -> None:
    model, belief = tmaze.tmaze, tmaze.initial_belief()
    with pytest.raises(ValueError, match=r"mesh: found 2, expected a jax.sharding.Mesh"):
        aif.Planner(model, mesh=2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"mesh: found 2, expected a jax.sharding.Mesh"):
        aif.Filter(model, belief, mesh=2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mesh: found the solver SearchSolver"):
        aif.Planner(model, RecallGuide(model), mesh=mesh)
    with pytest.raises(ValueError, match="mesh: found the guide SequenceGuide"):
        aif.Planner(model, SequenceGuide(model), mesh=mesh)
    fixed = numpyro.handlers.condition(model, {"theta": 0})
    with pytest.raises(ValueError, match="mesh: found a model in which a handler fixes"):
        aif.Planner(fixed, mesh=mesh, max_horizon=4)(KEY, belief)
    planner = aif.Planner(model, mesh=mesh)
    with pytest.raises(ValueError, match="belief: found a traced one with mesh"):
        jax.jit(lambda belief: planner(KEY, belief).control)(belief)


def four(belief: aif.Belief, horizon: Any = 2) -> None:
    """A ring of four places, whose prize is at the place of θ."""
    theta = aif.parameter("theta", dist.Categorical(belief.parameter))
    x = aif.state("x", dist.Categorical(belief.state[theta]))

    def step(x: Any, t: Any) -> Any:
        u = aif.control("u", dist.Categorical(probs=jnp.full(2, 0.5)))
        x = aif.state("x", aif.DeterministicCategorical((x + u) % 4, 4))
        aif.preference("goal", jnp.where(x == theta, 1.0, 0.0))
        return x

    aif.rollout(step, x, horizon)


def uniform(num_parameters: int, num_states: int) -> aif.Belief:
    shape = num_parameters, num_states
    return aif.Belief(jnp.full(num_parameters, 1 / num_parameters), jnp.full(shape, 1 / num_states))


def test_a_belief_of_another_size_is_refused_as_without_a_mesh(mesh: jax.sharding.Mesh) -> None:
    belief, solver = uniform(4, 4), aif.CoordinateSolver(max_sweeps=1, restarts=1)
    planner, alone = (aif.Planner(four, solver=solver, mesh=m) for m in (mesh, None))
    update = aif.Filter(four, belief, mesh=mesh)
    for each in (planner, alone):
        each.program(belief)  # it is read with a belief of the right size
    for shape in ((6, 4), (3, 4), (4, 5)):
        wrong = uniform(*shape)
        with pytest.raises(aif.ModelError) as refusal:
            alone(KEY, wrong)
        message = str(refusal.value)
        assert message.startswith(f"belief: found state of shape {shape}, expected (4, 4)")
        parts = [np.asarray(table) for table in wrong]
        laid = aif.ShardedBelief.of(mesh, lambda i, parts=parts: aif.Belief(*(p[i] for p in parts)), shape[0])
        for found in (wrong, laid):
            for use in (lambda b: planner(KEY, b), planner.memory, planner.accepted, lambda b: update(b, None, None)):
                with pytest.raises(aif.ModelError) as refusal:
                    use(found)
                assert str(refusal.value) == message


def test_a_policy_that_is_not_learned(mesh: jax.sharding.Mesh) -> None:
    guide, solver = TemporalGuide(tmaze.tmaze, learn=("observation",)), aif.CoordinateSolver(max_sweeps=2, restarts=1)
    plans = [
        aif.Planner(tmaze.tmaze, guide, solver=solver, max_horizon=2, mesh=m)(KEY, tmaze.initial_belief())
        for m in (mesh, None)
    ]
    assert_same(*([{"name": "a plan", **plan_of(plan)}] for plan in plans))
    for plan in plans:
        np.testing.assert_allclose(plan.policy, 0.25)  # the model's
        assert set(plan.params) <= set(guide.tables(plans[1].world(), 2))


def test_a_call_inside_of_explicit_axes_is_refused(mesh: jax.sharding.Mesh) -> None:
    explicit = jax.make_mesh((len(jax.devices()),), ("parameter",), axis_types=(jax.sharding.AxisType.Explicit,))
    planner = aif.Planner(four, mesh=explicit)
    assert planner.mesh == aif.Planner(four, mesh=mesh).mesh
    laid = planner.accepted(uniform(4, 4))
    assert aif.Planner(four, mesh=mesh).accepted(laid) is laid
    with jax.set_mesh(explicit):
        for belief in (uniform(4, 4), laid):
            with pytest.raises(ValueError, match=r"mesh: found a call inside of jax.set_mesh with the explicit axes"):
                planner(KEY, belief)


def test_plans_to_start_a_batch_from_are_refused(mesh: jax.sharding.Mesh) -> None:
    beliefs, keys = jax.tree.map(lambda table: jnp.stack([table] * 2), uniform(4, 4)), jax.random.split(KEY, 2)
    solver = aif.CoordinateSolver(max_sweeps=1, restarts=1)
    planner, alone = (aif.Planner(four, solver=solver, mesh=m) for m in (mesh, None))
    plan = alone(KEY, uniform(4, 4))
    with pytest.raises(ValueError, match="warm: found plans to start from, with batch and mesh, expected None"):
        planner.batch(keys, beliefs, warm=plan)
    with pytest.raises(ValueError, match=r"warm: found a plan whose control has shape \(2, 2\), expected \(2, T, U\)"):
        alone.batch(keys, beliefs, warm=plan)


def test_a_mesh_does_not_travel(mesh: jax.sharding.Mesh) -> None:
    planner = aif.Planner(four, solver=aif.CoordinateSolver(max_sweeps=1, restarts=1), mesh=mesh)
    belief = planner.accepted(uniform(4, 4))
    agent = aif.Agent(planner, belief, act_by="cost")
    for value in (belief, planner, aif.Filter(four, uniform(4, 4), mesh=mesh), agent):
        with pytest.raises(TypeError, match=r"mesh: found Mesh\(.*in what is to be pickled, expected none"):
            pickle.dumps(value)
    executor: Any = ThreadPoolExecutor(1)
    with executor, pytest.raises(pickle.PicklingError, match="to an executor give a planner without a mesh"):
        aif.run_episodes(dict, agent, range(2), executor=executor)
    again = copy.deepcopy(belief)
    assert again.shards == belief.shards
    np.testing.assert_array_equal(again.whole().state, belief.whole().state)


def test_a_model_that_changes_the_belief_is_refused(mesh: jax.sharding.Mesh) -> None:
    def model(belief: aif.Belief, horizon: Any = 2) -> None:
        theta = aif.parameter("theta", dist.Categorical(belief.parameter[::-1]))
        x = aif.state("x", dist.Categorical(belief.state[theta]))

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=jnp.full(2, 0.5)))
            x = aif.state("x", aif.DeterministicCategorical((x + u) % 3, 3))
            aif.preference("goal", jnp.where(x == 2, 1.0, 0.0))
            return x

        aif.rollout(step, x, horizon)

    belief = aif.Belief(jnp.array([0.5, 0.5]), jnp.full((2, 3), 1 / 3))
    with pytest.raises(ValueError, match=r"mesh: found a model that uses the belief for more than"):
        aif.Planner(model, mesh=mesh)(KEY, belief)


def test_sparse_moves_that_differ_between_parameters_are_refused(mesh: jax.sharding.Mesh) -> None:
    targets = jnp.asarray(np.random.default_rng(0).integers(0, 3, (2, 3, 2, 2)))

    def model(belief: aif.Belief, horizon: Any = 2) -> None:
        theta = aif.parameter("theta", dist.Categorical(belief.parameter))
        x = aif.state("x", dist.Categorical(belief.state[theta]))

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=jnp.full(2, 0.5)))
            x = aif.state("x", aif.SparseCategorical(targets[theta, x, u], jnp.full(2, 0.5), 3))
            aif.preference("goal", jnp.where(x == 2, 1.0, 0.0))
            return x

        aif.rollout(step, x, horizon)

    belief = aif.Belief(jnp.array([0.5, 0.5]), jnp.full((2, 3), 1 / 3))
    with pytest.raises(ValueError, match="mesh: found the states x with a SparseTransition that differs"):
        aif.Planner(model, mesh=mesh)(KEY, belief)


def test_rows_of_a_belief_are_checked(mesh: jax.sharding.Mesh) -> None:
    belief = ring_belief(13)

    def of(parameter: Any, state: Any) -> aif.ShardedBelief:
        return aif.ShardedBelief.of(mesh, lambda theta: aif.Belief(parameter[theta], state[theta]), THETA)

    assert of(*belief).whole().parameter.tolist() == belief.parameter.tolist()
    with pytest.raises(aif.ModelError, match=r"belief.parameter: found rows that sum to 0.5 on all devices"):
        of(belief.parameter / 2, belief.state)
    with pytest.raises(aif.ModelError, match=r"belief.state: found that row 0 sums to 2"):
        of(belief.parameter, 2 * belief.state)
    with pytest.raises(aif.ModelError, match="belief: found a negative probability"):
        of(-belief.parameter, belief.state)
    with pytest.raises(aif.ModelError, match=r"belief: found rows of shapes"):
        of(belief.parameter, belief.state[:, 0])
    broken = np.array(belief.state)
    broken[3, 0] = np.nan
    with pytest.raises(aif.ModelError, match=r"belief.state: found that row 3 sums to nan"):
        of(belief.parameter, broken)


def test_what_makes_a_belief_is_checked(mesh: jax.sharding.Mesh) -> None:
    def rows(theta: np.ndarray) -> aif.Belief:
        return aif.Belief(np.full(len(theta), 1 / 4), np.full((len(theta), 3), 1 / 3))

    make: Any = aif.ShardedBelief.of
    assert make(mesh, rows, np.int64(4)).shape == (4, 3)
    for returned in (None, (1, 2)):
        name = type(returned).__name__
        with pytest.raises(aif.ModelError, match=f"rows: found a function that returns {name}, expected aif.Belief"):
            make(mesh, lambda theta, returned=returned: returned, 4)
    with pytest.raises(ValueError, match="rows: found ndarray, expected a function from indices of parameters"):
        make(mesh, np.eye(4), 4)
    for count in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match=f"num_parameters: found {count!r}, expected how many there are"):
            make(mesh, rows, count)
    for wrong in (None, jax.devices()):
        with pytest.raises(ValueError, match=r"mesh: found .*, expected a jax.sharding.Mesh with devices"):
            make(wrong, rows, 4)
