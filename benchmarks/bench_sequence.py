"""The sequence guide's loss on the T-maze at T = 4, value and gradient, against a dense loss written by hand.

The hand-written loss is what one would write for this maze alone: precomputed tables of log p, ``log_softmax``,
reshapes and sums, and nothing of the package. Both run in this process in turns (A, B, A, B, …), in float32, with their
tables as arguments; a row shows the lowest tenth of the times (other work on the machine only adds to them), and is
refused if values or gradients differ.

    python benchmarks/bench_sequence.py [--repeats 300] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from rich.console import Console
from rich.table import Table

import npro_aif as aif
from npro_aif.guides import SequenceGuide
from npro_aif.inference.objectives import Objective
from npro_aif.models import tmaze as maze

HORIZON = 4
NUM_PARAMETERS = 180_256
FLOOR = 1e-10  # the paper's, with unrestricted tables
NEVER = -1e9  # log 0 as a finite number: its exponential is exactly 0, and 0 · NEVER is 0
AGREE = 1e-4  # the most that the two may differ, relative to max(1, |F|), and for gradients to their largest entry
LIMIT = 1.6  # the largest ratio that is accepted
WARM_UP = 20

OBJECTIVES = {
    "marginal": aif.Marginal(),
    "planning": aif.Planning(),
    "active": aif.Active(),
    "active, the paper's": aif.Active(normalize=True, gradient="through", planning_correction=False),
}


class HandTables(NamedTuple):
    """The maze over sequences of four steps: 4⁴ = 256 plans u, 5⁴ = 625 walks x, 2⁴ = 16 cues y, 2 sides θ."""

    log_u: Array  # () log p(u)
    log_x: Array  # (256, 625) log p(x|u)
    log_y: Array  # (625, 16, 2) log p(y,θ|x)
    barred: Array | None  # (625, 32) NEVER where p(y,θ|x) = 0, with restricted tables
    goal: Array  # (625, 2) log p̂(x_T|θ)
    moves: Array  # (256, 4, 3) whether u_t is this one, t = 2, 3, 4
    places: Array  # (625, 15) whether x_{t-1} is this one, the same t


def hand_tables(support: str) -> HandTables:
    def log(p: np.ndarray) -> np.ndarray:
        least = FLOOR if support == "all" else 0.0
        return np.where(p > least, np.log(np.where(p > least, p, 1.0)), np.log(FLOOR) if least else NEVER)

    u, x, y = (np.indices((n,) * HORIZON).reshape(HORIZON, -1) for n in (4, 5, 2))
    step = log(np.eye(5)[maze.transitions()])  # (X, U, X')
    cue = np.moveaxis(log(maze.cue_probabilities()), 1, 2)  # (X, Y, Θ)
    before = np.concatenate([np.full((1, x.shape[1]), maze.START), x[:-1]])
    log_x = sum(step[before[t][None, :], u[t][:, None], x[t][None, :]] for t in range(HORIZON))
    log_y = np.log(0.5) + sum(cue[x[t][:, None], y[t][None, :]] for t in range(HORIZON))
    barred = None if support == "all" else np.where(log_y < NEVER / 2, NEVER, 0.0).reshape(625, 32)
    goal = maze.goal_preference(maze.GAMMA)[x[-1]]
    moves, places = np.moveaxis(np.eye(4)[u[1:]], 0, 2), np.moveaxis(np.eye(5)[x[:-1]], 0, 2).reshape(-1, 15)
    tables = HandTables(HORIZON * np.log(0.25), log_x, log_y, barred, goal, moves, places)
    return jax.tree.map(lambda a: jnp.asarray(np.maximum(a, NEVER), jnp.float32), tables)


def hand_loss(tables: HandTables, params: dict[str, Array], objective: Objective) -> Array:
    log_qu = jax.nn.log_softmax(params["control_logits"])
    log_qx = jax.nn.log_softmax(params["state_logits"] + tables.log_x)
    logits_y = params["emission_logits"].reshape(625, 32)
    log_qy = jax.nn.log_softmax(logits_y if tables.barred is None else logits_y + tables.barred).reshape(625, 16, 2)
    qu, qx_u, qy = jnp.exp(log_qu), jnp.exp(log_qx), jnp.exp(log_qy)  # q(u), q(x|u), q(y,θ|x)
    entropy = -(qx_u * log_qx).sum(1)  # H[q(x|u)]
    crossed = (qx_u * tables.log_x).sum(1)
    qx = qu @ qx_u
    q_theta = qy.sum(1)  # q(θ|x)
    cost = (qy * (log_qy - tables.log_y)).sum((1, 2)) - (q_theta * tables.goal).sum(1)
    total = qu @ (log_qu - tables.log_u - entropy - crossed) + qx @ cost
    if objective.correction:
        total += policy_entropy(tables, qu, qx_u)
    if objective.epistemic:
        total += epistemic(objective, qu, qx, entropy, qy, log_qy, q_theta)
    return total


def policy_entropy(tables: HandTables, qu: Array, qx_u: Array) -> Array:
    """Σ_t H[q(u_t|x_{t-1})]; where the maze starts is certain, so the first is H[q(u_1)]."""
    pairs = jnp.einsum("nvt,nxt->txv", qu[:, None, None] * tables.moves, (qx_u @ tables.places).reshape(256, 5, 3))
    return (xlogx(pairs.sum(2)) - xlogx(pairs).sum(2)).sum() - xlogx(qu.reshape(4, -1).sum(1)).sum()


def epistemic(
    objective: Objective, qu: Array, qx: Array, entropy: Array, qy: Array, log_qy: Array, q_theta: Array
) -> Array:
    """−E_q[log p̃(u) + log p̃(x) + log p̃(y,x)]."""
    seen = qy.sum(2)  # q(y|x)
    gained = (qy * (log_qy - log(q_theta)[:, None, :])).sum(2)
    ambiguity = -gained.sum(1)
    novelty = gained / jnp.where(seen > 0, seen, 1.0) - log(seen)
    cost = ambiguity - (seen * novelty).sum(1)
    if objective.gradient == "fixed":
        entropy, cost = jax.lax.stop_gradient((entropy, cost))
    total = qx @ cost - qu @ entropy
    if objective.normalize:
        reached = qx > 0
        total += jax.nn.logsumexp(entropy)
        total += jax.nn.logsumexp(-ambiguity, where=reached)
        total += jax.nn.logsumexp(novelty, where=reached[:, None] & (seen > 0))
    return total


def log(p: Array) -> Array:
    return jnp.log(jnp.where(p > 0, p, 1.0))


def xlogx(p: Array) -> Array:
    return p * log(p)


class Side(NamedTuple):
    """One of the two losses, compiled."""

    run: Callable[[], Any]  # value and gradient
    compile_seconds: float


def compiled(step: Callable[..., Any], *arguments: Any) -> Side:
    start = time.perf_counter()
    executable = jax.jit(step).lower(*arguments).compile()
    seconds = time.perf_counter() - start
    return Side(lambda: jax.block_until_ready(executable(*arguments)), seconds)


def package_side(objective: Objective, support: Any, params: dict[str, Array]) -> Side:
    """The loss that the solver steps on; everything that does not depend on the logits is computed before."""
    guide = SequenceGuide(maze.tmaze, support)
    world = guide.world(maze.tmaze, maze.initial_belief(), HORIZON)
    start = time.perf_counter()
    step = jax.make_jaxpr(jax.value_and_grad(guide.loss_function(objective, world, HORIZON)), return_shape=True)
    closed, shape = step(params)
    seconds = time.perf_counter() - start

    def run(constants: list[Array], params: dict[str, Array]) -> Any:
        leaves = jax.core.eval_jaxpr(closed.jaxpr, constants, *jax.tree.leaves(params))
        return jax.tree.unflatten(jax.tree.structure(shape), leaves)

    side = compiled(run, closed.consts, params)
    return side._replace(compile_seconds=side.compile_seconds + seconds)


def hand_side(objective: Objective, support: str, params: dict[str, Array]) -> Side:
    def run(tables: HandTables, params: dict[str, Array]) -> Any:
        return jax.value_and_grad(lambda params: hand_loss(tables, params, objective))(params)

    return compiled(run, hand_tables(support), params)


def disagreement(one: Any, other: Any) -> float:
    """The largest difference between two values and gradients, relative to max(1, the largest entry)."""
    worst = 0.0
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        worst = max(worst, float(jnp.abs(a - b).max() / jnp.maximum(1.0, jnp.abs(b).max())))
    return worst


def microseconds(sides: list[Side], repeats: int) -> list[float]:
    """The first decile of each side, run in turns."""
    taken: list[list[float]] = [[] for _ in sides]
    for i in range(WARM_UP + repeats):
        for side, times in zip(sides, taken, strict=True):
            start = time.perf_counter()
            side.run()
            if i >= WARM_UP:
                times.append(time.perf_counter() - start)
    return [1e6 * float(np.quantile(times, 0.1)) for times in taken]


def measure(name: str, support: str, repeats: int) -> dict[str, Any]:
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = {"control_logits": (256,), "state_logits": (256, 625), "emission_logits": (625, 16, 2)}
    params = {n: jax.random.normal(key, shape) for key, (n, shape) in zip(keys, shapes.items(), strict=True)}
    assert sum(a.size for a in params.values()) == NUM_PARAMETERS
    ours, by_hand = (side(OBJECTIVES[name], support, params) for side in (package_side, hand_side))
    found, expected = ours.run(), by_hand.run()
    different = disagreement(found, expected)
    if not different <= AGREE:  # also where one of them is not a number
        raise SystemExit(f"{name}, support={support}: F is {found[0]} and {expected[0]} by hand, {different:.1e} apart")
    us = microseconds([ours, by_hand], repeats)
    return {
        "objective": name,
        "support": support,
        "free_energy": float(found[0]),
        "disagreement": different,
        "us": us[0],
        "us_by_hand": us[1],
        "compile_seconds": ours.compile_seconds,
        "compile_seconds_by_hand": by_hand.compile_seconds,
        "ratio": us[0] / us[1],
    }


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(
        title=f"T-maze, T = {HORIZON}, {NUM_PARAMETERS:,} parameters: value and gradient, float32, "
        f"{jax.devices()[0].platform}"
    )
    table.add_column("objective")
    table.add_column("support")
    for title in ("µs a step", "by hand", "ratio", "compile s", "by hand"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            row["objective"],
            row["support"],
            f"{row['us']:.0f}",
            f"{row['us_by_hand']:.0f}",
            f"[{'green' if row['ratio'] <= LIMIT else 'red'}]{row['ratio']:.2f}[/]",
            f"{row['compile_seconds']:.2f}",
            f"{row['compile_seconds_by_hand']:.2f}",
        )
    Console(width=110).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=300, help="timed runs of each side")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there, too")
    arguments = parser.parse_args()
    rows = [measure(name, support, arguments.repeats) for support in ("all", "model") for name in OBJECTIVES]
    show(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    sys.exit(any(row["ratio"] > LIMIT for row in rows))


if __name__ == "__main__":
    main()
