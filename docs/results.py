"""Put the rows that are kept in `docs/rows` into the tables of `docs/results.md`: run `python docs/results.py`.

A line whose row is not kept stays as it is and is marked with †; where there is no line either, the row was not run.
"""

from __future__ import annotations

import sys
from pathlib import Path

from npro_aif.experiments.kept import kept_rows
from npro_aif.experiments.rows import TABLES, TableOfRows
from npro_aif.experiments.tables import OPTIMUM_HEAD, markdown_row
from npro_aif.experiments.worlds import WORLDS_TABLE

PAGE = Path(__file__).parent / "results.md"
MARK = "†"


def refreshed(page: str) -> str:
    """The page with every table made of its rows."""
    for table in (*TABLES.values(), WORLDS_TABLE):
        before, heading, rest = page.partition(f"## {table.title}\n")
        if not heading:
            raise ValueError(f"docs/results.md: found no heading '## {table.title}'")
        lines = rest.splitlines(keepends=True)
        first = next(i for i, line in enumerate(lines) if line.startswith("|"))
        last = next(i for i, line in enumerate(lines[first:], first) if not line.startswith("|"))
        lines[first + 2 : last] = table_lines(table, lines[first], lines[first + 2 : last])
        page = before + heading + "".join(lines)
    return page


def table_lines(table: TableOfRows, heads: str, old: list[str]) -> list[str]:
    """The lines of a table: of rows that are kept made anew, of others the old ones."""
    rows, optimal = kept_rows(), OPTIMUM_HEAD in heads
    own: dict[tuple[str, str], str] = {}  # by block and label
    block = ""
    for line in old:
        label = line.split("|")[1].strip()
        if label.startswith("*"):
            block = label
        else:
            own[block, label.removesuffix(f" {MARK}")] = line
    lines = []
    for each in table.blocks:
        lines.append(f"| *{each.title}* |" + " |" * (heads.count("|") - 2) + "\n")
        for row in each.rows:
            line = own.get((f"*{each.title}*", row.label))
            if row.name in rows or line is None:
                lines.append(markdown_row(table, row, rows, optimal) + "\n")
            elif set(line.split("|")[-2].strip()) == {"–"}:  # it was not run then, either
                lines.append(line)
            else:
                lines.append(line.replace(f"| {row.label} |", f"| {row.label} {MARK} |"))
    return lines


if __name__ == "__main__":
    text = PAGE.read_text()
    if "--check" in sys.argv:
        raise SystemExit(0 if refreshed(text) == text else "docs/results.md is not what docs/rows says")
    PAGE.write_text(refreshed(text))
