"""Every example runs, is short, and says what its comments promise."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PROMISES = {  # what each prints, as regular expressions
    "01_first_plan": [r"so it goes South", r"North North West", r"junction\) = 1.0"],
    "02_your_own_world": [r"Active\s+first: wait 0.00, test 1.00", r"= B\) = 0.98; then: drug B", r"well 0.97"],
    "03_why_explore": [r"stay there\s+G =  3.36", r"left arm at once\s+G =  6.83", r"North North West\s+G =  2.13"],
    "04_gym_loop": [r"rewards: \[1.0, 1.0, 1.0\]"],
    "05_custom_guide": [r"mean-field F = 2.7\d", r"temporal   F = 2.\d+"],
    "07_plans_that_react": [r"told remembered, Planning\s+F = 5.5990, first South", r"x=junction\s+0.500  East"],
    "08_learn_the_world": [r"200 episodes", r"the truth is inside: True", r"with 16 draws it goes South first"],
    "09_fit_an_agent": [r"120 choices", r"the truth is inside: True"],
    "10_learn_while_acting": [r"with novelty about the wind: the goal in \d+ of 12", r"without: the goal in \d+ of 12"],
    "11_maintenance": [r"inspect  wear=", r"repair   wear=", r"hidden=False: the plan expects"],
    "12_test_then_treat": [
        r"decision tree: 1.9750, first test A",
        r"with a memory: 1.9750, first test A",
        r"it: 1.9750",
    ],
    "06_batch_planning": [r"from 0.21 to 0.79", r"p\(left\) = 1.00: first North", r"first of them: North East"],
}
FIGURES = {"01_first_plan", "03_why_explore", "04_gym_loop", "06_batch_planning", "10_learn_while_acting"}


def test_all_examples_are_here() -> None:
    found = {path.stem: path for path in EXAMPLES.glob("*.py")}
    assert sorted(found) == sorted(PROMISES)
    for path in found.values():
        assert len(path.read_text().splitlines()) < 80, path


# Plans that react, half a year of weeks, and a clinic: tests/models/test_closed_loop.py has the plans of the first and
# tests/inference/test_closed_loop.py hidden states and belief trees in short. What is learned: tests/learning.
# A world of one's own: tests/test_skeletons.py. Guides of one's own and batches: tests/guides,
# tests/inference/test_generic.py and tests/planning/test_batch.py. The loop of gymnasium: docs/howto.md.
LONG = {
    "02_your_own_world",
    "04_gym_loop",
    "05_custom_guide",
    "06_batch_planning",
    "07_plans_that_react",
    "08_learn_the_world",
    "09_fit_an_agent",
    "10_learn_while_acting",
    "11_maintenance",
    "12_test_then_treat",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in PROMISES]
)
@pytest.mark.usefixtures("quick_compile")
def test_example(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # figures go to ./outputs
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    for promise in PROMISES[name]:
        assert re.search(promise, printed), (promise, printed)
    figure = tmp_path / "outputs" / f"{name}.png"
    assert figure.exists() == (name in FIGURES)
    if name == "05_custom_guide":  # the guide that sees the place is the better one
        mean_field, temporal = (float(found) for found in re.findall(r"F = ([\d.]+)", printed))
        assert temporal < mean_field
