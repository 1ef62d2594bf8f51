"""The paper's statistics of a table of episodes, as one flat dict and as a table to read."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table

from npro_aif.acting.episodes import Effort, Episode
from npro_aif.experiments.tasks import Task
from npro_aif.solvers.search import Certificate

NORMAL_975 = 1.959963984540054  # the standard normal's 97.5 % quantile: intervals are at 95 %
PROPORTIONS = ("success", "cue", "safe")
MEANS = ("reward", "steps")


def wilson(successes: int, count: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a proportion.

    >>> [round(p, 4) for p in wilson(200, 200)]
    [0.9812, 1.0]
    """
    if not 0 <= successes <= count or count < 1:
        raise ValueError(f"successes: found {successes} of {count}, expected at most the count, which is at least 1")
    rate, square = successes / count, NORMAL_975**2
    centre = rate + square / (2 * count)
    margin = NORMAL_975 * math.sqrt(rate * (1 - rate) / count + square / (4 * count**2))
    scale = 1 + square / count
    low = 0.0 if successes == 0 else (centre - margin) / scale
    high = 1.0 if successes == count else (centre + margin) / scale
    return low, high


def summarize(task: Task, episodes: Sequence[Episode], effort: Effort) -> dict[str, Any]:
    """Rates with their intervals (``_low``, ``_high``), means with their standard deviation (``_std``), and times.

    Measures that a task does not have (the T-maze is never safe, only DoorKey has a shortest path) are None.
    """
    outcomes = [task.outcome(episode) for episode in episodes]
    summary: dict[str, Any] = {"episodes": len(episodes)}
    for name in PROPORTIONS:
        values = [bool(outcome[name]) for outcome in outcomes if name in outcome]
        low, high = wilson(sum(values), len(values)) if values else (None, None)
        summary |= {name: sum(values) / len(values) if values else None, f"{name}_low": low, f"{name}_high": high}
    for name in MEANS:
        numbers = [float(getattr(episode, name)) for episode in episodes]
        summary |= {name: float(np.mean(numbers)) if numbers else None}
        summary |= {f"{name}_std": float(np.std(numbers)) if numbers else None}
    shortest = [outcome["shortest"] for outcome in outcomes if "shortest" in outcome]
    summary["shortest"] = float(np.mean(shortest)) if shortest else None
    summary["steps_over_shortest"] = summary["steps"] / summary["shortest"] if shortest else None
    optimal = task.optimum(episodes[0].seed, len(episodes)) if episodes and task.optimum is not None else None
    summary["optimum"] = optimal
    summary["steps_over_optimum"] = None if optimal is None else summary["steps"] / optimal
    return summary | {
        "decisions": effort.decisions,
        "problems": effort.problems,
        "seconds_per_decision": effort.seconds_per_decision,
        "compile_seconds": effort.compile_seconds,
        "iterations": effort.iterations / effort.told if effort.told else None,
        "settled": effort.settled / effort.told if effort.told else None,
    }


def certificates(certified: Sequence[Certificate]) -> dict[str, Any]:
    """The certificates of searches: bounds of the plans from the first beliefs, and the gaps of all plans."""
    if not certified:
        return {}
    first = [c for c in certified if c.horizon == max(c.horizon for c in certified)]
    gaps = [c.upper - c.lower for c in certified]
    return {
        "first_plans": len(first),
        "first_lower": float(np.mean([c.lower for c in first])),
        "first_upper": float(np.mean([c.upper for c in first])),
        "optimal": float(np.mean([c.optimal for c in certified])),
        "gap": float(np.mean(gaps)),
        "gap_max": float(np.max(gaps)),
        "nodes": float(np.mean([c.nodes for c in certified])),
        "seconds_max": float(np.max([c.seconds for c in certified])),
    }


def episode_table(episodes: Sequence[Episode]) -> str:
    """A line of CSV for each episode: seed, controls, reward and steps.

    >>> print(episode_table([Episode(7, 1.0, 2, True, (2, 0), ())]), end="")
    seed,controls,reward,steps
    7,2 0,1.0,2
    """
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(("seed", "controls", "reward", "steps"))
    for episode in episodes:
        controls = " ".join(json.dumps(control, separators=(",", ":")) for control in episode.controls)
        writer.writerow((episode.seed, controls, episode.reward, episode.steps))
    return lines.getvalue()


def table(summary: dict[str, Any], title: str) -> Table:
    """The summary as a table for the terminal."""
    rows = Table(title=title, show_header=False, title_justify="left")
    rows.add_column(justify="left")
    rows.add_column(justify="right")
    rows.add_column(justify="left", style="dim")
    names = {"success": "success rate", "cue": "cue visits", "safe": "safe rate"}
    for name in PROPORTIONS:
        if summary[name] is not None:
            low, high = summary[f"{name}_low"], summary[f"{name}_high"]
            rows.add_row(names[name], f"{summary[name]:.1%}", f"[{low:.1%}, {high:.1%}] Wilson, 95 %")
    for name in MEANS:
        if summary[name] is not None:
            rows.add_row(f"mean {name}", f"{summary[name]:.3f}", f"± {summary[f'{name}_std']:.3f}")
    if summary["shortest"] is not None:
        note = f"{summary['steps_over_shortest']:.3f} times as many steps"
        rows.add_row("shortest path", f"{summary['shortest']:.2f}", f"whole map known; the agent took {note}")
    if "first_lower" in summary:
        note = f"bounds from below and above, mean of {summary['first_plans']} first plans"
        rows.add_row("free energy", f"{summary['first_lower']:.4f} … {summary['first_upper']:.4f}", note)
        note = f"mean gap {summary['gap']:.4f}, at most {summary['gap_max']:.4f}; {summary['nodes']:.0f} nodes a plan"
        rows.add_row("proven optimal", f"{summary['optimal']:.1%}", f"of the plans; {note}")
        rows.add_row("longest search", f"{summary['seconds_max']:.2f} s", "")
    if summary["optimum"] is not None:
        note = f"{summary['steps_over_optimum']:.3f} times as many steps"
        rows.add_row("optimal policy", f"{summary['optimum']:.2f}", f"expected, map unknown; the agent took {note}")
    note = f"{summary['problems']} different problems solved for {summary['decisions']} decisions"
    rows.add_row("seconds a decision", f"{summary['seconds_per_decision']:.4f}", note)
    rows.add_row("compile seconds", f"{summary['compile_seconds']:.1f}", "")
    rows.add_row("episodes", str(summary["episodes"]), "")
    return rows
