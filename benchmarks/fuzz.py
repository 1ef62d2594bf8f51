"""Plans in many random worlds, every number of them checked against enumeration by plain NumPy (``tests/oracle.py``).

Eight worlds share a structure: a program with sites, dependencies and zeros of its own, an objective, learned factors
and a number of starts, which are read and compiled once. The first is checked against tables that were drawn
independently of its program; the others have other probabilities and preferences. The checks are of F, the sum of its
terms, all marginals, that every table is normalised, and that F never rises where it is descended. Finished worlds are
kept in a file, so that the same command continues where it was stopped.

    python benchmarks/fuzz.py --worlds 1000
    python benchmarks/fuzz.py --worlds 48 --out /tmp/fuzz.jsonl
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # compiles in half the time
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()
sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests' worlds and oracle

import jax
import jax.numpy as jnp
import numpy as np

import npro_aif as aif
from npro_aif.guides import TemporalGuide
from npro_aif.inference.marginals import Marginals
from npro_aif.program.program import program_of
from npro_aif.solvers import Problem
from npro_aif.tables.world import World
from tests import oracle
from tests.solvers.test_sweeps import NAMES
from tests.worlds import RandomWorld, random_world

FIRST = 10_000  # seeds that no test uses
VARIANTS = 8  # worlds of one structure
TOLERANCE = 1e-7
LEARN = (("control",), ("control", "parameter"), ("control", "parameter", "state"))
EVERYTHING = ("parameter", "control", "state", "observation")


def case_of(seed: int) -> tuple[Any, tuple[str, ...], int]:
    """The objective, the learned factors and the number of starts of a seed."""
    rng = np.random.default_rng(seed)
    weight = float(rng.choice([0.1, 1.0, 2.0]))
    objectives = (
        aif.Active(gradient="through", weight=weight),
        aif.Active(weight=weight),
        aif.Active(normalize=bool(rng.integers(2)), planning_correction=False, weight=weight),
        aif.Planning(),
        aif.Marginal(),
    )
    objective = objectives[seed % len(objectives)]
    through = getattr(objective, "gradient", "fixed") == "through" and objective.epistemic
    choices = LEARN if through else (*LEARN, EVERYTHING)
    return objective, choices[int(rng.integers(len(choices)))], int(rng.choice([1, 4]))


class Solved(NamedTuple):
    """The numbers of a plan that are checked."""

    free_energy: jax.Array  # (sweeps+1,)
    terms: dict[str, jax.Array]
    settled: jax.Array
    marginals: Marginals
    tables: tuple[Any, ...]  # log q of the parameter, the policy, the states and each observation site


class Structure:
    """What the worlds of a seed have in common."""

    def __init__(self, seed: int):
        self.random = random_world(seed)
        self.objective, self.learn, self.starts = case_of(seed)
        belief, horizon = self.random.belief(), self.random.horizon
        self.world = program_of(self.random.model, belief, horizon).world(belief, horizon)
        self.guide = TemporalGuide(self.random.model, learn=self.learn)
        self.solve = jax.jit(self.solved)

    def solved(self, world: World, key: jax.Array) -> Solved:
        world, num_steps = world.routed(), self.random.horizon
        solver = aif.CoordinateSolver(restarts=self.starts)
        problem = Problem(world, self.guide, self.objective, num_steps)
        solution = solver.solve(problem, key, self.guide.first_params(key, world, num_steps))
        q: Any = solution.posterior
        seen = (q.observation[name].table() for name in self.random.shapes.observation)
        tables = q.parameter, q.control, q.state.table(), *seen
        return Solved(solution.free_energy, solution.terms, solution.info.converged, q.marginals(world), tables)


def varied(world: World, rng: np.random.Generator) -> World:
    """The same world with other probabilities and preferences, and the same zeros and certain outcomes."""

    def rows(log: Any) -> jax.Array:
        weights = np.exp(np.asarray(log)) * rng.exponential(size=log.shape)
        with np.errstate(divide="ignore"):
            return jnp.asarray(np.log(weights / weights.sum(-1, keepdims=True)), log.dtype)

    def kernel(kernel: Any) -> Any:
        return type(kernel)(rows(kernel.log)).prepared() if kernel.learnable else kernel

    def preference(table: Any) -> jax.Array:
        return jnp.asarray(np.where(np.asarray(table) == 0, 0.0, 1.5 * rng.normal(size=table.shape)), table.dtype)

    world = world.over_parameters(kernel, preference)
    return world._replace(
        parameter=rows(world.parameter), initial=rows(world.initial), control=rows(world.control), sensor={}
    )


def tables_of(world: World, random: RandomWorld) -> oracle.Tables:
    """A world's tables as the oracle takes them, with the axes and the order of sites of another's."""
    like, names = random.tables, list(random.shapes.observation)

    def full(table: Any, shape: tuple[int, ...]) -> np.ndarray:
        return np.broadcast_to(np.asarray(table, float), shape).copy()

    def probs(log: Any, shape: tuple[int, ...]) -> np.ndarray:
        return np.exp(full(log, shape))

    shapes = [table.shape for table in like.observations]
    preference = sum((full(t, like.state.shape) for t in world.preference.values()), start=np.zeros(like.state.shape))
    return oracle.Tables(
        probs(world.parameter, like.parameter.shape),
        probs(world.initial, like.initial.shape),
        probs(world.control, like.control.shape),
        probs(world.state.table(), like.state.shape),
        tuple(probs(world.observation[k].table(), shape) for k, shape in zip(names, shapes, strict=True)),
        preference,
        tuple(
            sum((full(t, shape) for t in world.observation_preference[k]), start=np.zeros(shape))
            for k, shape in zip(names, shapes, strict=True)
        ),
    )


def check(structure: Structure, variant: int) -> dict[str, Any]:
    """Plan in a world of a structure; returns the number of checks and the faults."""
    random, objective = structure.random, structure.objective
    wrong, checks = [], 0

    def expect(name: str, found: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
        nonlocal checks
        checks += 1
        found, expected = np.asarray(found, float), np.asarray(expected, float)
        error = np.abs(found - expected) / np.maximum(1.0, np.abs(expected))
        if not (error <= tolerance).all():
            wrong.append(f"{name}: {float(np.nanmax(error)):.1e}")

    world, tables = structure.world, random.tables
    if variant == 0:
        for name, found, table in zip(tables._fields, tables_of(world, random), tables, strict=True):
            for own, other in zip(*((t if isinstance(t, tuple) else (t,)) for t in (found, table)), strict=True):
                expect(name, own, other)
    else:
        world = varied(world, np.random.default_rng(variant))
        tables = tables_of(world, random)
    plan = jax.tree.map(np.asarray, structure.solve(world, jax.random.key(variant)))
    history, marginals = plan.free_energy, plan.marginals
    shapes = [tables.parameter.shape, tables.control.shape, tables.state.shape, *(t.shape for t in tables.observations)]
    q = [np.broadcast_to(np.exp(table), shape) for table, shape in zip(plan.tables, shapes, strict=True)]
    joint = oracle.temporal_joint(tables, q[0], q[1], q[2], tuple(q[3:]))
    expect("F", history[-1], free_energy(tables, joint, objective))
    expect("terms", sum(plan.terms.values()), history[-1])
    for t in range(random.horizon):
        expect(f"q(u_{t + 1})", marginals.control[t], joint.marginal(f"u{t + 1}"))
        for site, name in enumerate(random.shapes.observation):
            expect(f"q({name}_{t + 1})", marginals.observation[name][t], joint.marginal(oracle.y_axis(t + 1, site)))
    for t in range(random.horizon + 1):
        expect(f"q(x_{t})", marginals.state[t], joint.marginal(f"x{t}"))
    expect("q(θ)", marginals.parameter, joint.marginal("theta"))
    for name in ("control", "policy", "state"):
        expect(f"sum of {name}", getattr(marginals, name).sum(-1), 1.0)
    if not objective.epistemic or objective.gradient == "through":
        expect("rise of F", max(0.0, float(np.diff(history).max())), 0.0)
    case = f"{objective} {structure.learn} {structure.starts}"
    return {"checks": checks, "wrong": wrong, "settled": bool(plan.settled), "case": case}


def free_energy(tables: oracle.Tables, joint: oracle.Joint, objective: Any) -> float:
    kind = NAMES.get(type(objective), "active")
    switches = {}
    if kind == "active":
        switches = {"normalize": objective.normalize, "correction": objective.correction, "weight": objective.weight}
    return oracle.free_energy(joint, tables, kind, "temporal", **switches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("results/fuzz.jsonl"))
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)  # the time goes into compiling
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    lines = arguments.out.read_text().splitlines() if arguments.out.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("}")]
    done = {row["world"] for row in rows}
    begin = time.perf_counter()
    structure, number = None, -1
    try:
        with arguments.out.open("a") as file:
            for world in range(arguments.worlds):
                if world in done:
                    continue
                if structure is None or number != world // VARIANTS:
                    number = world // VARIANTS
                    structure = Structure(FIRST + number)
                row = {"world": world} | check(structure, world % VARIANTS)
                rows.append(row)
                file.write(json.dumps(row) + "\n")
                file.flush()
                if row["wrong"]:
                    print(f"wrong: {row}")
                if world % (50 * VARIANTS) == 0:
                    jax.clear_caches()
                seconds = time.perf_counter() - begin
                print(
                    f"{len(rows)} of {arguments.worlds} worlds, {seconds:.0f} s", end="\r", file=sys.stderr, flush=True
                )
    except KeyboardInterrupt:
        print(f"Stopped. What was finished is in {arguments.out}; the same command goes on from there.")
    wrong = sum(bool(row["wrong"]) for row in rows)
    checks, settled = sum(row["checks"] for row in rows), sum(row["settled"] for row in rows)
    structures = len({row["world"] // VARIANTS for row in rows})
    print(
        f"{len(rows)} worlds of {structures} structures, {checks} checks: {wrong} worlds wrong; {settled} plans settled"
    )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
