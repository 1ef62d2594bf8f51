"""Put the rows that are kept in `docs/rows` into the tables of `docs/results.md`, with their seeds.

Run `python docs/results.py`; with ``--check`` it only says whether there is something to do.

A row that is not kept was not run yet, and its line says so with –.
"""

from __future__ import annotations

import sys
from pathlib import Path

from npro_aif.experiments.kept import kept_rows
from npro_aif.experiments.rows import TABLES, TableOfRows
from npro_aif.experiments.tables import OPTIMUM_HEAD, episodes_of, markdown_row
from npro_aif.experiments.worlds import WORLDS_TABLE

PAGE = Path(__file__).parent / "results.md"


def refreshed(page: str) -> str:
    """The page with every table made of its rows."""
    for table in (*TABLES.values(), WORLDS_TABLE):
        before, heading, rest = page.partition(f"## {table.title}\n")
        if not heading:
            raise ValueError(f"docs/results.md: found no heading '## {table.title}'")
        lines = rest.splitlines(keepends=True)
        if table.name in TABLES:
            lines[1] = f"{episodes_of(table, kept_rows())}; made by `npro-aif reproduce {table.name}`.\n"
        first = next(i for i, line in enumerate(lines) if line.startswith("|"))
        last = next(i for i, line in enumerate(lines[first:], first) if not line.startswith("|"))
        lines[first + 2 : last] = table_lines(table, lines[first])
        page = before + heading + "".join(lines)
    return page


def table_lines(table: TableOfRows, heads: str) -> list[str]:
    """The lines of a table, below its heads."""
    rows, optimal = kept_rows(), OPTIMUM_HEAD in heads
    lines = []
    for block in table.blocks:
        lines.append(f"| *{block.title}* |" + " |" * (heads.count("|") - 2) + "\n")
        lines += [markdown_row(table, row, rows, optimal) + "\n" for row in block.rows]
    return lines


if __name__ == "__main__":
    text = PAGE.read_text()
    if "--check" in sys.argv:
        raise SystemExit(0 if refreshed(text) == text else "docs/results.md is not what docs/rows says")
    PAGE.write_text(refreshed(text))
