"""What a terminal shows while episodes run."""

import io

from rich.console import Console

from npro_aif.acting.solutions import Solutions
from npro_aif.experiments.progress import EpisodeBar, bars


def test_decisions_show_before_an_episode_has_ended() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=100)
    solutions = Solutions()
    with bars(console) as progress:
        bar = EpisodeBar(progress, "episodes", 3)
        bar.watch(solutions)
        solutions.decisions = 41
        progress.refresh()
        assert "0/3 41 decisions" in console.file.getvalue()  # type: ignore[attr-defined]
        bar.advance()
        progress.refresh()
        assert "1/3 41 decisions" in console.file.getvalue()  # type: ignore[attr-defined]
        bar.remove()
        assert not progress.tasks
