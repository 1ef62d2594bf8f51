"""Classes of hypotheses that no agent can or need tell apart: equal costs, equal observations, equal successors.

Every hypothesis gets a 64-bit name, made of the observation on arriving there, of the costs of the controls, and of the
probabilities of the next names. After n rounds, hypotheses with equal names behave the same for n steps whatever is
done. So parameters and states that no longer matter fall together, such as the place of DoorKey's key once it is
carried. (Different hypotheses get the same name by chance with a probability of about H²/2⁶².)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from npro_aif.solvers.search.hypotheses import Step, words

GRAIN = 2.0**-30  # costs are distinguished down to this difference, in nats
UNIT = 2.0**40  # probabilities are distinguished down to a difference of 1 / UNIT
PRIMES = (2**31 - 1, 2**31 - 19)  # multiplying modulo a prime loses nothing, whatever the probability


def names(steps: Sequence[Step], rounds: int, first: int) -> np.ndarray:
    """The name of each hypothesis, (H,) uint64, by its behaviour over ``rounds`` steps.

    :param steps: every kind of step; kinds with the same moves share their arrays.
    :param first: the number of the first hypothesis.
    """
    num_controls = steps[0].cost.shape[1]
    moves = list({(id(step.to), id(step.label)): step for step in steps}.values())
    fixed = np.zeros(len(steps[0].cost), np.uint64)
    with np.errstate(over="ignore"):
        for place, step in enumerate(steps):
            grains = (np.rint(step.cost / GRAIN) + 0.0).view(np.uint64)  # + 0: there is one zero
            fixed += (_mixed(grains) * _odd(1, place, num_controls)).sum(1)
        for place, step in enumerate(moves):
            fixed += (_seen(step) * _odd(2, place, step.label.shape[1])).sum(1)
        name = _mixed(fixed)
        ways = [way for place, step in enumerate(moves) for way in _ways(step, place, first)]
        for _ in range(rounds):
            after = fixed.copy()
            for to, units, factor in ways:
                ahead = _over_chance(units, name.take(to))
                ahead *= factor
                after += ahead
            name = _mixed(after)
    return name


def _ways(step: Step, place: int, first: int) -> Iterator[tuple[np.ndarray, np.ndarray | None, np.uint64]]:
    """By control: the next hypotheses, (H, J), their probabilities, and a factor for their names."""
    for control, factor in enumerate(_odd(3, place, step.to.shape[1])):
        to = (step.to[:, control] - first).astype(np.intp)
        yield to, None if step.chance is None else _units(step.chance[:, control]), factor


def _seen(step: Step) -> np.ndarray:
    """A name for what is seen on arrival, (H, V), uncertain sites by their probabilities."""
    seen = step.label.copy()
    for place, table in enumerate(step.sight):
        seen = seen + (_mixed(_units(table)) * _odd(4, place, table.shape[-1])).sum(-1)
    return _mixed(seen)


def _over_chance(units: np.ndarray | None, ahead: np.ndarray) -> np.ndarray:
    """Names (H, J) of where a control leads as one, (H,): Σ_j p_j name_j, so that equal ones count together."""
    if units is None:
        return ahead[:, 0]
    low, high = (
        ((units % prime) * ((ahead >> np.uint64(shift)) % prime) % prime).sum(-1) % prime
        for prime, shift in zip(np.array(PRIMES, np.uint64), (0, 32), strict=True)
    )
    return low | high << np.uint64(32)


def _units(probs: np.ndarray) -> np.ndarray:
    return np.rint(probs * UNIT).astype(np.uint64)


def _odd(*seed: int) -> np.ndarray:
    """Odd numbers to multiply with: they lose nothing."""
    return words(*seed) | np.uint64(1)


def _mixed(name: np.ndarray) -> np.ndarray:
    """A bijection of 64-bit numbers that spreads every bit over all others (the end of Steele's SplitMix64)."""
    name = name ^ (name >> np.uint64(30))  # a copy, which then changes in place
    name *= np.uint64(0xBF58476D1CE4E5B9)
    name ^= name >> np.uint64(27)
    name *= np.uint64(0x94D049BB133111EB)
    name ^= name >> np.uint64(31)
    return name
