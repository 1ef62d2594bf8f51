"""The skeletons of CONTRIBUTING run as they are."""

import runpy
from pathlib import Path

import pytest

SKELETONS = sorted((Path(__file__).parents[1] / "docs" / "skeletons").glob("*.py"))


def test_there_is_one_for_each_extension() -> None:
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    assert [path.stem for path in SKELETONS] == ["guide", "kernel", "objective", "solver", "world"]
    for path in SKELETONS:
        assert f"(docs/skeletons/{path.name})" in text


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("path", SKELETONS, ids=lambda path: path.stem)
def test_a_skeleton_runs(path: Path) -> None:
    runpy.run_path(str(path), run_name="__main__")
