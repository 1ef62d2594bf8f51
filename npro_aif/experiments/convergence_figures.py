"""What the convergence studies of the mazes say: figures, tables for the terminal, and one CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from rich.table import Table

from npro_aif.analysis.style import BLACK, PALETTE
from npro_aif.experiments.rows import LABELS, OBJECTIVES

TITLES = {"tmaze": "T-maze", "reactivity": "Reactivity Maze"}
WANTS = "$q(u_1$ = to the cue$)$"
BUDGETS = (25, 100, 300, 600, 1000, 1500)  # steps that the table shows
COLOURS = dict(zip((*(LABELS[kind] for kind in OBJECTIVES), "F_active, paper's switches"), PALETTE, strict=False))
SMALLEST = 1e-3  # nats: below this a descent counts as finished
Studies = Mapping[str, Mapping[str, Mapping[str, Any]]]  # by maze and label
Rewards = Mapping[str, Mapping[str, list[float]]]  # by maze and objective, one for each seed


def _panels(count: int, width: float = 4.8) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width * count, 3.5), layout="constrained")
    panels = figure.subplots(1, count, squeeze=False)[0]
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return figure, panels


def _band(axes: Any, x: Any, mean: Any, std: Any, colour: str, label: str) -> None:
    middle, width = np.asarray(mean), np.asarray(std)
    axes.plot(x, middle, color=colour, label=label, linewidth=1.6)
    axes.fill_between(x, middle - width, middle + width, color=colour, alpha=0.2, linewidth=0)


def _free_energy(axes: Any, studies: Mapping[str, Mapping[str, Any]], scenario: str, title: str) -> None:
    for label, study in studies.items():
        found = study[scenario]
        _band(axes, found["step"], found["free_energy"], found["free_energy_std"], COLOURS[label], label)
    axes.set_xlabel("gradient step")
    axes.set_ylabel("free energy $F$ (nats)")
    axes.set_title(title, fontsize=10)


def curves(studies: Studies) -> Figure:
    """F against steps in the two mazes, mean ± one standard deviation over the seeds."""
    figure, panels = _panels(len(studies))
    for axes, (maze, found) in zip(panels, studies.items(), strict=True):
        _free_energy(axes, found, "unknown", TITLES[maze])
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def two_phases(studies: Mapping[str, Mapping[str, Any]]) -> Figure:
    """How far F is above its lowest value in the T-maze, with θ unknown and known: a second phase is a second step."""
    figure, panels = _panels(2)
    for axes, scenario in zip(panels, ("unknown", "known"), strict=True):
        for label, study in studies.items():
            energy = np.asarray(study[scenario]["free_energy"])
            above = np.maximum(energy - energy.min(), SMALLEST)
            axes.semilogy(study[scenario]["step"], above, color=COLOURS[label], label=label, linewidth=1.6)
        axes.set_xlabel("gradient step")
        axes.set_ylabel("$F$ above its lowest (nats)")
        axes.set_title(f"θ {scenario}", fontsize=10)
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def _cue_steps(study: Mapping[str, Any]) -> np.ndarray:
    """After how many steps the plan was looked at."""
    steps = np.asarray(study["unknown"]["step"])
    return steps + (steps[1] - steps[0] if len(steps) > 1 else 1)


def budget(studies: Studies) -> Figure:
    """How much the first control wants the cue, against the number of steps."""
    figure, panels = _panels(len(studies))
    for axes, (maze, found) in zip(panels, studies.items(), strict=True):
        for label, study in found.items():
            _band(axes, _cue_steps(study), study["unknown"]["cue"], study["unknown"]["cue_std"], COLOURS[label], label)
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlabel("gradient steps")
        axes.set_ylabel(WANTS)
        axes.set_title(TITLES[maze], fontsize=10)
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def learning_rates(studies: Studies) -> Figure:
    """How much the first control wants the cue after all steps, against the learning rate, a point for each seed."""
    figure, panels = _panels(len(studies))
    for axes, (maze, found) in zip(panels, studies.items(), strict=True):
        for label, study in found.items():
            colour = COLOURS[label]
            rates = [float(rate) for rate in study["rates"]]
            values = [np.mean(each) for each in study["rates"].values()]
            axes.plot(rates, values, color=colour, label=label, linewidth=1.6)
            for rate, each in zip(rates, study["rates"].values(), strict=True):
                axes.plot([rate] * len(each), each, "o", color=colour, markersize=3.5, alpha=0.7)
        axes.set_xscale("log")
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlabel("learning rate of Adam")
        axes.set_ylabel(WANTS)
        axes.set_title(TITLES[maze], fontsize=10)
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def rewards(found: Rewards, published: Mapping[str, Mapping[str, tuple[float, float]]]) -> Figure:
    """The mean reward for every seed of the solver, with the paper's mean ± one standard deviation."""
    figure, panels = _panels(len(found), 3.6)
    for axes, (maze, by_kind) in zip(panels, found.items(), strict=True):
        for place, (kind, values) in enumerate(by_kind.items()):
            mean, std = published[maze][kind]
            spread = np.linspace(-0.12, 0.12, len(values)) - 0.15
            axes.plot(place + spread, values, "o", color=PALETTE[0], markersize=4, label="ours, a seed each")
            axes.errorbar(place + 0.2, mean, std, fmt="D", color=BLACK, markersize=4, capsize=3, label="paper ± std")
        axes.set_xticks(range(len(by_kind)), [LABELS[kind] for kind in by_kind], fontsize=9)
        axes.set_ylabel("mean reward")
        axes.set_title(TITLES[maze], fontsize=10)
    handles, labels = panels[0].get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    panels[0].legend(unique.values(), unique.keys(), frameon=False, fontsize=8)
    return figure


# --- Numbers -----------------------------------------------------------------------------------------------


def cue_table(studies: Studies) -> Table:
    """q(u_1 = to the cue) after some numbers of steps."""
    table = Table(title="q(u₁ = to the cue) against gradient steps (mean over seeds)", title_justify="left")
    every = [int(step) for found in studies.values() for study in found.values() for step in _cue_steps(study)]
    steps = [step for step in BUDGETS if step in every]
    for head in ("", *map(str, steps)):
        table.add_column(head, justify="left" if not head else "right")
    for maze, found in studies.items():
        table.add_section()
        for label, study in found.items():
            at = dict(zip(_cue_steps(study).tolist(), study["unknown"]["cue"], strict=True))
            table.add_row(f"{TITLES[maze]}, {label}", *(f"{at[step]:.3f}" for step in steps))
    return table


def rates_table(studies: Studies) -> Table:
    """q(u_1 = to the cue) after all steps by learning rate."""
    table = Table(title="q(u₁ = to the cue) against the learning rate (mean, least–most)", title_justify="left")
    rates = list(dict.fromkeys(rate for found in studies.values() for s in found.values() for rate in s["rates"]))
    for head in ("", *rates):
        table.add_column(head, justify="left" if not head else "right")
    for maze, found in studies.items():
        table.add_section()
        for label, study in found.items():
            cells = [f"{np.mean(v):.2f} ({min(v):.2f}–{max(v):.2f})" for v in map(study["rates"].__getitem__, rates)]
            table.add_row(f"{TITLES[maze]}, {label}", *cells)
    return table


def rewards_table(found: Rewards, published: Mapping[str, Mapping[str, tuple[float, float]]]) -> Table:
    """The mean reward over the seeds of the solver beside the paper's."""
    table = Table(title="Mean reward over seeds of the solver (mean ± std)", title_justify="left")
    for head in ("", "ours", "paper", "seeds"):
        table.add_column(head, justify="left" if not head else "right")
    for maze, by_kind in found.items():
        table.add_section()
        for kind, values in by_kind.items():
            mean, std = published[maze][kind]
            ours = f"{np.mean(values):+.2f} ± {np.std(values):.2f}"
            table.add_row(f"{TITLES[maze]}, {LABELS[kind]}", ours, f"{mean:+.2f} ± {std:.2f}", str(len(values)))
    return table


def csv_text(studies: Studies, found: Rewards) -> str:
    """Everything as one long table: study, maze, method, x, value, std."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("study", "maze", "method", "x", "value", "std"))
    for maze, by_label in studies.items():
        for label, study in by_label.items():
            for scenario in ("unknown", "known"):
                if scenario in study:
                    one = study[scenario]
                    for row in zip(one["step"], one["free_energy"], one["free_energy_std"], strict=True):
                        writer.writerow((f"free energy, theta {scenario}", maze, label, *row))
            for row in zip(_cue_steps(study), study["unknown"]["cue"], study["unknown"]["cue_std"], strict=True):
                writer.writerow(("q(cue) by steps", maze, label, *row))
            for rate, values in study["rates"].items():
                writer.writerow(("q(cue) by learning rate", maze, label, rate, np.mean(values), np.std(values)))
        for kind, values in found[maze].items():
            for seed, value in enumerate(values):
                writer.writerow(("reward by solver seed", maze, LABELS[kind], seed, value, ""))
    return out.getvalue()
