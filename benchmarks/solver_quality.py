"""How often the coordinate solver ends above the lowest known F, in 100 random worlds of 20 structures.

The lowest is taken over 40 starts, a gradient descent (SVI) and, where they can be listed, all policies without ties.
For 1, 2, 4, … starts the table says in how many worlds F is more than 1e-3 above the lowest, by how much on average,
how often a run did not settle, and whether F ever rose. Worlds are padded to common sizes, so that little is compiled.

    python benchmarks/solver_quality.py                        # policy learned, some minutes
    python benchmarks/solver_quality.py --learn control,parameter,state
    python benchmarks/solver_quality.py --objectives marginal --spread 8
    python benchmarks/solver_quality.py --first 100            # other worlds, on which to choose settings
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
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
from npro_aif.solvers.restarts import lowest
from npro_aif.tables.dense import DenseEmission, DenseTransition
from npro_aif.tables.world import World

STARTS = 40  # the best of so many is the reference
COUNTS = (1, 2, 4, 8, 16)
ABOVE = 1e-3
MOST_POLICIES = 4_096  # that are listed
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


class Frame(NamedTuple):
    """The sizes to which worlds are padded with impossible values, so that one compiled function serves many worlds."""

    states: int
    controls: int
    parameters: int
    outcomes: int
    horizon: int
    hidden: int = 1
    memories: int = 1

    @property
    def num_x(self) -> int:
        return self.states * self.hidden

    @property
    def closed(self) -> bool:
        return self.hidden > 1 or self.memories > 1


OPEN, CLOSED = Frame(6, 3, 4, 3, 4), Frame(3, 3, 2, 2, 4, hidden=2, memories=3)


def frame_of(structure: Structure) -> Frame:
    return CLOSED if structure.hidden > 1 or structure.memory else OPEN


class Numbers(NamedTuple):
    """A world's tables, padded."""

    parameter: np.ndarray  # (Θ,)
    start: np.ndarray  # (Θ, X)
    prior: np.ndarray  # (U,)
    moves: np.ndarray  # (Θ, X, U, X')
    senses: np.ndarray  # (Θ, X, Y)
    liked: np.ndarray  # (T, Θ, X, U, X')
    memory: np.ndarray  # (Y,) what is remembered of an outcome
    horizon: int


def draw(structure: Structure, seed: int) -> Numbers:
    """A world of a structure."""
    s, rng = structure, np.random.default_rng(seed)
    num_x = s.states * s.hidden
    see = s.parameters if s.moves_see else 1
    moves = rng.dirichlet(np.full(num_x, 0.5), (see, num_x, s.controls))
    if s.moves == "sparse":
        mask = rng.random(moves.shape) < 0.4
        mask[np.arange(see)[:, None, None], np.arange(num_x)[:, None], np.arange(s.controls), moves.argmax(-1)] = True
        moves = np.where(mask, moves, 0.0)
        moves /= moves.sum(-1, keepdims=True)
    certain = rng.integers(num_x, size=(see, num_x, s.controls))
    if s.moves == "certain":
        moves = np.eye(num_x)[certain]
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
    liked = np.moveaxis(s.spread * rng.normal(size=shape), 2, -1)  # (T|1, Θ|1, X|1, U|1, X')
    start = rng.dirichlet(np.ones(num_x), s.parameters if s.start_sees else 1)
    parameter = rng.dirichlet(np.full(s.parameters, 2.0))
    return padded(s, parameter, start, moves, senses, liked)


def padded(s: Structure, parameter: Any, start: Any, moves: Any, senses: Any, liked: Any) -> Numbers:
    """The tables of a structure's world in its frame."""
    frame = frame_of(s)
    theta, controls = np.arange(s.parameters), np.arange(s.controls)
    x = (np.arange(s.states)[:, None] * frame.hidden + np.arange(s.hidden)).ravel()

    def put(shape: tuple[int, ...], places: tuple[Any, ...], values: Any) -> np.ndarray:
        table = np.zeros(shape)
        table[np.ix_(*places)] = values
        return table

    full = np.zeros((frame.parameters, frame.num_x, frame.controls, frame.num_x))
    full[:] = np.eye(frame.num_x)[:, None]  # unused states stay where they are
    full[np.ix_(theta, x, controls)] = 0.0
    full[np.ix_(theta, x, controls, x)] = moves
    sights = np.broadcast_to(np.eye(frame.outcomes)[0], (frame.parameters, frame.num_x, frame.outcomes)).copy()
    sights[np.ix_(theta, x, np.arange(s.outcomes))] = senses
    beginning = np.broadcast_to(start[:1], (frame.parameters, len(x))).copy()
    beginning[: len(start)] = start
    times = [s.horizon - 1] if s.preference == "end" else np.arange(s.horizon)
    shape = (frame.horizon, frame.parameters, frame.num_x, frame.controls, frame.num_x)
    return Numbers(
        parameter=put((frame.parameters,), (theta,), parameter),
        start=put((frame.parameters, frame.num_x), (np.arange(frame.parameters), x), beginning),
        prior=put((frame.controls,), (controls,), 1 / s.controls),
        moves=full,
        senses=sights,
        liked=put(shape, (times, theta, x, controls, x), liked),
        memory=np.arange(1, frame.outcomes + 1) * s.memory,
        horizon=s.horizon,
    )


def program(frame: Frame, numbers: Numbers) -> Callable[..., None]:
    """A world as a program."""
    rows = numbers.moves.reshape(*numbers.moves.shape[:3], frame.states, frame.hidden)
    visible = rows.sum(-1)
    given = np.where(visible[..., None] > 0, rows / np.maximum(visible[..., None], 1e-30), 1 / frame.hidden)

    def model(belief: aif.Belief, horizon: int = frame.horizon) -> None:
        moves, towards, behind, senses, liked, prior, remembered = map(
            jnp.asarray,
            (numbers.moves, visible, given, numbers.senses, numbers.liked, numbers.prior, numbers.memory),
        )
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        if frame.hidden > 1:
            first = aif.initial_state({"v": frame.states, "h": frame.hidden}, belief.state[theta])
            x = first["v"] * frame.hidden + first["h"]
        else:
            x = aif.state("x", dist.Categorical(probs=belief.state[theta]))
        m = aif.memory("m", 0, frame.memories) if frame.memories > 1 else 0

        def step(carry: Any, t: Any) -> Any:
            x, m = carry
            u = aif.control("u", dist.Categorical(probs=prior))
            if frame.hidden > 1:
                v = aif.state("v", dist.Categorical(probs=towards[theta, x, u]))
                h = aif.state("h", dist.Categorical(probs=behind[theta, x, u, v]), hidden=True)
                to = v * frame.hidden + h
            else:
                to = aif.state("x", dist.Categorical(probs=moves[theta, x, u]))
            y = aif.observation("y", dist.Categorical(probs=senses[theta, to]))
            if frame.memories > 1:
                m = aif.memory("m", remembered[y], frame.memories)
            aif.preference("liked", liked[t - 1, theta, x, u, to])
            return to, m

        aif.rollout(step, (x, m), horizon)

    return model


def belief_of(numbers: Numbers) -> aif.Belief:
    return aif.Belief(jnp.asarray(numbers.parameter, jnp.float32), jnp.asarray(numbers.start, jnp.float32))


class Read(NamedTuple):
    """A frame's program, which is read once, and its tables."""

    model: Callable[..., None]
    world: World


def read(frame: Frame) -> Read:
    structure = next(s for s in STRUCTURES if frame_of(s) is frame)
    numbers = draw(structure, 0)
    model = program(frame, numbers)
    belief = belief_of(numbers)
    return Read(model, program_of(model, belief, frame.horizon).world(belief, frame.horizon))


def with_numbers(world: World, numbers: Numbers) -> World:
    """The tables of a frame's program with the numbers of another of its worlds."""

    def log(table: np.ndarray) -> jax.Array:
        with np.errstate(divide="ignore"):
            return jnp.asarray(np.log(table), jnp.float32)

    loop = world.loop
    if loop.closed:
        update = np.broadcast_to(numbers.memory, loop.update.shape)  # type: ignore[attr-defined]
        loop = dataclasses.replace(loop, update=jnp.asarray(update, jnp.int32))  # type: ignore[type-var]
    return world._replace(
        parameter=log(numbers.parameter),
        initial=log(numbers.start),
        control=log(numbers.prior)[None, None],
        state=DenseTransition(log(numbers.moves)[None]).prepared(),
        observation={"y": DenseEmission(log(numbers.senses)[None])},
        preference={"liked": jnp.asarray(numbers.liked, jnp.float32)},
        horizon=jnp.asarray(numbers.horizon, jnp.int32),
        loop=loop,
    )


class Outcome(NamedTuple):
    """The results of one objective in one world."""

    starts: list[float]  # F of each start
    settled: list[bool]
    rise: float  # the largest rise of F from sweep to sweep
    best: float  # the lowest known F


class Measured(NamedTuple):
    """Compiled functions of a frame's worlds."""

    starts: Callable[[World, jax.Array], Solution]
    descents: Callable[[World, jax.Array], jax.Array]
    listed: Callable[[World, jax.Array], jax.Array]


def measured(
    model: Callable[..., None], frame: Frame, objective: Objective, learn: tuple[str, ...], solver: Any
) -> Measured:
    guide, num_steps = TemporalGuide(model, learn=learn), frame.horizon

    def problem(world: World) -> Problem:
        return Problem(world.routed(), guide, objective, num_steps)

    def starts(world: World, key: jax.Array) -> Solution:
        return solver.every_start(problem(world), key, guide.first_params(key, world, num_steps))

    def descents(world: World, key: jax.Array) -> jax.Array:
        return SVI.solve(problem(world), key, guide.first_params(key, world, num_steps)).free_energy[-1]

    def listed(world: World, policies: jax.Array) -> jax.Array:
        loss = guide.loss_function(objective, world.routed(), num_steps)
        first = guide.first_params(jax.random.key(0), world, num_steps)

        def value(policy: jax.Array) -> jax.Array:
            chosen = jax.nn.one_hot(policy, frame.controls) > 0
            return loss(first | {"control_logits": jnp.where(chosen, 0.0, -jnp.inf)})

        return jax.lax.map(value, policies, batch_size=256).min()

    return Measured(jax.jit(starts), jax.jit(descents), jax.jit(listed))


@functools.cache
def policies_of(structure: Structure) -> jax.Array | None:
    """All policies without ties, (N, T, P); None where they are too many to be listed."""
    frame, s = frame_of(structure), structure
    memories = s.outcomes + 1 if s.memory else 1
    used = (np.arange(s.states)[:, None] * frame.memories + np.arange(memories)).ravel()
    size = s.horizon * len(used)
    if float(s.controls) ** size > MOST_POLICIES:
        return None
    choice = np.array(list(itertools.product(range(s.controls), repeat=size)))
    policies = np.zeros((MOST_POLICIES, frame.horizon, frame.states * frame.memories), np.int32)
    rows = np.arange(MOST_POLICIES) % len(choice)  # as many of every structure, so that one function serves all
    policies[:, : s.horizon, used] = choice[rows].reshape(MOST_POLICIES, s.horizon, len(used))
    return jnp.asarray(policies)


def measure(
    functions: Measured, structure: Structure, world: World, key: jax.Array, learn: tuple[str, ...], *, svi: bool
) -> Outcome:
    solution = functions.starts(world, key)
    history = np.asarray(solution.free_energy, float)
    candidates = [float(history[:, -1].min())]
    if svi:
        candidates.append(float(functions.descents(world, key)))
    policies = policies_of(structure._replace(spread=0.0)) if learn == ("control",) else None
    if policies is not None:
        candidates.append(float(functions.listed(world, policies)))
    rise = float(np.diff(history, axis=1).max())
    return Outcome(history[:, -1].tolist(), np.asarray(solution.info.converged).tolist(), rise, min(candidates))


def report(name: str, outcomes: list[Outcome], counts: tuple[int, ...] = COUNTS) -> list[str]:
    """A line for each number of starts."""
    values, settled = (np.array([getattr(o, field) for o in outcomes]) for field in ("starts", "settled"))
    lines = []
    for count in counts:
        gaps = values[:, :count].min(1) - np.array([o.best for o in outcomes])
        mask = np.array(
            [
                row[int(lowest(jnp.asarray(own[:count]), jnp.asarray(row[:count]))[0])]
                for own, row in zip(values, settled, strict=True)
            ]
        )
        lines.append(
            f"{name}, {count:2d} starts: above in {(gaps > ABOVE).mean():6.1%}, by {gaps.mean():.4f} on average "
            f"(at most {gaps.max():.3f}); not settled {(~mask).sum()} of {len(mask)}"
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
    first: int = 0,
) -> dict[str, list[Outcome]]:
    """The outcomes of every objective in ``worlds`` worlds of each structure.

    :param kept: a file that keeps finished worlds, so that the same call continues where it was stopped.
    :param first: the number of the first world; settings are chosen on other worlds than those that are reported.
    """
    solver = aif.CoordinateSolver(restarts=STARTS)
    lines = kept.read_text().splitlines() if kept is not None and kept.exists() else []
    done = {tuple(row["case"]): Outcome(*row["outcome"]) for row in map(json.loads, lines)}
    outcomes: dict[str, list[Outcome]] = {name: [] for name in names}
    begin = time.perf_counter()
    own_read, functions = functools.cache(read), functools.cache(measured)
    for name in names:
        for number, structure in enumerate(structures):
            frame = frame_of(structure)
            if frame.closed and set(learn) & {"state", "observation"}:
                continue
            own = structure if spread is None else structure._replace(spread=spread)
            for i in range(first, first + worlds):
                case = name, repr(own), i, ",".join(learn), svi
                if case not in done:
                    world = with_numbers(own_read(frame).world, draw(own, 1000 * number + i))
                    compiled = functions(own_read(frame).model, frame, OBJECTIVES[name], learn, solver)
                    done[case] = measure(compiled, own, world, jax.random.key(i), learn, svi=svi)
                    if kept is not None:
                        with kept.open("a") as file:
                            file.write(json.dumps({"case": case, "outcome": done[case]}) + "\n")
                outcomes[name].append(done[case])
        print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=5, help="worlds of each structure")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--learn", default="control", help="which factors are learned")
    parser.add_argument("--objectives", default="active,fixed,planning,marginal")
    parser.add_argument("--spread", type=float, help="the standard deviation of preferences (2)")
    parser.add_argument("--no-svi", action="store_true", help="leave the gradient descents out")
    parser.add_argument("--out", type=Path, help="keep what is done in this file, and go on from it")
    arguments = parser.parse_args()
    jax.config.update("jax_disable_most_optimizations", True)  # the time goes into compiling
    names = arguments.objectives.split(",")
    learn = tuple(arguments.learn.split(","))
    settings = {"svi": not arguments.no_svi, "spread": arguments.spread}
    outcomes = run(names, learn, arguments.worlds, kept=arguments.out, first=arguments.first, **settings)
    print(f"{len(outcomes[names[0]])} worlds, learned: {', '.join(learn)}")
    for name in names:
        print("\n".join(report(name, outcomes[name])))


if __name__ == "__main__":
    main()
