"""What appendix C of the paper claims of descents in DoorKey, and whether it holds here.

A claim of several descents is judged by those that were run, and says how many these are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from npro_aif.experiments.claims import DOUBLE, HALF, NOTHING, Claim

WHERE = "DoorKey"
BLANK, POSITION, LAYOUT, NEAR = "tabula rasa", "known position", "known layout", "near goal"
CONDITIONS = (BLANK, POSITION, LAYOUT, NEAR)
ADAM, ADAFACTOR = "Adam", "Adafactor"
SHORT, LONG = 20, 40  # horizons; near the goal it is 3, which counts as the short one
NORMALIZERS = "a rise is that of the normalisers, which F counts and the descent does not see"
EARLY, LATE = 100, 2500  # steps: when F_marginal is said to have converged, and the last sixth of a descent
Studies = Mapping[str, Any]


class Descent:
    """F along one descent."""

    def __init__(self, study: Mapping[str, Any]):
        self.steps, self.energy = (np.asarray(study[name], float) for name in ("steps", "free_energy"))
        self.begin, self.end = float(self.energy[0]), float(self.energy[-1])
        self.range = max(float(np.ptp(self.energy)), 1e-9)

    def __str__(self) -> str:
        return f"{self.begin:.2f} → {self.end:.2f}"

    def at(self, step: int) -> float:
        """F after so many steps."""
        return float(np.interp(step, self.steps, self.energy))

    @property
    def falls(self) -> bool:
        """Whether F falls monotonically."""
        rise = float((self.energy - np.minimum.accumulate(self.energy)).max())
        return self.end < self.begin and rise <= NOTHING * self.range

    @property
    def change(self) -> float:
        """The change of F in the last sixth, of its range."""
        return abs(self.end - self.at(LATE)) / self.range

    def when(self, share: float) -> int:
        """The number of steps after which F has made this share of its way."""
        return int(self.steps[np.argmax([self.made(step) >= share for step in self.steps])])

    def made(self, step: int) -> float:
        """The share of its way that F has made after so many steps."""
        way = self.end - self.begin
        return (self.at(step) - self.begin) / way if way else 1.0


Pair = tuple[Descent | None, Descent | None, str]  # of Adam and of Adafactor, and what they descend


def appendix_c(studies: Studies | None) -> list[Claim]:
    """The claims of appendix C; each "not run" where none of its descents was.

    :param studies: by "objective, condition, optimizer, T", with ``steps`` and ``free_energy``.
    """
    descents = {name: Descent(study) for name, study in (studies or {}).items()}

    def of(kind: str, condition: str, optimizer: str = ADAM, horizon: int = SHORT) -> Descent | None:
        return descents.get(f"{kind}, {condition}, {optimizer}, {horizon}")

    every = {tuple(name.split(", ")): descent for name, descent in descents.items()}
    adam = {
        f"F_{k}, {c}" + f", T = {T}" * (c != NEAR): descent for (k, c, opt, T), descent in every.items() if opt == ADAM
    }
    pairs = [(of(k, c), of(k, c, ADAFACTOR), f"F_{k}, {c}") for k in ("marginal", "planning") for c in CONDITIONS]
    marginal, planning = pairs[: len(CONDITIONS)], pairs[len(CONDITIONS) :]
    return [
        _each(
            "F_marginal reaches its minimum within about 100 steps, with both optimizers",
            _single(marginal),
            lambda d: f"{d.made(EARLY):.0%} of its way ({1 - NOTHING:.0%} after {d.when(1 - NOTHING)} steps)",
            lambda d: d.made(EARLY) >= 1 - NOTHING,
            2 * len(CONDITIONS),
        ),
        _alike("F_marginal ends alike with both optimizers", marginal),
        *(_rises(of("active", condition), condition) for condition in (BLANK, LAYOUT)),
        *(_falls(of("active", condition), condition) for condition in (POSITION, NEAR)),
        _fails("Adafactor fails to converge: F_active, known position", of("active", POSITION, ADAFACTOR)),
        _each(
            "F_planning falls gradually: monotonically, and not all at once",
            _single(planning),
            lambda d: f"{d}, {d.made(EARLY):.0%} in {EARLY} steps",
            lambda d: d.falls and d.made(EARLY) < 1 - NOTHING,
            2 * len(CONDITIONS),
        ),
        _alike("F_planning ends alike with both optimizers", planning),
        _smaller(of),
        *(_doubles(kind, of(kind, BLANK), of(kind, BLANK, horizon=LONG)) for kind in ("active", "planning")),
        _similar(of("marginal", BLANK), of("marginal", BLANK, horizon=LONG)),
        _fails("Adafactor fails to converge: F_active, T = 40", of("active", BLANK, ADAFACTOR, LONG)),
        _each(
            "all objectives converge within 3000 steps with Adam",
            adam,
            lambda d: f"{d.change:.1%}",
            lambda d: d.change <= NOTHING,
            18,
            "the change of F in the last 500 steps, of its range",
        ),
    ]


def _single(pairs: Sequence[Pair]) -> dict[str, Descent | None]:
    """Each descent of some pairs by its name."""
    return {f"{name}, {opt}": d for *both, name in pairs for opt, d in zip((ADAM, ADAFACTOR), both, strict=True)}


def _each(
    text: str,
    descents: Mapping[str, Descent | None],
    show: Callable[[Descent], str],
    holds: Callable[[Descent], bool],
    count: int,
    note: str = "",
) -> Claim:
    """A claim of several descents."""
    there = {name: d for name, d in descents.items() if d is not None}
    if not there:
        return Claim(WHERE, text, "not run", None)
    shown = "; ".join(f"{name}: {show(d)}" for name, d in there.items())
    some = f" ({len(there)} of {count} descents)" if len(there) < count else ""
    return Claim(WHERE, text, shown + some, all(holds(d) for d in there.values()), note)


def _alike(text: str, pairs: Sequence[Pair]) -> Claim:
    """Whether two optimizers end alike."""
    there = {name: (a, b) for a, b, name in pairs if a is not None and b is not None}
    if not there:
        return Claim(WHERE, text, "not run", None)
    shown = "; ".join(f"{name}: {a.end:.2f} and {b.end:.2f}" for name, (a, b) in there.items())
    some = f" ({len(there)} of {len(pairs)} pairs)" if len(there) < len(pairs) else ""
    alike = (abs(a.end - b.end) <= NOTHING * max(abs(a.end), a.range, b.range) for a, b in there.values())
    return Claim(WHERE, text, shown + some, all(alike))


def _similar(short: Descent | None, double: Descent | None) -> Claim:
    text = "F_marginal converges at similar rates for T = 20 and T = 40"
    if short is None or double is None:
        return Claim(WHERE, text, "not run", None)
    made = [one.made(EARLY) for one in (short, double)]
    outcome = f"{made[0]:.0%} and {made[1]:.0%} of the way in {EARLY} steps"
    return Claim(WHERE, text, outcome, abs(made[0] - made[1]) <= NOTHING)


def _rises(descent: Descent | None, condition: str) -> Claim:
    text = f"F_active rises: {condition}"
    if descent is None:
        return Claim(WHERE, text, "not run", None)
    return Claim(WHERE, text, str(descent), descent.end > descent.begin, NORMALIZERS)


def _falls(descent: Descent | None, condition: str) -> Claim:
    text = f"F_active falls monotonically: {condition}"
    if descent is None:
        return Claim(WHERE, text, "not run", None)
    lowest = float(descent.energy.min())
    outcome = f"{descent}, lowest {lowest:.2f} after {int(descent.steps[descent.energy.argmin()])} steps"
    return Claim(WHERE, text, outcome, descent.falls)


def _fails(text: str, descent: Descent | None) -> Claim:
    """Whether a descent has not converged."""
    if descent is None:
        return Claim(WHERE, text, "not run", None)
    outcome = f"{descent}; {descent.change:.1%} of its range in the last 500 steps"
    return Claim(WHERE, text, outcome, descent.change > NOTHING)


def _smaller(of: Callable[[str, str], Descent | None]) -> Claim:
    """Whether F is substantially smaller near the goal."""
    text, parts, holds = "near the goal F is substantially smaller, for all objectives", list[str](), True
    for kind in ("active", "planning", "marginal"):
        near, others = of(kind, NEAR), [d for c in CONDITIONS[:-1] if (d := of(kind, c)) is not None]
        if near is not None and others:
            least = min(abs(d.end) for d in others)
            parts.append(f"F_{kind} {near.end:.2f}, elsewhere at least {least:.2f}")
            holds &= abs(near.end) < HALF * least
    return Claim(WHERE, text, "; ".join(parts) or "not run", holds if parts else None)


def _doubles(kind: str, short: Descent | None, double: Descent | None) -> Claim:
    text = f"T = 40 roughly doubles F_{kind}"
    if short is None or double is None:
        return Claim(WHERE, text, "not run", None)
    ratio = double.end / short.end
    return Claim(WHERE, text, f"{ratio:.2f} times", DOUBLE[0] <= ratio <= DOUBLE[1])
