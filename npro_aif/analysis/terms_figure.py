"""Why a plan is good: the terms of the expected free energy of the best plans, as stacked bars.

What a plan costs (risk, ambiguity, complexity) reaches to the right of zero and what it lets one learn (novelty) to
the left, in nats; the diamond is where they add up, and the further left it is, the better the plan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npro_aif.analysis.style import BLACK, BLUE, GREEN, INK, ORANGE, PURPLE, Axes, new_axes
from npro_aif.inference.efe import ExpectedFreeEnergy

COLOURS = {"risk": ORANGE, "ambiguity": PURPLE, "complexity": BLUE, "novelty": GREEN}
BAR = 0.34  # inches for each bar
SAME = 3  # terms that agree in so many decimals are the same


def plot_terms(
    energy: ExpectedFreeEnergy,
    controls: Sequence[str],
    axes: Axes | None = None,
    *,
    plans: Sequence[int] | None = None,
    count: int = 5,
) -> Axes:
    """A bar for each plan, the best on top.

    :param energy: what :func:`npro_aif.expected_free_energy` returns.
    :param controls: the labels of the controls (flat), for the plans' names.
    :param plans: the indices of the plans to show, in this order. By default the ``count`` best, where plans with the
        same terms (a wall is a wall, whichever way one runs into it) share a bar that tells how many they are.
    """
    alike = _alike(energy, count) if plans is None else {int(plan): 1 for plan in plans}
    shown = np.array(list(alike))
    axes = new_axes(axes, 7.5, 1.4 + BAR * len(shown))
    axes.use_sticky_edges = False  # before anything is drawn, else the longest bar ends at the frame
    rows = np.arange(len(shown))
    ends = {True: np.zeros(len(shown)), False: np.zeros(len(shown))}  # of the bars right and left of zero
    bars = []
    for name in COLOURS:
        width = np.asarray(getattr(energy, name))[shown]
        start = np.where(width >= 0, ends[True], ends[False])
        bars.append(axes.barh(rows, width, left=start, height=0.62, color=COLOURS[name], label=name))
        ends[True] += np.maximum(width, 0)
        ends[False] += np.minimum(width, 0)
    (total,) = axes.plot(ends[True] + ends[False], rows, "D", color=BLACK, markersize=5, label="sum", zorder=3)
    names = [" ".join(controls[int(u)] for u in energy.plans[i]) for i in shown]
    others = [f"  (+{number - 1} alike)" if number > 1 else "" for number in alike.values()]
    axes.set_yticks(rows, [name + other for name, other in zip(names, others, strict=True)])
    axes.invert_yaxis()
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_xlabel("nats (lower is better)")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(
        handles=[*bars, total],
        frameon=False,
        ncols=len(bars) + 1,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        fontsize=9,
        columnspacing=1.2,
        handlelength=1.4,
    )
    return axes


def _alike(energy: ExpectedFreeEnergy, count: int) -> dict[int, int]:
    """The first of each of the ``count`` best groups of plans with the same terms, and how many are in the group."""
    terms = np.round(np.stack([np.asarray(getattr(energy, name)) for name in COLOURS], -1), SAME) + 0.0  # no −0
    _, first, number = np.unique(terms, axis=0, return_index=True, return_counts=True)
    best = sorted(range(len(first)), key=lambda g: float(terms[first[g]].sum()))[:count]
    return {int(first[g]): int(number[g]) for g in best}
