"""A plan's decision tree as a picture: time to the right, what is seen in the boxes, what is done on the way out.

The width of a line is the probability of going along it.
"""

from __future__ import annotations

from npro_aif.analysis.style import BLUE, FLOOR, INK, ORANGE, Axes, new_axes
from npro_aif.planning.tree import Branch, Tree

COLUMN, ROW = 2.1, 0.62  # inches for each step and each leaf
THICKEST = 6.0  # points, of a line that is certain
LIKELY = 0.05  # controls with less are not named


def plot_tree(tree: Tree, axes: Axes | None = None, *, title: str | None = None) -> Axes:
    """Draw what :meth:`npro_aif.Plan.tree` returns."""
    places: dict[int, tuple[float, float]] = {}
    leaves = 0
    for branch in tree.branches:
        leaves = _place(branch, places, leaves)
    depth = max((step for step, _ in places.values()), default=0)
    axes = new_axes(axes, COLUMN * (depth + 1) + 0.6, ROW * max(leaves, 2) + 0.8)
    for branch in tree.branches:
        _draw(axes, branch, places, None)
    axes.set_xlim(-0.5, depth + 0.6)
    axes.set_ylim(leaves - 0.4, -0.6)
    axes.set_axis_off()
    if title:
        axes.set_title(title, fontsize=11, color=INK)
    return axes


def _place(branch: Branch, places: dict[int, tuple[float, float]], leaves: int) -> int:
    """Where a branch and those after it lie, leaves one below the other; returns how many leaves there are then."""
    if not branch.branches:
        places[id(branch)] = branch.step, float(leaves)
        return leaves + 1
    for later in branch.branches:
        leaves = _place(later, places, leaves)
    rows = [places[id(later)][1] for later in branch.branches]
    places[id(branch)] = branch.step, sum(rows) / len(rows)
    return leaves


def _draw(axes: Axes, branch: Branch, places: dict[int, tuple[float, float]], before: Branch | None) -> None:
    x, y = places[id(branch)]
    if before is not None:
        from_x, from_y = places[id(before)]
        width = max(0.6, THICKEST * branch.probability)
        axes.plot([from_x, x], [from_y, y], color=BLUE, alpha=0.35, linewidth=width, solid_capstyle="round", zorder=1)
    changed = {k: v for k, v in branch.seen.items() if before is None or before.seen.get(k) != v} or branch.seen
    text = "\n".join(f"{name}: {label}" for name, label in changed.items())
    box = {"boxstyle": "round,pad=0.3", "facecolor": FLOOR, "edgecolor": INK, "linewidth": 0.8}
    axes.text(x, y, text, ha="center", va="center", fontsize=8, bbox=box, zorder=3, color=INK)
    likely = {label: p for label, p in branch.control.items() if p >= LIKELY}
    even = max(likely.values(), default=0.0) - min(likely.values(), default=0.0) < LIKELY
    names = " or ".join(likely) if even else "\n".join(f"{label} {p:.2f}" for label, p in likely.items())
    if names:
        axes.text(x + 0.5, y - 0.02, names, ha="center", va="bottom", fontsize=8, color=ORANGE, weight="bold", zorder=4)
    for later in branch.branches:
        _draw(axes, later, places, branch)
