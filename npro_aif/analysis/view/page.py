"""The page itself: one HTML file with its style, its script and its numbers inside, which loads nothing."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from npro_aif.analysis.view.data import Recorded, page_data
from npro_aif.analysis.view.drawing import Drawing

DEPTH = 4  # steps of a contingent tree


def write_page(
    recordings: Mapping[str, Recorded],
    path: str | Path,
    *,
    title: str | None = None,
    drawing: Drawing | None = None,
    depth: int = DEPTH,
) -> Path:
    """Write the page of one or several episodes of a world, best of the same seed, and return where it is.

    :param recordings: by the name that each has on the page, for example its objective's.
    :param title: of the page; by default the world's name.
    :param drawing: how the world looks, where it is not one of the package's own.
    :param depth: how many steps of a contingent tree are shown.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(make_page(page_data(recordings, title=title, drawing=drawing, depth=depth)), encoding="utf-8")
    return path


def make_page(data: dict[str, Any]) -> str:
    """The page of these numbers."""
    parts = {
        "title": html.escape(data["title"]),
        "style": _file("viewer.css"),
        "script": _file("viewer.js"),
        # "</script>" inside of a label would end the script; in JSON a slash may be written as "\/".
        "data": json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("</", "<\\/"),
    }
    page = _file("viewer.html")
    for name, text in parts.items():
        page = page.replace(f"{{{{{name}}}}}", text)
    return page


def _file(name: str) -> str:
    return resources.files("npro_aif.analysis.view").joinpath(name).read_text(encoding="utf-8")
