"""Episodes a second with one and with two workers, each on one core; and a second run with what the first one compiled.

    python benchmarks/bench_workers.py                    # DoorKey-8x8, 320 episodes with each number of workers
    python benchmarks/bench_workers.py --episodes 160 --size 6
    python benchmarks/bench_workers.py --cache            # two runs, the first from an empty compilation cache

Episodes are counted from when every worker has finished its first block, so that starting and compiling are told apart.
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


def timed(words: list[str], environment: dict[str, str] | None = None) -> float:
    """The seconds that a command takes."""
    begin = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
    return time.perf_counter() - begin


def rate(workers: int, episodes: int, size: int) -> tuple[float, float]:
    """Episodes a second once all workers are warm, and the seconds of the whole command."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*COMMAND, "--episodes", str(episodes), "--size", str(size), "--workers", str(workers)]
        seconds = timed([*words, "--resume", folder])
        blocks = sorted((Path(folder) / "blocks").glob("*.json"), key=lambda path: path.stat().st_mtime)
        if len(blocks) <= workers:
            raise SystemExit(f"episodes: found {episodes}, expected more than a block of 32 for each worker")
        times = [path.stat().st_mtime for path in blocks]
        played = sum(len(json.loads(path.read_text())["seeds"]) for path in blocks[workers:])
        return played / (times[-1] - times[workers - 1]), seconds


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
    arguments = parser.parse_args()
    if arguments.cache:
        cache()
        return
    rates = {}
    for workers in (1, 2):
        rates[workers], seconds = rate(workers, arguments.episodes, arguments.size)
        print(f"{workers} workers: {rates[workers]:.2f} episodes a second; {seconds:.0f} s in all")
    print(f"2 workers are {rates[2] / rates[1]:.2f} times as fast")


if __name__ == "__main__":
    main()
