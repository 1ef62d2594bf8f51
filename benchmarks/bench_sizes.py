"""The measurements behind the sizes in npro_aif/sizes.py: each on both sides of its value.

Everything runs on one core after a warm-up; a time is the lowest of some repeats, and the extra time of the first call
is shown separately as compile seconds.

    python benchmarks/bench_sizes.py [NAME …]
"""

from __future__ import annotations

import argparse
import functools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif
from npro_aif import sizes
from npro_aif.acting.filter import Filter
from npro_aif.models import doorkey, tmaze
from npro_aif.numerics import sum_last
from npro_aif.program.program import program_of
from npro_aif.tables import routing
from npro_aif.tables.index import IndexTransition

KEY = jax.random.key(0)
REPEATS = 20


def timed(run: Callable[[], Any], repeats: int = REPEATS) -> tuple[float, float]:
    """Milliseconds once warm, and the seconds that the first call took beyond that."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    first, taken = time.perf_counter() - start, []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(run())
        taken.append(time.perf_counter() - start)
    return 1e3 * min(taken), first - min(taken)


def ring(places: int, parameters: int) -> Any:
    """A ring on which a control goes round, and θ is where the prize lies; noise, so that rows are dense."""

    def model(belief: aif.Belief, horizon: int = 10) -> None:
        prize = aif.parameter("prize", dist.Categorical(belief.parameter))
        x = aif.state("x", dist.Categorical(belief.state[prize]))

        def step(x: jax.Array, t: jax.Array) -> jax.Array:
            u = aif.control("u", dist.Categorical(probs=jnp.ones(4) / 4))
            to = (x + u) % places
            x = aif.state("x", dist.Categorical(probs=0.9 * jax.nn.one_hot(to, places) + 0.1 / places))
            aif.observation("y", dist.Categorical(probs=jnp.where((x == prize)[..., None], jnp.eye(2)[1], 0.5)))
            aif.preference("goal", jnp.where(x == prize, 1.0, 0.0))
            return x

        aif.rollout(step, x, horizon)

    return model


def ring_belief(places: int, parameters: int) -> aif.Belief:
    state = np.zeros((parameters, places), np.float32)
    state[:, 0] = 1
    return aif.Belief(jnp.full(parameters, 1 / parameters), jnp.asarray(state))


def planner_of(model: Any, horizon: int = 10) -> aif.Planner:
    guide = aif.guides.TemporalGuide(model, learn=("control",))
    return aif.Planner(model, guide, aif.Active(), aif.CoordinateSolver(max_sweeps=8), max_horizon=horizon)


def small() -> Iterator[str]:
    """A batch of 32 beliefs together and one by one; and one belief with its slices together and one by one."""
    before = sizes.SMALL
    for places in (5, 25, 62, 125, 250, 500):
        shape = f"{4 * 4 * places:>6,} entries"
        milliseconds = []
        for limit in (10**9, 0):
            sizes.SMALL = limit
            planner, belief = planner_of(ring(places, 4)), ring_belief(places, 4)
            keys = jax.random.split(KEY, 32)
            beliefs = jax.tree.map(lambda leaf: jnp.stack([leaf] * 32), belief)
            milliseconds += [
                timed(functools.partial(planner.batch, keys, beliefs), 5)[0] / 32,
                timed(functools.partial(planner.solve, KEY, belief), 5)[0],
            ]
        sizes.SMALL = before
        yield "{}: as small {:.2f} ms in a batch, {:.2f} alone; as large {:.2f} and {:.2f}".format(shape, *milliseconds)


def together_from() -> Iterator[str]:
    """Decisions of the T-maze one by one and together."""
    planner = planner_of(tmaze.tmaze, 4)
    belief = tmaze.initial_belief()
    alone, _ = timed(lambda: planner.first_control(KEY, belief))
    for count in (4, 16, 64):
        keys = jax.random.split(KEY, count)
        beliefs = jax.tree.map(lambda leaf, count=count: jnp.stack([leaf] * count), belief)
        batch, compiling = timed(functools.partial(planner.batch, keys, beliefs))
        yield f"{count} decisions: {count * alone:.1f} ms one by one, {batch:.1f} together after {compiling:.1f} s"


def doorkey_belief(count: int) -> aif.Belief:
    """DoorKey's prior with ``count`` of its layouts."""
    whole = doorkey.initial_belief(8)
    parameter = np.zeros(len(whole.parameter), np.float32)
    parameter[np.flatnonzero(whole.parameter)[:count]] = 1 / count
    return aif.Belief(jnp.asarray(parameter), whole.state)


def doorkey_model() -> Any:
    return functools.partial(doorkey.doorkey, size=8, preference="every-step")


def prune_from() -> Iterator[str]:
    """Rings with different numbers of parameters: the time that leaving out half of them would save."""
    for count in (2, 4, 8, 16, 64):
        planner = planner_of(ring(25, count))
        milliseconds, compiling = timed(functools.partial(planner.solve, KEY, ring_belief(25, count)))
        yield f"{count} parameters: {milliseconds:.2f} ms, compiled in {compiling:.1f} s"


def smallest_support() -> Iterator[str]:
    """DoorKey-8x8 planned with few layouts."""
    from npro_aif.planning import support

    before, support.SMALLEST_SUPPORT = support.SMALLEST_SUPPORT, 1
    planner = planner_of(doorkey_model(), 20)
    for count in (1, 2, 4, 8, 16):
        milliseconds, compiling = timed(functools.partial(planner.solve, KEY, doorkey_belief(count)), 5)
        yield f"{count} layouts: {milliseconds:.1f} ms, compiled in {compiling:.1f} s"
    support.SMALLEST_SUPPORT = before


def fewest_updated() -> Iterator[str]:
    """DoorKey-8x8's belief update."""
    model, whole = doorkey_model(), doorkey.initial_belief(8)
    update = Filter(program_of(model, whole, 1))
    for count in (1, 16, 17, 128, 129):
        belief = doorkey_belief(count)
        milliseconds, compiling = timed(functools.partial(update, belief, None, {}))
        yield f"{count} layouts: {milliseconds:.2f} ms, first call {compiling:.1f} s more"


def most_groups() -> Iterator[str]:
    """A deterministic world of 576 states, 5 controls and 64 parameters, by rows and by routes."""
    rng = np.random.default_rng(0)
    before = routing.MOST_GROUPS
    mass, policy = jnp.ones((576, 64)), jnp.full((576, 5), 0.2)
    for groups in (1, 2, 4, 8):
        choices = rng.integers(576, size=(groups, 1, 1, 576, 5))
        which = rng.integers(groups, size=(1, 1, 64, 576, 5))
        index = jnp.asarray(
            np.take_along_axis(np.broadcast_to(choices, (groups, 1, 64, 576, 5)), which, 0)[0], jnp.int32
        )
        milliseconds = []
        for limit in (10**9, 0):
            routing.MOST_GROUPS = limit
            kernel = IndexTransition(index, 576).prepared().routed(64, 576).at(0)
            push = jax.jit(lambda kernel, mass, policy: kernel.push(mass, policy))
            milliseconds.append(timed(functools.partial(push, kernel, mass, policy))[0])
        yield "{} groups: {:.2f} ms by rows, {:.2f} by routes".format(groups, *milliseconds)
    routing.MOST_GROUPS = before


def most_blocks() -> Iterator[str]:
    """DoorKey-8x8 with all layouts: one gradient of F_planning, its controls in one block and one by one."""
    before = routing.MOST_BLOCKS
    belief = doorkey.initial_belief(8)
    for blocks in (1, 5):
        routing.MOST_BLOCKS = blocks
        model = doorkey_model()
        guide = aif.guides.TemporalGuide(model, learn=("control",))
        world = program_of(model, belief, 20).world(belief, 20).routed()
        loss = guide.loss_function(aif.Planning(), world, 20)
        step = jax.jit(jax.grad(loss))
        milliseconds, compiling = timed(functools.partial(step, guide.first_params(KEY, world, 20)), 3)
        yield f"{blocks} blocks: {milliseconds:.0f} ms a gradient, compiled in {compiling:.1f} s"
    routing.MOST_BLOCKS = before


def few_terms() -> Iterator[str]:
    """Σ over a last axis of n, written out and as a product with ones."""
    from npro_aif import numerics

    before = numerics.FEW_TERMS
    for count in (2, 8, 16, 32):
        table = jnp.ones((4096, count))
        microseconds = []
        for limit in (10**9, 0):
            numerics.FEW_TERMS = limit
            add = jax.jit(lambda table: sum_last(table * 2.0))
            microseconds.append(1e3 * timed(functools.partial(add, table), 200)[0])
        yield "{} terms: {:.0f} µs written out, {:.0f} as a product".format(count, *microseconds)
    numerics.FEW_TERMS = before


MEASURES = (small, together_from, prune_from, smallest_support, fewest_updated, most_groups, most_blocks, few_terms)


def main() -> None:
    names = [measure.__name__ for measure in MEASURES]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*names, []], help="which; all by default")
    chosen = parser.parse_args().names or names
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for measure in MEASURES:
        if measure.__name__ in chosen:
            print(f"{measure.__name__.upper()}: {measure.__doc__}")
            for line in measure():
                print(f"  {line}", flush=True)


if __name__ == "__main__":
    main()
