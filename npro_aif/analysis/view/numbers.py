"""Numbers as short as a page needs them."""

from __future__ import annotations

from typing import Any

import numpy as np

DECIMALS = 5  # what is shown has three
LEAST = 0.5 * 10.0**-DECIMALS


def rounded(values: Any) -> Any:
    """Numbers with few decimals, in lists as deep as the array; None for what is not finite.

    >>> rounded([0.1234567, 2.0, float("inf")]), rounded(np.float32(1))
    ([0.12346, 2, None], 1)
    """
    array = np.asarray(values, np.float64)
    return _short(float(array)) if array.ndim == 0 else [rounded(row) for row in array]


def _short(value: float) -> float | int | None:
    if not np.isfinite(value):
        return None
    short = round(value, DECIMALS)
    return int(short) if short == int(short) else short


def sparse(probs: Any) -> list[float]:
    """What is not zero in a table of probabilities, one after the other: index, probability, index, …

    >>> sparse([0.0, 0.25, 0.0, 0.75])
    [1, 0.25, 3, 0.75]
    """
    table = np.asarray(probs, np.float64)
    return [number for i in np.flatnonzero(table >= LEAST) for number in (int(i), rounded(table[i]))]


def entropy(probs: Any) -> float:
    """−Σ p log p in nats.

    >>> round(entropy([0.5, 0.5, 0.0]), 4)
    0.6931
    """
    table = np.asarray(probs, np.float64).ravel()
    return float(-sum(p * np.log(p) for p in table[table > 0])) + 0.0
