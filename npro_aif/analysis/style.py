"""What the figures share: the Okabe–Ito palette, which the colour-blind can tell apart, and axes without pyplot.

Figures are plain ``matplotlib.figure.Figure`` objects, so that drawing needs no display and leaves no global state;
save one with ``axes.figure.savefig(path)``. Matplotlib is imported here, for all of them.
"""

from __future__ import annotations

from npro_aif.extras import missing

try:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import LinearSegmentedColormap, to_rgba
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle, FancyArrowPatch, Rectangle
    from matplotlib.patheffects import withStroke
    from matplotlib.ticker import MaxNLocator
except ImportError as error:
    raise missing(error, "A figure") from error

__all__ = [
    "BLACK",
    "BLUE",
    "FLOOR",
    "GREEN",
    "INK",
    "ORANGE",
    "PALETTE",
    "PURPLE",
    "SKY",
    "VERMILLION",
    "YELLOW",
    "Axes",
    "Circle",
    "FancyArrowPatch",
    "Figure",
    "LinearSegmentedColormap",
    "MaxNLocator",
    "PolyCollection",
    "Rectangle",
    "bare",
    "new_axes",
    "to_rgba",
    "withStroke",
]

# M. Okabe and K. Ito, "Color Universal Design" (2008).
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
PALETTE = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, YELLOW, BLACK)
FLOOR, INK = "#ECECEC", "#333333"


def new_axes(axes: Axes | None, width: float, height: float) -> Axes:
    """The given axes, or those of a new figure of this size in inches."""
    if axes is not None:
        return axes
    return Figure(figsize=(width, height), layout="constrained").add_subplot()


def bare(axes: Axes) -> None:
    """Take away frame and ticks: the picture is a place, not a plot."""
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
