"""How often the coordinate solver ends above the lowest F that anybody finds, in 100 random worlds of 20 structures.

The lowest is taken over 40 starts, gradient descents (SVI) and, where they can be listed, all policies without ties.
For 1, 2, 4, … starts the table says in how many worlds F is more than 1e-3 above it, by how much on average, how often
a run did not settle, and whether F ever rose.

    python benchmarks/solver_quality.py                        # policy learned
    python benchmarks/solver_quality.py --learn control,parameter,state
    python benchmarks/solver_quality.py --worlds 1 --no-svi    # one world of each structure, a few minutes
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # compiles in half the time
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax

import npro_aif as aif
from npro_aif.guides import TemporalGuide
from npro_aif.inference.objectives import Objective
from npro_aif.program.program import program_of
from npro_aif.solvers import Problem, Solution
from npro_aif.tables.world import World

STARTS = 40  # the best of so many is the reference
COUNTS = (1, 2, 4, 8, 16)
ABOVE = 1e-3
MOST_POLICIES = 5_000  # that are listed
SVI = aif.SVISolver(optax.adam(0.1), 300)
OBJECTIVES = {
    "active": aif.Active(gradient="through"),
    "fixed": aif.Active(gradient="fixed"),
    "planning": aif.Planning(),
    "marginal": aif.Marginal(),
}


class Structure(NamedTuple):
    """The sizes and dependencies of a world."""

    states: int
    controls: int
    parameters: int
    outcomes: int
    horizon: int
    moves: str = "noisy"  # "noisy", "sparse" (many zeros) or "certain"
    moves_see: bool = True  # whether dynamics see θ
    start_sees: bool = False  # whether x0 does
    senses: str = "noisy"  # or "sharp" (nearly certain) or "none" (tells nothing)
    preference: str = "steps"  # "steps", "end", "truth" (of θ) or "moves"
    spread: float = 2.0  # the preferences' standard deviation
    hidden: int = 1  # how many values are hidden behind each visible state
    memory: bool = False  # whether the last observation is remembered


STRUCTURES = (
    Structure(3, 2, 2, 2, 2),
    Structure(3, 2, 3, 2, 3),
    Structure(4, 3, 2, 2, 3),
    Structure(4, 2, 3, 3, 4),
    Structure(3, 3, 2, 2, 2, senses="sharp"),
    Structure(4, 2, 2, 2, 3, senses="none"),
    Structure(4, 2, 3, 2, 3, moves="sparse"),
    Structure(5, 3, 2, 2, 3, moves="sparse", preference="end"),
    Structure(5, 3, 3, 2, 4, moves="certain", senses="sharp"),
    Structure(6, 2, 2, 2, 4, moves="certain", preference="truth"),
    Structure(4, 3, 2, 2, 3, moves_see=False),
    Structure(5, 2, 3, 2, 4, moves_see=False, senses="sharp", preference="truth"),
    Structure(4, 2, 2, 2, 3, moves_see=False, start_sees=True, preference="truth"),
    Structure(3, 2, 4, 3, 3, start_sees=True),
    Structure(4, 2, 2, 2, 3, start_sees=True, preference="truth"),
    Structure(3, 3, 2, 2, 3, preference="moves"),
    Structure(2, 2, 2, 2, 3, hidden=2),
    Structure(2, 3, 1, 2, 3, hidden=2, memory=True),
    Structure(3, 2, 2, 2, 3, moves_see=False, memory=True, preference="truth"),
    Structure(2, 2, 2, 2, 4, hidden=2, memory=True, start_sees=True),
)


def draw(structure: Structure, seed: int) -> tuple[Callable[..., None], aif.Belief]:
    """A world of a structure, as a program, and its belief."""
    s, rng = structure, np.random.default_rng(seed)
    num_x = s.states * s.hidden
    see = s.parameters if s.moves_see else 1
    moves = rng.dirichlet(np.full(num_x, 0.5), (see, num_x, s.controls))
    if s.moves == "sparse":
        mask = rng.random(moves.shape) < 0.4
        mask[np.arange(see)[:, None, None], np.arange(num_x)[:, None], np.arange(s.controls), moves.argmax(-1)] = True
        moves = np.where(mask, moves, 0.0)
        moves /= moves.sum(-1, keepdims=True)
    certain = jnp.asarray(rng.integers(num_x, size=(see, num_x, s.controls)), jnp.int32)
    sharp = {"noisy": 1.0, "sharp": 0.1, "none": 1.0}[s.senses]
    senses = rng.dirichlet(np.full(s.outcomes, sharp), (s.parameters, num_x))
    if s.senses == "none":
        senses = np.broadcast_to(senses[:1, :1], senses.shape)
    shape = {
        "steps": (s.horizon, 1, num_x, 1, 1),
        "end": (1, 1, num_x, 1, 1),
        "truth": (1, s.parameters, num_x, 1, 1),
        "moves": (1, s.parameters, num_x, num_x, s.controls),
    }[s.preference]
    liked = jnp.asarray(s.spread * rng.normal(size=shape))
    start = rng.dirichlet(np.ones(num_x), s.parameters if s.start_sees else 1)
    belief = aif.Belief(
        jnp.asarray(rng.dirichlet(np.full(s.parameters, 2.0))),
        jnp.asarray(np.broadcast_to(start, (s.parameters, num_x))),
    )
    rows = moves.reshape(*moves.shape[:3], s.states, s.hidden)
    visible = rows.sum(-1)
    given = np.where(visible[..., None] > 0, rows / np.maximum(visible[..., None], 1e-30), 1 / s.hidden)
    tables = [jnp.asarray(table) for table in (moves, visible, given, senses)]

    def at(table: Any, *index: Any) -> Any:
        return table[tuple(0 if n == 1 else i for n, i in zip(table.shape, index, strict=False))]

    def model(belief: aif.Belief, horizon: int = s.horizon) -> None:
        moves, visible, given, senses = tables
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        if s.hidden > 1:
            first = aif.initial_state({"v": s.states, "h": s.hidden}, belief.state[theta])
            x = first["v"] * s.hidden + first["h"]
        else:
            x = aif.state("x", dist.Categorical(probs=belief.state[theta]))
        m = aif.memory("m", 0, s.outcomes + 1) if s.memory else 0

        def step(carry: Any, t: Any) -> Any:
            x, m = carry
            u = aif.control("u", dist.Categorical(probs=jnp.full(s.controls, 1 / s.controls)))
            if s.hidden > 1:
                v = aif.state("v", dist.Categorical(probs=at(visible, theta, x, u)))
                h = aif.state("h", dist.Categorical(probs=at(given, theta, x, u, v)), hidden=True)
                to = v * s.hidden + h
            elif s.moves == "certain":
                to = aif.state("x", aif.DeterministicCategorical(at(certain, theta, x, u), num_x))
            else:
                to = aif.state("x", dist.Categorical(probs=at(moves, theta, x, u)))
            y = aif.observation("y", dist.Categorical(probs=senses[theta, to]))
            if s.memory:
                m = aif.memory("m", y + 1, s.outcomes + 1)
            value = at(liked, t - 1, theta, to, x, u)
            aif.preference("liked", jnp.where(t == horizon, value, 0.0) if s.preference == "end" else value)
            return to, m

        aif.rollout(step, (x, m), horizon)

    return model, belief


class Outcome(NamedTuple):
    """What one objective came to in one world."""

    starts: list[float]  # F of each start
    settled: list[bool]
    rise: float  # the largest rise of F from sweep to sweep
    best: float  # the lowest F that anybody found


class Measured(NamedTuple):
    """A compiled function of a structure's worlds."""

    guide: TemporalGuide
    starts: Callable[[World, jax.Array], Solution]
    descents: Callable[[World, jax.Array], jax.Array]
    listed: Callable[[World], jax.Array] | None


def measured(model: Any, structure: Structure, objective: Objective, learn: tuple[str, ...], solver: Any) -> Measured:
    guide, num_steps = TemporalGuide(model, learn=learn), structure.horizon

    def problem(world: World) -> Problem:
        return Problem(world.routed(), guide, objective, num_steps)

    def starts(world: World, key: jax.Array) -> Solution:
        return solver.every_start(problem(world), key, guide.first_params(key, world, num_steps))

    def descents(world: World, key: jax.Array) -> jax.Array:
        return SVI.solve(problem(world), key, guide.first_params(key, world, num_steps)).free_energy[-1]

    num_seen = structure.states * (structure.outcomes + 1 if structure.memory else 1)
    count = float(structure.controls) ** (num_seen * num_steps)

    def listed(world: World) -> jax.Array:
        rows = itertools.product(range(structure.controls), repeat=num_seen * num_steps)
        choice = jnp.asarray(list(rows)).reshape(-1, num_steps, num_seen)
        loss = guide.loss_function(objective, world.routed(), num_steps)
        logits = jnp.where(jax.nn.one_hot(choice, structure.controls) > 0, 0.0, -jnp.inf)
        return jax.lax.map(lambda row: loss({"control_logits": row}), logits, batch_size=256).min()

    return Measured(guide, jax.jit(starts), jax.jit(descents), jax.jit(listed) if count <= MOST_POLICIES else None)


def world_of(model: Any, belief: aif.Belief, horizon: int) -> World:
    return program_of(model, belief, horizon).world(belief, horizon)


def measure(functions: Measured, world: World, key: jax.Array, *, svi: bool) -> Outcome:
    solution = functions.starts(world, key)
    history = np.asarray(solution.free_energy)
    candidates = [float(history[:, -1].min())]
    if svi:
        candidates.append(float(functions.descents(world, key)))
    if functions.listed is not None:
        candidates.append(float(functions.listed(world)))
    rise = float(np.diff(history, axis=1).max())
    return Outcome(history[:, -1].tolist(), np.asarray(solution.info.converged).tolist(), rise, min(candidates))


def report(name: str, outcomes: list[Outcome], counts: tuple[int, ...] = COUNTS) -> list[str]:
    """A line for each number of starts."""
    values, settled = (np.array([getattr(o, field) for o in outcomes]) for field in ("starts", "settled"))
    lines = []
    for count in counts:
        gaps = values[:, :count].min(1) - np.array([o.best for o in outcomes])
        kept = settled[np.arange(len(values)), values[:, :count].argmin(1)]
        lines.append(
            f"{name}, {count:2d} starts: above in {(gaps > ABOVE).mean():6.1%}, by {gaps.mean():.4f} on average "
            f"(at most {gaps.max():.3f}); settled {kept.mean():.0%}"
        )
    rise = max(o.rise for o in outcomes)
    lines.append(f"{name}: {settled.mean():.1%} of all {settled.size} starts settled; F rose by {rise:.0e} at most")
    return lines


def run(
    names: list[str],
    learn: tuple[str, ...],
    worlds: int,
    *,
    svi: bool = True,
    spread: float | None = None,
    structures: tuple[Structure, ...] = STRUCTURES,
    kept: Path | None = None,
) -> dict[str, list[Outcome]]:
    """The outcomes of every objective in ``worlds`` worlds of each structure.

    :param kept: a file in which what is done is kept, so that the same call goes on where it was stopped.
    """
    solver = aif.CoordinateSolver(restarts=STARTS)
    lines = kept.read_text().splitlines() if kept is not None and kept.exists() else []
    done = {tuple(row["case"]): Outcome(*row["outcome"]) for row in map(json.loads, lines)}
    outcomes: dict[str, list[Outcome]] = {name: [] for name in names}
    begin = time.perf_counter()
    for number, structure in enumerate(structures):
        if (structure.hidden > 1 or structure.memory) and set(learn) & {"state", "observation"}:
            continue
        own = structure if spread is None else structure._replace(spread=spread)
        for name in names:
            functions: Measured | None = None
            for i in range(worlds):
                case = name, repr(own), i, ",".join(learn), svi
                if case not in done:
                    model, belief = draw(own, 1000 * number + i)
                    functions = functions or measured(model, own, OBJECTIVES[name], learn, solver)
                    world = world_of(model, belief, own.horizon)
                    done[case] = measure(functions, world, jax.random.key(i), svi=svi)
                    if kept is not None:
                        with kept.open("a") as file:
                            file.write(json.dumps({"case": case, "outcome": done[case]}) + "\n")
                outcomes[name].append(done[case])
        took = time.perf_counter() - begin
        print(f"{number + 1} of {len(structures)} structures, {took:.0f} s", file=sys.stderr, flush=True)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=5, help="worlds of each structure")
    parser.add_argument("--learn", default="control", help="which factors are learned")
    parser.add_argument("--objectives", default="active,fixed,planning,marginal")
    parser.add_argument("--spread", type=float, help="the standard deviation of preferences (2)")
    parser.add_argument("--no-svi", action="store_true", help="leave the gradient descents out")
    parser.add_argument("--out", type=Path, help="keep what is done in this file, and go on from it")
    arguments = parser.parse_args()
    jax.config.update("jax_disable_most_optimizations", True)  # the time goes into compiling
    names = arguments.objectives.split(",")
    learn = tuple(arguments.learn.split(","))
    outcomes = run(
        names, learn, arguments.worlds, svi=not arguments.no_svi, spread=arguments.spread, kept=arguments.out
    )
    print(f"{len(outcomes[names[0]])} worlds, learned: {', '.join(learn)}")
    for name in names:
        print("\n".join(report(name, outcomes[name])))


if __name__ == "__main__":
    main()
