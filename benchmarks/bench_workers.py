"""Episodes a second with one and with two workers, each on one core; and a second run with what the first one compiled.

    python benchmarks/bench_workers.py --sweeps           # DoorKey-8x8 by sweeps, 40 episodes one by one
    python benchmarks/bench_workers.py                    # the whole command, 320 episodes with each number of workers
    python benchmarks/bench_workers.py --episodes 160 --size 6
    python benchmarks/bench_workers.py --objective planning --solver search    # further words go to npro-aif run
    python benchmarks/bench_workers.py --cache            # two runs, the first from an empty compilation cache
    python benchmarks/bench_workers.py --cache --solver coordinate

The same episodes are counted with one worker and with two. Of the whole command it is those after the first block of
each of two workers, so that starting and compiling are told apart. With ``--sweeps`` the command line's workers get one
episode at a time, as a block of 32 takes minutes and the last blocks leave a worker idle, and no folder: each first
plays the same episodes to warm up, which is timed by itself, and solves its own problems. The compilation cache is one
for all runs. Nothing else may run on the cores, and the command itself may not be held to one of them.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from npro_aif.acting.distributed import Job, run_block
from npro_aif.acting.episodes import blocks_of
from npro_aif.acting.pools import Workers
from npro_aif.cli import keep_compiled
from npro_aif.experiments.run import make_players
from npro_aif.experiments.tasks import Settings
from npro_aif.program.kept import FOLDER

COMMAND = [str(Path(sys.executable).with_name("npro-aif")), "run", "doorkey", "--seed", "1000"]
WORKERS = (1, 2)
BLOCK, WARM = 1, tuple(range(3000, 3004))  # episodes of a block with --sweeps, and those that each worker begins with


def timed(words: list[str], environment: dict[str, str] | None = None) -> float:
    """The seconds that a command takes."""
    begin = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
    return time.perf_counter() - begin


def rate(workers: int, episodes: int, size: int, further: list[str]) -> tuple[float, float]:
    """Episodes a second once all workers are warm, and the seconds of the whole command."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*COMMAND, "--episodes", str(episodes), "--size", str(size), "--workers", str(workers), *further]
        seconds = timed([*words, "--resume", folder])
        blocks = sorted((Path(folder) / "blocks").glob("*.json"), key=lambda path: path.stat().st_mtime)
        if len(blocks) < 2 * max(WORKERS) or len(blocks) % max(WORKERS):
            raise SystemExit(f"episodes: found {episodes}, expected some blocks of 32, as many for each worker")
        times = [path.stat().st_mtime for path in blocks]
        first = max(WORKERS)
        played = sum(len(json.loads(path.read_text())["seeds"]) for path in blocks[first:])
        return played / (times[-1] - times[first - 1]), seconds


def warm_rate(workers: int, episodes: int, size: int) -> tuple[float, float]:
    """Episodes a second of workers that have warmed up, and the seconds that they took for that."""
    payload = pickle.dumps(
        functools.partial(make_players, "doorkey", {"size": size}, Settings(solver="coordinate", seed=1000))
    )
    with Workers(workers).pool() as pool:
        begin = time.perf_counter()
        list(pool.map(run_block, [Job(payload, WARM)] * workers))
        warm = time.perf_counter()
        blocks = blocks_of(range(1000, 1000 + episodes), BLOCK)
        played = sum(len(block.episodes) for block in pool.map(run_block, [Job(payload, block) for block in blocks]))
        return played / (time.perf_counter() - warm), warm - begin


def sweeps(episodes: int, size: int) -> None:
    """One and two workers by sweeps."""
    keep_compiled()
    rates = {}
    for workers in WORKERS:
        rates[workers], warm = warm_rate(workers, episodes, size)
        print(
            f"{workers} workers: {rates[workers]:.3f} episodes a second; {warm:.0f} s to start and warm up", flush=True
        )
    print(f"2 workers are {rates[2] / rates[1]:.2f} times as fast")


def cache(further: list[str]) -> None:
    """The same command twice: wall time, and seconds of compiling by XLA and of tracing."""
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for name in ("first", "second"):
            path = Path(folder) / f"{name}.json"
            words = [*COMMAND, "--episodes", "2", "--json", str(path), *further]
            seconds = timed(words, {"JAX_COMPILATION_CACHE_DIR": f"{folder}/jax", FOLDER: f"{folder}/programs"})
            summary = json.loads(path.read_text())
            runs.append((seconds, summary["xla_seconds"], summary["tracing_seconds"]))
            print("{}: {:.1f} s; XLA {:.2f} s, tracing {:.1f} s".format(f"{name} run", *runs[-1]))
        (wall, backend, _), (again, kept, _) = runs
        print(f"second / first: wall {again / wall:.0%}, XLA {kept / backend:.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, help="40 with --sweeps, otherwise 320")
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--cache", action="store_true")
    parser.add_argument("--sweeps", action="store_true")
    arguments, further = parser.parse_known_args()
    if arguments.cache:
        cache(further)
        return
    if arguments.sweeps:
        sweeps(arguments.episodes or 40, arguments.size)
        return
    rates = {}
    for workers in WORKERS:
        rates[workers], seconds = rate(workers, arguments.episodes or 320, arguments.size, further)
        print(f"{workers} workers: {rates[workers]:.2f} episodes a second; {seconds:.0f} s in all")
    print(f"2 workers are {rates[2] / rates[1]:.2f} times as fast")


if __name__ == "__main__":
    main()
