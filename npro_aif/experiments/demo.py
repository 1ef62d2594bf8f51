"""The command ``npro-aif demo``: plans of the three objectives in the T-maze, some episodes, and a picture.

Plans from the start are made by SVI over whole sequences, as in the paper (and under our switches); the agents of the
episodes replan by closed-form coordinate updates, which takes milliseconds.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from npro_aif.experiments.figures import agent_of, first_plan, row_named, trajectories
from npro_aif.experiments.files import save_figure
from npro_aif.experiments.play import play
from npro_aif.experiments.rows import LABELS, OBJECTIVES, TABLES
from npro_aif.experiments.tables import rich_table
from npro_aif.inference.objectives import TERMS
from npro_aif.models import tmaze
from npro_aif.planning.plan import Plan

BLOCK = "coordinate"  # whose agents act
SHOWN = 5e-4  # smaller terms are rounding errors
TIES = (
    "For F_marginal and F_planning several plans are as good as each other here (left or right, sooner or later); "
    "which one an agent takes is drawn, so that rows marked ≠ can differ by how ties fell."
)


def demo(out: Path, *, episodes: int = 20, planner: str = "svi", console: Console | None = None) -> Path:
    """Print the plans and the table over some episodes, draw the trajectories, and return where they are.

    :param planner: the block of Table 1 whose plans are shown first.
    """
    console = console or Console()
    table = TABLES["table1"]
    blocks = {block.rows[0].name.split("-")[1]: block for block in table.blocks}
    console.print("[bold]T-maze[/]: the cue lies South of the start, the arms with the reward North of it.")
    console.print(f"Plans from the start. {blocks[planner].detail}.\n", highlight=False)
    plans = {}
    for kind in OBJECTIVES:
        with console.status(f"planning: {LABELS[kind]}"):
            plans[LABELS[kind]] = first_plan(agent_of(row_named("table1", planner, kind)))
    console.print(plans_table(plans))
    console.print(f"\nEpisodes, replanning at every step. {blocks[BLOCK].detail}.\n", highlight=False)
    results = {}
    for kind in OBJECTIVES:
        row = row_named("table1", BLOCK, kind)
        with console.status(f"{episodes} episodes: {row.label}"):
            results[row.name] = {"summary": play(row, episodes)}
    console.print(rich_table(table._replace(title="T-maze", blocks=(blocks[BLOCK],)), results))
    console.print(TIES, highlight=False)
    with console.status("drawing"):
        png, pdf = save_figure(trajectories().figure, out / "tmaze_trajectories.png")
    console.print(f"\nWhat each objective plans at every step of an episode: {png} (and {pdf.name})", soft_wrap=True)
    return png


def plans_table(plans: dict[str, Plan]) -> Table:
    """q(u_1), F and the terms of F, by objective."""
    table = Table(title="q(u₁), free energy and its terms (nats; they sum to F)", title_justify="left")
    table.add_column("")
    for name in plans:
        table.add_column(name, justify="right")
    for u, label in enumerate(tmaze.CONTROLS):
        table.add_row(f"q({label})", *(f"{float(plan.control[0, u]):.3f}" for plan in plans.values()))
    table.add_section()
    table.add_row("[bold]F[/]", *(f"[bold]{float(plan.free_energy[-1]):.3f}[/]" for plan in plans.values()))
    for term in TERMS:
        values = [plan.terms.get(term) for plan in plans.values()]
        if any(value is not None and abs(float(value)) > SHOWN for value in values):
            table.add_row(term.replace("_", " "), *("–" if v is None else f"{float(v):.3f}" for v in values))
    return table
