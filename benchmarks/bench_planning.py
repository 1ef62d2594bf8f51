"""Seconds a decision: closed-form coordinate updates against Adam, on the same worlds in one run.

Everything runs on one core after a warm-up; a time is the lowest of some repeats (other work on the machine only adds
to it), and the extra time of the first call is shown separately as compile seconds. DoorKey is MiniGrid's 8×8 as the
model has it: 576 states, 5 controls, 300 layouts with prior, index tables, eight observation sites.

    python benchmarks/bench_planning.py [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.console import Console
from rich.table import Table

import npro_aif as aif
from npro_aif.guides import TemporalGuide
from npro_aif.inference.objectives import Objective
from npro_aif.models import doorkey, reactivity_maze

ADAM_STEPS, LEARNING_RATE = 1000, 0.05
SWEEPS = 8  # of a DoorKey decision
HORIZON = 20  # of a DoorKey decision
FEW = 16  # layouts that a belief in the middle of an episode holds
BATCH = 256
HORIZONS = (5, 10, 20, 40)
OBJECTIVES: dict[str, Objective] = {"planning": aif.Planning(), "active": aif.Active(weight=0.1)}
LIMITS = {("planning", FEW): 0.04, ("active", FEW): 0.08, ("planning", 300): 0.5, ("active", 300): 1.2}  # seconds

Row = dict[str, Any]


def timed(run: Callable[[], Any], repeats: int) -> tuple[Any, float, float]:
    """The result of a function, its seconds once warm, and the extra seconds of the first call."""
    start = time.perf_counter()
    result = jax.block_until_ready(run())
    first, taken = time.perf_counter() - start, []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(run())
        taken.append(time.perf_counter() - start)
    return result, min(taken), first - min(taken)


def decision(planner: aif.Planner, belief: aif.Belief, horizon: int) -> Callable[[], aif.Plan]:
    return lambda: planner.solve(jax.random.key(0), belief, horizon)


def row(task: str, solver: str, plan: aif.Plan, seconds: float, compiling: float) -> Row:
    return {
        "task": task,
        "solver": solver,
        "seconds": seconds,
        "compile_seconds": compiling,
        "iterations": int(plan.info.iterations),
        "free_energy": float(plan.free_energy[-1]),
        "best_control": int(plan.best_control()),  # type: ignore[arg-type]
    }


def reactivity(repeats: int) -> list[Row]:
    """The Reactivity Maze at T = 3, with the policy learned alone and with all factors."""
    rows = []
    for name, learn in (("control", ("control",)), ("all", reactivity_maze.LEARN)):
        model, pair = reactivity_maze.reactivity_maze, []
        for label, solver in (
            (f"SVI, {ADAM_STEPS} Adam steps", aif.SVISolver(optax.adam(LEARNING_RATE), ADAM_STEPS)),
            ("coordinate", aif.CoordinateSolver(restarts=1)),
        ):
            planner = aif.Planner(model, TemporalGuide(model, learn=learn), aif.Active(), solver, max_horizon=3)
            belief = seen_at(0)
            pair.append(row(f"reactivity, learn {name}", label, *timed(decision(planner, belief, 3), repeats)))
        pair[1]["ratio"] = pair[0]["seconds"] / pair[1]["seconds"]
        rows += pair
    return rows


def seen_at(location: int, left: float = 0.5) -> aif.Belief:
    """The Reactivity Maze's belief once the location is seen."""
    x = location * reactivity_maze.KNOBS + reactivity_maze.FULL
    state = jax.nn.one_hot(x, reactivity_maze.LOCATIONS * reactivity_maze.KNOBS)
    return aif.Belief(jnp.array([left, 1 - left]), jnp.stack([state, state]))


def layouts(count: int) -> aif.Belief:
    """A DoorKey belief on ``count`` layouts, with the agent on any cell that they leave free."""
    belief = doorkey.initial_belief(8)
    possible = np.flatnonzero(np.asarray(belief.parameter) > 0)
    chosen = np.random.default_rng(0).choice(possible, count, replace=False)
    return belief._replace(parameter=jnp.zeros(len(belief.parameter)).at[chosen].set(1 / count))


def grid(repeats: int) -> list[Row]:
    """DoorKey decisions against one gradient step of the same objective on the same belief."""
    rows, model = [], doorkey.doorkey
    guide = TemporalGuide(model, learn=doorkey.LEARN)
    for count in (FEW, 300):
        belief = layouts(count)
        for name, objective in OBJECTIVES.items():
            task = f"doorkey, {count} layouts, {name}"
            steps = [
                timed(decision(aif.Planner(model, guide, objective, solver, HORIZON), belief, HORIZON), repeats)
                for solver in (aif.SVISolver(optax.adam(0.01), n) for n in (1, 6))
            ]
            step = (steps[1][1] - steps[0][1]) / 5
            rows.append(row(task, "SVI, one step", steps[1][0], step, steps[1][2]) | {"iterations": 1})
            planner = aif.Planner(
                model, guide, objective, aif.CoordinateSolver(SWEEPS, tol=1e-30, unvisited=doorkey.UNVISITED), HORIZON
            )
            entry = row(task, f"coordinate, {SWEEPS} sweeps", *timed(decision(planner, belief, HORIZON), repeats))
            rows.append(entry | {"steps": entry["seconds"] / step, "limit": LIMITS[name, count]})
    return rows


def batch(repeats: int) -> Row:
    """Many Reactivity-Maze beliefs in one call, and one after the other."""
    model = reactivity_maze.reactivity_maze
    guide = TemporalGuide(model, learn=("control",))
    planner = aif.Planner(model, guide, aif.Active(), aif.CoordinateSolver(restarts=1), max_horizon=3)
    rng = np.random.default_rng(0)
    beliefs = [seen_at(int(rng.integers(5)), float(rng.uniform())) for _ in range(BATCH)]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *beliefs)
    keys = jax.random.split(jax.random.key(0), BATCH)
    _, all_at_once, compiling = timed(lambda: planner.batch(keys, together, 3), repeats)
    _, one_by_one, _ = timed(lambda: [planner.solve(k, b, 3) for k, b in zip(keys, beliefs, strict=True)], repeats)
    return {
        "task": f"reactivity, {BATCH} beliefs",
        "milliseconds_batched": 1e3 * all_at_once / BATCH,
        "milliseconds_one_by_one": 1e3 * one_by_one / BATCH,
        "ratio": one_by_one / all_at_once,
        "compile_seconds": compiling,
    }


def shrinking() -> Row:
    """The number of traces in 20 decisions whose supports shrink from 300 layouts to one."""
    model = doorkey.doorkey
    planner = aif.Planner(
        model,
        TemporalGuide(model, learn=doorkey.LEARN),
        OBJECTIVES["planning"],
        aif.CoordinateSolver(SWEEPS, unvisited=doorkey.UNVISITED),
        HORIZON,
    )
    counts = np.unique(np.geomspace(300, 1, 20).round().astype(int))[::-1]
    for _ in range(2):  # the second time everything is warm
        before = planner.num_traces
        for count in counts:
            jax.block_until_ready(decision(planner, layouts(int(count)), HORIZON)())
        traced = planner.num_traces - before
    return {
        "task": "supports from 300 to 1",
        "decisions": len(counts),
        "compiled": planner.num_traces,
        "powers_of_two": len({int(n - 1).bit_length() for n in counts}),
        "recompiled_when_warm": traced,
    }


def horizons(repeats: int) -> Row:
    """How a decision's cost grows with the horizon."""
    model, belief, seconds = doorkey.doorkey, layouts(FEW), {}
    for horizon in HORIZONS:
        guide = TemporalGuide(model, learn=doorkey.LEARN)
        solver = aif.CoordinateSolver(SWEEPS, tol=1e-30, unvisited=doorkey.UNVISITED)
        planner = aif.Planner(model, guide, OBJECTIVES["active"], solver, max_horizon=horizon)
        seconds[horizon] = timed(decision(planner, belief, horizon), repeats)[1]
    exponent = np.polyfit(np.log(list(seconds)), np.log(list(seconds.values())), 1)[0]
    return {"task": f"doorkey, {FEW} layouts, active, by horizon", "seconds": seconds, "exponent": float(exponent)}


def show(rows: list[Row], others: list[Row]) -> None:
    table = Table(title="Seconds a decision, one core, float32")
    for title in ("task", "solver"):
        table.add_column(title)
    for title in ("ms", "compile s", "iterations", "F", "best control", "against SVI"):
        table.add_column(title, justify="right")
    for entry in rows:
        against = f"{entry['ratio']:.0f}× faster" if "ratio" in entry else ""
        if "steps" in entry:
            late = entry["seconds"] > entry["limit"]
            against = f"{entry['steps']:.1f} steps" + (f" (over {1e3 * entry['limit']:.0f} ms)" if late else "")
        table.add_row(
            entry["task"],
            entry["solver"],
            f"{1e3 * entry['seconds']:.2f}",
            f"{entry['compile_seconds']:.1f}",
            str(entry["iterations"]),
            f"{entry['free_energy']:.3f}",
            str(entry["best_control"]),
            against,
        )
    console = Console(width=140)
    console.print(table)
    for entry in others:
        console.print(", ".join(f"{key} {_short(value)}" for key, value in entry.items()), highlight=False)


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}: {_short(part)}" for key, part in value.items())
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there, too")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core; JAX makes its threads at the first computation
    repeats = 2 if arguments.quick else 5
    rows = reactivity(repeats) + grid(repeats)
    others = [batch(repeats), shrinking(), horizons(repeats)]
    show(rows, others)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows + others, indent=2) + "\n")


if __name__ == "__main__":
    main()
