"""A plan in the Reactivity Maze: where the agent expects to be, and what it would do there, a panel for each step.

A cell is a state (location, knob) and as dark as it is probable, q(x_{t-1}); in it stand the controls that the policy
q(u_t|x_{t-1}) chooses there, the likeliest first.
"""

from __future__ import annotations

import numpy as np

from npro_aif.analysis.style import BLUE, INK, Figure, LinearSegmentedColormap
from npro_aif.models.reactivity_maze import CONTROL_LABELS, FULL, GOALS, KNOBS, LOCATION_LABELS, LOCATIONS
from npro_aif.planning.plan import Plan

SHORT = tuple(label.replace("knob down", "k−").replace("knob up", "k+") for label in CONTROL_LABELS)
FAINT = 0.02  # states that are less probable have no controls written in them
LISTED, SHARE = 2, 0.1  # how many controls are written in a cell at most, and how probable they must be
BRIGHT = 0.55  # from this shade on the writing is white
SHADES = LinearSegmentedColormap.from_list("presence", ["white", BLUE])


def plot_reactivity(plan: Plan, *, title: str = "") -> np.ndarray:
    """q(x_{t-1}) and the policy there, for t = 1 … T; the last panel, without controls, is where it ends.

    :param plan: of the model ``npro_aif.models.reactivity_maze.reactivity_maze``.
    :return: the axes, (T+1,).
    """
    horizon = plan.control.shape[0]
    presence = np.asarray(plan.state).reshape(horizon + 1, LOCATIONS, KNOBS)
    policy = np.asarray(plan.policy).reshape(horizon, LOCATIONS, KNOBS, -1)
    figure = Figure(figsize=(3.3 * (horizon + 1), 3.0), layout="constrained")
    row = figure.subplots(1, horizon + 1, sharey=True, squeeze=False)[0]
    for t, axes in enumerate(row):
        shown = axes.imshow(presence[t].T, origin="lower", cmap=SHADES, vmin=0, vmax=1, aspect="auto")
        axes.set_xticks(range(LOCATIONS), LOCATION_LABELS)
        axes.set_yticks(range(KNOBS))
        axes.set_xlabel("location")
        axes.set_title(f"$t={t}$", fontsize=10)
        axes.set_xticks(np.arange(LOCATIONS - 1) + 0.5, minor=True)
        axes.set_yticks(np.arange(KNOBS - 1) + 0.5, minor=True)
        axes.grid(which="minor", color="#DDDDDD", linewidth=0.6)
        axes.tick_params(which="both", length=0, labelsize=8)
        if t < horizon:
            for location, knob in np.argwhere(presence[t] >= FAINT):
                colour = "white" if presence[t, location, knob] >= BRIGHT else INK
                text = _controls(policy[t, location, knob])
                axes.text(location, knob, text, ha="center", va="center", fontsize=7, color=colour, linespacing=1.0)
    row[0].set_ylabel("knob")
    believed = ", ".join(f"{p:.0%}" for p in np.asarray(plan.belief.parameter))
    goals = " or ".join(f"({goal}, {FULL})" for goal in range(GOALS))
    figure.suptitle(f"{title}{': ' if title else ''}goal {goals}, believed {believed}", fontsize=10)
    figure.colorbar(shown, ax=list(row), label="$q(x_t)$", pad=0.01, aspect=18)
    return row


def _controls(probs: np.ndarray) -> str:
    """The likeliest controls, one a line.

    >>> _controls(np.array([0.0, 0.25, 0.0, 0.0, 0.0, 0.0, 0.75, 0.0]))
    'k+\\n+1'
    """
    order = np.argsort(-probs, kind="stable")
    chosen = [u for u in order if probs[u] >= SHARE]
    return "\n".join(SHORT[u] for u in chosen[:LISTED]) + ("…" if len(chosen) > LISTED else "")
