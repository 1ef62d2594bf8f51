"""Plans in many random worlds, every number of them checked against enumeration by plain NumPy (``tests/oracle.py``).

Each world has an objective, learned factors and a number of starts of its own. Checked are F, the sum of its terms, all
marginals, that every table is normalised, and that F never rises where it is descended. What is done is kept in a file,
so that the same command goes on where it was stopped.

    python benchmarks/fuzz.py --worlds 1000
    python benchmarks/fuzz.py --worlds 50 --out /tmp/fuzz.jsonl
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # compiles in half the time
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()
sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests' worlds and oracle

import jax
import numpy as np

import npro_aif as aif
from npro_aif.guides import TemporalGuide
from tests import oracle
from tests.solvers.test_sweeps import NAMES, numbers
from tests.worlds import RandomWorld, random_world

FIRST = 10_000  # seeds that no test uses
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


def check(seed: int) -> dict[str, Any]:
    """Plan in the world of a seed; what was checked, and what was wrong."""
    world = random_world(seed)
    objective, learn, starts = case_of(seed)
    guide = TemporalGuide(world.model, learn=learn)
    solver = aif.CoordinateSolver(restarts=starts)
    plan = aif.Planner(world.model, guide, objective, solver, max_horizon=world.horizon)(
        jax.random.key(seed), world.belief()
    )
    wrong, checks = [], 0

    def expect(name: str, found: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
        nonlocal checks
        checks += 1
        found, expected = np.asarray(found, float), np.asarray(expected, float)
        error = np.abs(found - expected) / np.maximum(1.0, np.abs(expected))
        if not (error <= tolerance).all():
            wrong.append(f"{name}: {float(np.nanmax(error)):.1e}")

    q = numbers(world, plan)
    joint = oracle.temporal_joint(world.tables, *q)
    expect("F", plan.free_energy[-1], free_energy(world, joint, objective))
    expect("terms", sum(plan.terms.values()), plan.free_energy[-1])
    for t in range(world.horizon):
        expect(f"q(u_{t + 1})", plan.control[t], joint.marginal(f"u{t + 1}"))
        for site, name in enumerate(world.shapes.observation):
            expect(f"q({name}_{t + 1})", plan.observation[name][t], joint.marginal(oracle.y_axis(t + 1, site)))
    for t in range(world.horizon + 1):
        expect(f"q(x_{t})", plan.state[t], joint.marginal(f"x{t}"))
    expect("q(θ)", plan.parameter, joint.marginal("theta"))
    for name, table in (("control", plan.control), ("policy", plan.policy), ("state", plan.state)):
        expect(f"sum of {name}", np.asarray(table).sum(-1), 1.0)
    if not objective.epistemic or objective.gradient == "through":
        expect("rise of F", max(0.0, float(np.diff(np.asarray(plan.free_energy)).max())), 0.0)
    settled = bool(plan.info.converged)
    return {"seed": seed, "checks": checks, "wrong": wrong, "settled": settled, "case": f"{objective} {learn} {starts}"}


def free_energy(world: RandomWorld, joint: oracle.Joint, objective: Any) -> float:
    kind = NAMES.get(type(objective), "active")
    switches = {}
    if kind == "active":
        switches = {"normalize": objective.normalize, "correction": objective.correction, "weight": objective.weight}
    return oracle.free_energy(joint, world.tables, kind, "temporal", **switches)


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
    done = {row["seed"] for row in rows}
    begin = time.perf_counter()
    try:
        with arguments.out.open("a") as file:
            for seed in range(FIRST, FIRST + arguments.worlds):
                if seed in done:
                    continue
                row = check(seed)
                rows.append(row)
                file.write(json.dumps(row) + "\n")
                file.flush()
                if row["wrong"]:
                    print(f"wrong: {row}")
                jax.clear_caches() if len(rows) % 50 == 0 else None
                seconds = time.perf_counter() - begin
                print(
                    f"{len(rows)} of {arguments.worlds} worlds, {seconds:.0f} s", end="\r", file=sys.stderr, flush=True
                )
    except KeyboardInterrupt:
        print(f"Stopped. What was finished is in {arguments.out}; the same command goes on from there.")
    wrong = sum(bool(row["wrong"]) for row in rows)
    checks, settled = sum(row["checks"] for row in rows), sum(row["settled"] for row in rows)
    print(f"{len(rows)} worlds, {checks} checks: {wrong} worlds wrong; {settled} plans settled")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
