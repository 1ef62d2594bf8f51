"""A DoorKey frame with what the agent believes about key and door, and the path that it plans.

In every cell the lower left half shows the probability that the key lies there and the upper right half that the door
does; an arrow from cell to cell is the more opaque the more probable the move is, at the step where it is most so (as
the square root, so that one door of five can still be seen).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from npro_aif.analysis.style import (
    PURPLE,
    SKY,
    Axes,
    FancyArrowPatch,
    Figure,
    LinearSegmentedColormap,
    PolyCollection,
    bare,
    new_axes,
    to_rgba,
    withStroke,
)
from npro_aif.models.doorkey import FORWARD, NO_KEY, tables
from npro_aif.planning.plan import Plan
from npro_aif.program.signature import marginalize

OUTLINE = withStroke(linewidth=3.4, foreground="black")  # readable on bright tiles too
LOWER_LEFT = np.array([[-0.5, -0.5], [-0.5, 0.5], [0.5, 0.5]])  # in cells; rows run downwards
UPPER_RIGHT = -LOWER_LEFT
FAINT = 0.05  # moves that are less probable are left out
LANE = 0.09  # arrows keep to the right by so much, so that a way back does not cover the way there


def plot_doorkey(plan: Plan, frame: np.ndarray, axes: Axes | None = None, *, title: str = "") -> Axes:
    """The frame, the belief over key and door, and the planned path.

    :param plan: of the model ``npro_aif.models.doorkey.doorkey``, from the belief that is shown.
    :param frame: the picture of the whole grid that ``env.render()`` returns, (height, width, 3).
    """
    axes = new_axes(axes, 5.4, 4.2)
    sites = plan.signature.parameter
    size = math.isqrt(plan.marginal("position").shape[-1]) + 2  # outer walls included
    axes.imshow(frame, extent=(-0.5, size - 0.5, size - 0.5, -0.5), interpolation="nearest")
    layout = tables(size)
    unfetched = float(plan.marginal("status")[0, NO_KEY])
    for site, cells, half, colour, share in (
        ("key", layout.key_cell, LOWER_LEFT, PURPLE, unfetched),
        ("door", layout.door_cell, UPPER_RIGHT, SKY, 1.0),
    ):
        belief = share * np.asarray(marginalize(plan.belief.parameter, sites, site))
        _draw_belief(axes, site, belief, _centres(cells[: len(belief)], size), half, colour)
    _draw_path(axes, plan, size)
    bare(axes)
    axes.set_title(title, fontsize=10)
    return axes


def plot_doorkey_frames(plans: Sequence[Plan], frames: Sequence[np.ndarray], titles: Sequence[str]) -> np.ndarray:
    """Several frames of an episode side by side; the arguments are those of :func:`plot_doorkey`, one for each.

    :return: the axes, (frames,).
    """
    figure = Figure(figsize=(4.6 * len(plans), 3.6), layout="constrained")
    row = figure.subplots(1, len(plans), squeeze=False)[0]
    for axes, plan, frame, title in zip(row, plans, frames, titles, strict=True):
        plot_doorkey(plan, frame, axes, title=title)
    return row


def _centres(cells: np.ndarray, size: int) -> np.ndarray:
    """Interior cells as (column, row) of the whole grid, (…, 2)."""
    row, column = np.divmod(cells, size - 2)
    return np.stack([column, row], -1) + 1


def _draw_belief(axes: Axes, site: str, belief: np.ndarray, centres: np.ndarray, half: np.ndarray, colour: str) -> None:
    """Half tiles whose opacity is the probability, with a scale beside the frame."""
    shown = belief > 0
    if not shown.any():
        return
    scale = LinearSegmentedColormap.from_list(site, [to_rgba(colour, 0.0), to_rgba(colour, 0.9)])
    tiles = PolyCollection(centres[shown][:, None] + half, array=belief[shown], cmap=scale, linewidths=0)
    tiles.set_clim(0, float(belief.max()))
    axes.add_collection(tiles)
    bar = axes.figure.colorbar(tiles, ax=axes, shrink=0.75, pad=0.02, aspect=18)
    bar.ax.set_facecolor("black")  # as the floor, on which the tiles lie
    bar.set_label(f"p({site} here)", fontsize=9)
    bar.ax.tick_params(labelsize=8)


def _draw_path(axes: Axes, plan: Plan, size: int) -> None:
    """The moves forward, where they lead to another cell."""
    cells, horizon = (size - 2) ** 2, plan.control.shape[0]
    forward = np.asarray(plan.state[:-1] * plan.policy[..., FORWARD]).reshape(horizon, cells, 4, -1).sum(-1)
    arrived = np.asarray(plan.marginal("position"))[1:]  # (T, P)
    ahead = tables(size).near[:, :, 1, 1]  # (P, 4) the next cell; P stands for all that is outside
    for cell, direction in np.ndindex(cells, 4):
        target = ahead[cell, direction]
        if target == cells:
            continue
        # What sets off forward may meet a wall: no more than what is there afterwards has arrived.
        moved = float(np.minimum(forward[:, cell, direction], arrived[:, target]).max())
        if moved >= FAINT:
            tail, head = _centres(np.array([cell, target]), size)
            along = head - tail
            lane = LANE * np.array([-along[1], along[0]])  # rows run downwards: this is to the right
            arrow = FancyArrowPatch(
                tuple(tail + 0.1 * along + lane),
                tuple(head - 0.05 * along + lane),
                arrowstyle="-|>",
                mutation_scale=9,
                linewidth=1.8,
                shrinkA=0,
                shrinkB=0,
                color="white",
                alpha=min(moved, 1.0) ** 0.5,
                zorder=3,
            )
            arrow.set_path_effects([OUTLINE])
            axes.add_patch(arrow)
