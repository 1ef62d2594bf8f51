"""A claim of the paper's appendices, whether it holds here, and the table and page of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from rich.table import Table

ACTIVE, MARGINAL, PLANNING = "F_active", "F_marginal", "F_planning"
SURE = 0.995  # a rate of 100 %
CLOSE = 0.03  # of probabilities, rates and rewards that are read off a figure
NOTHING = 0.05  # the share of a descent that cannot be seen in a figure of all of it
ABSENT = 1 / 3  # of the second descent of F_active, where there is said to be none
SMALL = 0.1  # a probability that is called near zero
HALF = 0.5  # of a fall that is called rapid, and of a value that is called substantially smaller
DOUBLE = 1.5, 2.5  # times as much, which is called roughly twice

RULES = (
    f"A probability, a rate or a reward, and its ±, is as claimed if it differs by at most {CLOSE} (a mean reward: by "
    "at most the claimed ±).",
    f"A descent has settled where less than {NOTHING:.0%} of its fall is still to come; it falls monotonically if it "
    f"never rises by more than {NOTHING:.0%} of its fall, and rapidly if half of it is made.",
    "A second descent is a fall that is larger than in the 200 steps before, and than a hundredth of a nat; it is "
    "absent where F falls by less than a third of F_active's.",
    f"Near zero is at most {SMALL}; substantially smaller is less than half; roughly twice is {DOUBLE[0]} to "
    f"{DOUBLE[1]} times.",
    f"A descent in DoorKey has converged if F changes by at most {NOTHING:.0%} of its range in the last 500 of 3000 "
    f"steps; two optimizers end alike if their ends differ by at most {NOTHING:.0%} of their size or range, and "
    f"descents make their way at similar rates if the shares made after 100 steps differ by at most {NOTHING:.0%}.",
)


class Claim(NamedTuple):
    """One claim of the paper, and whether it holds here."""

    where: str
    text: str  # as the paper has it
    outcome: str  # what came out here
    holds: bool | None  # None where it was not run
    note: str = ""


def verdict(claim: Claim) -> str:
    """Whether a claim holds, in words."""
    return {True: "holds", False: "does not hold", None: "not run"}[claim.holds]


def rich_table(claims: Sequence[Claim]) -> Table:
    """For the terminal."""
    table = Table(title="What the appendices claim", title_justify="left")
    for head in ("", "the paper", "here", ""):
        table.add_column(head)
    for claim in claims:
        table.add_row(claim.where, claim.text, claim.outcome, verdict(claim))
    return table


def page(claims: Sequence[Claim], pictures: Sequence[str], command: str, seconds: float, note: str) -> str:
    """The page of the appendices."""
    lines = [
        "# The convergence appendices",
        "",
        f"Written by `{command}`, in the paper's own setting (`npro_aif/experiments/paper.py`). The descents of "
        f"appendix B took {seconds / 60:.0f} minutes of one core. {note}",
        "",
        "| | the paper | here | | |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {c.where} | {c.text} | {c.outcome} | **{verdict(c)}** | {c.note} |" for c in claims]
    lines += ["", "How a claim is judged:", "", *(f"- {rule}" for rule in RULES)]
    for picture in pictures:
        lines += ["", f"![{PurePath(picture).stem.replace('_', ' ')}]({picture})"]
    return "\n".join(lines) + "\n"
