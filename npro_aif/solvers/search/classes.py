"""Hypotheses that no agent could tell apart, and need not: they cost the same, look the same and lead to the same.

Every hypothesis gets a 64-bit name, made of what each control costs there, of what is seen where it leads, and of the
names there; after n rounds equal names mean that n steps bring the same whatever is done. So parameters and states that
no longer matter fall together: in DoorKey, where the key lay once it is carried. (Names differ by chance alike with a
probability of about H²/2⁶⁵.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npro_aif.solvers.search.hypotheses import UNIT, Step, words

GRAIN = 2.0**-30  # costs are told apart down to this, in nats


def names(steps: Sequence[Step], rounds: int, first: int) -> np.ndarray:
    """The name of each hypothesis, (H,) uint64, by what ``rounds`` steps bring.

    :param steps: every kind of step that there is; those with the same moves share their arrays.
    :param first: the number of the first hypothesis.
    """
    num_controls = steps[0].cost.shape[1]
    moves = list({(id(step.to), id(step.label)): step for step in steps}.values())
    fixed = np.zeros(len(steps[0].cost), np.uint64)
    with np.errstate(over="ignore"):
        for place, step in enumerate(steps):
            cost = np.where(np.isfinite(step.cost), step.cost, -1e9)
            grains = np.rint(cost / GRAIN).astype(np.int64).view(np.uint64)
            fixed += (_mixed(grains) * _odd(1, place, num_controls)).sum(1)
        for place, step in enumerate(moves):
            seen = _seen(step)  # (H, V)
            control = np.arange(num_controls) if seen.shape[1] > 1 else np.zeros(num_controls, np.intp)
            ahead = seen[step.to - first, control[:, None]]
            fixed += (_over_chance(step, ahead) * _odd(2, place, num_controls)).sum(1)
        name = _mixed(fixed)
        for _ in range(rounds):
            after = fixed.copy()
            for place, step in enumerate(moves):
                after += (_over_chance(step, name[step.to - first]) * _odd(3, place, num_controls)).sum(1)
            name = _mixed(after)
    return name


def _seen(step: Step) -> np.ndarray:
    """A name for what is seen on arrival, (H, V), uncertain sites by their probabilities."""
    seen = step.label.copy()
    for place, table in enumerate(step.sight):
        seen = seen + (np.rint(table * UNIT).astype(np.uint64) * words(4, place, table.shape[-1])).sum(-1)
    return _mixed(seen)


def _over_chance(step: Step, ahead: np.ndarray) -> np.ndarray:
    """Names (H, U, J) of where a control leads as one, (H, U): each counts by its probability."""
    if step.chance is None:
        return ahead[..., 0]
    return (np.rint(step.chance * UNIT).astype(np.uint64) * ahead).sum(-1)


def _odd(*seed: int) -> np.ndarray:
    """Odd numbers to multiply with: they lose nothing."""
    return words(*seed) | np.uint64(1)


def _mixed(name: np.ndarray) -> np.ndarray:
    """A bijection of 64-bit numbers that spreads every bit over all others (the end of Steele's SplitMix64)."""
    name = (name ^ (name >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    name = (name ^ (name >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return name ^ (name >> np.uint64(31))
