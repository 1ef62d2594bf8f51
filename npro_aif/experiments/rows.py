"""The rows of the paper's three tables: what is run for each, and what the paper published.

A table has blocks: the paper's own switches and ours where they differ, and the baselines. Every block's rows stand
beside the same published values.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from npro_aif.experiments.summary import NORMAL_975
from npro_aif.experiments.tasks import Settings

PERCENT = 0.01
EPISODES = {"table1": 200, "table2": 200, "table3": 100}  # as many as the paper ran
QUICK_EPISODES = {"table1": 20, "table2": 20, "table3": 2}
QUICK_STEPS = {"reactivity": 300}  # gradient steps of a quick run, where fewer than the task's own will do
SEEDS = {"table1": 0, "table2": 0, "table3": 1000}  # of the first episode; the next ones follow


class Published(NamedTuple):
    """One value of the paper's tables, in our units (rates from 0 to 1)."""

    value: float
    low: float | None  # a rate's 95 % interval
    high: float | None
    std: float | None  # a mean's ± one standard deviation
    unit: float  # of the last digit that was printed

    def interval(self, episodes: int) -> tuple[float, float]:
        """The 95 % interval, widened by what rounding may have taken."""
        if self.low is not None and self.high is not None:
            low, high = self.low, self.high
        else:
            margin = NORMAL_975 * (self.std or 0.0) / math.sqrt(episodes)
            low, high = self.value - margin, self.value + margin
        return low - self.unit / 2, high + self.unit / 2


def rate(value: int, low: int, high: int) -> Published:
    """A proportion with its interval, in percent as it was printed."""
    return Published(value * PERCENT, low * PERCENT, high * PERCENT, None, PERCENT)


def mean(value: float, std: float, digits: int = 2) -> Published:
    """A mean ± one standard deviation."""
    return Published(value, None, None, std, 10.0**-digits)


class Row(NamedTuple):
    """One row: what is run, and what the paper has there."""

    name: str  # of its file
    label: str
    task: str
    settings: Settings
    published: dict[str, Published]  # by measure
    preference: str | None = None  # DoorKey's


def quick_row(row: Row) -> Row:
    """The row with as much work as a quick run does."""
    if row.settings.solver != "svi" or row.task not in QUICK_STEPS:
        return row
    return row._replace(settings=row.settings._replace(num_steps=QUICK_STEPS[row.task]))


class Block(NamedTuple):
    """Rows of one kind."""

    title: str  # a few words
    detail: str  # what they stand for
    rows: tuple[Row, ...]


class TableOfRows(NamedTuple):
    """One of the paper's tables."""

    name: str
    title: str
    label: str  # in the paper
    measures: tuple[str, ...]  # its columns
    published_episodes: int
    blocks: tuple[Block, ...]


MEASURES = {
    "success": "Success rate",
    "reward": "Mean reward",
    "cue": "Cue visit rate",
    "safe": "Safe rate",
    "steps": "Avg. steps",
}
LABELS = {
    "active": "F_active",
    "marginal": "F_marginal",
    "planning": "F_planning",
    "sophisticated": "Sophisticated Inference",
    "efe": "Standard EFE planning",
}
OBJECTIVES = ("active", "marginal", "planning")
BASELINES = ("sophisticated", "efe")

ALL, NONE = rate(100, 98, 100), rate(0, 0, 2)
PAPER: dict[str, dict[str, dict[str, Published]]] = {
    "table1": {  # tab:results
        "active": {"success": ALL, "reward": mean(1.0, 0.0), "cue": ALL, "steps": mean(4.0, 0.0, 1)},
        "marginal": {"success": rate(48, 40, 55), "reward": mean(-0.05, 1.0), "cue": NONE, "steps": mean(4.0, 0.0, 1)},
        "planning": {"success": rate(52, 45, 60), "reward": mean(0.05, 1.0), "cue": NONE, "steps": mean(3.0, 0.0, 1)},
        "sophisticated": {"success": ALL, "reward": mean(1.0, 0.0), "cue": ALL, "steps": mean(4.0, 0.0, 1)},
        "efe": {"success": ALL, "reward": mean(1.0, 0.0), "cue": ALL, "steps": mean(4.0, 0.0, 1)},
    },
    "table2": {  # tab:epistemic-maze-results
        "active": {"reward": mean(1.0, 0.0), "success": ALL, "safe": NONE, "cue": ALL},
        "marginal": {"reward": mean(0.33, 0.0), "success": NONE, "safe": ALL, "cue": NONE},
        "planning": {
            "reward": mean(0.18, 0.63),
            "success": rate(17, 12, 23),
            "safe": rate(64, 56, 70),
            "cue": NONE,
        },
        "sophisticated": {
            "reward": mean(0.96, 0.16),
            "success": rate(94, 90, 97),
            "safe": rate(6, 3, 10),
            "cue": ALL,
        },
        "efe": {
            "reward": mean(0.56, 0.66),
            "success": rate(61, 54, 68),
            "safe": rate(21, 16, 27),
            "cue": rate(66, 60, 73),
        },
    },
    "table3": {  # tab:minigrid-results
        "active": {"success": rate(89, 81, 94), "reward": mean(0.85, 0.30), "steps": mean(30.69, 2.16)},
        "marginal": {"success": rate(4, 1, 10), "reward": mean(0.04, 0.19), "steps": mean(34.34, 3.52)},
        "planning": {"success": rate(89, 81, 94), "reward": mean(0.86, 0.30), "steps": mean(27.28, 5.50)},
        "sophisticated": {},
        "efe": {},
    },
}


def make_block(
    table: str, task: str, name: str, title: str, detail: str, base: Settings, *, preference: str | None = None
) -> Block:
    """A row for each objective; or for the block "baselines" one for each of them."""
    baselines = name == "baselines"
    rows = []
    for kind in BASELINES if baselines else OBJECTIVES:
        chosen = base._replace(method=kind) if baselines else base._replace(objective=kind)
        settings = chosen._replace(seed=SEEDS[table])
        rows.append(Row(f"{table}-{name}-{kind}", LABELS[kind], task, settings, PAPER[table][kind], preference))
    return Block(title, detail, tuple(rows))


def search_block(table: str, task: str) -> Block:
    """One row: the optimal policy, of everything that was seen and done; beside the paper's F_planning."""
    settings = Settings(objective="planning", solver="search", seed=SEEDS[table])
    detail = "AND/OR search over information states: no policy has a lower F_planning (docs/search.md)"
    row = Row(f"{table}-search-planning", "F_planning, perfect recall", task, settings, PAPER[table]["planning"])
    return Block("ours, search", detail, (row,))


SEQUENCE_SVI = "SVI, 1500 Adam steps at 0.05, the paper's guide over whole sequences"
COORDINATE = "closed-form coordinate updates, guide factorised over time"
PYMDP = "pymdp on the same model, in the same episodes"

TABLES: dict[str, TableOfRows] = {
    "table1": TableOfRows(
        "table1",
        "Table 1: T-maze",
        "tab:results",
        ("success", "reward", "cue", "steps"),
        EPISODES["table1"],
        (
            make_block(
                "table1",
                "tmaze",
                "paper",
                "paper's switches",
                f"{SEQUENCE_SVI}; epistemic priors normalised, gradient through them, no planning correction, tables "
                "not restricted to the model's support",
                Settings(paper=True, solver="svi"),
            ),
            make_block(
                "table1",
                "tmaze",
                "svi",
                "ours, SVI",
                f"{SEQUENCE_SVI}; our switches: raw priors, held while stepping, planning correction, the model's "
                "support",
                Settings(solver="svi"),
            ),
            make_block(
                "table1",
                "tmaze",
                "coordinate",
                "ours, coordinate",
                f"{COORDINATE}; our switches",
                Settings(solver="coordinate"),
            ),
            search_block("table1", "tmaze"),
            make_block("table1", "tmaze", "baselines", "baselines", PYMDP, Settings()),
        ),
    ),
    "table2": TableOfRows(
        "table2",
        "Table 2: Reactivity Maze",
        "tab:epistemic-maze-results",
        ("reward", "success", "safe", "cue"),
        EPISODES["table2"],
        (
            make_block(
                "table2",
                "reactivity",
                "paper",
                "paper's switches",
                "SVI, 1000 Adam steps at 0.05, guide factorised over time; epistemic priors normalised, held while "
                "stepping, planning correction",
                Settings(paper=True, solver="svi"),
            ),
            make_block(
                "table2",
                "reactivity",
                "coordinate",
                "ours, coordinate",
                f"{COORDINATE}; our switches: raw priors",
                Settings(solver="coordinate"),
            ),
            search_block("table2", "reactivity"),
            make_block("table2", "reactivity", "baselines", "baselines", PYMDP, Settings()),
        ),
    ),
    "table3": TableOfRows(
        "table3",
        "Table 3: MiniGrid DoorKey-8x8",
        "tab:minigrid-results",
        ("success", "reward", "steps"),
        EPISODES["table3"],
        (
            make_block(
                "table3",
                "doorkey",
                "terminal",
                "paper's setting",
                f"the goal is preferred at the end only, horizon 20; {COORDINATE} (the paper: 3000 Adam steps a plan)",
                Settings(solver="coordinate", horizon=20),
                preference="terminal",
            ),
            make_block(
                "table3",
                "doorkey",
                "every-step",
                "ours",
                f"the goal is preferred at every step, horizon to the deadline; {COORDINATE}",
                Settings(solver="coordinate"),
                preference="every-step",
            ),
            search_block("table3", "doorkey"),
            make_block("table3", "doorkey", "baselines", "baselines", "pymdp: excluded, as in the paper", Settings()),
        ),
    ),
}
