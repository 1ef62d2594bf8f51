"""DoorKey on a large grid by a search with a budget for each decision: success, steps, bounds and seconds.

    python benchmarks/doorkey_anytime.py --file anytime.jsonl                     # size 16, one second, 20 episodes
    python benchmarks/doorkey_anytime.py --file anytime.jsonl --most-seconds 200  # some; called again, more

Seconds are processor time, also for the search's own clock, so that a busy machine gives the same plans. The planner
keeps its nodes from episode to episode; after an interruption it begins anew. Every episode is a line of the file; when
all are there the summary is printed.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

time.perf_counter = time.process_time

from npro_aif.acting.episodes import iterate_episodes  # noqa: E402
from npro_aif.acting.solutions import Solutions  # noqa: E402
from npro_aif.experiments.agents import make_agent  # noqa: E402
from npro_aif.experiments.summary import wilson  # noqa: E402
from npro_aif.experiments.tasks import Settings, make_task  # noqa: E402
from npro_aif.solvers.search import Certificate  # noqa: E402

LATE = 1.2  # seconds


def play(options: argparse.Namespace, done: set[int]) -> None:
    """Play the episodes that are not there yet."""
    task = make_task("doorkey", size=options.size, max_steps=options.max_steps)
    settings = Settings(objective="planning", solver="search", seconds=options.seconds, seed=options.seed)
    agent: Any = make_agent(task, settings)
    first = True
    for seed in range(options.seed, options.seed + options.episodes):
        if seed in done:
            continue
        if time.process_time() > options.most_seconds:
            return
        before, began, solutions = len(agent.planner.certificates), time.process_time(), Solutions()
        (episode,) = iterate_episodes(task.worlds(), agent, [seed], solutions=solutions)
        row = {"seed": seed, "settings": [options.size, options.seconds, options.max_steps]}
        row |= task.outcome(episode) | {"steps": episode.steps, "fresh": first}
        row |= {"seconds": time.process_time() - began, "compile_seconds": solutions.compile_seconds}
        row["searches"] = [list(map(float, c)) for c in agent.planner.certificates[before:]]
        with options.file.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print({name: value for name, value in row.items() if name != "searches"}, flush=True)
        first = False


def summary(rows: list[dict[str, Any]]) -> str:
    """The summary of the rows; the first search of a process, which compiles and makes tables, is shown separately."""
    success = sum(bool(row["success"]) for row in rows)
    low, high = wilson(success, len(rows))
    ended = [row for row in rows if row["success"]]
    steps, shortest = (np.array([row[name] for row in ended], float) for name in ("steps", "shortest"))
    searches = [Certificate(*c) for row in rows for c in row["searches"]]
    firsts = [Certificate(*row["searches"][0]) for row in rows]
    warm = [Certificate(*c) for row in rows for c in row["searches"][bool(row["fresh"]) :]]
    gaps = np.array([c.upper - c.lower for c in searches])
    times = np.array([c.seconds for c in warm])
    begun = [round(row["searches"][0][-1], 2) for row in rows if row["fresh"]]
    lower, upper = (np.mean([getattr(c, name) for c in firsts]) for name in ("lower", "upper"))
    lines = (
        f"success {success} of {len(rows)} = {success / len(rows):.0%} [{low:.1%}, {high:.1%}]",
        f"where the goal was reached: {steps.mean():.2f} steps, shortest path {shortest.mean():.2f}, "
        f"{steps.sum() / shortest.sum():.3f} times as many",
        f"first plans: F_planning {lower:.2f} … {upper:.2f}",
        f"{len(searches)} plans, {np.mean([c.optimal for c in searches]):.1%} proven; "
        f"gap {gaps.mean():.3f} on average, {gaps.max():.2f} at most",
        f"seconds a search: mean {times.mean():.3f}, most {times.max():.2f}, {np.sum(times > LATE)} of {len(times)} "
        f"above {LATE}; the first of each process, which compiles: {begun}",
        f"seconds a decision, all in all: {sum(row['seconds'] for row in rows) / len(searches):.3f}",
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--max-steps", type=int, default=150)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--most-seconds", type=float, default=float("inf"), help="begin no episode after so many")
    options = parser.parse_args()
    play(options, {row["seed"] for row in read(options.file)})
    rows = sorted(read(options.file), key=lambda row: row["seed"])
    if rows:
        print(summary(rows))


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


if __name__ == "__main__":
    main()
