"""Why a plan is good: the terms of the expected free energy of the best plans, as stacked bars.

What a plan costs (risk, ambiguity, complexity) reaches to the right of zero and what it lets one learn (novelty) to
the left, in nats; the diamond is where they add up, and the further left it is, the better the plan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from npro_aif.analysis.style import BLACK, BLUE, GREEN, INK, ORANGE, PURPLE, new_axes
from npro_aif.efe import ExpectedFreeEnergy

COLOURS = {"risk": ORANGE, "ambiguity": PURPLE, "novelty": GREEN, "complexity": BLUE}
BAR = 0.34  # inches for each bar


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
    :param plans: the indices of the plans to show, in this order; the ``count`` best by default.
    """
    shown = np.asarray(energy.best(count) if plans is None else plans)
    axes = new_axes(axes, 7.0, 1.4 + BAR * len(shown))
    signed = {
        "risk": energy.risk,
        "ambiguity": energy.ambiguity,
        "complexity": energy.complexity,
        "novelty": -energy.novelty,
    }
    rows = np.arange(len(shown))
    ends = {True: np.zeros(len(shown)), False: np.zeros(len(shown))}  # of the bars right and left of zero
    for name, values in signed.items():
        width = np.asarray(values)[shown]
        left = np.where(width >= 0, ends[True], ends[False])
        label = f"−{name}" if name == "novelty" else name
        axes.barh(rows, width, left=left, height=0.62, color=COLOURS[name], label=label)
        ends[True] += np.maximum(width, 0)
        ends[False] += np.minimum(width, 0)
    axes.plot(ends[True] + ends[False], rows, "D", color=BLACK, markersize=5, label="sum", linestyle="none", zorder=3)
    names = [" ".join(controls[int(u)] for u in energy.plans[i]) for i in shown]
    axes.set_yticks(rows, names)
    axes.invert_yaxis()
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_xlabel("nats (lower is better)")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(frameon=False, ncols=5, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=9, columnspacing=1.2)
    return axes
