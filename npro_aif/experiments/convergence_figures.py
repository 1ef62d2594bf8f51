"""What the convergence studies of the mazes look like: figures, and one CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from npro_aif.analysis.style import BLACK, PALETTE
from npro_aif.experiments.maze_claims import PAPER_REWARD, TITLES, Studies
from npro_aif.experiments.rows import LABELS, OBJECTIVES

WANTS = "first plan's $q(u_1$ = to the cue$)$"
COLOURS = dict(zip((LABELS[kind] for kind in OBJECTIVES), PALETTE, strict=False))
SMALLEST = 1e-3  # nats: below this a descent counts as finished


def _panels(columns: int, rows: int = 1, width: float = 4.8) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width * columns, 3.4 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes in panels.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return figure, panels


def curves(studies: Studies, every: int) -> Figure:
    """F against steps over all plans of the episodes, median and quartiles; in the second maze from 1 to 0 each."""
    figure, panels = _panels(len(studies))
    for axes, (maze, by_label) in zip(panels[0], studies.items(), strict=True):
        for label, study in by_label.items():
            low, middle, high = (np.asarray(study["curves"][name]) for name in ("low", "median", "high"))
            if maze == "reactivity":
                least, scale = middle.min(), max(float(np.ptp(middle)), SMALLEST)
                low, middle, high = ((values - least) / scale for values in (low, middle, high))
            steps = every * np.arange(len(middle))
            axes.plot(steps, middle, color=COLOURS[label], label=label, linewidth=1.6)
            axes.fill_between(steps, low, high, color=COLOURS[label], alpha=0.2, linewidth=0)
        axes.set_xlabel("gradient step")
        axes.set_ylabel("$F$ (nats)" if maze != "reactivity" else "$F$, each from 1 to 0")
        axes.set_title(f"{TITLES[maze]}: all plans, median and quartiles", fontsize=10)
    panels[0, 0].legend(frameon=False, fontsize=8)
    return figure


def two_phases(studies: Mapping[str, Mapping[str, Any]]) -> Figure:
    """How far F is above its lowest value in the T-maze, with θ unknown and known: a second phase is a second step."""
    figure, panels = _panels(2)
    for axes, scenario in zip(panels[0], ("unknown", "known"), strict=True):
        for label, study in studies.items():
            energy = np.asarray(study[scenario])
            above = np.maximum(energy - energy.min(), SMALLEST)
            axes.semilogy(above, color=COLOURS[label], label=label, linewidth=1.6)
        axes.set_xlabel("gradient step")
        axes.set_ylabel("first plan's $F$ above its lowest (nats)")
        axes.set_title(f"T-maze, θ {scenario}", fontsize=10)
    panels[0, 0].legend(frameon=False, fontsize=8)
    return figure


def budget(studies: Studies) -> Figure:
    """Success, and how much the first control wants the cue, against the number of steps."""
    figure, panels = _panels(len(studies), 2)
    for column, (maze, by_label) in enumerate(studies.items()):
        for label, study in by_label.items():
            steps = [int(n) for n in study["budget"]]
            success = [one["success"] for one in study["budget"].values()]
            for axes, values in zip(panels[:, column], (success, list(study["cue"].values())), strict=True):
                axes.plot(steps, values, "o-", color=COLOURS[label], label=label, markersize=3.5, linewidth=1.4)
        for axes, name in zip(panels[:, column], ("success rate", WANTS), strict=True):
            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_ylim(-0.03, 1.03)
            axes.set_ylabel(name)
        panels[0, column].set_title(TITLES[maze], fontsize=10)
        panels[1, column].set_xlabel("gradient steps")
    panels[0, 0].legend(frameon=False, fontsize=8)
    return figure


def learning_rates(studies: Studies) -> Figure:
    """Success against the learning rate."""
    figure, panels = _panels(len(studies))
    for axes, (maze, by_label) in zip(panels[0], studies.items(), strict=True):
        for label, study in by_label.items():
            rates = [float(rate) for rate in study["rates"]]
            success = [one["success"] for one in study["rates"].values()]
            axes.plot(rates, success, "o-", color=COLOURS[label], label=label, markersize=3.5, linewidth=1.4)
        axes.set_xscale("log")
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlabel("learning rate of Adam")
        axes.set_ylabel("success rate")
        axes.set_title(TITLES[maze], fontsize=10)
    panels[0, 0].legend(frameon=False, fontsize=8)
    return figure


def rewards(studies: Studies) -> Figure:
    """The mean reward of every stream of the environment's draws, with the paper's mean ± one standard deviation."""
    figure, panels = _panels(len(studies), width=3.6)
    for axes, (maze, by_label) in zip(panels[0], studies.items(), strict=True):
        for place, (label, study) in enumerate(by_label.items()):
            mean, std = PAPER_REWARD[maze][label]
            spread = np.linspace(-0.12, 0.12, len(study["rewards"])) - 0.15
            axes.plot(
                place + spread, study["rewards"], "o", color=PALETTE[0], markersize=4, label="ours, a stream each"
            )
            axes.errorbar(place + 0.2, mean, std, fmt="D", color=BLACK, markersize=4, capsize=3, label="paper ± std")
        axes.set_xticks(range(len(by_label)), list(by_label), fontsize=9)
        axes.set_ylabel("mean reward")
        axes.set_title(TITLES[maze], fontsize=10)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    panels[0, 0].legend(unique.values(), unique.keys(), frameon=False, fontsize=8)
    return figure


def csv_text(studies: Studies) -> str:
    """Everything but the descents as one long table: study, maze, method, x, measure, value."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("study", "maze", "method", "x", "measure", "value"))
    for maze, by_label in studies.items():
        for label, study in by_label.items():
            for name in ("budget", "rates"):
                for x, one in study[name].items():
                    writer.writerows((name, maze, label, x, measure, value) for measure, value in one.items())
            writer.writerows(("first plan", maze, label, x, "q(cue)", value) for x, value in study["cue"].items())
            writer.writerows(("streams", maze, label, x, "reward", v) for x, v in enumerate(study["rewards"]))
    return out.getvalue()
