"""The command line: what it refuses at once, what it writes, and how it stops."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from npro_aif.cli import app, keep_compiled
from npro_aif.experiments import play
from npro_aif.experiments.tasks import Settings, make_task
from npro_aif.program.kept import FOLDER

KEYS = {
    "success", "success_low", "success_high", "reward", "reward_std", "cue", "cue_low", "cue_high", "safe", "safe_low",
    "safe_high", "steps", "steps_std", "steps_over_shortest", "seconds_per_decision", "compile_seconds", "episodes",
    "seed", "decisions", "problems", "interrupted",
}  # fmt: skip


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "umaze"], "'tmaze', 'reactivity', 'doorkey'"),
        (["run", "tmaze", "--objective", "passive"], "'active', 'risk', 'planning', 'marginal'"),
        (["run", "tmaze", "--solver", "newton"], "'svi', 'coordinate'"),
        (["run", "tmaze", "--method", "guessing"], "'vfe', 'efe', 'sophisticated'"),
        (["run", "doorkey", "--preference", "never"], "'terminal', 'every-step'"),
        (["run", "doorkey", "--size", "4"], "greater than or equal to 5"),
        (["run", "tmaze", "--episodes", "0"], "greater than or equal to 1"),
        (["run", "tmaze", "--horizon", "0"], "greater than or equal to 1"),
        (["run", "tmaze", "--weight", "-1"], "greater than or equal to 0"),
        (["run", "tmaze", "--seed", "-1"], "greater than or equal to 0"),
        (["run", "tmaze", "--size", "6"], "size: found 6 for the task tmaze"),
        (["run", "tmaze", "--workers", "2", "--dask", "tcp://127.0.0.1:1"], "workers: found it with dask"),
        (["run", "reactivity", "--paper", "--workers", "2"], "workers: found them for episodes that are one stream"),
        (["run", "reactivity", "--preference", "terminal"], "preference: found 'terminal' for the task reactivity"),
        (["run", "tmaze", "--weight", "2", "--objective", "planning"], "weight: found 2.0 with the objective planning"),
        (["run", "tmaze", "--gradient", "through", "--objective", "planning"], "gradient: found through with the"),
        (["run", "tmaze", "--gradient", "through", "--paper"], "gradient: found 'through' with --paper"),
        (["run", "lion.POMDP"], "found no file 'lion.POMDP', expected one, or one of grid4x3.POMDP"),
        (["run", "tiger.POMDP", "--memory", "told"], "memory: found 'told' for the file tiger.POMDP"),
        (["run", "tiger.POMDP", "--memory", "²"], "memory: found '²' for the file tiger.POMDP"),
        (["run", "tiger.POMDP", "--memory", "30"], "memory: found 30 steps of 7 values each"),
        (["view", "tiger.POMDP", "--memory", "30"], "memory: found 30 steps of 7 values each"),
        (["run", "/nonexistent/tiger.POMDP"], "path: found no file '/nonexistent/tiger.POMDP'"),
        (["run", "tiger.POMDP", "--size", "6"], "size: found 6 for the file tiger.POMDP"),
        (["run", "tmaze", "--memory", "all"], "memory: found 'all', expected one of told, count"),
        (["run", "tmaze", "--num-steps", "9"], "num_steps: found 9 with the solver coordinate"),
        (["run", "tmaze", "--memory", "told", "--details"], "details: found it for the task tmaze"),
        (["run", "tiger.POMDP", "--details"], "details: found True for the file tiger.POMDP"),
        (["run", "reactivity", "--paper", "--act-by", "cost"], "act_by: found 'cost' with --paper"),
        (["run", "tmaze", "--method", "efe", "--objective", "planning"], "objective: found 'planning' with the method"),
        (["run", "tmaze", "--method", "efe", "--memory", "told"], "memory: found 'told' with the method efe"),
        (
            ["run", "tmaze", "--paper", "--solver", "coordinate"],
            "solver: found 'coordinate' with Active(normalize=True",
        ),
        (["run", "reactivity", "--solver", "svi", "--learning-rate", "0"], "learning_rate: found 0.0"),
        (["run", "doorkey", "--objective", "risk"], "objective: found 'risk' for the task doorkey"),
        (["run", "doorkey", "--paper", "--objective", "risk"], "objective: found 'risk' for the task doorkey"),
        (["view", "umaze"], "'tmaze', 'reactivity', 'doorkey'"),
        (["view", "reactivity", "--memory", "all"], "memory: found 'all', expected one of told"),
        (["view", "tmaze", "--objective", "active", "--objective", "active"], "objective: found active, active"),
        (
            ["view", "tmaze", "--solver", "search", "--objective", "marginal"],
            "objective (of the solver search): found 'marginal'",
        ),
    ],
)
def test_mistakes_are_refused_at_once(arguments: list[str], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_the_papers_episodes_begin_where_the_paper_does(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []

    def run(task: str, settings: Settings, episodes: int, **options: Any) -> dict[str, Any]:
        seeds.append((settings.seed, make_task(task, paper=settings.paper).first_seed))
        return {"interrupted": False}

    monkeypatch.setattr("npro_aif.experiments.run.run", run)
    for task in ("doorkey", "tmaze", "reactivity"):
        assert invoke("run", task, "--paper").exit_code == 0
    assert seeds == [(42, 42), (0, 0), (0, 0)]


def test_a_run_writes_a_flat_summary(tmp_path: Path, quick_compile: None) -> None:
    path = tmp_path / "deep" / "summary.json"
    result = invoke("run", "tmaze", "--episodes", "6", "--seed", "3", "--json", str(path))
    assert result.exit_code == 0, result.output
    for text in ("success rate", "100.0%", "Wilson", "cue visits", "seconds a decision", "weight 1.0"):
        assert text in result.output
    summary = json.loads(path.read_text())
    assert set(summary) >= KEYS
    assert not any(isinstance(value, dict | list) for value in summary.values())
    assert (summary["success"], summary["cue"], summary["safe"], summary["steps"]) == (1.0, 1.0, None, 4.0)
    assert (summary["episodes"], summary["seed"], summary["decisions"]) == (6, 3, 24)
    assert summary["problems"] <= 7
    assert summary["interrupted"] is False


def test_a_file_is_run(tmp_path: Path, quick_compile: None) -> None:
    path = tmp_path / "summary.json"
    options = ["--solver", "coordinate", "--memory", "1", "--max-steps", "2", "--episodes", "3", "--json", str(path)]
    result = invoke("run", "tiger.POMDP", *options)
    assert result.exit_code == 0, result.output
    summary = json.loads(path.read_text())
    assert (summary["memory"], summary["objective"], summary["discount"]) == ("1", "planning", 0.95)
    assert summary["reward"] == pytest.approx(-1.95)  # two steps are too few to open a door


UNDISCOUNTED = """discount: 1 values: reward states: near far actions: wait walk start: near
T: wait identity
T: walk
0 1
1 0
R: wait : far : * 3
R: walk : * : * -1
"""


@pytest.fixture
def undiscounted(tmp_path: Path) -> str:
    """A file whose discount is 1 and whose states are seen: every step after the walk is worth 3."""
    path = tmp_path / "walk.POMDP"
    path.write_text(UNDISCOUNTED)
    return str(path)


def test_a_file_is_run_with_the_horizon_that_is_given(undiscounted: str, tmp_path: Path, quick_compile: None) -> None:
    path = tmp_path / "summary.json"

    def summary(name: str, *options: str) -> dict[str, Any]:
        result = invoke("run", name, "--episodes", "1", "--json", str(path), *options)
        assert result.exit_code == 0, result.output
        return dict(json.loads(path.read_text()))

    found = summary(undiscounted, "--horizon", "4")
    assert (found["horizon"], found["steps"], found["reward"]) == (4, 4, 3 * 3 - 1)
    found = summary(undiscounted, "--horizon", "2", "--max-steps", "5")
    assert (found["horizon"], found["steps"], found["reward"]) == (2, 5, 4 * 3 - 1)
    found = summary(undiscounted, "--horizon", "1", "--max-steps", "3")  # which does not see that walking pays
    assert (found["steps"], found["reward"]) == (3, 0)
    found = summary(undiscounted, "--max-steps", "3")
    assert (found["horizon"], found["steps"], found["reward"]) == (3, 3, 2 * 3 - 1)
    found = summary("tiger.POMDP", "--horizon", "2", "--memory", "9")
    assert (found["horizon"], found["steps"], found["memory"]) == (2, 90, "1")  # steps: 0.95^90 is a hundredth
    result = invoke("run", undiscounted)
    assert result.exit_code == 2
    assert "horizon: found none with a discount of 1 (walk), expected a number of steps" in result.output
    path = tmp_path / "page.html"
    assert invoke("view", undiscounted, "--horizon", "3", "--out", str(path)).exit_code == 0


@pytest.mark.parametrize("method", ["efe", "sophisticated"])
def test_what_a_baseline_cannot_play_is_refused(method: str, undiscounted: str) -> None:
    for name, reason in (
        ("tiger.POMDP", "observation 'y': found a dependence on the control"),
        (undiscounted, "preference 'reward': found a dependence on the previous state"),
    ):
        result = invoke("run", name, "--method", method, "--horizon", "2")
        assert result.exit_code == 2, result.exception
        output = " ".join(result.output.replace("│", " ").split())
        assert f"method: found '{method}' for {Path(name).name}, expected vfe: {reason}" in output


def test_a_page_is_written(tmp_path: Path, quick_compile: None) -> None:
    path = tmp_path / "deep" / "page.html"
    result = invoke("view", "tiger.POMDP", "--solver", "search", "--max-steps", "2", "--out", str(path))
    assert result.exit_code == 0, result.output
    assert "F_planning: reward" in result.output
    assert str(path) in result.output
    assert path.read_text().startswith("<!doctype html>")


def test_ctrl_c_keeps_what_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_compile: None) -> None:
    whole = play.iterate_episodes

    def interrupted(*arguments: Any, **options: Any) -> Iterator[Any]:
        for i, episode in enumerate(whole(*arguments, **options)):
            if i == 2:
                raise KeyboardInterrupt
            yield episode

    monkeypatch.setattr(play, "iterate_episodes", interrupted)
    path, folder = tmp_path / "summary.json", tmp_path / "kept"
    arguments = ["run", "tmaze", "--objective", "planning", "--solver", "search"]  # which has little to compile
    arguments += ["--episodes", "4", "--json", str(path), "--resume", str(folder)]
    result = invoke(*arguments)
    assert result.exit_code == 130
    assert "stopped" in result.output
    summary = json.loads(path.read_text())
    assert (summary["interrupted"], summary["episodes"]) == (True, 2)

    monkeypatch.setattr(play, "iterate_episodes", whole)  # and go on: every decision was kept
    solved = len(list(folder.glob("*.json")))
    assert invoke(*arguments).exit_code == 0
    summary = json.loads(path.read_text())
    assert (summary["interrupted"], summary["episodes"], summary["success"]) == (False, 4, 1.0)
    assert len(list(folder.glob("*.json"))) == solved

    result = invoke(*arguments, "--horizon", "3")
    assert result.exit_code == 2
    assert "other settings (horizon)" in result.output


def test_what_is_compiled_is_kept_where_the_user_keeps_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folders = {"JAX_COMPILATION_CACHE_DIR": "jax", FOLDER: "programs"}
    for name in folders:
        monkeypatch.delenv(name, raising=False)
    keep_compiled()
    assert [os.environ[name] for name in folders] == [str(tmp_path / "npro-aif" / end) for end in folders.values()]
    for name in folders:
        monkeypatch.setenv(name, "elsewhere")
    keep_compiled()
    assert [os.environ[name] for name in folders] == ["elsewhere"] * 2
    for name in ("XDG_CACHE_HOME", *folders):
        monkeypatch.delenv(name)
    monkeypatch.setattr(Path, "home", no_home)
    keep_compiled()
    assert not os.environ.keys() & folders.keys()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [(["--help"], 0, "reproduce"), (["run", "lion"], 2, "'tmaze'"), (["run"], 2, "Missing argument")],
)
def test_the_program_ends_with_its_exit_code_and_says_all(words: list[str], code: int, said: str) -> None:
    """It ends at once, without the end of Python's own."""
    program = [sys.executable, "-c", "from npro_aif.cli import command; command()", *words]
    done = subprocess.run(program, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})
    assert done.returncode == code
    assert said in done.stdout + done.stderr


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")
