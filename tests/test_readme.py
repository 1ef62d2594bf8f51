"""The programs of the README and of some pages run and print what their comments say."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_readmes_programs_print_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL))
    exec(compile(code, str(README), "exec"), {})
    said = re.findall(r"^print\(.*\)  # (\w+)", code, re.MULTILINE)
    assert capsys.readouterr().out.split() == said == ["South", "North", "sign", "west"]


def test_what_the_readme_links_to_is_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert target.startswith("http") or (README.parent / target).exists(), target


@pytest.mark.usefixtures("quick_compile")
def test_the_recipes_print_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    page = README.parent / "docs" / "howto.md"
    code = "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
    exec(compile(code, str(page), "exec"), {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"^print\(.*\)  # (.*)", code, re.MULTILINE)


@pytest.mark.usefixtures("quick_compile")
def test_the_program_on_what_the_policy_sees(capsys: pytest.CaptureFixture[str]) -> None:
    page = README.parent / "docs" / "what_the_policy_sees.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(compile(code, str(page), "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("2.72\n")
    assert re.search(r"heard=4\s+0.373  open left\s+tiger=right 0.97", printed)


@pytest.mark.usefixtures("quick_compile")
def test_the_two_traps_and_their_remedies(capsys: pytest.CaptureFixture[str]) -> None:
    page = README.parent / "docs" / "modelling.md"
    code = "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
    exec(compile(code, str(page), "exec"), {})
    assert capsys.readouterr().out.splitlines() == ["the coin", "the quiet room", "the wall", "the meter"]
