"""Moves on a grid whose cells are counted row by row, for the worlds that have one."""

from __future__ import annotations

import numpy as np

MOVES = ("left", "down", "right", "up")
STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))  # in rows and columns


def targets(rows: int, columns: int) -> np.ndarray:
    """The cell that each move leads to, (cells, 4); a move off the grid stays.

    >>> targets(2, 3)[4].tolist()
    [3, 4, 5, 1]
    """
    row, column = np.divmod(np.arange(rows * columns)[:, None], columns)
    down, right = np.array(STEPS).T
    inside = (row + down >= 0) & (row + down < rows) & (column + right >= 0) & (column + right < columns)
    return np.where(inside, (row + down) * columns + column + right, row * columns + column)


def slippery(rows: int, columns: int, slip: float) -> np.ndarray:
    """p(cell' | cell, move), (cells, 4, cells): each of the other three moves with a third of ``slip``."""
    certain = np.eye(rows * columns)[targets(rows, columns)]
    others = certain.sum(1, keepdims=True) - certain
    return (1 - slip) * certain + slip / 3 * others


def distances(rows: int, columns: int, kind: str = "manhattan") -> np.ndarray:
    """Between all cells, (cells, cells): "manhattan" or (along the longer axis) "chebyshev"."""
    row, column = np.divmod(np.arange(rows * columns), columns)
    apart = np.abs(row[:, None] - row), np.abs(column[:, None] - column)
    return apart[0] + apart[1] if kind == "manhattan" else np.maximum(*apart)
