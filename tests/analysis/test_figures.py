"""What figures show is what the plan says; that they need no display, tests/test_house.py."""

from __future__ import annotations

import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch

import npro_aif as aif
from npro_aif.analysis import doorkey_figure, style, tmaze_figure
from npro_aif.analysis.doorkey_figure import plot_doorkey, plot_doorkey_frames
from npro_aif.analysis.free_energy_figure import plot_free_energy
from npro_aif.analysis.reactivity_figure import plot_reactivity
from npro_aif.analysis.recording import Recording
from npro_aif.analysis.terms_figure import plot_terms
from npro_aif.analysis.tmaze_figure import plot_tmaze_step, plot_tmaze_trajectories
from npro_aif.analysis.tree_figure import plot_tree
from npro_aif.models import doorkey, tmaze
from npro_aif.planning.tree import Branch, Tree
from tests.analysis.conftest import SIZE


def save(axes: Axes, path: Path) -> None:
    axes.figure.savefig(path, dpi=60)
    assert path.stat().st_size > 1000


def arrows(axes: Axes) -> list[FancyArrowPatch]:
    return [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]


def ends(arrow: FancyArrowPatch) -> tuple[np.ndarray, np.ndarray]:
    tail, head = arrow._posA_posB
    return np.asarray(tail), np.asarray(head)


def assert_no_overlap(axes: Axes) -> None:
    """No two texts of a panel cover each other, and none leaves the figure."""
    figure = axes.figure
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes.texts if text.get_text()]
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i]), [text.get_text() for text in axes.texts]
        assert figure.bbox.contains(box.x0, box.y0)
        assert figure.bbox.contains(box.x1, box.y1)


def test_tmaze_arrows_are_the_policy(recording: Recording) -> None:
    for present, plan in enumerate(recording.plans):
        axes = plot_tmaze_step(plan, present=present)
        state, policy = np.asarray(plan.state), np.asarray(plan.policy)
        expected = {}
        for place in range(5):
            for control in range(4):
                masses = [state[t, place] * policy[t, place, control] for t in range(len(policy))]
                best = int(np.argmax(masses))
                if masses[best] >= tmaze_figure.FAINT:
                    expected[place, control] = policy[best, place, control]
        found = {}
        for arrow in arrows(axes):
            tail, head = ends(arrow)
            place = next(p for p, at in tmaze_figure.AT.items() if np.abs((tail + head) / 2 - at).max() < 0.5)
            heading = [int(np.sign(round(d, 6))) for d in head - tail]
            control = [list(t) for t in tmaze_figure.TOWARDS].index(heading)
            found[place, control] = arrow.get_alpha()
        assert found == pytest.approx(expected)
        (agent,) = (patch for patch in axes.patches if isinstance(patch, Circle))
        assert tuple(agent.center) == tmaze_figure.AT[int(np.argmax(state[0]))]
        assert_no_overlap(axes)


def test_tmaze_arrows_where_all_is_open(recording: Recording) -> None:
    """A plan that may go anywhere: the most crowded panel there can be."""
    plan = recording.plans[0]
    anywhere = plan._replace(
        policy=jnp.full_like(plan.policy, 0.25), state=jnp.full_like(plan.state, 0.9).at[0].set(plan.state[0])
    )
    axes = plot_tmaze_step(anywhere)
    assert len(arrows(axes)) == 20
    assert [text.get_text() for text in axes.texts].count("2–4") == 16  # at the start also in the first step
    assert_no_overlap(axes)


def test_tmaze_moves_agree_with_the_model() -> None:
    """Arrows point to where the model's controls lead."""
    for (place, control), to in tmaze.MOVES.items():
        step = np.array(tmaze_figure.AT[to]) - tmaze_figure.AT[place]
        np.testing.assert_array_equal(step, tmaze_figure.TOWARDS[control])


def test_tmaze_trajectories(recording: Recording, tmp_path: Path) -> None:
    theta, end = recording.episode.infos[-1]["theta"], recording.episode.infos[-1]["state"]
    short = recording.plans[:2]
    grid = plot_tmaze_trajectories({"active": recording.plans, "short": short}, theta=theta, arrivals={"active": end})
    assert grid.shape == (2, 5)
    assert [axes.get_ylabel() for axes in grid[:, 0]] == ["active", "short"]
    assert [axes.get_visible() for axes in grid[1]] == [True, True, False, False, False]
    (arrived,) = (patch for patch in grid[0, 4].patches if isinstance(patch, Circle))
    assert tuple(arrived.center) == tmaze_figure.AT[(tmaze.LEFT, tmaze.RIGHT)[theta]]
    stars = [line for line in grid[0, 0].lines if line.get_marker() == "*"]
    assert [star.get_alpha() for star in stars] == [float(side == theta) for side in range(2)]
    assert "1" in [text.get_text() for text in grid[0, 0].texts]  # its first step, South, is step 1
    assert "2" in [text.get_text() for text in grid[0, 1].texts]
    assert_no_overlap(grid[0, 0])
    save(grid[0, 0], tmp_path / "tmaze.png")


def test_doorkey_belief_and_path(doorkey_recording: Recording, tmp_path: Path) -> None:
    plan, frame = doorkey_recording.plans[0], doorkey_recording.frames[0]
    axes = plot_doorkey(plan, frame, title="$t=0$")
    key, door = (c for c in axes.collections if isinstance(c, PolyCollection))
    keys, doors = doorkey.site_sizes(SIZE)[0].values()
    belief = np.asarray(plan.belief.parameter).reshape(keys, doors)
    for tiles, probs, cells in ((key, belief.sum(1), "key_cell"), (door, belief.sum(0), "door_cell")):
        np.testing.assert_allclose(tiles.get_array(), probs[probs > 0], rtol=1e-6)
        centres = np.stack([path.vertices[:3].mean(0) for path in tiles.get_paths()])
        row, column = np.divmod(getattr(doorkey.tables(SIZE), cells)[: len(probs)][probs > 0], SIZE - 2)
        assert np.abs(centres - np.stack([column, row], -1) - 1).max() < 0.5  # in their cells

    # The path starts where the agent is, goes from cell to neighbouring cell, and is where the plan expects to be.
    assert arrows(axes)
    visited = np.asarray(plan.marginal("position")).max(0).reshape(SIZE - 2, SIZE - 2)
    for arrow in arrows(axes):
        tail, head = (np.round(end).astype(int) - 1 for end in ends(arrow))
        assert np.abs(head - tail).sum() == 1
        assert visited[tail[1], tail[0]] >= doorkey_figure.FAINT
        assert arrow.get_alpha() ** 2 <= visited[head[1], head[0]] + 1e-6
    save(axes, tmp_path / "doorkey.png")


def test_doorkey_frames(doorkey_recording: Recording, tmp_path: Path) -> None:
    row = plot_doorkey_frames(doorkey_recording.plans, doorkey_recording.frames, ["a", "b"])
    assert [axes.get_title() for axes in row] == ["a", "b"]
    save(row[0], tmp_path / "frames.png")


def test_doorkey_forgets_the_key_once_it_is_fetched(doorkey_recording: Recording) -> None:
    plan = doorkey_recording.plans[0]
    states = plan.state.reshape(len(plan.state), -1, 4)
    fetched = jnp.zeros_like(states).at[..., doorkey.HAS_KEY].set(states.sum(-1)).reshape(plan.state.shape)
    axes = plot_doorkey(plan._replace(state=fetched), doorkey_recording.frames[0])
    assert len([c for c in axes.collections if isinstance(c, PolyCollection)]) == 1  # the door's


def test_reactivity(reactivity_plan: aif.Plan, tmp_path: Path) -> None:
    row = plot_reactivity(reactivity_plan, title="marginal")
    assert row.shape == (3,)
    for t, axes in enumerate(row):
        shown = np.asarray(axes.images[0].get_array())  # (knob, location)
        np.testing.assert_array_equal(shown.T.ravel(), reactivity_plan.state[t])
    policy = np.asarray(reactivity_plan.policy)
    assert row[0].texts
    for text in row[0].texts:
        location, knob = (int(p) for p in text.get_position())
        best = int(np.argmax(policy[0, location * 5 + knob]))
        label = ("+0", "+1", "+2", "+3", "+4", "k−", "k+", "cue")[best]
        assert text.get_text().split("\n")[0].rstrip("…") == label
    assert not row[-1].texts
    assert_no_overlap(row[1])
    save(row[0], tmp_path / "reactivity.png")


def test_free_energy(recording: Recording, tmp_path: Path) -> None:
    first, *others = recording.plans
    axes = plot_free_energy({"first": first, "others": others})
    one, mean = axes.lines
    count = int(first.info.iterations)
    np.testing.assert_array_equal(one.get_ydata()[:-1], first.free_energy[:count])
    assert one.get_ydata()[-1] == first.free_energy[-1]
    assert mean.get_ydata()[-1] == pytest.approx(np.mean([plan.free_energy[-1] for plan in others]), rel=1e-6)
    assert mean.get_ydata()[0] == pytest.approx(np.mean([plan.free_energy[0] for plan in others]), rel=1e-6)
    assert len(axes.collections) == 1  # the band of several plans
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["first", "others"]
    save(axes, tmp_path / "free_energy.png")


def energy() -> aif.ExpectedFreeEnergy:
    """Four plans of two steps, of which two are alike; every number is another one."""
    plans = jnp.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    return aif.ExpectedFreeEnergy(
        plans,
        risk=jnp.array([3.0, 1.0, 3.0, -0.5]),
        ambiguity=jnp.array([0.5, 0.2, 0.5, 0.25]),
        novelty=jnp.array([-0.1, -0.7, -0.1, 0.0]),
        complexity=jnp.array([0.0, 0.3, 0.0, 0.4]),
        plan_prior=jnp.zeros(4),
    )


def bars(axes: Axes) -> dict[str, np.ndarray]:
    """The width of every bar by label."""
    return {c.get_label(): np.array([patch.get_width() for patch in c]) for c in axes.containers}


def test_terms(tmp_path: Path) -> None:
    given = energy()
    axes = plot_terms(given, ("a", "b"))
    # By sum, complexity included: plan 3 (0.15), plan 1 (0.8), plans 0 and 2 (3.4, alike).
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b b", "a b", "a a  (+1 alike)"]
    found = bars(axes)
    np.testing.assert_allclose(found["risk"], [-0.5, 1.0, 3.0])
    np.testing.assert_allclose(found["ambiguity"], [0.25, 0.2, 0.5], rtol=1e-6)
    np.testing.assert_allclose(found["complexity"], [0.4, 0.3, 0.0], rtol=1e-6)
    np.testing.assert_allclose(found["novelty"], [0.0, -0.7, -0.1], rtol=1e-6)
    (total,) = (line for line in axes.lines if line.get_label() == "sum")
    np.testing.assert_allclose(total.get_xdata(), sum(found.values()), rtol=1e-5)
    low, high = axes.get_xlim()
    assert low < -0.7  # nothing ends at the frame
    assert high > 3.5
    for group in axes.containers:  # bars of one row do not cover each other
        for other in axes.containers:
            for a, b in zip(group, other, strict=True):
                if a is not b and a.get_width() * b.get_width() > 0:
                    (a0, a1), (b0, b1) = (sorted((p.get_x(), p.get_x() + p.get_width())) for p in (a, b))
                    assert a1 <= b0 + 1e-6 or b1 <= a0 + 1e-6
    save(axes, tmp_path / "terms.png")


def test_terms_of_chosen_plans() -> None:
    axes = plot_terms(energy(), ("a", "b"), Figure().add_subplot(), plans=[2, 0])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b a", "a a"]
    np.testing.assert_allclose(bars(axes)["risk"], [3.0, 3.0])


def test_colours_can_be_told_apart() -> None:
    """Also by those who see no difference between red and green: by lightness, or by blue against yellow."""

    def seen(colour: str) -> np.ndarray:
        # Deuteranopia in linear RGB: F. Viénot, H. Brettel and J. Mollon (1999), table of the reduced transform.
        linear = np.array(to_rgb(colour)) ** 2.2
        matrix = np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]])
        return np.clip(matrix @ linear, 0, 1) ** (1 / 2.2)

    for group in (style.PALETTE[:4], (style.ORANGE, style.PURPLE, style.GREEN, style.BLUE), (style.PURPLE, style.SKY)):
        for i, a in enumerate(group):
            for b in group[:i]:
                assert math.dist(seen(a), seen(b)) > 0.15, (a, b)


def test_a_tree(tmp_path: Path) -> None:
    """Every branch is a box, boxes are beside each other by step, and lines are as wide as they are probable."""

    def branch(step: int, place: str, p: float, control: dict[str, float], *later: Branch) -> Branch:
        return Branch(step, {"x": place}, p, control, {}, later)

    ends = [branch(2, "c", 0.75, {}), branch(2, "d", 0.25, {})]
    tree = Tree((branch(0, "a", 1.0, {"go": 1.0}, branch(1, "b", 1.0, {"go": 0.5, "stay": 0.5}, *ends)),))
    axes = plot_tree(tree, title="a plan")
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["x: a", "go", "x: b", "go or stay", "x: c", "x: d"]
    assert [text.get_position() for text in axes.texts if text.get_text() in ("x: c", "x: d")] == [(2, 0.0), (2, 1.0)]
    widths = [line.get_linewidth() for line in axes.lines]
    np.testing.assert_allclose(np.array(widths) / widths[0], [1, 0.75, 0.25])
    save(axes, tmp_path / "tree.png")
