"""The command ``npro-aif reproduce``: the paper's tables, figures and convergence studies with our numbers.

Every row of a table is one JSON file, written when the row is finished. A further run uses the rows with the same
settings, so that a run that was stopped continues where it was. Rows that the repository keeps
(:mod:`npro_aif.experiments.kept`) are used in the same way, except with ``--fresh``.
"""

from __future__ import annotations

import shutil
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from rich.console import Console

from npro_aif.acting.distributed import Store
from npro_aif.acting.pools import Workers
from npro_aif.acting.solutions import OtherSettings, Solutions, write_text
from npro_aif.experiments import worlds
from npro_aif.experiments.convergence import make_convergence
from npro_aif.experiments.figures import make_figures
from npro_aif.experiments.files import check_folder, prepare, save_figure, store, stored
from npro_aif.experiments.kept import kept_row
from npro_aif.experiments.play import play
from npro_aif.experiments.progress import EpisodeBar, bars
from npro_aif.experiments.rows import QUICK_EPISODES, TABLES, Row, TableOfRows, quick_table
from npro_aif.experiments.run import result_settings
from npro_aif.experiments.tables import csv_text, markdown, picture, rich_table
from npro_aif.experiments.tasks import SettingsError, Task, make_task

PARTS = (*TABLES, "figures", "convergence")


def reproduce(
    what: str,
    out: Path,
    *,
    episodes: int | None = None,
    quick: bool = False,
    long: bool = False,
    fresh: bool = False,
    executor: Executor | Workers | None = None,
    console: Console | None = None,
) -> list[Path]:
    """Make one part, or "all" of them, and return the files that a reader looks at.

    :param out: the folder for everything that is made.
    :param episodes: of each row; as many as in the paper by default.
    :param quick: a short version of everything.
    :param long: also what takes hours: DoorKey by the paper's solver.
    :param fresh: run the rows and studies that the repository keeps, too.
    :param executor: whose workers play the episodes of the tables.
    """
    console = console or Console()
    if quick and long:
        raise SettingsError("long: found it with quick, expected one of the two")
    if what not in (*PARTS, "worlds", "all"):
        raise SettingsError(f"what: found {what!r}, expected one of {', '.join((*PARTS, 'worlds', 'all'))}")
    if episodes is not None and episodes < 1:
        raise SettingsError(f"episodes: found {episodes}, expected at least 1")
    check_folder("out", out)
    paths: list[Path] = []
    for part in PARTS if what == "all" else (what,):
        console.rule(part)
        if part in TABLES:
            paths += make_table(
                TABLES[part],
                out,
                episodes=episodes,
                quick=quick,
                long=long,
                fresh=fresh,
                console=console,
                executor=executor,
            )
        elif part == "worlds":  # of another paper, so that "all" is without it
            paths += make_table(
                worlds.WORLDS_TABLE,
                out,
                episodes=episodes,
                quick=quick,
                fresh=fresh,
                console=console,
                executor=executor,
            )
        elif part == "figures":
            paths += make_figures(out / "figures", console=console)
        else:
            paths += make_convergence(out / "convergence", quick=quick, long=long, fresh=fresh, console=console)
    console.print("Files:", *(f"  {path}" for path in paths), sep="\n")
    return paths


def make_table(
    table: TableOfRows,
    out: Path,
    *,
    episodes: int | None,
    quick: bool,
    console: Console,
    long: bool = False,
    fresh: bool = False,
    executor: Executor | Workers | None = None,
) -> list[Path]:
    """Run the missing rows of a table, print it, and write it in every form."""
    count = episodes or (QUICK_EPISODES[table.name] if quick else table.published_episodes)
    results: dict[str, dict[str, Any]] = {}
    table = quick_table(table) if quick else table
    rows = [(block.title, row) for block in table.blocks for row in block.rows]
    with bars(console) as progress:
        all_rows = progress.add_task(f"{table.name}: rows", total=len(rows))
        for title, row in rows:
            episodes_of_row = min(count, row.episodes or count)
            bar = EpisodeBar(progress, f"{title}, {row.label}: episodes", episodes_of_row)
            results[row.name], how = make_row(row, episodes_of_row, out, bar, long=long, fresh=fresh, executor=executor)
            bar.remove()
            progress.advance(all_rows)
            console.print(f"{table.name} | {title} | {row.label}: {how}", highlight=False)
    console.print(rich_table(table, results))
    command = f"npro-aif reproduce {table.name}"
    command += " --quick" if quick else ""
    command += " --long" if long else ""
    command += " --fresh" if fresh else ""
    command += f" --episodes {episodes}" if episodes else ""
    files = [out / f"{table.name}.md", out / f"{table.name}.csv"]
    write_text(files[0], markdown(table, results, command))
    write_text(files[1], csv_text(table, results))
    return files + save_figure(picture(table, results), out / table.name)


def make_row(
    row: Row,
    episodes: int,
    out: Path,
    bar: EpisodeBar,
    *,
    long: bool = False,
    fresh: bool = False,
    executor: Executor | Workers | None = None,
) -> tuple[dict[str, Any], str]:
    """The content of a row's file, and in a few words where it comes from.

    :param long: run it even if it takes hours.
    :param fresh: run it even if the repository keeps it.
    """
    path, unfinished = out / "rows" / f"{row.name}.json", out / "unfinished" / row.name
    task = task_of(row)
    chosen = row_settings(task, row, episodes)
    finished = stored(path, chosen)
    if finished is not None:
        return finished, f"finished before with the same settings, kept ({path})"
    content = None if fresh else kept_row(row.name, chosen)
    if content is not None:
        version = content["settings"]["version"]
        return content, f"not run, as the repository keeps it (docs/rows, version {version}); --fresh runs it"
    if row.takes is not None and not long:
        why = f"not run: takes {row.takes}; `npro-aif reproduce {row.name.split('-')[0]} --long` runs it"
        return {"missing": why}, why
    changed = path.exists()
    try:
        prepare(row.task, row.settings, row.preference, row.memory)
    except SettingsError as error:
        return {"missing": str(error)}, f"left out: {error}"
    if row.takes is not None:
        bar.say(f"takes {row.takes}")
    summary = play(row, episodes, bar, _kept(unfinished, chosen), executor)
    result = store(path, chosen, {"summary": summary})
    shutil.rmtree(unfinished, ignore_errors=True)
    effort = f"{episodes} episodes, {summary['compile_seconds']:.0f} s compiling, "
    effort += f"{summary['problems']} plans of {summary['seconds_per_decision']:.4f} s"
    return result, f"done anew, as the settings changed: {effort}" if changed else f"done: {effort}"


def task_of(row: Row) -> Task:
    """The task that a row is of."""
    return make_task(
        row.task,
        method=row.settings.method,
        preference=row.preference,
        memory=row.memory,
        paper=row.settings.paper,
        details=row.settings.details,
    )


def row_settings(task: Task, row: Row, episodes: int) -> dict[str, Any]:
    """Everything that a row's result depends on."""
    return result_settings(task, row.settings, None, row.preference) | {"episodes": episodes}


def _kept(folder: Path, settings: dict[str, Any]) -> Store:
    """The decisions of a row that was stopped, or none if they belong to other settings."""
    folder = folder.absolute()  # workers may have another current folder
    try:
        Solutions(folder, settings)
    except OtherSettings:
        shutil.rmtree(folder)
    except ValueError as error:
        raise SettingsError(f"out: {error}") from error
    return Store(folder, settings)
