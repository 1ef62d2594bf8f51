"""Seconds a plan with a memory: the T-maze beside the memoryless one, and a world of 100 places and 20 contents.

Everything runs on one core after a warm-up; a time is the lowest of some repeats, and the extra time of the first call
is shown separately as compile seconds.

    python benchmarks/bench_closed_loop.py
"""

from __future__ import annotations

import functools
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from bench_sizes import timed

import npro_aif as aif
from npro_aif.models import tmaze

KEY = jax.random.key(0)
PLACES, CONTENTS, TRUTHS, STEPS = 100, 20, 10, 30


def planner_of(model: Any, objective: Any, horizon: int) -> aif.Planner:
    guide = aif.guides.TemporalGuide(model, learn=("control",))
    return aif.Planner(model, guide, objective, aif.CoordinateSolver(max_sweeps=8), max_horizon=horizon)


def street(belief: aif.Belief, horizon: int = STEPS) -> None:
    """100 places in a row, one of ten of which holds a prize; signs everywhere say which, mostly wrong; 20 contents."""
    truth = aif.parameter("truth", dist.Categorical(probs=belief.parameter))
    x = aif.state("x", dist.Categorical(probs=belief.state[truth]))
    m = aif.memory("count", CONTENTS // 2, CONTENTS)

    def step(carry: Any, t: Any) -> Any:
        x, m = carry
        u = aif.control("u", dist.Categorical(probs=jnp.ones(4) / 4))
        to = jnp.clip(x + jnp.array([-2, -1, 1, 2])[u], 0, PLACES - 1)
        x = aif.state("x", aif.DeterministicCategorical(to, PLACES))
        right = jnp.where(x % TRUTHS == truth, 0.7, 0.4)
        y = aif.observation("y", dist.Categorical(probs=jnp.stack([1 - right, right], -1)))
        m = aif.memory("count", jnp.clip(m + 2 * y - 1, 0, CONTENTS - 1), CONTENTS)
        aif.preference("prize", jnp.where(x == truth * TRUTHS, 1.0, 0.0))
        return x, m

    aif.rollout(step, (x, m), horizon)


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for objective in (aif.Planning(), aif.Active()):
        times = {}
        for memory in (None, "told", "count"):
            planner = planner_of(functools.partial(tmaze.tmaze, memory=memory), objective, 6)
            decide = functools.partial(planner.first_control, KEY, tmaze.initial_belief())
            times[memory], compiling = timed(decide, 200)
            ratio = times[memory] / times[None]
            name = f"T-maze, T = 6, {type(objective).__name__}, memory {memory}"
            print(f"{name}: {times[memory]:.2f} ms a decision, {ratio:.2f} times, compiled in {compiling:.1f} s")
    state = np.zeros((TRUTHS, PLACES), np.float32)
    state[:, PLACES // 2] = 1
    belief = aif.Belief(jnp.full(TRUTHS, 1 / TRUTHS), jnp.asarray(state))
    for objective in (aif.Planning(), aif.Active()):
        planner = planner_of(street, objective, STEPS)
        milliseconds, compiling = timed(functools.partial(planner.solve, KEY, belief), 5)
        plan = planner.solve(KEY, belief)
        what = f"{PLACES} places × {CONTENTS} contents, {TRUTHS} θ, T = {STEPS}, {type(objective).__name__}"
        print(f"{what}: {milliseconds:.0f} ms, {int(plan.info.iterations)} sweeps, compiled in {compiling:.1f} s")


if __name__ == "__main__":
    main()
