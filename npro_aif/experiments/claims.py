"""What appendices B and C of the paper claim, and whether it holds here, with the number that says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

ACTIVE, MARGINAL, PLANNING = "F_active", "F_marginal", "F_planning"
TITLES = {"tmaze": "T-maze", "reactivity": "Reactivity Maze"}
SURE = 0.995  # a rate of 100 %
CLOSE = 0.03  # of probabilities and rewards that are read off a figure
NOTHING = 0.05  # the share of a descent that cannot be seen in a figure of all of it
Study = Mapping[str, Any]  # of one objective in one maze
Studies = Mapping[str, Mapping[str, Study]]  # by maze and objective


class Claim(NamedTuple):
    """One claim of the paper, and whether it holds here."""

    where: str
    text: str  # as the paper has it
    outcome: str  # what came out here
    holds: bool | None  # None where it was not run
    note: str = ""


def drop(values: Sequence[float], begin: int, end: int) -> float:
    """By how much F falls between two steps."""
    last = len(values) - 1
    return float(values[min(begin, last)] - values[min(end, last)])


def appendix_b(studies: Studies) -> list[Claim]:
    """The claims of appendix B, of the mazes that were studied."""
    claims: list[Claim] = []
    for maze, of_maze in {"tmaze": _of_tmaze, "reactivity": _of_reactivity}.items():
        if maze in studies:
            claims += [_ordering(maze, studies[maze]), *of_maze(studies[maze]), *_rewards(maze, studies[maze])]
        else:
            claims.append(Claim(TITLES[maze], "what appendix B claims of it", "not run", None))
    return claims


def _of_tmaze(tmaze: Mapping[str, Study]) -> list[Claim]:
    where = TITLES["tmaze"]
    return [
        _settling(where, "F falls monotonically, within about 500 steps", tmaze, 500, monotone=True),
        *_phases(tmaze),
        *_cue(tmaze[ACTIVE]),
        _near_zero(tmaze),
        _from(where, tmaze[ACTIVE], 1500),
        *_luck(tmaze),
        _rates(where, "F_active: 100 % at the rate 0.05 only", tmaze[ACTIVE], (0.05,)),
    ]


def _of_reactivity(reactivity: Mapping[str, Study]) -> list[Claim]:
    where = TITLES["reactivity"]
    return [
        _settling(where, "F falls within the first 200 steps", reactivity, 200),
        _from(where, reactivity[ACTIVE], 100),
        _most(where, "F_planning reaches at most 25 % at any budget", reactivity[PLANNING]["budget"], 0.25),
        _most(where, "F_marginal stays at 0 % at any budget", reactivity[MARGINAL]["budget"], 0.0),
        _rates(where, "F_active: 100 % at all rates", reactivity[ACTIVE], None),
        _most(where, "F_planning: at most 40 % at any rate", reactivity[PLANNING]["rates"], 0.4),
    ]


def _ordering(maze: str, by_label: Mapping[str, Study]) -> Claim:
    ends = {label: by_label[label]["unknown"][-1] for label in (MARGINAL, PLANNING, ACTIVE)}
    text = ", ".join(f"{label} {value:.2f}" for label, value in ends.items())
    holds = ends[MARGINAL] < ends[PLANNING] < ends[ACTIVE]
    return Claim(TITLES[maze], "F_marginal < F_planning < F_active", f"first plan: {text}", holds)


def _settling(where: str, text: str, studies: Mapping[str, Study], steps: int, *, monotone: bool = False) -> Claim:
    """Whether the median of F over the plans has made (nearly) all of its fall after so many steps.

    :param monotone: it must not rise on its way, either, by more than what counts as none of the fall.
    """
    parts, holds = list[str](), True
    for label in (ACTIVE, MARGINAL, PLANNING):
        median = np.asarray(studies[label]["curves"]["median"])
        every = len(studies[label]["unknown"]) // len(median)
        place = min(steps // every, len(median) - 1)
        fall = max(float(median[0] - median[-1]), 1e-9)
        made, rise = float(median[0] - median[place]) / fall, max(0.0, float(np.diff(median).max())) / fall
        parts.append(f"{label} {made:.1%}" + (f" (rises by {rise:.1%} at most)" if monotone else ""))
        holds &= made >= 1 - NOTHING and (not monotone or rise <= NOTHING)
    enough = len(studies[ACTIVE]["unknown"]) >= steps
    return Claim(
        where, text, f"of the fall of the plans' median are made: {', '.join(parts)}", holds if enough else None
    )


def _phases(tmaze: Mapping[str, Study]) -> list[Claim]:
    """A second descent: F falls by more in steps 1000–1200 than in the 200 before, and by more than a hundredth.

    It is absent where F falls by less than a third of that.
    """
    windows = (600, 800, 1000, 1200)

    def falls(study: str) -> list[float]:
        return [drop(tmaze[ACTIVE][study], begin, begin + 200) for begin in windows]

    def text(values: Sequence[float]) -> str:
        parts = (f"{begin}–{begin + 200}: {value:.3f}" for begin, value in zip(windows, values, strict=True))
        return f"F falls by {', '.join(parts)}"

    if len(tmaze[ACTIVE]["unknown"]) < 1400:
        return []
    unknown, known = falls("unknown"), falls("known")
    second = unknown[2] > max(unknown[1], 0.01)
    return [
        Claim("T-maze", "F_active falls a second time in steps 1000–1200", text(unknown), second),
        Claim("T-maze", "… which is absent when θ is known (.95/.05)", text(known), known[2] < unknown[2] / 3),
    ]


def _cue(active: Study) -> list[Claim]:
    probs = {int(steps): value for steps, value in active["cue"].items()}
    claims = []
    for steps, claimed in ((10, 0.05), (1500, 0.41)):
        if steps in probs:
            holds = abs(probs[steps] - claimed) <= CLOSE
            claims.append(Claim("T-maze", f"q(South) is {claimed} after {steps} steps", f"{probs[steps]:.3f}", holds))
    return claims


def _near_zero(tmaze: Mapping[str, Study]) -> Claim:
    """Near zero is below a tenth: some start of N(0,1) is left after the first few steps."""
    parts, holds = list[str](), True
    for label in (MARGINAL, PLANNING):
        first, *others = tmaze[label]["cue"].values()
        parts.append(f"{label} {first:.3f} at first, then at most {max(others):.3f}")
        holds &= max(first, *others) <= 0.1
    return Claim("T-maze", "F_marginal, F_planning: q(South) remains near zero", "; ".join(parts), holds)


def _from(where: str, active: Study, needed: int) -> Claim:
    success = {int(steps): one["success"] for steps, one in active["budget"].items()}
    text = ", ".join(f"{steps}: {value:.0%}" for steps, value in success.items())
    enough = all(value >= SURE for steps, value in success.items() if steps >= needed)
    before = [value for steps, value in success.items() if steps < needed]
    holds = enough and not all(value >= SURE for value in before) if before else enough
    reached = [steps for steps in sorted(success) if all(v >= SURE for s, v in success.items() if s >= steps)]
    return Claim(
        where,
        f"F_active: 100 % from {needed} steps on",
        f"from {reached[0]} on ({text})" if reached else f"never ({text})",
        holds and max(success) >= needed if max(success) >= needed else None,
    )


def _luck(tmaze: Mapping[str, Study]) -> list[Claim]:
    note = "the share of θ = left among the 20 draws of random.Random(42) is 75 %"
    best = max(one["success"] for one in tmaze[MARGINAL]["budget"].values())
    most = max(one["success"] for one in tmaze[PLANNING]["budget"].values())
    return [
        Claim("T-maze", "F_marginal reaches 75 %", f"at most {best:.0%}", abs(best - 0.75) < CLOSE, note),
        Claim("T-maze", "F_planning never exceeds 25 %", f"at most {most:.0%}", most <= 0.25 + 1e-9, note),
    ]


def _most(where: str, text: str, rates: Mapping[str, Mapping[str, float]], limit: float) -> Claim:
    values = {name: one["success"] for name, one in rates.items()}
    best = max(values, key=lambda name: values[name])
    return Claim(where, text, f"at most {values[best]:.0%} (at {best})", values[best] <= limit + 1e-9)


def _rates(where: str, text: str, study: Study, only: tuple[float, ...] | None) -> Claim:
    success = {float(rate): one["success"] for rate, one in study["rates"].items()}
    sure = {rate for rate, value in success.items() if value >= SURE}
    holds = sure == (set(success) if only is None else set(only))
    return Claim(where, text, ", ".join(f"{rate:g}: {value:.0%}" for rate, value in success.items()), holds)


PAPER_REWARD = {  # mean ± std over 5 seeds of the environment
    "tmaze": {ACTIVE: (1.0, 0.0), MARGINAL: (0.14, 0.22), PLANNING: (-0.14, 0.22)},
    "reactivity": {ACTIVE: (1.0, 0.0), MARGINAL: (0.33, 0.0), PLANNING: (0.22, 0.05)},
}


def _rewards(maze: str, by_label: Mapping[str, Study]) -> list[Claim]:
    claims = []
    for label, (mean, std) in PAPER_REWARD[maze].items():
        values = by_label[label]["rewards"]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        measured = f"{np.mean(values):+.2f} ± {spread:.2f} over {len(values)} streams"
        near = abs(float(np.mean(values)) - mean) <= max(CLOSE, std)
        note = "± 1 of every θ = left, − 1 of every other" if std and maze == "tmaze" else ""
        text = f"{label}: mean reward {mean:+.2f} ± {std:.2f}"
        claims.append(Claim(TITLES[maze], text, measured, near if len(values) > 1 else None, note))
    return claims


def appendix_c(studies: Mapping[str, Any] | None) -> list[Claim]:
    """The claims of appendix C; each "not run" where its descents were not.

    :param studies: by "objective, condition, optimizer, T", with ``free_energy``.
    """
    descents = studies or {}

    def ends(kind: str, condition: str, optimizer: str = "Adam", horizon: int = 20) -> tuple[float, float] | None:
        study = descents.get(f"{kind}, {condition}, {optimizer}, {horizon}")
        return None if study is None else (study["free_energy"][0], study["free_energy"][-1])

    claims = []
    for condition, rises in (
        ("tabula rasa", True), ("known layout", True), ("known position", False), ("near goal", False),
    ):  # fmt: skip
        pair = ends("active", condition)
        text = f"F_active {'rises' if rises else 'falls'}: {condition}"
        shown = "not run" if pair is None else f"{pair[0]:.2f} → {pair[1]:.2f}"
        holds = None if pair is None else (pair[1] > pair[0]) == rises
        note = "a rise is that of the normalisers, which F counts and the descent does not see" if rises else ""
        claims.append(Claim("DoorKey", text, shown, holds, note))
    for kind in ("active", "planning"):
        short, double = ends(kind, "tabula rasa"), ends(kind, "tabula rasa", horizon=40)
        shown, holds = "not run", None
        if short is not None and double is not None:
            ratio = double[1] / short[1]
            shown, holds = f"{ratio:.2f} times", 1.5 <= ratio <= 2.5
        claims.append(Claim("DoorKey", f"T = 40 roughly doubles F_{kind}", shown, holds))
    return claims


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
    for picture in pictures:
        lines += ["", f"![{PurePath(picture).stem.replace('_', ' ')}]({picture})"]
    return "\n".join(lines) + "\n"
