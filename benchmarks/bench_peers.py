"""Seconds a decision, seconds of compiling, success: our coordinate solver against pymdp's two methods on both mazes.

Every row runs in a process of its own, with the same environment and seeds, one decision at a time and nothing
remembered between decisions; a decision is perception and planning. pymdp is measured twice: with its methods called as
in its README, and with jax.jit put around them, as in our tables (pymdp has none around most of them). Rows that run
out of memory or take longer than a minute for a decision (or than --patience to set up) say so.

    python benchmarks/bench_peers.py [--episodes 5] [--horizons 2 3 4 5 6] [--tasks tmaze reactivity] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

NAMES = {
    "policy": "ours, the policy learned",  # the dynamics are the model's, as in pymdp
    "vfe": "ours, all factors learned",
    "efe": "pymdp, Standard EFE",
    "sophisticated": "pymdp, Sophisticated",
    "efe-jit": "pymdp + jit, Standard EFE",
    "sophisticated-jit": "pymdp + jit, Sophisticated",
}
METHODS = tuple(NAMES)
JIT = "-jit"
OURS = ("policy", "vfe")
MINUTE = 60.0
ENOUGH = 120.0  # seconds of decisions after which a row begins no further episode
WARM_UP = 10_000  # the seed of the episode that is walked twice before: once compiling, once not
GOAL = 10.0  # how many times faster ours should be


def episodes_of(task_name: str, method: str, horizon: int, episodes: int, gigabytes: float, pipe: Connection) -> None:
    """The child: sends ("compiled", seconds), then ("decided", seconds) and ("ended", success) as they come."""
    limit = int(gigabytes * 1024**3)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        _run(task_name, method, horizon, episodes, pipe)
    except MemoryError:
        pipe.send(("failed", f"out of memory ({gigabytes:g} GiB)"))
    except Exception as error:  # the row says what went wrong, the other rows go on
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        exhausted = "RESOURCE_EXHAUSTED" in text or "Out of memory" in text
        pipe.send(("failed", f"out of memory ({gigabytes:g} GiB)" if exhausted else text[:90]))


def _run(task_name: str, method: str, horizon: int, episodes: int, pipe: Connection) -> None:
    from npro_aif import baselines
    from npro_aif.acting.episodes import tie_key
    from npro_aif.experiments.agents import vfe_agent
    from npro_aif.experiments.tasks import Settings, make_task
    from npro_aif.solvers import CoordinateSolver

    task = make_task(task_name)
    task = task._replace(max_steps=max(task.max_steps, horizon))
    env = type(task.environment())(max_steps=task.max_steps)  # type: ignore[call-arg]
    if method == "policy":
        task = task._replace(learn=("control",), sweeps=CoordinateSolver())
    start = time.perf_counter()
    agent: Any
    if method in OURS:
        agent = vfe_agent(task, Settings(horizon=horizon))
    else:
        settings = Settings(method=method.removesuffix(JIT), horizon=horizon)
        agent = baselines.make_agent(task, settings, jit=method.endswith(JIT))
        agent.remember = False
        agent.prepare()
    agent.reset(tie_key(WARM_UP))
    _walk(env, agent, WARM_UP)
    first = time.perf_counter() - start
    agent.reset(tie_key(WARM_UP))
    pipe.send(("compiled", first - _walk(env, agent, WARM_UP)))
    taken = 0.0
    for seed in range(episodes):
        agent.reset(tie_key(seed))
        taken += _walk(env, agent, seed, pipe)
        if taken > ENOUGH:
            break
    pipe.send(("done", None))


def _walk(env: Any, agent: Any, seed: int, pipe: Connection | None = None) -> float:
    """One episode; the seconds of its decisions."""
    observation, _ = env.reset(seed=seed)
    reward, over, taken = 0.0, False, 0.0
    while not over:
        start, busy = time.perf_counter(), time.process_time()
        control = agent.act(observation)
        seconds = time.perf_counter() - start
        taken += seconds
        if pipe is not None:
            pipe.send(("decided", (seconds, time.process_time() - busy)))
        observation, gain, terminated, truncated, _ = env.step(control)
        reward, over = reward + gain, terminated or truncated
    if pipe is not None:
        pipe.send(("ended", reward == 1.0))
    return taken


def measure(task: str, method: str, horizon: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """One row, in a process of its own that is ended when it takes too long."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    settings = task, method, horizon, arguments.episodes, arguments.gigabytes, theirs
    child = context.Process(target=episodes_of, args=settings)
    child.start()
    theirs.close()
    row: dict[str, Any] = {"task": task, "method": method, "horizon": horizon, "compile_seconds": None, "note": ""}
    decisions: list[tuple[float, float]] = []
    successes: list[bool] = []
    while True:
        if not ours.poll(arguments.patience if row["compile_seconds"] is None else MINUTE):
            waited = "over a minute a decision"
            row["note"] = waited if row["compile_seconds"] else f"not compiled after {arguments.patience:g} s"
            break
        try:
            what, value = ours.recv()
        except EOFError:
            child.join()
            row["note"] = f"out of memory ({arguments.gigabytes:g} GiB), exit code {child.exitcode}"
            break
        if what == "done":
            break
        if what == "failed":
            row["note"] = value
            break
        if what == "compiled":
            row["compile_seconds"] = value
        elif what == "decided":
            decisions.append(value)
        else:
            successes.append(value)
    child.kill()
    child.join()
    if decisions:
        taken, busy = zip(*decisions, strict=True)
        row |= {
            "seconds": statistics.fmean(taken),
            "cpu": statistics.fmean(busy),
            "median": statistics.median(taken),
            "slowest": max(taken),
            "decisions": len(decisions),
        }
    return row | {"successes": sum(successes), "episodes": len(successes)}


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(title="A decision is perception and planning; mean over the decisions of all episodes, after warm-up")
    for title in ("task", "horizon", "method"):
        table.add_column(title)
    for title in ("ms a decision", "CPU ms", "median", "slowest", "times ours", "compile s", "success"):
        table.add_column(title, justify="right")
    table.add_column("note")
    mine = {(row["task"], row["horizon"]): row.get("seconds") for row in rows if row["method"] == OURS[0]}
    for row in rows:
        base, seconds = mine.get((row["task"], row["horizon"])), row.get("seconds")
        times = seconds / base if base and seconds else None
        row["times_ours"] = times
        colour = "green" if times and times >= GOAL else "red"
        table.add_row(
            row["task"],
            str(row["horizon"]),
            NAMES[row["method"]],
            *(f"{1e3 * row[name]:.1f}" if name in row else "–" for name in ("seconds", "cpu", "median", "slowest")),
            "–" if times is None else f"{times:.1f}" if row["method"] in OURS else f"[{colour}]{times:.1f}[/]",
            "–" if row["compile_seconds"] is None else f"{row['compile_seconds']:.1f}",
            f"{row['successes']}/{row['episodes']}" if row["episodes"] else "–",
            row["note"],
            end_section=row["method"] == METHODS[-1],
        )
    Console(width=140).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=5, help="episodes of each row, seeds 0, 1, …")
    parser.add_argument("--horizons", type=int, nargs="+", default=[2, 3, 4, 5, 6])
    parser.add_argument("--tasks", nargs="+", choices=("tmaze", "reactivity"), default=["tmaze", "reactivity"])
    parser.add_argument("--gigabytes", type=float, default=8.0, help="of address space for each row")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds for setting up and compiling")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there, too")
    arguments = parser.parse_args()
    rows = []
    for task in arguments.tasks:
        for horizon in arguments.horizons:
            for method in METHODS:
                rows.append(measure(task, method, horizon, arguments))
                print(rows[-1], flush=True)
                if arguments.json:
                    arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    show(rows)


if __name__ == "__main__":
    main()
