"""The T-maze with what the agent means to do: arrows at every place it may come to, a panel for each time step.

An arrow stands for the future step t at which its move is most probable: its opacity is the policy q(u_t|x_{t-1}), its
width how far the agent expects to be there, q(x_{t-1}). The small numbers are the steps at which it would go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npro_aif.analysis.style import (
    BLUE,
    FLOOR,
    GREEN,
    INK,
    ORANGE,
    Axes,
    Circle,
    FancyArrowPatch,
    Figure,
    Rectangle,
    bare,
    new_axes,
)
from npro_aif.models.tmaze import CUE, JUNCTION, LEFT, PLACES, RIGHT, SIDES, START
from npro_aif.planning.plan import Plan

AT = {CUE: (0, 0), START: (0, 1), JUNCTION: (0, 2), LEFT: (-1, 2), RIGHT: (1, 2)}  # each place's centre
TOWARDS = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])  # North, East, South, West
ARMS = (LEFT, RIGHT)  # by θ
FAINT = 0.03  # moves that are less probable are left out
NUMBERED = 0.2  # steps that are at least this probable are written at the arrow
LEGEND = "opacity: policy $q(u_t|x_{t-1})$;  width: $q(x_{t-1})$;  numbers: the steps $t$;  star: the reward"


def plot_tmaze_step(
    plan: Plan, axes: Axes | None = None, *, theta: int | None = None, present: int = 0, title: str = ""
) -> Axes:
    """The maze, the agent where it is now, and its whole plan.

    :param theta: the side that holds the reward (0 left, 1 right): a star there. Without it there is a star in each
        arm, as opaque as the agent believes in it.
    :param present: how many steps were taken already; the plan's first is numbered one more.
    """
    axes = new_axes(axes, 3.2, 3.4)
    belief = np.asarray(plan.belief.parameter)
    draw_maze(axes, int(np.argmax(plan.state[0])), theta, belief)
    policy, presence = np.asarray(plan.policy), np.asarray(plan.state)[:-1]
    joint = presence[..., None] * policy  # (T, X, U) q(x_{t-1}, u_t)
    for place, control in np.ndindex(joint.shape[1:]):
        masses = joint[:, place, control]
        best = int(np.argmax(masses))
        if masses[best] >= FAINT:
            steps = present + 1 + np.flatnonzero(masses >= NUMBERED)
            _draw_arrow(axes, place, control, policy[best, place, control], presence[best, place], _ranges(steps))
    axes.set_title(title, fontsize=10)
    return axes


def plot_tmaze_trajectories(
    episodes: Mapping[str, Sequence[Plan]],
    *,
    theta: int | None = None,
    arrivals: Mapping[str, int] | None = None,
    numbers: bool = False,
) -> np.ndarray:
    """A row for each objective and a panel for each of its plans, as in the paper's trajectory figure.

    :param episodes: the plans of an episode, one for each step taken, by the objective's name.
    :param theta: the side that holds the reward.
    :param arrivals: the place where each episode ended, for a last panel.
    :param numbers: write the largest of q(u_1) over each panel.
    :return: the axes, (objectives, steps).
    """
    arrivals = arrivals or {}
    columns = max(len(plans) + (name in arrivals) for name, plans in episodes.items())
    figure = Figure(figsize=(2.5 * columns, 2.7 * len(episodes) + 0.3), layout="constrained")
    figure.supxlabel(LEGEND, fontsize=9, color=INK)
    grid = figure.subplots(len(episodes), columns, squeeze=False)
    for row, (name, plans) in zip(grid, episodes.items(), strict=True):
        for t, axes in enumerate(row):
            if t < len(plans):
                best = f":  max $q(u_1)$ = {float(np.max(plans[t].control[0])):.3f}" if numbers else ""
                plot_tmaze_step(plans[t], axes, theta=theta, present=t, title=f"$t={t}${best}")
            elif t == len(plans) and name in arrivals:
                draw_maze(axes, arrivals[name], theta)
                axes.set_title(f"$t={t}$", fontsize=10)
            else:
                axes.set_visible(False)
        row[0].set_ylabel(name, fontsize=11)
    return grid


def draw_maze(axes: Axes, agent: int, theta: int | None = None, belief: np.ndarray | None = None) -> None:
    """The places, the cue, the reward (and how far the agent believes in it), and the agent."""
    bare(axes)
    axes.set_xlim(-1.55, 1.55)
    axes.set_ylim(-0.55, 2.9)
    for place, (x, y) in AT.items():
        tile = Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, facecolor=FLOOR, edgecolor="white", zorder=1)
        axes.add_patch(tile)
        if place == CUE:
            tile.set(facecolor=ORANGE, alpha=0.7)
            axes.text(x + 0.58, y, PLACES[place], ha="left", va="center", fontsize=8, color=INK)
    for side, arm in enumerate(ARMS):
        x, y = AT[arm]
        sure = belief[side] if belief is not None else 1 / len(ARMS)
        strength = float(sure) if theta is None else float(side == theta)
        corner = x + 0.38 * np.sign(x), y + 0.38  # clear of the arrows' numbers
        axes.plot(*corner, "*", markersize=10, color=GREEN, alpha=strength, markeredgewidth=0, zorder=3)
        if belief is not None:
            axes.text(x, y + 0.56, f"{SIDES[side]} {sure:.0%}", ha="center", va="bottom", fontsize=8, color=INK)
    axes.add_patch(Circle(AT[agent], 0.15, facecolor=BLUE, edgecolor="white", zorder=4))


def _ranges(steps: np.ndarray) -> str:
    """Whole numbers with runs in short.

    >>> _ranges(np.array([1, 3, 4, 5]))
    '1,3–5'
    """
    runs = np.split(steps, np.flatnonzero(np.diff(steps) > 1) + 1)
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs if len(run))


def _draw_arrow(axes: Axes, place: int, control: int, opacity: float, presence: float, steps: str) -> None:
    """An arrow inside its tile, with the steps beside it: each direction has a quadrant of the tile for them."""
    centre, towards = np.array(AT[place]), TOWARDS[control]
    arrow = FancyArrowPatch(
        tuple(centre + 0.17 * towards),
        tuple(centre + 0.46 * towards),
        arrowstyle="-|>",
        mutation_scale=8 + 4 * presence,
        linewidth=0.8 + 1.6 * presence,
        shrinkA=0,
        shrinkB=0,
        color=INK,
        alpha=min(float(opacity), 1.0),
        zorder=5,
    )
    axes.add_patch(arrow)
    beside = TOWARDS[(control + 1) % 4]
    upright = towards[0] == 0  # then the text begins (or ends) at the arrow, else it is centred over it
    along = {1: "left", -1: "right"}[int(beside[0])] if upright else "center"
    x, y = centre + 0.28 * towards + (0.1 if upright else 0.15) * beside
    axes.text(x, y, steps, ha=along, va="center", fontsize=7, color=INK, zorder=6)
