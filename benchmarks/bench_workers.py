"""Episodes a second with one and with two workers, each on one core; and a second run with what the first one compiled.

    python benchmarks/bench_workers.py                    # DoorKey-8x8, 320 episodes with each number of workers
    python benchmarks/bench_workers.py --episodes 160 --size 6
    python benchmarks/bench_workers.py --objective planning --solver search    # further words go to npro-aif run
    python benchmarks/bench_workers.py --cache            # two runs, the first from an empty compilation cache

The same episodes are counted with one worker and with two: those after the first block of each of two workers, so that
starting and compiling are told apart. The compilation cache is one for all runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMAND = [str(Path(sys.executable).with_name("npro-aif")), "run", "doorkey", "--seed", "1000"]
WORKERS = (1, 2)


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


def cache() -> None:
    """The same command twice: wall time, and seconds of compiling by XLA and of tracing."""
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for name in ("first", "second"):
            path = Path(folder) / f"{name}.json"
            words = [*COMMAND, "--episodes", "2", "--json", str(path)]
            seconds = timed(words, {"JAX_COMPILATION_CACHE_DIR": f"{folder}/jax"})
            summary = json.loads(path.read_text())
            runs.append((seconds, summary["xla_seconds"], summary["tracing_seconds"]))
            print("{}: {:.1f} s; XLA {:.2f} s, tracing {:.1f} s".format(f"{name} run", *runs[-1]))
        (wall, backend, _), (again, kept, _) = runs
        print(f"second / first: wall {again / wall:.0%}, XLA {kept / backend:.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=320)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--cache", action="store_true")
    arguments, further = parser.parse_known_args()
    if arguments.cache:
        cache()
        return
    rates = {}
    for workers in WORKERS:
        rates[workers], seconds = rate(workers, arguments.episodes, arguments.size, further)
        print(f"{workers} workers: {rates[workers]:.2f} episodes a second; {seconds:.0f} s in all")
    print(f"2 workers are {rates[2] / rates[1]:.2f} times as fast")


if __name__ == "__main__":
    main()
