"""The lower bounds of the dependencies as exact versions, read from pyproject.toml: `python tests/oldest.py`.

`make oldest` installs these versions, so that it tests exactly the declared bounds.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAME, BOUND = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[([\w,-]+)\])?"), re.compile(r">=\s*([\w.]+)")


def pins(extra: str = "dev") -> list[str]:
    """``name==version`` for the core and everything that an extra brings.

    >>> all("==" in pin for pin in pins())
    True
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own, extras = project["name"], project["optional-dependencies"]

    def lowest(requirements: list[str]) -> Iterator[str]:
        for requirement in requirements:
            match, bound = NAME.match(requirement), BOUND.search(requirement)
            assert match, requirement
            if match[1] == own:
                for inner in match[2].split(","):
                    yield from lowest(extras[inner])
            elif bound is None:
                raise ValueError(f"pyproject.toml: found {requirement!r}, expected a lower bound (>=)")
            else:
                yield f"{match[1]}=={bound[1]}"

    return list(dict.fromkeys([*lowest(project["dependencies"]), *lowest(extras[extra])]))


if __name__ == "__main__":
    print("\n".join(pins()))
