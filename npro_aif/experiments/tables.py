"""Tables with the paper's values beside ours: on the terminal, as Markdown, as CSV and as a picture.

Where the two 95 % intervals do not overlap the value is marked with ≠. A mean's interval is mean ± 1.96 σ/√n.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table

from npro_aif.analysis.style import BLUE, INK, ORANGE
from npro_aif.experiments.rows import MEASURES, Published, Row, TableOfRows
from npro_aif.experiments.summary import NORMAL_975, PROPORTIONS

MARK = "≠"
LEGEND = f"{MARK}: our 95 % interval and the paper's do not overlap. Rates with 95 % intervals, means ± one std. dev."
OPTIMUM_HEAD = "steps / optimum"
EFFORT_HEADS = ("sweeps", "settled")
Results = Mapping[str, Mapping[str, Any]]  # by row: what its file holds, {"summary": …} or {"missing": why}


class Cell(NamedTuple):
    """One measure of one row: ours and the paper's."""

    ours: str
    paper: str
    overlap: bool | None  # of the intervals; None where one of the two is missing


# --- Values ------------------------------------------------------------------------------------------------


def interval(summary: Mapping[str, Any], measure: str) -> tuple[float, float]:
    """Our 95 % interval."""
    if measure in PROPORTIONS:
        return summary[f"{measure}_low"], summary[f"{measure}_high"]
    margin = NORMAL_975 * summary[f"{measure}_std"] / math.sqrt(summary["episodes"])
    return summary[measure] - margin, summary[measure] + margin


def overlap(ours: tuple[float, float], theirs: tuple[float, float]) -> bool:
    """Whether two intervals have a point in common.

    >>> overlap((0.98, 1.0), (0.97, 0.99)), overlap((0.0, 0.1), (0.2, 0.3))
    (True, False)
    """
    return ours[0] <= theirs[1] and theirs[0] <= ours[1]


def cell(measure: str, summary: Mapping[str, Any] | None, published: Published | None, episodes: int) -> Cell:
    """A measure as text, and whether the intervals overlap.

    :param episodes: how many the published value is of.
    """
    there = summary is not None and summary.get(measure) is not None
    same = None
    if there and published is not None:
        same = overlap(interval(summary, measure), published.interval(episodes))  # type: ignore[arg-type]
    return Cell(_ours(measure, summary) if there else "–", _theirs(measure, published), same)  # type: ignore[arg-type]


def _ours(measure: str, summary: Mapping[str, Any]) -> str:
    low, high, std = (summary.get(f"{measure}_{end}") for end in ("low", "high", "std"))
    return _text(measure, summary[measure], low, high, std)


def _theirs(measure: str, published: Published | None) -> str:
    return "–" if published is None else _text(measure, *published[:4])


def _text(measure: str, value: float, low: float | None, high: float | None, std: float | None) -> str:
    if low is not None and high is not None:
        return f"{value:.0%} [{100 * low:.0f}, {100 * high:.0f}]"
    sign = "+" if measure == "reward" else ""
    return f"{value:{sign}.2f} ± {std or 0:.2f}"


def _cells(table: TableOfRows, row: Row, summary: Mapping[str, Any] | None) -> list[Cell]:
    return [cell(m, summary, row.published.get(m), table.published_episodes) for m in table.measures]


def _has_optimum(table: TableOfRows, results: Results) -> bool:
    """Whether the optimal policy's number of steps is known for some row."""
    return any((_summary(results, row) or {}).get("optimum") for block in table.blocks for row in block.rows)


def _ratio(summary: Mapping[str, Any] | None) -> str:
    """Steps over those of the optimal policy, and how many these are."""
    if summary is None or summary.get("optimum") is None:
        return "–"
    return f"{summary['steps_over_optimum']:.3f} × {summary['optimum']:.2f}"


def _effort(summary: Mapping[str, Any] | None) -> list[str]:
    """The solver's iterations for a plan, and the share of plans that settled."""
    if summary is None or summary.get("settled") is None:
        return ["–", "–"]
    return [f"{summary['iterations']:.1f}" if summary["iterations"] else "–", f"{summary['settled']:.1%}"]


def _marked(one: Cell) -> str:
    return f"{one.ours} {MARK}" if one.overlap is False else one.ours


def _summary(results: Results, row: Row) -> Mapping[str, Any] | None:
    return results.get(row.name, {}).get("summary")


def _missing(results: Results, row: Row) -> str:
    """Why a row has no values."""
    return str(results.get(row.name, {}).get("missing", "not run yet"))


def _notes(table: TableOfRows, results: Results) -> list[str]:
    """What the blocks stand for, and why some rows have no values."""
    notes = [f"{block.title}: {block.detail}" for block in table.blocks]
    reasons: dict[str, list[str]] = {}
    for row in (row for block in table.blocks for row in block.rows if _summary(results, row) is None):
        reasons.setdefault(_missing(results, row), []).append(row.label)
    return notes + [f"{', '.join(labels)}: {why}" for why, labels in reasons.items()]


def episodes_of(table: TableOfRows, results: Results) -> str:
    """How many episodes there were, and with which seeds."""
    summaries = [s for block in table.blocks for row in block.rows if (s := _summary(results, row)) is not None]
    kinds = sorted({(s["seed"], s["episodes"]) for s in summaries})
    return "; ".join(f"{count} episodes, seeds {seed} to {seed + count - 1}" for seed, count in kinds) or "not run yet"


# --- Forms -------------------------------------------------------------------------------------------------


def rich_table(table: TableOfRows, results: Results) -> Table:
    """For the terminal: in every cell ours, and below it the paper's."""
    shown = Table(
        title=f"{table.title} ({episodes_of(table, results)})",
        caption="\n".join(
            [f"Second lines: the paper's ({table.published_episodes} episodes). {LEGEND}", *_notes(table, results)]
        ),
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    shown.add_column("Method", min_width=14)
    for measure in table.measures:
        shown.add_column(measure.capitalize(), justify="right", no_wrap=True)
    optimal = _has_optimum(table, results)
    if optimal:
        shown.add_column("/ optimum", justify="right", no_wrap=True)
    for head in EFFORT_HEADS if table.effort else ():
        shown.add_column(head.capitalize(), justify="right", no_wrap=True)
    shown.add_column("s/plan", justify="right", no_wrap=True)
    for block in table.blocks:
        shown.add_section()
        shown.add_row(
            f"[bold italic]{block.title}[/]",
            *[""] * (len(table.measures) + 1 + optimal + len(EFFORT_HEADS) * table.effort),
        )
        for row in block.rows:
            summary = _summary(results, row)
            cells = [_stacked(one) for one in _cells(table, row, summary)]
            time = "" if summary is None else f"{summary['seconds_per_decision']:.3f}"
            ratio = [_ratio(summary).replace(" × ", "\n×")] if optimal else []
            shown.add_row(row.label, *cells, *ratio, *(_effort(summary) if table.effort else []), time)
    return shown


def _stacked(one: Cell) -> str:
    """Ours above the paper's, narrow enough for four columns on a small terminal."""
    ours, paper = (text.replace(" ± ", "±").replace(", ", ",") for text in (one.ours, one.paper))
    ours = f"[bold yellow]{ours}{MARK}[/]" if one.overlap is False else ours
    return f"{ours}\n[dim]{paper}[/]"


def markdown(table: TableOfRows, results: Results, command: str) -> str:
    """For a page: the paper's columns, each with the published values beside it."""
    heads = ["Method", *(h for m in table.measures for h in (MEASURES[m], "paper"))]
    optimal = _has_optimum(table, results)
    heads += [OPTIMUM_HEAD] if optimal else []
    heads += [*(EFFORT_HEADS if table.effort else ()), "s/decision"]
    lines = [f"### {table.title}", "", f"{episodes_of(table, results)}; made by `{command}`.", ""]
    lines += ["| " + " | ".join(heads) + " |", "|" + "|".join(["---"] + ["---:"] * (len(heads) - 1)) + "|"]
    for block in table.blocks:
        lines.append(f"| *{block.title}* |" + " |" * (len(heads) - 1))
        lines += [markdown_row(table, row, results, optimal) for row in block.rows]
    return "\n".join([*lines, "", LEGEND, "", *(f"- {note}" for note in _notes(table, results))]) + "\n"


def markdown_row(table: TableOfRows, row: Row, results: Results, optimal: bool) -> str:
    """One line of a table on a page.

    :param optimal: whether the table has a column for the steps over those of the optimal policy.
    """
    summary = _summary(results, row)
    values = [text for one in _cells(table, row, summary) for text in (_marked(one), one.paper)]
    time = "–" if summary is None else f"{summary['seconds_per_decision']:.4f}"
    ratio = [_ratio(summary)] if optimal else []
    effort = _effort(summary) if table.effort else []
    return "| " + " | ".join([row.label, *values, *ratio, *effort, time]) + " |"


CSV_FIELDS = (
    "table",
    "block",
    "row",
    "method",
    "measure",
    "ours",
    "ours_low",
    "ours_high",
    "ours_std",
    "paper",
    "paper_low",
    "paper_high",
    "paper_std",
    "overlap",
    "episodes",
    "seed",
    "seconds_per_decision",
    "compile_seconds",
    "missing",
)


def csv_text(table: TableOfRows, results: Results) -> str:
    """For a program: a line for each measure of each row; the intervals (low, high) are at 95 %."""
    out = io.StringIO()
    writer = csv.DictWriter(out, CSV_FIELDS, lineterminator="\n", restval="")
    writer.writeheader()
    for block in table.blocks:
        for row in block.rows:
            summary = _summary(results, row)
            about = {"table": table.name, "block": block.title, "row": row.name, "method": row.label}
            if summary is None:
                about["missing"] = _missing(results, row)
            else:
                about |= {k: summary[k] for k in ("episodes", "seed", "seconds_per_decision", "compile_seconds")}
            for measure in table.measures:
                writer.writerow(about | {"measure": measure} | _numbers(table, row, measure, summary))
    return out.getvalue()


def _numbers(table: TableOfRows, row: Row, measure: str, summary: Mapping[str, Any] | None) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    published = row.published.get(measure)
    if summary is not None and summary.get(measure) is not None:
        low, high = interval(summary, measure)
        numbers |= {"ours": summary[measure], "ours_low": low, "ours_high": high}
        numbers["ours_std"] = summary.get(f"{measure}_std")
        numbers["overlap"] = cell(measure, summary, published, table.published_episodes).overlap
    if published is not None:
        low, high = published.interval(table.published_episodes)
        numbers |= {"paper": published.value, "paper_low": low, "paper_high": high, "paper_std": published.std}
    return numbers


def picture(table: TableOfRows, results: Results) -> Figure:
    """A panel for each measure: our values and the paper's with their 95 % intervals."""
    blocks = [(block, [row for row in block.rows if _summary(results, row)]) for block in table.blocks]
    blocks = [(block, rows) for block, rows in blocks if rows]
    lines = sum(len(rows) + 1 for _, rows in blocks)
    figure = Figure(figsize=(3.2 + 2.3 * len(table.measures), 1.4 + 0.3 * lines), layout="constrained")
    panels = figure.subplots(1, len(table.measures), sharey=True, squeeze=False)[0]
    ticks: dict[float, str] = {}
    place = 0.0
    for block, rows in blocks:
        ticks[place] = block.title
        for row in rows:
            place += 1
            ticks[place] = row.label
            summary = _summary(results, row) or {}
            for axes, measure in zip(panels, table.measures, strict=True):
                _draw(axes, place, row.published.get(measure), table.published_episodes, summary, measure)
        place += 1.3
    for axes, measure in zip(panels, table.measures, strict=True):
        axes.set_title(MEASURES[measure], fontsize=10)
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        if measure in PROPORTIONS:
            axes.set_xlim(-0.05, 1.05)
    if ticks:
        panels[0].set_yticks(list(ticks), list(ticks.values()), fontsize=8)
        for label, text in zip(panels[0].get_yticklabels(), ticks.values(), strict=True):
            label.set(style="normal" if text in {row.label for _, rows in blocks for row in rows} else "italic")
        panels[0].invert_yaxis()
        handles, names = panels[0].get_legend_handles_labels()
        unique = dict(zip(names, handles, strict=True))
        figure.legend(unique.values(), unique.keys(), loc="outside lower right", ncols=2, frameon=False, fontsize=9)
    figure.suptitle(f"{table.title} ({episodes_of(table, results)})", fontsize=11, color=INK)
    return figure


def _draw(
    axes: Any, place: float, published: Published | None, episodes: int, summary: Mapping[str, Any], measure: str
) -> None:
    """Two values with their intervals, one above the other."""
    if summary.get(measure) is not None:
        low, high = interval(summary, measure)
        _bar(axes, place - 0.15, summary[measure], low, high, "o", BLUE, "ours")
    if published is not None:
        low, high = published.interval(episodes)
        _bar(axes, place + 0.15, published.value, low, high, "D", ORANGE, "paper")


def _bar(axes: Any, place: float, value: float, low: float, high: float, marker: str, colour: str, label: str) -> None:
    around = [[max(0.0, value - low)], [max(0.0, high - value)]]
    axes.errorbar(value, place, xerr=around, fmt=marker, color=colour, label=label, markersize=4.5, capsize=2)
