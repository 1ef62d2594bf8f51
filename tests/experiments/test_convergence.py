"""Convergence studies: the descent that is looked at is the solver's own, and files are made once."""

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
from npro_aif.experiments import convergence, doorkey_convergence
from npro_aif.guides import SequenceGuide
from npro_aif.models import doorkey, tmaze

HORIZON, STEPS, EVERY = 2, 40, 10


def test_a_descent_is_the_solvers_own(quick_compile: None) -> None:
    belief = tmaze.initial_belief()
    solver = aif.SVISolver(optax.adam(0.05), STEPS)
    planner = aif.Planner(tmaze.tmaze, SequenceGuide(tmaze.tmaze), aif.Active(), solver, max_horizon=HORIZON)
    plan = planner(jax.random.key(3), belief, HORIZON)
    curve = convergence.Descent(planner, belief, HORIZON, STEPS, EVERY)(belief, seed=3, rate=0.05)
    np.testing.assert_allclose(curve.free_energy, plan.free_energy[:-1], rtol=1e-4, atol=1e-4)
    assert curve.control.shape == (STEPS // EVERY, 4)
    np.testing.assert_allclose(curve.control[-1], plan.control[0], atol=1e-4)


def test_studies_are_drawn_from_files_that_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    steps = list(range(0, 1200, 25))

    def study(maze: str, label: str, *_: Any) -> dict[str, Any]:
        calls.append(f"{maze} {label}")
        line = np.linspace(0, 1, len(steps)).tolist()
        curve = {"step": steps, "free_energy": line, "free_energy_std": line, "cue": line, "cue_std": line}
        return {"label": label, "unknown": curve, "known": curve, "rates": {"0.01": [0.25, 0.75]}}

    def rewards(maze: str, *_: Any) -> dict[str, Any]:
        calls.append(maze)
        return {"rewards": {kind: [0.5, 1.0] for kind in ("active", "marginal", "planning")}}

    monkeypatch.setattr(convergence, "study_maze", study)
    monkeypatch.setattr(convergence, "study_rewards", rewards)

    def save(figure: Figure, path: Path) -> list[Path]:
        assert all(axes.lines or axes.collections for axes in figure.axes)
        return [path]

    monkeypatch.setattr(convergence, "save_figure", save)
    monkeypatch.setattr(doorkey_convergence, "make", lambda *_, **__: [])
    for _ in range(2):
        console = Console(file=io.StringIO(), width=140)
        files = convergence.make_convergence(tmp_path, quick=True, console=console)
    assert len(calls) == (4 + 1) + (3 + 1)  # nothing in the second round
    assert {file.stem for file in files} >= {"curves", "two_phases", "budget", "learning_rate", "seeds", "convergence"}
    assert (tmp_path / "convergence.csv").read_text().startswith("study,maze,method,x,value,std\n")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "0.50 (0.25–0.75)" in text
    assert "+0.75 ± 0.25" in text
    convergence.make_convergence(tmp_path, quick=False, console=console)
    assert len(calls) == 2 * ((4 + 1) + (3 + 1))  # another size: all again
    assert json.loads((tmp_path / "tmaze-rewards.json").read_text())["settings"]["size"] == json.loads(
        json.dumps(list(convergence.FULL))
    )


def test_doorkey_conditions_know_more_and_more() -> None:
    found = doorkey_convergence.conditions()
    prior = doorkey.initial_belief(8)
    for belief in found.values():
        np.testing.assert_allclose(np.sum(belief.parameter), 1, rtol=1e-5)
        np.testing.assert_allclose(np.sum(belief.state, axis=-1), 1, rtol=1e-5)
        assert not np.any((np.asarray(belief.parameter) > 0) & (np.asarray(prior.parameter) == 0))
    supports = [int((np.asarray(found[name].parameter) > 0).sum()) for name in found]
    assert supports[0] == 300
    assert 1 < supports[1] < 300
    assert supports[2:] == [1, 1]
    # Bayes by hand, one layout: p(θ|x) ∝ p(θ) p(x|θ)
    here = np.asarray(found["known position"].state)[0].argmax()
    joint = np.asarray(prior.parameter) * np.asarray(prior.state)[:, here]
    np.testing.assert_allclose(found["known position"].parameter, joint / joint.sum(), rtol=1e-5)
