"""DoorKey with its exact belief on several processes of one machine: seconds and bytes of each decision.

    python benchmarks/doorkey_exact.py --size 16 --decisions 3 --max-steps 150   # two processes, all layouts
    python benchmarks/doorkey_exact.py --size 16 --skip 3 --decisions 2          # decisions after three given moves
    python benchmarks/doorkey_exact.py --size 12 --processes 1 --episodes 5 --decisions 100 --max-steps 100 --horizon 40

The last plays whole episodes; grids of size 12 and 16 need more than the 35 steps that size 8 has. With ``--log FILE``
every decision is a line of that file once it is made, and the same command goes on from there.
Every process holds the tables and beliefs of its own layouts. Beside each decision stands what the planner that thins
the layouts to 64 would do from the same belief.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import npro_aif as aif
from npro_aif.acting.solutions import compiling
from npro_aif.envs.doorkey import DoorKey
from npro_aif.experiments.agents import Settings, make_planner
from npro_aif.experiments.tasks import make_task
from npro_aif.models import doorkey

GB = 2**30


def peak() -> float:
    """The most memory that this process has had so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GB


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("localhost", 0))
        return held.getsockname()[1]


def settings(size: int, horizon: int, objective: str = "active") -> dict[str, Any]:
    """What the command line plans DoorKey with, by sweeps."""
    planner = make_planner(make_task("doorkey", size=size), Settings(objective=objective, solver="coordinate"))
    return {
        "model": planner.model,
        "guide": planner.guide,
        "objective": planner.objective,
        "solver": planner.solver,
        "max_horizon": horizon,
    }


def left(arguments: argparse.Namespace, step: int) -> int:
    """How many steps a decision looks ahead: to the deadline, if that is near."""
    return min(arguments.horizon, arguments.max_steps - step)


def choice(probs: np.ndarray) -> int:
    """The control with the highest q(u_1); of those that are tied the first."""
    return int(np.argmax(probs > probs.max() - 1e-4))


def play(arguments: argparse.Namespace) -> None:
    """The episodes' first decisions, as one of the processes."""
    place, count, port = arguments.process, arguments.processes, arguments.port
    if count > 1:
        jax.distributed.initialize(f"localhost:{port}", count, place)
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("parameter",))
    size = arguments.size
    begin = time.perf_counter()
    first: Any = aif.ShardedBelief.of(mesh, lambda theta: doorkey.belief_rows(theta, size), doorkey.num_layouts(size))
    planner = aif.Planner(**settings(size, arguments.horizon, arguments.objective), mesh=mesh)
    update = aif.Filter(planner.model, first, mesh=mesh)
    report({"process": place, "read": time.perf_counter() - begin, "peak_gb": peak()})
    for seed, moves in json.loads(arguments.moves_of).items():
        episode(arguments, int(seed), moves, first, planner, update)


def episode(
    arguments: argparse.Namespace,
    seed: int,
    moves: Sequence[int],
    belief: Any,
    planner: aif.Planner,
    update: aif.Filter,
) -> None:
    """One episode's first decisions, after some moves that were decided before."""
    who = {"process": arguments.process, "seed": seed}
    env = DoorKey(size=arguments.size, max_steps=arguments.max_steps)
    observation, _ = env.reset(seed=seed)
    control: int | None = None
    for step in range(arguments.skip + arguments.decisions):
        begin, cpu, before = time.perf_counter(), time.process_time(), compiling()
        belief = update(belief, control, observation)
        layouts = int((np.asarray(belief.parameter.addressable_data(0)) > 0).sum())
        seconds = time.perf_counter() - begin
        line = who | {"step": step, "own_layouts": layouts, "update_seconds": seconds}
        if step < len(moves):
            control = moves[step]
        else:
            line["said_gb"] = planner.memory(belief).total / GB
            begin = time.perf_counter()
            plan = planner(jax.random.key(0), belief, left(arguments, step))
            probs = np.asarray(plan.control[0])
            control = choice(probs)
            line |= {"plan_seconds": time.perf_counter() - begin, "peak_gb": peak(), "probs": probs.tolist()}
            line |= {"cpu_seconds": time.process_time() - cpu, "F": float(plan.free_energy[-1])}
            line |= {"sweeps": int(plan.info.iterations), "converged": bool(plan.info.converged)}
            line |= {name: seconds - before[name] for name, seconds in compiling().items()}
        observation, reward, done, cut, _ = env.step(control)
        report(line | {"control": control} | ({"reward": float(reward)} if done or cut else {}))
        if done or cut:
            break


def report(line: Mapping[str, Any]) -> None:
    print(json.dumps(line), flush=True)


# --- The process that starts them ---------------------------------------------------------------------------


def start(arguments: argparse.Namespace, moves: Mapping[int, Sequence[int]]) -> Iterator[list[dict[str, Any]]]:
    """Start all processes and hand over what they report: of each process the same step.

    :param moves: what was decided before, by the seeds that are played.
    """
    words = [sys.executable, __file__, *sys.argv[1:], "--port", str(free_port()), "--moves-of", json.dumps(moves)]
    processes = [
        subprocess.Popen([*words, "--process", str(place)], stdout=subprocess.PIPE, text=True)
        for place in range(arguments.processes)
    ]
    try:
        told = [(json.loads(text) for text in process.stdout or () if text.startswith("{")) for process in processes]
        yield from (list(lines) for lines in zip(*told, strict=False))
        if any(process.wait() for process in processes):
            raise SystemExit("a process failed")
    finally:
        for process in processes:
            process.kill()


class Thinned:
    """The planner that thins the layouts, along the episodes that the exact one plays."""

    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments
        chosen = settings(arguments.size, arguments.horizon, arguments.objective)
        self.planner = aif.Planner(**chosen, max_parameters=doorkey.MOST_LAYOUTS)
        self.first: Any = doorkey.initial_belief(arguments.size)
        self.update = aif.Filter(self.planner.model, self.first)

    def follow(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """What it would do at a step; nothing where the other did not decide."""
        if line["step"] == 0:
            self.env = DoorKey(size=self.arguments.size, max_steps=self.arguments.max_steps)
            self.observation, _ = self.env.reset(seed=line["seed"])
            self.belief, self.control = self.first, None
        self.belief = self.update(self.belief, self.control, self.observation)
        own: dict[str, Any] = {}
        if "probs" in line:
            begin, cpu = time.perf_counter(), time.process_time()
            plan = self.planner(jax.random.key(0), self.belief, left(self.arguments, line["step"]))
            probs = np.asarray(plan.control[0])
            own = {"layouts": int((np.asarray(self.belief.parameter) > 0).sum()), "probs": probs.tolist()}
            own |= {"control": choice(probs), "F": float(plan.free_energy[-1])}
            own |= {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu}
        self.control = line["control"]
        self.observation = self.env.step(self.control)[0]
        return own


def beside(arguments: argparse.Namespace) -> None:
    """Print every decision, with that of the planner that thins the layouts; those in the log are not made again."""
    episodes: dict[int, list[dict[str, Any]]] = {
        seed: [] for seed in range(arguments.seed, arguments.seed + arguments.episodes)
    }
    if arguments.log is not None and arguments.log.exists():
        for row in map(json.loads, arguments.log.read_text().splitlines()):
            episodes[row["seed"]].append(row)
    given = [*arguments.moves, *[doorkey.RIGHT] * arguments.skip][: arguments.skip]
    moves = {
        seed: given + [row["control"] for row in rows]
        for seed, rows in episodes.items()
        if not is_over(arguments, rows)
    }
    thinned = Thinned(arguments)
    for lines in start(arguments, moves) if moves else ():
        line = lines[0]
        if "seed" not in line:
            print(
                f"read in {line['read']:.1f} s, peaks {[round(other['peak_gb'], 2) for other in lines]} GB", flush=True
            )
            continue
        own = thinned.follow(line)
        if not own:
            continue
        row = line | {"peaks": [other["peak_gb"] for other in lines], "thinned": own}
        episodes[line["seed"]].append(row)
        print(in_words(row), flush=True)
        if arguments.log is not None:
            with arguments.log.open("a") as log:
                log.write(json.dumps(row) + "\n")
    for seed, rows in episodes.items():
        same = sum(row["control"] == row["thinned"]["control"] for row in rows)
        print(
            f"seed {seed}: {rows[-1]['step'] + 1} steps, reward {rows[-1].get('reward', 0.0):.3f}; "
            f"{sum(row['cpu_seconds'] for row in rows):.0f} s of a core, "
            f"{sum(row['xla_seconds'] for row in rows):.0f} s of the clock in XLA; "
            f"peak {max(sum(row['peaks']) for row in rows):.2f} GB; "
            f"both planners choose the same in {same} of {len(rows)} decisions"
        )


def is_over(arguments: argparse.Namespace, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all of an episode's decisions are there."""
    return bool(rows) and ("reward" in rows[-1] or len(rows) == arguments.decisions)


def in_words(row: Mapping[str, Any]) -> str:
    """A decision of both planners."""
    own, peaks = row["thinned"], row["peaks"]
    seconds = (
        f"{row['cpu_seconds']:.1f} s of a core, XLA {row['xla_seconds']:.1f}, tracing {row['tracing_seconds']:.1f}"
    )
    parts = [
        f"seed {row['seed']}, decision {row['step'] + 1}: {own['layouts']:,} layouts",
        f"exact {np.round(row['probs'], 4)}, {doorkey.CONTROLS[row['control']]}, F {row['F']:.3f}",
        f"{row['sweeps']} sweeps, update {row['update_seconds']:.1f} s, plan {row['plan_seconds']:.1f} s ({seconds})",
        f"said {row['said_gb']:.2f} GB a device, peak {' + '.join(f'{p:.2f}' for p in peaks)} = {sum(peaks):.2f} GB",
        f"thinned {np.round(own['probs'], 4)}, {doorkey.CONTROLS[own['control']]}, F {own['F']:.3f}",
        f"{own['seconds']:.1f} s ({own['cpu_seconds']:.1f} of a core)",
    ]
    return "; ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--horizon", type=int, default=35)
    parser.add_argument("--max-steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--decisions", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=1)
    parser.add_argument("--objective", choices=("active", "planning"), default="active")
    parser.add_argument("--skip", type=int, default=0, help="moves that are made without planning, at first")
    parser.add_argument("--moves", type=int, nargs="*", default=[], help="which ones; turns to the right by default")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--log", type=Path, help="where decisions are kept, and from where the same command goes on")
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--moves-of", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.process is not None:
        play(arguments)
        return
    beside(arguments)


if __name__ == "__main__":
    main()
