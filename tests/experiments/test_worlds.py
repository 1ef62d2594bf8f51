"""The table of the three grid worlds: what its rows are, and one of them made."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from npro_aif.experiments import reproduce, worlds


def test_rows_have_names_of_their_own() -> None:
    rows = [row for block in worlds.WORLDS_TABLE.blocks for row in block.rows]
    assert len({row.name for row in rows}) == len(rows) == 16
    assert sum(row.memory is not None for row in rows) == sum(row.settings.solver == "search" for row in rows) == 2
    low, high = rows[3].published["success"].interval(1000)
    assert low < 0.959 < high


def test_a_short_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_compile: None) -> None:
    """Who plans without looking takes no rock, and leaves."""
    block = worlds.WORLDS_TABLE.blocks[-1]
    short = worlds.WORLDS_TABLE._replace(blocks=(block._replace(rows=block.rows[1:2]),))
    monkeypatch.setattr(worlds, "WORLDS_TABLE", short)
    files = reproduce.reproduce("worlds", tmp_path, episodes=2, console=Console(file=io.StringIO()))
    text = files[0].read_text()
    assert "RockSample(4,3)" in text
    assert "1.00 ± 0.00" in text
