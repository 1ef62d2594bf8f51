"""A large slippery grid by sparse kernels, beside value iteration with scipy.sparse in the same run.

A move goes in its own direction in 7 of 10 cases and in each other one in 1 of 10; walls stop it. The cell in the
middle is never left and is worth 1 a step; the start is a corner. With `taskset -c 0` the times are of one core.

    python benchmarks/bench_sparse.py [SIDE:HORIZON …]
"""

from __future__ import annotations

import functools
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import sparse

import npro_aif as aif
from npro_aif.models.grids import targets

SLIP = 0.1
DEFAULT = ("25:50", "50:100", "100:200")
KEY = jax.random.key(0)


def middle(side: int) -> int:
    """The cell that is worth something."""
    return side * (side // 2) + side // 2


@functools.cache
def outcomes(side: int) -> tuple[np.ndarray, np.ndarray]:
    """The cells that may come after (cell, control), and their probabilities, (cells, 4, 4)."""
    to = targets(side, side)
    to[middle(side)] = middle(side)
    probs = np.full((4, 4), SLIP) + (1 - 4 * SLIP) * np.eye(4)
    return np.broadcast_to(to[:, None], (side * side, 4, 4)), np.broadcast_to(probs, (side * side, 4, 4))


def grid(side: int) -> Callable[..., None]:
    """The grid as a program."""
    index, probs = (jnp.asarray(table) for table in outcomes(side))
    cells = side * side

    def model(belief: aif.Belief, horizon: int = 100) -> None:
        x = aif.state("x", dist.Categorical(probs=belief.state[0]))

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=jnp.ones(4) / 4))
            x = aif.state("x", aif.SparseCategorical(index[x, u], probs[x, u], cells))
            aif.preference("goal", jnp.where(x == middle(side), 1.0, 0.0))
            return x

        aif.rollout(step, x, horizon)

    return model


def value_iteration(side: int, horizon: int) -> tuple[float, float]:
    """The value at the start by scipy, and its seconds (the matrices are made before)."""
    index, probs = outcomes(side)
    cells = side * side
    rows = np.repeat(np.arange(cells), 4)
    moves = [sparse.csr_matrix((probs[:, u].ravel(), (rows, index[:, u].ravel())), (cells, cells)) for u in range(4)]
    reward = np.zeros(cells)
    reward[middle(side)] = 1
    start = time.perf_counter()
    value = np.zeros(cells)
    for _ in range(horizon):
        value = np.max([move @ (value + reward) for move in moves], axis=0)
    return float(value[0]), time.perf_counter() - start


def warm(run: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result of a run, its seconds once warm, and the extra seconds of the first run."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    first = time.perf_counter() - start
    start = time.perf_counter()
    result = jax.block_until_ready(run())
    taken = time.perf_counter() - start
    return result, taken, first - taken


def main() -> None:
    heads = ["side", "states", "T", "scipy s", "backward s", "ratio", "gap", "plan s", "ratio", "gap", "first +s", "GB"]
    print(*(f"{head:>10}" for head in heads))
    logs = []
    for size in sys.argv[1:] or DEFAULT:
        side, horizon = map(int, size.split(":"))
        model, cells = grid(side), side * side
        belief = aif.Belief(state=jax.nn.one_hot(0, cells))
        planner = aif.Planner(model, objective=aif.Planning(), solver=aif.CoordinateSolver(), max_horizon=horizon)
        plan, whole, first = warm(lambda: planner(KEY, belief))  # noqa: B023
        bound, back, _ = warm(lambda: aif.perfect_information(model, belief, horizon))  # noqa: B023
        value, seconds = value_iteration(side, horizon)
        values = horizon * np.log(4) - float(bound), -float(plan.terms["risk"])
        gaps = [abs(own - value) / value for own in values]
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        numbers = (seconds, back, back / seconds, gaps[0], whole, whole / seconds, gaps[1], first, memory)
        print(*(f"{n:>10}" for n in (side, cells, horizon)), *(f"{n:>10.3g}" for n in numbers), flush=True)
        entries = cells * 16
        logs.append((np.log(entries * horizon), np.log(whole)))
    if len(logs) > 1:
        print(f"plan seconds grow with (entries × steps) to the power {np.polyfit(*np.array(logs).T, 1)[0]:.2f}")


if __name__ == "__main__":
    main()
