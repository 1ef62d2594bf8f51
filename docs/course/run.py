"""Run the course: each notebook, kept as text, becomes a page with what its cells printed and drew.

    python docs/course/run.py                # all of them
    python docs/course/run.py first_plan     # this one; the others become pages without output

A notebook is a Python file with cells that begin with ``# %%`` or ``# %% [markdown]``. A cell that raises (its asserts
hold the numbers that the text speaks of) stops everything.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NOTEBOOKS = ("first_plan", "why_explore", "plans_that_react", "doorkey", "learning", "from_pymdp")
MOST_SECONDS = 60.0  # of processor time, for one notebook


def cells(text: str) -> list[tuple[bool, str]]:
    """The cells of a notebook: whether it is text, and what it holds.

    >>> cells("# %% [markdown]\\n# # Title\\n\\n# %%\\nx = 1\\n")
    [(True, '# Title'), (False, 'x = 1')]
    """
    notebook = []
    for part in text.split("# %%")[1:]:
        head, _, body = part.partition("\n")
        words = "[markdown]" in head
        lines = [line.removeprefix("#").removeprefix(" ") for line in body.splitlines()] if words else body.splitlines()
        notebook.append((words, "\n".join(lines).strip("\n")))
    return notebook


def page(path: Path, *, execute: bool) -> str:
    """A notebook as Markdown, with its output where it is executed."""
    names: dict[str, Any] = {"__name__": "__main__"}
    parts = []
    begin, wall = time.process_time(), time.perf_counter()
    for words, body in cells(path.read_text()):
        parts.append(body if words else f"```python\n{body}\n```")
        if words or not execute:
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(body, str(path), "exec"), names)
        if printed.getvalue():
            parts.append(f"```text\n{printed.getvalue().rstrip()}\n```")
    seconds = time.process_time() - begin
    if execute:
        print(f"{path.stem}: {time.perf_counter() - wall:.0f} s, {seconds:.0f} s of processor time", flush=True)
        if seconds > 2 * MOST_SECONDS:  # two cores
            raise SystemExit(f"{path.stem}: found {seconds:.0f} s, expected less than {MOST_SECONDS:.0f} on two cores")
    else:
        parts.insert(1, "*(Not run in this build: no output.)*")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    chosen = sys.argv[1:] or NOTEBOOKS
    for name in NOTEBOOKS:
        (HERE / f"{name}.md").write_text(page(HERE / f"{name}.py", execute=name in chosen))


if __name__ == "__main__":
    main()
