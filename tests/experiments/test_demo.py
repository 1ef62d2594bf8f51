"""The demo in a reduced form: plans, episodes, table and figure, on the coordinate solver only."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from npro_aif.experiments import demo, figures


@pytest.mark.usefixtures("quick_compile")
def test_the_demo_shows_plans_a_table_and_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (demo, figures):  # one of the three objectives: each compiles for some fifteen seconds
        monkeypatch.setattr(module, "OBJECTIVES", ("active",))
    console = Console(file=io.StringIO(), width=140)
    png = demo.demo(tmp_path / "deep", episodes=2, planner="coordinate", console=console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert png.name == "tmaze_trajectories.png"
    assert png.read_bytes()[:4] == b"\x89PNG"
    assert png.with_suffix(".pdf").read_bytes()[:4] == b"%PDF"
    assert str(png) in text
    for words in (
        "q(South)",
        "risk",
        "novelty",
        "coordinate updates",
        "2 episodes, seeds 0 to 1",
        "as good as each other",
    ):
        assert words in text
    (active,) = (line for line in text.splitlines() if "q(South)" in line)
    assert float(active.split("│")[2]) > 0.99  # the active plan visits the cue first
