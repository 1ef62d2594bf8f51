"""What appendix B of the paper claims of the two mazes, and whether it holds here, with the number that says so."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from npro_aif.experiments.claims import ABSENT, ACTIVE, CLOSE, HALF, MARGINAL, NOTHING, PLANNING, SMALL, SURE, Claim

TITLES = {"tmaze": "T-maze", "reactivity": "Reactivity Maze"}
TMAZE, REACTIVITY = TITLES.values()
LABELS = (ACTIVE, MARGINAL, PLANNING)
LEFT = "the share of θ = left among the 20 draws of random.Random(42) is 75 %"
HUNDREDTH = 0.01  # of a nat
Study = Mapping[str, Any]  # of one objective in one maze
ByLabel = Mapping[str, Study]
Studies = Mapping[str, ByLabel]  # by maze and objective
Rates = Mapping[str, Mapping[str, float]]  # by number of steps or learning rate
PAPER_REWARD = {  # mean ± std over 5 seeds of the environment
    "tmaze": {ACTIVE: (1.0, 0.0), MARGINAL: (0.14, 0.22), PLANNING: (-0.14, 0.22)},
    "reactivity": {ACTIVE: (1.0, 0.0), MARGINAL: (0.33, 0.0), PLANNING: (0.22, 0.05)},
}


def appendix_b(studies: Studies) -> list[Claim]:
    """The claims of appendix B, of the mazes that were studied."""
    claims: list[Claim] = []
    of: dict[str, Callable[[ByLabel], list[Claim]]] = {"tmaze": of_tmaze, "reactivity": of_reactivity}
    for maze, of_maze in of.items():
        if maze in studies:
            claims += [_ordering(maze, studies[maze]), *of_maze(studies[maze]), *_rewards(maze, studies[maze])]
        else:
            claims.append(Claim(TITLES[maze], "what appendix B claims of it", "not run", None))
    return claims


def of_tmaze(tmaze: ByLabel) -> list[Claim]:
    """Of the T-maze."""
    active, marginal, planning = (tmaze[label] for label in LABELS)
    return [
        _settling(TMAZE, "F falls monotonically, within about 500 steps", tmaze, 500, monotone=True),
        _spread(tmaze),
        _settling(TMAZE, "F falls rapidly in steps 0–100, of the first plan", tmaze, 100, share=HALF, first=True),
        *_phases(tmaze),
        *_cue(active),
        _near_zero(tmaze),
        _from(TMAZE, active, 1500),
        _marginal_reaches(marginal),
        _most(TMAZE, "F_planning never exceeds 25 %", planning["budget"], 0.25, LEFT),
        _rates(TMAZE, "F_active: 100 % at the rate 0.05 only", active, (0.05,)),
        _ends(TMAZE, "F_active: 75 % at the rate 0.1", active, ("0.1",), 0.75),
        _ends(TMAZE, "F_marginal: 75 % at low and at high rates", marginal, ("0.001", "0.1"), 0.75),
        _ends(TMAZE, "F_planning: 25 % at every rate", planning, tuple(planning["rates"]), 0.25, LEFT),
    ]


def of_reactivity(reactivity: ByLabel) -> list[Claim]:
    """Of the Reactivity Maze."""
    active, marginal, planning = (reactivity[label] for label in LABELS)
    return [
        _settling(REACTIVITY, "F falls within the first 200 steps", reactivity, 200),
        _single_phase(active),
        _from(REACTIVITY, active, 100),
        _most(REACTIVITY, "F_planning reaches at most 25 % at any budget", planning["budget"], 0.25),
        _most(REACTIVITY, "F_marginal stays at 0 % at any budget", marginal["budget"], 0.0),
        _rates(REACTIVITY, "F_active: 100 % at all rates", active, None),
        _most(REACTIVITY, "F_marginal stays at 0 % at any rate", marginal["rates"], 0.0),
        _most(REACTIVITY, "F_planning: at most 40 % at any rate", planning["rates"], 0.4),
    ]


# --- How F falls -------------------------------------------------------------------------------------------


def drop(values: Sequence[float], begin: int, end: int) -> float:
    """By how much F falls between two steps."""
    last = len(values) - 1
    return float(values[min(begin, last)] - values[min(end, last)])


def _ordering(maze: str, by_label: ByLabel) -> Claim:
    ends = {label: by_label[label]["unknown"][-1] for label in (MARGINAL, PLANNING, ACTIVE)}
    text = ", ".join(f"{label} {value:.2f}" for label, value in ends.items())
    holds = ends[MARGINAL] < ends[PLANNING] < ends[ACTIVE]
    return Claim(TITLES[maze], "F_marginal < F_planning < F_active", f"first plan: {text}", holds)


def _settling(
    where: str,
    text: str,
    studies: ByLabel,
    steps: int,
    *,
    monotone: bool = False,
    share: float = 1 - NOTHING,
    first: bool = False,
) -> Claim:
    """Whether F has made this share of its fall after so many steps.

    :param monotone: it must not rise on its way, either, by more than what counts as none of the fall.
    :param first: of the first plan, instead of the median over the plans.
    """
    parts, holds = list[str](), True
    for label in LABELS:
        line = np.asarray(studies[label]["unknown"] if first else studies[label]["curves"]["median"])
        every = len(studies[label]["unknown"]) // len(line)
        place = min(steps // every, len(line) - 1)
        fall = max(float(line[0] - line[-1]), 1e-9)
        made, rise = float(line[0] - line[place]) / fall, max(0.0, float(np.diff(line).max())) / fall
        parts.append(f"{label} {made:.1%}" + (f" (rises by {rise:.1%} at most)" if monotone else ""))
        holds &= made >= share and (not monotone or rise <= NOTHING)
    enough = len(studies[ACTIVE]["unknown"]) >= steps
    what = "the fall" if first else "the fall of the plans' median"
    return Claim(where, text, f"of {what} are made: {', '.join(parts)}", holds if enough else None)


def _spread(tmaze: ByLabel) -> Claim:
    """Whether the plans lie close together at the end, by their quartiles."""
    parts, holds = list[str](), True
    for label in LABELS:
        low, middle, high = (tmaze[label]["curves"][name] for name in ("low", "median", "high"))
        width = high[-1] - low[-1]
        parts.append(f"{label} {width:.2f}")
        holds &= width <= NOTHING * (middle[0] - middle[-1])
    note = "the plans of all steps are pooled, and shorter ones have another F"
    return Claim(TMAZE, "low variance across episodes", f"nats between quartiles: {', '.join(parts)}", holds, note)


def _phases(tmaze: ByLabel) -> list[Claim]:
    """A second descent in steps 1000–1200."""
    windows = (600, 800, 1000, 1200)
    if len(tmaze[ACTIVE]["unknown"]) < 1400:
        return []

    def falls(label: str, study: str) -> list[float]:
        return [drop(tmaze[label][study], begin, begin + 200) for begin in windows]

    def text(values: Sequence[float]) -> str:
        parts = (f"{begin}–{begin + 200}: {value:.3f}" for begin, value in zip(windows, values, strict=True))
        return ", ".join(parts)

    second, known = falls(ACTIVE, "unknown"), falls(ACTIVE, "known")
    others = {label: falls(label, "unknown") for label in (MARGINAL, PLANNING)}
    shown = "; ".join(f"{label} falls by {text(values)}" for label, values in others.items())
    absent = all(values[2] < ABSENT * second[2] for values in others.values())
    there = second[2] > max(second[1], HUNDREDTH)
    return [
        Claim(TMAZE, "F_active falls a second time in steps 1000–1200", f"F falls by {text(second)}", there),
        Claim(TMAZE, "… F_marginal and F_planning do not", shown, absent),
        Claim(
            TMAZE,
            "… nor F_active when θ is known (.95/.05)",
            f"F falls by {text(known)}",
            known[2] < ABSENT * second[2],
        ),
    ]


def _single_phase(active: Study) -> Claim:
    """No descent of F_active after its first 200 steps that is larger than the one before."""
    line = active["unknown"]
    windows = range(200, len(line) - 200, 200)
    falls = [drop(line, begin, begin + 200) for begin in (0, *windows)]
    later = any(b > max(a, HUNDREDTH) for a, b in itertools.pairwise(falls))
    text = ", ".join(f"{200 * i}–{200 * (i + 1)}: {fall:.3f}" for i, fall in enumerate(falls[:4]))
    enough = len(falls) >= 4
    return Claim(REACTIVITY, "F_active has no second phase", f"F falls by {text}, …", not later if enough else None)


# --- What the plans do -------------------------------------------------------------------------------------


def _cue(active: Study) -> list[Claim]:
    probs = {int(steps): value for steps, value in active["cue"].items()}
    claims = []
    for steps, claimed in ((10, 0.05), (1500, 0.41)):
        if steps in probs:
            holds = abs(probs[steps] - claimed) <= CLOSE
            claims.append(Claim(TMAZE, f"q(South) is {claimed} after {steps} steps", f"{probs[steps]:.3f}", holds))
    later = [value for steps, value in probs.items() if steps > 1500]
    if later:
        holds = max(abs(value - probs[1500]) for value in later) <= CLOSE
        claims.append(Claim(TMAZE, "… and is stable thereafter", f"{later[-1]:.3f} after {max(probs)} steps", holds))
    return claims


def _near_zero(tmaze: ByLabel) -> Claim:
    """Some start of N(0,1) is left after the first few steps."""
    parts, holds = list[str](), True
    for label in (MARGINAL, PLANNING):
        first, *others = tmaze[label]["cue"].values()
        parts.append(f"{label} {first:.3f} at first, then at most {max(others):.3f}")
        holds &= max(first, *others) <= SMALL
    return Claim(TMAZE, "F_marginal, F_planning: q(South) remains near zero", "; ".join(parts), holds)


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


def _marginal_reaches(marginal: Study) -> Claim:
    """About a number of steps: by the next one that was tried, or the one before."""
    success = {int(steps): one["success"] for steps, one in marginal["budget"].items()}
    first = next((steps for steps, value in success.items() if value >= 0.75 - CLOSE), None)
    outcome = f"at most {max(success.values()):.0%}" + (f", from {first} steps on" if first else "")
    holds = first in (750, 1000, 1250) and max(success.values()) <= 0.75 + CLOSE
    text = "F_marginal reaches 75 % at around 1000 steps"
    return Claim(TMAZE, text, outcome, holds if max(success) >= 1250 else None, LEFT)


def _listed(rates: Rates) -> str:
    return ", ".join(f"{name}: {one['success']:.0%}" for name, one in rates.items())


def _most(where: str, text: str, rates: Rates, limit: float, note: str = "") -> Claim:
    values = {name: one["success"] for name, one in rates.items()}
    best = max(values, key=lambda name: values[name])
    return Claim(where, text, f"at most {values[best]:.0%} (at {best})", values[best] <= limit + 1e-9, note)


def _rates(where: str, text: str, study: Study, only: tuple[float, ...] | None) -> Claim:
    success = {float(rate): one["success"] for rate, one in study["rates"].items()}
    sure = {rate for rate, value in success.items() if value >= SURE}
    return Claim(where, text, _listed(study["rates"]), sure == (set(success) if only is None else set(only)))


def _ends(where: str, text: str, study: Study, rates: Sequence[str], claimed: float, note: str = "") -> Claim:
    """Whether success is as claimed at some learning rates."""
    if not set(rates) <= study["rates"].keys():
        return Claim(where, text, "not run", None)
    holds = all(abs(study["rates"][rate]["success"] - claimed) <= CLOSE for rate in rates)
    return Claim(where, text, _listed(study["rates"]), holds, note)


def _rewards(maze: str, by_label: ByLabel) -> list[Claim]:
    claims = []
    for label, (mean, std) in PAPER_REWARD[maze].items():
        values = by_label[label]["rewards"]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        measured = f"{np.mean(values):+.2f} ± {spread:.2f} over {len(values)} streams"
        near = abs(float(np.mean(values)) - mean) <= max(CLOSE, std) and abs(spread - std) <= CLOSE
        note = "± 1 of every θ = left, − 1 of every other" if std and maze == "tmaze" else ""
        text = f"{label}: mean reward {mean:+.2f} ± {std:.2f}"
        claims.append(Claim(TITLES[maze], text, measured, near if len(values) > 1 else None, note))
    return claims
