"""DoorKey with its exact belief on several processes of one machine: seconds and bytes of each decision.

    python benchmarks/doorkey_exact.py --size 16 --decisions 3 --max-steps 150   # two processes, all layouts
    python benchmarks/doorkey_exact.py --size 16 --skip 3 --decisions 2          # decisions after three given moves
    python benchmarks/doorkey_exact.py --size 12 --processes 1 --episodes 5 --decisions 100 --max-steps 100 --horizon 40

The last plays whole episodes; grids of size 12 and 16 need more than the 35 steps that size 8 has.
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
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import npro_aif as aif
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
    """What the command line plans DoorKey with."""
    planner = make_planner(make_task("doorkey", size=size), Settings(objective=objective))
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
    for seed in range(arguments.seed, arguments.seed + arguments.episodes):
        episode(arguments, seed, first, planner, update)


def episode(arguments: argparse.Namespace, seed: int, belief: Any, planner: aif.Planner, update: aif.Filter) -> None:
    """One episode's first decisions."""
    who = {"process": arguments.process, "seed": seed}
    env = DoorKey(size=arguments.size, max_steps=arguments.max_steps)
    observation, _ = env.reset(seed=seed)
    moves = list(arguments.moves)
    control: int | None = None
    for step in range(arguments.skip + arguments.decisions):
        begin, cpu = time.perf_counter(), time.process_time()
        belief = update(belief, control, observation)
        layouts = int((np.asarray(belief.parameter.addressable_data(0)) > 0).sum())
        seconds = time.perf_counter() - begin
        line = who | {"step": step, "own_layouts": layouts, "update_seconds": seconds, "peak_gb": peak()}
        if step < arguments.skip:
            control = moves[step] if step < len(moves) else doorkey.RIGHT
        else:
            line["said_gb"] = planner.memory(belief).total / GB
            begin = time.perf_counter()
            plan = planner(jax.random.key(0), belief, left(arguments, step))
            probs = np.asarray(plan.control[0])
            control = choice(probs)
            line |= {"plan_seconds": time.perf_counter() - begin, "peak_gb": peak(), "control": probs.tolist()}
            line |= {"cpu_seconds": time.process_time() - cpu, "F": float(plan.free_energy[-1])}
            line |= {"sweeps": int(plan.info.iterations), "converged": bool(plan.info.converged)}
        report(line | {"chosen": doorkey.CONTROLS[control]})
        observation, reward, done, cut, _ = env.step(control)
        if done or cut:
            break
    report(who | {"steps": step + 1, "reward": float(reward)})


def report(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def start(arguments: argparse.Namespace) -> Iterator[list[dict[str, Any]]]:
    """Start all processes, print what they report, and gather it by episode: of one process as soon as one ends."""
    words = [sys.executable, __file__, *sys.argv[1:], "--port", str(free_port())]
    processes = [
        subprocess.Popen([*words, "--process", str(place)], stdout=subprocess.PIPE, text=True)
        for place in range(arguments.processes)
    ]
    episodes: dict[int, list[dict[str, Any]]] = {}
    try:
        for process in processes:
            assert process.stdout is not None
            for text in process.stdout:
                if text.startswith("{"):
                    print(text, end="", flush=True)
                    line = json.loads(text)
                    if "seed" in line:
                        episodes.setdefault(line["seed"], []).append(line)
                    if "steps" in line and process is processes[-1]:
                        yield episodes[line["seed"]]
        if any(process.wait() for process in processes):
            raise SystemExit("a process failed")
    finally:
        for process in processes:
            process.kill()


def beside(arguments: argparse.Namespace) -> None:
    """Print every decision, with that of the planner that thins the layouts."""
    chosen = settings(arguments.size, arguments.horizon, arguments.objective)
    thinned = aif.Planner(**chosen, max_parameters=doorkey.MOST_LAYOUTS)
    first = doorkey.initial_belief(arguments.size)
    update = aif.Filter(thinned.model, first)
    for lines in start(arguments):
        same = alongside(arguments, lines, thinned, update, first)
        last = lines[-1]
        print(f"seed {last['seed']}: {last['steps']} steps, reward {last['reward']:.3f}; ", end="")
        print(f"both planners choose the same in {sum(same)} of {len(same)} decisions", flush=True)


def alongside(
    arguments: argparse.Namespace, lines: list[dict[str, Any]], thinned: aif.Planner, update: aif.Filter, belief: Any
) -> list[bool]:
    """Print an episode's decisions; whether the thinned planner's are the same."""
    env = DoorKey(size=arguments.size, max_steps=arguments.max_steps)
    observation, _ = env.reset(seed=lines[0]["seed"])
    control: int | None = None
    same = []
    for line in (line for line in lines if line["process"] == 0 and "step" in line):
        belief = update(belief, control, observation)
        control = doorkey.CONTROLS.index(line["chosen"])
        if "control" in line:
            begin = time.perf_counter()
            plan = thinned(jax.random.key(0), belief, left(arguments, line["step"]))
            probs = np.asarray(plan.control[0])
            other = choice(probs)
            same.append(other == control)
            layouts = int((np.asarray(belief.parameter) > 0).sum())
            peaks = [other["peak_gb"] for other in lines if other.get("step") == line["step"]]
            print(
                f"seed {line['seed']}, decision {line['step'] + 1}: {layouts:,} layouts; exact "
                f"{np.round(line['control'], 4)}, {line['chosen']}, F {line['F']:.3f}, {line['sweeps']} sweeps, update "
                f"{line['update_seconds']:.1f} s, plan {line['plan_seconds']:.1f} s ({line['cpu_seconds']:.1f} s of a "
                f"core), said {line['said_gb']:.2f} GB a device, peak {' + '.join(f'{p:.2f}' for p in peaks)} = "
                f"{sum(peaks):.2f} GB; thinned {np.round(probs, 4)}, {doorkey.CONTROLS[other]}, F "
                f"{float(plan.free_energy[-1]):.3f}, {time.perf_counter() - begin:.1f} s",
                flush=True,
            )
        observation = env.step(control)[0]
    return same


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
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.process is not None:
        play(arguments)
        return
    beside(arguments)


if __name__ == "__main__":
    main()
