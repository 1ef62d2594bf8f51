"""Tables that grow by rows, with room to spare, so that adding rows does not copy the whole table."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from npro_aif.solvers.search.hypotheses import Step


class Column:
    """Rows of an array, to which more are added at the end. Earlier views stay as they are."""

    def __init__(self, rows: np.ndarray):
        self._room, self.size = rows, len(rows)

    @property
    def rows(self) -> np.ndarray:
        return self._room[: self.size]

    def add(self, rows: np.ndarray) -> None:
        """Add rows; narrower rows are padded with zeros."""
        end = self.size + len(rows)
        shape = np.maximum(self._room.shape[1:], rows.shape[1:])
        if end > len(self._room) or any(shape > self._room.shape[1:]):
            room = np.zeros((max(end, 2 * self.size), *shape), rows.dtype)
            room[_corner(self.rows)] = self.rows
            self._room = room
        self._room[self.size : end][_corner(rows)] = rows
        self.size = end


def _corner(rows: np.ndarray) -> tuple[slice, ...]:
    return tuple(slice(length) for length in rows.shape)


class Numbering:
    """Numbers for 64-bit names, 0, 1, … as they come in."""

    def __init__(self) -> None:
        self.names = np.zeros(0, np.uint64)  # by number
        self._sorted, self._numbers = self.names, np.zeros(0, np.int64)

    def __call__(self, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number of each name, and the first place of each new name, flat."""
        distinct, place, inverse = np.unique(names, return_index=True, return_inverse=True)
        at = np.searchsorted(self._sorted, distinct)
        fresh = np.append(self._sorted, distinct[:1])[at] != distinct
        fresh |= at == len(self._sorted)
        numbers = np.append(self._numbers, 0)[at]
        numbers[fresh] = len(self.names) + np.arange(fresh.sum())
        self._sorted = np.insert(self._sorted, at[fresh], distinct[fresh])
        self._numbers = np.insert(self._numbers, at[fresh], numbers[fresh])
        self.names = np.append(self.names, distinct[fresh])
        return numbers[inverse].reshape(names.shape), place[fresh]


class StepTables:
    """The steps of every kind over a growing number of rows; steps with equal moves share their arrays."""

    def __init__(self) -> None:
        self._columns: list[Step] = []  # of columns
        self.steps: list[Step] = []  # as they are now

    def add(self, fresh: list[Step]) -> None:
        """Add rows to every kind of step."""
        if self._columns:
            self._extend(fresh)
        else:
            self._columns = each(Column, fresh)
        self.steps = each(lambda column: column.rows, self._columns)

    def _extend(self, fresh: list[Step]) -> None:
        added: dict[int, np.ndarray] = {}  # by column

        def extended(column: Any, rows: Any) -> Column:
            if id(column) not in added:
                added[id(column)] = rows
                column.add(rows)
            elif added[id(column)] is not rows:  # so far the two were equal
                column = Column(column.rows[: column.size - len(rows)])
                column.add(rows)
            return column

        self._columns = [jax.tree.map(extended, *pair) for pair in zip(self._columns, fresh, strict=True)]


def each(function: Any, steps: list[Step]) -> list[Step]:
    """Apply a function to every array of steps, once to arrays that are shared."""
    results: dict[int, Any] = {}

    def once(leaf: Any) -> Any:
        if id(leaf) not in results:
            results[id(leaf)] = function(leaf)
        return results[id(leaf)]

    return [jax.tree.map(once, step) for step in steps]
