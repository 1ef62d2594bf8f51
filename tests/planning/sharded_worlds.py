"""What several processes plan together with their parameters laid over devices, printed as JSON: run by the tests.

python -m tests.planning.sharded_worlds NAMES PROCESSES PLACE PORT
"""

from __future__ import annotations

import functools
import json
import re
import resource
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
from jax.sharding import AxisType, Mesh

import npro_aif as aif
from npro_aif.guides import TemporalGuide
from npro_aif.models import doorkey, tmaze
from npro_aif.program import traced
from tests.layouts import HORIZON, THETA, ring, ring_belief

Made = dict[str, Any]


def key() -> jax.Array:
    """Not a constant: before the processes have met nothing may be computed."""
    return jax.random.key(0)


def plan_of(plan: aif.Plan) -> Made:
    """The numbers of a plan that are compared."""
    names = ("control", "policy", "state", "parameter", "free_energy", "terms", "observation")
    leaves = jax.tree.leaves({name: getattr(plan, name) for name in names})
    return {"leaves": [np.asarray(leaf).ravel().tolist() for leaf in leaves]}


def planned(model: Any, belief: aif.Belief, mesh: Any, **settings: Any) -> Made:
    return plan_of(aif.Planner(model, mesh=mesh, **settings)(key(), belief))


def t_maze(mesh: Any) -> Made:
    """A plan from the start, a belief update at the cue."""
    model, belief = tmaze.tmaze, tmaze.initial_belief()
    plan = planned(model, belief, mesh, solver=aif.CoordinateSolver(max_sweeps=20, restarts=1))
    belief_after = aif.Filter(model, belief, mesh=mesh)(belief, tmaze.SOUTH, {"cue": 1, "place": tmaze.CUE})
    belief = belief_after if mesh is None else belief_after.whole()
    return {"leaves": [*plan["leaves"], belief.parameter.tolist(), belief.state[1].tolist()]}


def certain(mesh: Any) -> Made:
    """Certain moves in two groups, an odd number of parameters, and beliefs that are updated in between."""
    model, solver = ring(), aif.CoordinateSolver(max_sweeps=4, restarts=1)
    planner = aif.Planner(model, objective=aif.Active(), solver=solver, max_horizon=HORIZON, mesh=mesh)
    belief: Any = ring_belief(13)
    first = plan_of(planner(key(), belief))
    update = aif.Filter(model, belief, mesh=mesh)
    belief = update(belief, 2, {"ahead": 0, "here": 0})
    later = plan_of(planner(key(), belief, HORIZON - 1))
    belief = belief if mesh is None else belief.whole()
    mass = belief.parameter[:, None] * belief.state
    score = planner.first_cost(key(), belief, 2)
    return {"leaves": first["leaves"] + later["leaves"] + [mass.ravel().tolist(), np.asarray(score).tolist()]}


def scattered(mesh: Any) -> Made:
    """Certain moves in many groups: every parameter leads elsewhere."""
    targets = jnp.asarray(np.random.default_rng(0).integers(0, 6, (11, 6, 3)))
    signs = jnp.asarray(np.random.default_rng(1).integers(0, 3, (11, 6)))

    def model(belief: aif.Belief, horizon: Any = 3) -> None:
        theta = aif.parameter("theta", dist.Categorical(belief.parameter))
        x = aif.state("x", dist.Categorical(belief.state[theta]))

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=jnp.full(3, 1 / 3)))
            x = aif.state("x", aif.DeterministicCategorical(targets[theta, x, u], 6))
            aif.observation("y", aif.DeterministicCategorical(signs[theta, x], 3))
            aif.preference("goal", jnp.where(x == 5, 2.0, 0.0))
            return x

        aif.rollout(step, x, horizon)

    belief = aif.Belief(jnp.full(11, 1 / 11), jnp.full((11, 6), 1 / 6))
    learn = TemporalGuide(model, learn=("control", "parameter"))
    objectives = (aif.Active(), aif.Active(gradient="through"), aif.Planning())
    solver = aif.CoordinateSolver(max_sweeps=5, restarts=2)
    plans = [planned(model, belief, mesh, guide=learn, objective=o, solver=solver) for o in objectives]
    return {"leaves": [leaf for plan in plans for leaf in plan["leaves"]]}


def noisy(mesh: Any) -> Made:
    """Rows of probabilities, all factors learned; gradient steps; a remembered word."""
    model, belief = ring(noise=0.25), ring_belief(THETA)
    learn = ("parameter", "control", "state", "observation")
    solver = aif.CoordinateSolver(max_sweeps=3, restarts=1)
    plans = [
        planned(model, belief, mesh, guide=TemporalGuide(model, learn=learn), solver=solver),
        planned(model, belief, mesh, solver=aif.SVISolver(optax.adam(0.05), 3)),
        planned(functools.partial(tmaze.tmaze, memory="told"), tmaze.initial_belief(), mesh, max_horizon=4),
    ]
    return {"leaves": [leaf for plan in plans for leaf in plan["leaves"]]}


def acting(mesh: Any) -> Made:
    """An agent whose belief stays laid over the devices from one decision to the next."""
    solver = aif.CoordinateSolver(max_sweeps=4, restarts=1)
    planner = aif.Planner(ring(), objective=aif.Active(), solver=solver, max_horizon=HORIZON, mesh=mesh)
    agent = aif.Agent(planner, ring_belief(13), max_steps=HORIZON, act_by="probability", record=False)
    controls = [agent.act({"ahead": 0, "here": 0}) for _ in range(2)]
    agent.observe(None)
    agent.learn()
    beliefs = [agent.belief, agent.initial_belief]
    assert all(isinstance(belief, aif.Belief if mesh is None else aif.ShardedBelief) for belief in beliefs)
    now, first = beliefs if mesh is None else [belief.whole() for belief in beliefs]
    mass = now.parameter[:, None] * now.state
    return {"leaves": [controls, np.asarray(mass).ravel().tolist(), np.asarray(first.parameter).tolist()]}


def batch(mesh: Any) -> Made:
    """A batch of beliefs, whose axis is laid over the devices."""
    beliefs = [ring_belief(count, seed) for seed, count in enumerate((13, 3, 5))]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *beliefs)
    solver = aif.CoordinateSolver(max_sweeps=4, restarts=1)
    planner = aif.Planner(ring(), solver=solver, max_horizon=HORIZON, mesh=mesh)
    return plan_of(planner.batch(jax.random.split(key(), 3), stacked))


def door_key(mesh: Any, size: int = 8) -> Made:
    """DoorKey with all its layouts."""
    model = functools.partial(doorkey.doorkey, size=size)
    solver = aif.CoordinateSolver(max_sweeps=doorkey.SWEEPS, lead=doorkey.LEAD, unvisited=doorkey.UNVISITED)
    belief: Any = doorkey.initial_belief(size)
    if mesh is not None:
        rows = functools.partial(doorkey.belief_rows, size=size)
        belief = aif.ShardedBelief.of(mesh, rows, doorkey.num_layouts(size))
    return planned(model, belief, mesh, objective=aif.Active(weight=doorkey.WEIGHT), solver=solver)


def wide(mesh: Any) -> Made:
    """A ring of 1,000 places, 4,000 doors and 320 steps, of which a plan's tables take 5 GB; one sweep."""
    places, doors, horizon = 1000, 4000, 320

    def model(belief: aif.Belief, horizon: Any = horizon) -> None:
        door = aif.parameter("door", dist.Categorical(belief.parameter))
        x = aif.state("x", dist.Categorical(belief.state[door]))

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=jnp.full(2, 0.5)))
            held = (door % places == x) & (u == 1)
            x = aif.state("x", aif.DeterministicCategorical(jnp.where(held, x, (x + 1 + u) % places), places))
            aif.preference("goal", jnp.where(x == places // 2, 0.01 + 1e-5 * door, 0.0))
            return x

        aif.rollout(step, x, horizon)

    def rows(theta: np.ndarray) -> aif.Belief:
        state = np.zeros((len(theta), places))
        state[np.arange(len(theta)), theta * 7 % places] = 1.0
        return aif.Belief(np.full(len(theta), 1 / doors), state)

    solver = aif.CoordinateSolver(max_sweeps=1, unvisited="free")
    belief: Any = aif.Belief(*map(jnp.asarray, rows(np.arange(doors))))
    if mesh is not None:
        belief = aif.ShardedBelief.of(mesh, rows, doors)
    plan = aif.Planner(model, objective=aif.Planning(), solver=solver, mesh=mesh)(key(), belief)
    return {"leaves": [np.asarray(plan.free_energy).tolist(), np.asarray(plan.state).sum(0).tolist()]}


def large(mesh: Any) -> Made:
    """DoorKey-6x6 as a large world, whose tables are made for the layouts that are asked for."""
    if mesh is not None:
        traced.MOST_FROZEN = 0
    model, belief = functools.partial(doorkey.doorkey, size=6), doorkey.initial_belief(6)
    belief = aif.Filter(model, belief)(belief, None, {"cell_3": doorkey.EMPTY, "heading": 1})
    solver = aif.CoordinateSolver(max_sweeps=doorkey.SWEEPS, lead=doorkey.LEAD, unvisited=doorkey.UNVISITED)
    objectives = (aif.Active(weight=doorkey.WEIGHT, evidence="sites"), aif.Active(weight=doorkey.WEIGHT))
    plans = [planned(model, belief, mesh, objective=o, solver=solver, max_horizon=12) for o in objectives]
    return {"leaves": [leaf for plan in plans for leaf in plan["leaves"]]}


def uneven(mesh: Any) -> Made:
    """Rows of more states on the last device: every process refuses them, also one that has no such row."""
    last, message = 9, "[3, 4]"

    def rows(theta: np.ndarray) -> aif.Belief:
        states = 4 if last in theta else 3
        return aif.Belief(np.full(len(theta), 1 / (last + 1)), np.full((len(theta), states), 1 / states))

    if mesh is not None:
        with pytest.raises(aif.ModelError) as refusal:
            aif.ShardedBelief.of(mesh, rows, last + 1)
        (message,) = re.findall(r"belief.state: found rows of (.*) states, device by device", str(refusal.value))
    return {"leaves": [sorted(set(json.loads(message)))]}


WORLDS: dict[str, Callable[[Any], Made]] = {
    "tmaze": t_maze,
    "certain": certain,
    "scattered": scattered,
    "noisy": noisy,
    "acting": acting,
    "batch": batch,
    "wide": wide,
    "large": large,
    "uneven": uneven,
    "doorkey": door_key,
}


def main() -> None:
    names, count, place, port = sys.argv[1].split(","), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    if count > 1:
        jax.distributed.initialize(f"localhost:{port}", count, place, initialization_timeout=60)
    # The axes are explicit as those of jax.make_mesh; in the tests of one process they are not.
    mesh = Mesh(np.asarray(jax.devices()), ("parameter",), axis_types=(AxisType.Explicit,)) if count else None
    if "--quick" in sys.argv:
        jax.config.update("jax_disable_most_optimizations", True)
    for name in names:
        world = WORLDS[name](mesh)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"name": name, "peak": peak, **world}), flush=True)


if __name__ == "__main__":
    main()
