"""The free energy against gradient steps or sweeps, for one plan or many.

Several plans of one kind (other seeds, other beliefs) are drawn as their mean with a band of one standard deviation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npro_aif.analysis.style import PALETTE, Axes, MaxNLocator, new_axes
from npro_aif.planning.plan import Plan

MARKS = "osD^vP"  # so that the curves differ in more than colour


def plot_free_energy(
    plans: Mapping[str, Plan | Sequence[Plan]], axes: Axes | None = None, *, xlabel: str = "gradient step or sweep"
) -> Axes:
    """F before every iteration, and of the plan.

    :param plans: by label (an objective, say): a plan, or several for the mean ± one standard deviation. A plan that
        stopped early keeps its last value.
    """
    axes = new_axes(axes, 5.0, 3.2)
    for i, (label, group) in enumerate(plans.items()):
        histories = _histories([group] if isinstance(group, Plan) else group)
        mean, deviation = histories.mean(0), histories.std(0)
        steps, colour = np.arange(len(mean)), PALETTE[i % len(PALETTE)]
        every = max(1, len(mean) // 12)  # a mark at each of a few sweeps, now and then on a long curve
        axes.plot(
            steps,
            mean,
            color=colour,
            label=label,
            linewidth=1.8,
            marker=MARKS[i % len(MARKS)],
            markersize=4.5,
            markevery=every,
        )
        if len(histories) > 1:
            axes.fill_between(steps, mean - deviation, mean + deviation, color=colour, alpha=0.2, linewidth=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(xlabel)
    axes.set_ylabel("free energy $F$ (nats)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return axes


def _histories(plans: Sequence[Plan]) -> np.ndarray:
    """(plans, longest history), each going on with its last value."""
    histories = [np.append(np.asarray(p.free_energy)[: int(p.info.iterations)], p.free_energy[-1]) for p in plans]
    longest = max(map(len, histories))
    return np.stack([np.pad(history, (0, longest - len(history)), mode="edge") for history in histories])
