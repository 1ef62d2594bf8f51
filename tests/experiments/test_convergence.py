"""Convergence studies: the descent that is looked at is the solver's own, claims are checked, files are made once."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from matplotlib.figure import Figure
from rich.console import Console

import npro_aif as aif
from npro_aif.envs import TMaze
from npro_aif.experiments import claims, convergence, doorkey_convergence, kept
from npro_aif.experiments.anytime import Anytime, Descent
from npro_aif.experiments.doorkey_claims import appendix_c
from npro_aif.experiments.maze_claims import appendix_b
from npro_aif.experiments.tasks import make_task
from npro_aif.guides import SequenceGuide
from npro_aif.models import doorkey_published, tmaze

HORIZON, STEPS, EVERY = 2, 40, 10


@pytest.fixture(scope="module")
def planner() -> aif.Planner:
    solver = aif.SVISolver(optax.adam(0.05), STEPS)
    return aif.Planner(tmaze.tmaze, SequenceGuide(tmaze.tmaze), aif.Active(), solver, max_horizon=HORIZON)


@pytest.mark.usefixtures("quick_compile")
def test_a_descent_is_the_solvers_own(planner: aif.Planner) -> None:
    belief, key = tmaze.initial_belief(), jax.random.key(3)
    plan = planner(key, belief, HORIZON)
    curve = Descent(planner, belief, HORIZON, STEPS, EVERY)(belief, key, rate=0.05)
    np.testing.assert_allclose(curve.free_energy, plan.free_energy[:-1], rtol=1e-4, atol=1e-4)
    assert curve.control.shape == (STEPS // EVERY, 4)
    np.testing.assert_allclose(curve.control[-1], plan.control[0], atol=1e-4)


@pytest.mark.usefixtures("quick_compile")
def test_an_agent_that_can_be_asked_at_any_time_acts_as_the_agent(planner: aif.Planner) -> None:
    """With as many steps as its solver makes it is the agent itself."""
    agent = aif.Agent(planner, tmaze.initial_belief(), HORIZON, max_steps=2, tie_tolerance=0.0)
    expected = aif.run_episodes(TMaze(max_steps=2), agent, range(3)).episodes
    anytime = Anytime(make_task("tmaze"), agent, STEPS, EVERY)
    played = list(anytime.play(TMaze(max_steps=2), 3, STEPS, 0.05))
    assert [episode.controls for episode, _ in played] == [episode.controls for episode in expected]
    assert [episode.reward for episode, _ in played] == [episode.reward for episode in expected]
    assert [len(curves) for _, curves in played] == [episode.steps for episode in expected]


@pytest.mark.usefixtures("quick_compile")
def test_descents_that_are_kept_are_not_made_again(planner: aif.Planner, tmp_path: Path) -> None:
    agent = aif.Agent(planner, tmaze.initial_belief(), HORIZON, max_steps=2, tie_tolerance=0.0)
    belief = tmaze.initial_belief()
    first, second = (Anytime(make_task("tmaze"), agent, STEPS, EVERY, tmp_path) for _ in range(2))
    curve = first.curve(belief, 0, 0.05)
    second._descend = None  # type: ignore[assignment, method-assign]  # whoever descends fails
    kept = second.curve(belief, 0, 0.05)
    np.testing.assert_array_equal(kept.free_energy, curve.free_energy)
    np.testing.assert_array_equal(kept.control, curve.control)
    assert kept.seconds == curve.seconds > 0
    with pytest.raises(TypeError):
        second.curve(belief, 0, 0.01)  # another rate is another descent


def study(kind: str) -> dict[str, Any]:
    """What a study of 1500 steps holds, in the shape of the paper's claims for the T-maze."""
    size = convergence.FULL
    steps = np.arange(1500)
    energy = 10.0 + np.exp(-steps / 100) - (kind == "active") * 0.2 / (1 + np.exp(-(steps - 1100) / 30))
    energy += {"marginal": 0, "planning": 1, "active": 2}[kind]
    sure = {"active": 1.0, "marginal": 0.75, "planning": 0.25}[kind]
    budget = {str(n): {"success": sure if n >= 1500 else 0.5 * sure, "reward": 0.0} for n in size.budgets}
    line = energy[::EVERY].tolist()
    return {
        "budget": budget,
        "cue": {str(n): min(0.41, 0.05 + 0.36 * n / 1500) for n in size.budgets},
        "rates": {"0.01": {"success": 0.5 * sure, "reward": 0.0}, "0.05": {"success": sure, "reward": 0.0}},
        "rewards": [0.1, 0.2],
        "unknown": energy.tolist(),
        "known": (10.0 + np.exp(-steps / 100)).tolist(),
        "curves": {"low": line, "median": line, "high": line, "plans": [80]},
        "seconds": 60.0,
    }


def test_claims_are_read_off_the_studies() -> None:
    found = {
        maze: {f"F_{kind}": study(kind) for kind in ("active", "marginal", "planning")} for maze in convergence.MAZES
    }
    by_text = {(claim.where, claim.text): claim for claim in appendix_b(found)}
    holds = {key: claim.holds for key, claim in by_text.items()}
    assert holds["T-maze", "F_marginal < F_planning < F_active"]
    assert holds["T-maze", "F_active falls a second time in steps 1000–1200"]
    assert holds["T-maze", "… F_marginal and F_planning do not"]
    assert holds["T-maze", "… nor F_active when θ is known (.95/.05)"]
    assert holds["Reactivity Maze", "F_active has no second phase"] is False  # the study above has one
    assert holds["T-maze", "q(South) is 0.05 after 10 steps"]
    assert holds["T-maze", "q(South) is 0.41 after 1500 steps"]
    assert holds["T-maze", "F_active: 100 % from 1500 steps on"]
    assert holds["Reactivity Maze", "F_active: 100 % from 100 steps on"] is False  # from 1500 on, above
    assert holds["T-maze", "F_active: 100 % at the rate 0.05 only"]
    assert holds["Reactivity Maze", "F_active: 100 % at all rates"] is False
    assert holds["T-maze", "F_marginal: mean reward +0.14 ± 0.22"] is False  # ± 0.07
    assert holds["T-maze", "F_planning: 25 % at every rate"] is False
    assert holds["Reactivity Maze", "F_active: mean reward +1.00 ± 0.00"] is False
    rows = [*by_text.values(), *appendix_c(None)]
    page = claims.page(rows, ["convergence/curves.png"], "npro-aif reproduce convergence", 90.0, "note")
    assert "**does not hold**" in page
    assert "**not run**" in page
    assert "![curves](convergence/curves.png)" in page


def test_appendix_c_is_judged_by_its_descents() -> None:
    def study(*energy: float) -> dict[str, Any]:
        return {"steps": [0, 100, 2500, 3000], "free_energy": energy}

    studies = {
        "active, tabula rasa, Adam, 20": study(1.0, 2.0, 3.0, 3.0),
        "active, tabula rasa, Adam, 40": study(3.0, 4.0, 5.0, 6.0),  # still rising
        "active, tabula rasa, Adafactor, 40": study(3.0, 4.0, 5.0, 6.0),
        "active, known position, Adam, 20": study(9.0, 2.0, 3.0, 3.0),  # falls, and rises by a seventh of that
        "active, near goal, Adam, 20": study(2.0, 1.5, 1.0, 1.0),
        "marginal, near goal, Adam, 20": study(2.0, 1.01, 1.0, 1.0),
        "marginal, near goal, Adafactor, 20": study(2.0, 1.5, 1.2, 1.2),
        "planning, near goal, Adam, 20": study(2.0, 1.5, 1.0, 1.0),
    }
    found = {claim.text: claim for claim in appendix_c(studies)}
    assert {text: claim.holds for text, claim in found.items()} == {
        "F_marginal reaches its minimum within about 100 steps, with both optimizers": False,
        "F_marginal ends alike with both optimizers": False,
        "F_active rises: tabula rasa": True,
        "F_active rises: known layout": None,
        "F_active falls monotonically: known position": False,
        "F_active falls monotonically: near goal": True,
        "Adafactor fails to converge: F_active, known position": None,
        "F_planning falls gradually: monotonically, and not all at once": True,
        "F_planning ends alike with both optimizers": None,
        "near the goal F is substantially smaller, for all objectives": True,  # of the one that can be compared
        "T = 40 roughly doubles F_active": True,
        "T = 40 roughly doubles F_planning": None,
        "F_marginal converges at similar rates for T = 20 and T = 40": None,
        "Adafactor fails to converge: F_active, T = 40": True,
        "all objectives converge within 3000 steps with Adam": False,
    }
    assert (
        "(2 of 8 descents)"
        in found["F_marginal reaches its minimum within about 100 steps, with both optimizers"].outcome
    )
    assert all(claim.holds is None for claim in appendix_c(None))


def test_studies_are_drawn_from_files_that_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    out = tmp_path / "convergence"

    def fake(maze: str, kind: str, *_: Any) -> dict[str, Any]:
        calls.append(f"{maze} {kind}")
        return study(kind)

    def save(figure: Figure, path: Path) -> list[Path]:
        assert all(axes.lines or axes.collections for axes in figure.axes)
        return [path.with_suffix(".png")]

    monkeypatch.setattr(convergence, "study_maze", fake)
    monkeypatch.setattr(kept, "STUDIES", tmp_path / "none")
    monkeypatch.setattr(convergence, "save_figure", save)
    for _ in range(2):
        console = Console(file=io.StringIO(), width=140)
        files = convergence.make_convergence(out, quick=True, console=console)
    assert len(calls) == 6  # nothing in the second round
    assert {file.stem for file in files} >= {"curves", "two_phases", "budget", "learning_rate", "seeds", "convergence"}
    assert (out / "convergence.csv").read_text().startswith("study,maze,method,x,measure,value\n")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Appendix C was not run: it takes" in text
    assert "does not hold" in text
    page = (tmp_path / "convergence.md").read_text()
    assert "took 6 minutes of one core" in page
    convergence.make_convergence(out, quick=False, console=console)
    assert len(calls) == 12  # another size: all again
    settings = json.loads((out / "tmaze-active.json").read_text())["settings"]
    assert settings["size"] == json.loads(json.dumps(list(convergence.FULL)))


def test_a_study_that_the_repository_keeps_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one of appendix C, which alone is drawn and judged then."""
    monkeypatch.setattr(kept, "STUDIES", tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    case = doorkey_convergence.Case("active", "near goal", "Adam", 3)
    settings = {"num_steps": 3000, "rate": 0.01, "seed": 42, "version": "0.0.1"}
    content = {"settings": settings, "steps": [0, 3000], "free_energy": [2.0, 1.0], "seconds": 60.0}
    (tmp_path / "kept" / f"{case.name}.json").write_text(json.dumps(content))
    lines: list[str] = []
    made = doorkey_convergence.make(tmp_path / "out", long=False, say=lines.append)
    assert made.studies == {case.study: content}
    assert "35 were not run" in made.note
    assert "the repository keeps it" in lines[0]
    outcome = {claim.text: claim.holds for claim in appendix_c(made.studies)}
    assert outcome["F_active falls monotonically: near goal"]
    assert outcome["F_active rises: tabula rasa"] is None
    assert kept.kept_study(tmp_path / f"{case.name}.json", settings, lines.append, fresh=True) is None


def test_doorkey_conditions_know_more_and_more() -> None:
    found = doorkey_convergence.conditions()
    for belief in found.values():
        np.testing.assert_allclose(np.sum(belief.parameter), 1, rtol=1e-5)
        np.testing.assert_allclose(np.sum(belief.state, axis=-1), 1, rtol=1e-5)
        assert int((np.asarray(belief.parameter) > 0).sum()) == 360
    known = np.asarray(found["known layout"].parameter)
    assert round(float(known.max()), 2) == 0.29  # a logit of 5 among 360
    for name in ("known position", "near goal"):
        assert np.asarray(found[name].state).max() == 1
    key, door = np.divmod(int(known.argmax()), doorkey_published.site_sizes(8)[0]["door"])
    assert key % 4 < door % 4 + 1  # left of the wall


@pytest.mark.slow
def test_a_descent_of_appendix_c() -> None:
    case = doorkey_convergence.Case("active", "near goal", "Adafactor", 3)
    descent = doorkey_convergence.study(case, num_steps=15)
    assert descent["steps"] == [0, 10, 15]
    assert len(descent["free_energy"]) == 3
    assert np.isfinite(descent["free_energy"]).all()
