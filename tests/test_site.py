"""The documentation site: every public name is in the reference, nothing comes from the network."""

from __future__ import annotations

import re
from pathlib import Path

import npro_aif as aif

DOCS = Path(__file__).parents[1] / "docs"


def test_every_public_name_is_in_the_reference() -> None:
    pages = [page.read_text() for page in sorted((DOCS / "reference").glob("*.md"))]
    names = re.findall(r"^::: npro_aif\.(\S+)$", "\n".join(pages), re.MULTILINE)
    assert len(names) == len(set(names))
    public = {name for name in names if "." not in name}
    assert public | {"guides"} == set(aif.__all__)
    assert {name.removeprefix("guides.") for name in names if name.startswith("guides.")} <= set(aif.guides.__all__)


def test_nothing_is_loaded_from_the_network() -> None:
    files = [path for path in (DOCS / "assets").rglob("*") if path.suffix in (".css", ".js")]
    assert len(files) >= 4
    for path in files:
        loads = re.findall(r"(?:url\(|import\(|src=)[\"']?https?://", path.read_text())
        assert not loads, path
    settings = (DOCS.parent / "mkdocs.yml").read_text()
    assert "font: false" in settings
    assert not re.search(r"https?://", settings)
