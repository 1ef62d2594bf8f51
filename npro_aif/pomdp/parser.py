"""The grammar of `.POMDP` files: words to a :class:`Problem`, and a complaint with its place for everything else.

A section gives one number, a row or a matrix of a table, for one value of each axis that it names or (`*`) for all of
them; later sections write over earlier ones. That is the whole format, so that one reader serves T, O and R.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from npro_aif.belief import ROW_SUM_TOLERANCE
from npro_aif.errors import PomdpError
from npro_aif.pomdp.problem import Problem
from npro_aif.pomdp.tokens import Token, tokenize

LISTS = {"states": "state", "actions": "action", "observations": "observation"}
TABLES = {"T": ("action", "state", "state"), "O": ("action", "state", "observation")}
REWARD_AXES = ("action", "state", "state", "observation")
HEADS = ("discount", "values", *LISTS, "start", *TABLES, "R")
LARGEST = 1e30  # of a reward: float32 ends at 3.4e38, so that sums over any plan stay finite
MOST_BLOCK_AXES = 2  # a section gives at most a matrix


class Entry(NamedTuple):
    """What a section says of a table."""

    place: tuple[int | None, ...]  # on the axes that are named, None for all values
    values: np.ndarray  # over the axes that are left
    rows: tuple[Token, ...]  # where it says it, of a matrix where each row begins


def parse(text: str, file: str = "<text>", name: str = "problem") -> Problem:
    """The problem that a file states.

    :param file: for complaints.

    >>> problem = parse("discount: 0.9 values: reward states: 2 actions: stay observations: 1\\n"
    ...                 "T: stay identity  O: * uniform  R: stay : 1 : * : * 5")
    >>> problem.start.tolist(), problem.mean_rewards()[:, 0, 0].tolist()
    ([0.5, 0.5], [0.0, 5.0])
    """
    return _Parser(tokenize(text, file), file).problem(name)


class _Parser:
    """One pass over the words of a file."""

    def __init__(self, tokens: Sequence[Token], file: str):
        self._tokens, self._place, self._file = tokens, 0, file
        self._heads: dict[str, Token] = {}  # where each section of the preamble is
        self._names: dict[str, tuple[str, ...]] = {}  # by axis
        self._discount, self._sign = 1.0, 1.0
        self._start: np.ndarray | None = None
        self._entries: dict[str, list[Entry]] = {"T": [], "O": [], "R": []}

    # --- Words ---

    @property
    def _next(self) -> Token:
        return self._tokens[self._place]

    def _take(self) -> Token:
        token = self._next
        self._place += token.kind != "end"
        return token

    def _fail(self, token: Token, problem: str) -> NoReturn:
        raise PomdpError(self._file, token.line, token.column, problem)

    def _no_section(self, token: Token) -> NoReturn:
        self._fail(token, f"found {token}, expected a section: {', '.join(f'{head}:' for head in HEADS)}")

    def _expect(self, text: str, what: str) -> None:
        token = self._take()
        if token.text != text:
            self._fail(token, f"found {token}, expected {what}")

    def _at_head(self) -> bool:
        """Whether a section begins here."""
        if self._next.kind == "end":
            return True
        after = self._tokens[self._place + 1].text
        return self._next.text in HEADS and (after == ":" or (self._next.text == "start" and after in _SOME))

    # --- Sections ---

    def problem(self, name: str) -> Problem:
        while self._next.kind != "end":
            head = self._take()
            if head.text not in HEADS:
                self._no_section(head)
            if head.text not in self._entries:
                if head.text in self._heads:
                    self._fail(head, f"found {head.text} again (it is in line {self._heads[head.text].line})")
                self._heads[head.text] = head
            self._section(head)
        for needed in ("discount", "values", "states", "actions"):
            if needed not in self._heads:
                self._fail(self._next, f"found no '{needed}:', expected one")
        return self._build(name)

    def _section(self, head: Token) -> None:
        if head.text == "start":
            self._start = self._read_start(head)
            return
        self._expect(":", f"':' after {head}")
        if head.text == "discount":
            token, self._discount = self._number("a discount from 0 to 1")
            if not 0 <= self._discount <= 1:
                self._fail(token, f"found a discount of {token.text}, expected one from 0 to 1")
        elif head.text == "values":
            word = self._take()
            if word.text not in ("reward", "cost"):
                self._fail(word, f"found {word}, expected reward or cost")
            self._sign = 1.0 if word.text == "reward" else -1.0
        elif head.text in LISTS:
            self._names[LISTS[head.text]] = self._read_names(head)
        else:
            self._entries[head.text].append(self._read_entry(head))

    def _read_names(self, head: Token) -> tuple[str, ...]:
        """How many there are, or their names."""
        first = self._next
        if first.kind == "number":
            if not first.is_count or int(first.text) < 1:
                self._fail(first, f"found {first}, expected how many {head.text} there are, or their names")
            self._take()
            return tuple(str(i) for i in range(int(first.text)))
        names: list[str] = []
        while not self._at_head():
            token = self._take()
            if token.text == ":" and names:
                self._no_section(self._tokens[self._place - 2])
            if token.kind != "word":
                self._fail(token, f"found {token}, expected a name for one of the {head.text} (a letter first)")
            if token.text in names:
                self._fail(token, f"found {token} twice among the {head.text}, expected different names")
            names.append(token.text)
        if not names:
            self._fail(self._next, f"found {self._next}, expected how many {head.text} there are, or their names")
        return tuple(names)

    def _read_start(self, head: Token) -> np.ndarray:
        """The belief at the start: a row, uniform, one state, or uniform over those that are (not) listed."""
        size = len(self._axis(head, "state"))
        word = self._take()
        if word.text in _SOME:
            self._expect(":", f"':' after start {word.text}")
            listed: set[int | None] = set()
            while not self._at_head():
                listed.add(self._reference("state"))
            if None in listed or not 0 < len(listed) < size + (word.text == "include"):
                self._fail(word, f"found {len(listed)} of {size} states to {word.text}, expected some")
            chosen = np.isin(np.arange(size), [i for i in listed if i is not None]) == (word.text == "include")
            return chosen / chosen.sum()
        if word.text != ":":
            self._fail(word, f"found {word}, expected ':', include or exclude after start")
        first = self._next
        if first.text == "uniform":
            self._take()
            return np.full(size, 1 / size)
        alone = first.is_count and self._tokens[self._place + 1].kind != "number"
        if first.kind == "word" or (alone and (size > 1 or int(first.text) == 0)):  # of one state 1 is the probability
            state = self._reference("state")
            return np.eye(size)[state]
        row, _ = self._numbers((size,), "start", probabilities=True)
        self._check_row(first, row, "start")
        return row / row.sum()

    def _axis(self, head: Token, axis: str) -> tuple[str, ...]:
        if axis not in self._names:
            section = next(section for section, name in LISTS.items() if name == axis)
            self._fail(head, f"found {head.text} before '{section}:', expected it after")
        return self._names[axis]

    def _axes(self, head: Token) -> tuple[str, ...]:
        if head.text in TABLES:
            if head.text == "O":
                self._axis(head, "observation")
            return TABLES[head.text]
        return REWARD_AXES if "observation" in self._names else REWARD_AXES[:-1]

    def _read_entry(self, head: Token) -> Entry:
        """What a section says: the axes that it names, then a number, a row, a matrix or a word that stands for one."""
        axes = self._axes(head)
        sizes = [len(self._axis(head, axis)) for axis in axes]
        index = [self._reference(axes[0])]
        while self._next.text == ":" and len(index) < len(axes):
            self._take()
            index.append(self._reference(axes[len(index)]))
        shape = tuple(sizes[len(index) :])
        if len(shape) > MOST_BLOCK_AXES:
            self._fail(self._next, f"found {self._next}, expected ': <{axes[len(index)]}>' ({head.text} is too large)")
        if self._next.kind == "word" and not self._at_head():
            word = self._next
            values, rows = self._word_block(head, shape), (word,) * (shape[0] if len(shape) == 2 else 1)
        else:
            what = f"{head.text}: {self._spoken(index, axes)}"
            values, rows = self._numbers(shape, what, probabilities=head.text in TABLES)
        return Entry(tuple(index), values, rows)

    def _word_block(self, head: Token, shape: tuple[int, ...]) -> np.ndarray:
        """The row or matrix that a word stands for."""
        word = self._take()
        blocks: dict[str, Callable[[], np.ndarray]] = {}
        if head.text in TABLES and shape:
            blocks["uniform"] = lambda: np.full(shape, 1 / shape[-1])
            if len(shape) == 2 and shape[0] == shape[1]:
                blocks["identity"] = lambda: np.eye(shape[0])
            if head.text == "T" and len(shape) == 1:
                blocks["reset"] = lambda: np.full(shape, np.nan)  # the start, once all is read
        if word.text not in blocks:
            self._fail(word, f"found {word}, expected {_spoken_shape(shape)}{''.join(f' or {b}' for b in blocks)}")
        return blocks[word.text]()

    def _reference(self, axis: str) -> int | None:
        """A value of an axis, by its name or its number; None for `*`."""
        token, names = self._take(), self._names[axis]
        if token.text == "*":
            return None
        if token.text in names:
            return names.index(token.text)
        if token.is_count and int(token.text) < len(names):
            return int(token.text)
        known = ", ".join(names) if len(names) <= 8 else f"0..{len(names) - 1}" if names[0] == "0" else "its names"
        self._fail(token, f"found {token}, expected one of the {len(names)} {axis}s: {known}, or *")

    def _number(self, what: str) -> tuple[Token, float]:
        token = self._take()
        if token.kind != "number":
            self._fail(token, f"found {token}, expected {what}")
        return token, float(token.text)

    def _numbers(
        self, shape: tuple[int, ...], what: str, *, probabilities: bool
    ) -> tuple[np.ndarray, tuple[Token, ...]]:
        """A block of numbers, and no number more; and where its rows begin."""
        count, whole = math.prod(shape), f"{what} has {_spoken_shape(shape)}"
        numbers = [self._number(f"number {i} of {count} ({whole})") for i in range(1, count + 1)]
        if self._next.kind == "number":
            self._fail(self._next, f"found one number more, {self._next.text}, expected the next section ({whole})")
        for token, value in numbers:
            if probabilities and not 0 <= value <= 1:
                self._fail(token, f"found a probability of {token.text}, expected one from 0 to 1")
            if not abs(value) <= LARGEST:
                self._fail(token, f"found {token.text}, expected a number from {-LARGEST:g} to {LARGEST:g}")
        rows = tuple(token for token, _ in numbers[:: shape[-1] if shape else 1])
        return np.array([value for _, value in numbers]).reshape(shape), rows

    def _check_row(self, place: Token, row: np.ndarray, what: str) -> None:
        if not abs(row.sum() - 1) <= ROW_SUM_TOLERANCE:
            self._fail(place, f"found that {what} sums to {row.sum():.6g}, expected 1")

    def _spoken(self, index: Sequence[int | None], axes: Sequence[str]) -> str:
        parts = ["*" if i is None else self._names[axis][i] for i, axis in zip(index, axes, strict=False)]
        return " : ".join(parts)

    # --- Tables ---

    def _build(self, name: str) -> Problem:
        states, controls = self._names["state"], self._names["action"]
        start = np.full(len(states), 1 / len(states)) if self._start is None else self._start
        transition = self._table("T", start)
        observations = self._names.get("observation", ())
        emission = self._table("O", start) if observations else np.zeros((len(controls), len(states), 0))
        rewards = tuple(self._sign * self._rewards(u) for u in range(len(controls)))
        return Problem(name, self._discount, states, controls, observations, start, transition, emission, rewards)

    def _table(self, head: str, start: np.ndarray) -> np.ndarray:
        """T or O, each row written by the last sections that speak of it; rows that do not sum to one are refused."""
        axes = TABLES[head]
        table = np.zeros([len(self._names[axis]) for axis in axes])
        places: list[Token] = []
        writer = np.full(table.shape[:2], -1)  # the place that wrote last into a row
        for index, values, rows in self._entries[head]:
            table[_slices(index)] = start if np.isnan(values).any() else values
            number = len(places) + np.arange(len(rows))
            writer[_slices(index[:2])] = number if values.ndim == 2 else number[0]
            places.extend(rows)
        for row in zip(*np.nonzero(~(np.abs(table.sum(-1) - 1) <= ROW_SUM_TOLERANCE)), strict=True):
            what = f"{head}: {self._spoken(row, axes)}"
            if writer[row] < 0:
                self._fail(self._next, f"found no probabilities for {what}, expected a row of them")
            self._check_row(places[writer[row]], table[row], what)
        return table / table.sum(-1, keepdims=True)

    def _rewards(self, u: int) -> np.ndarray:
        """R of one control, (X, X'|1, Y|1): an axis that no section names is left out."""
        entries = [entry for entry in self._entries["R"] if entry.place[0] in (None, u)]
        shape = [len(self._names["state"]), 1, 1]
        for axis, name in ((2, "state"), (3, "observation")):
            if any(len(entry.place) <= axis or entry.place[axis] is not None for entry in entries):
                shape[axis - 1] = len(self._names.get(name, ("",)))
        table = np.zeros(shape)
        for entry in entries:
            index = _slices(entry.place[1:])
            if "observation" not in self._names:
                index = (*index, *[slice(None)] * (2 - len(index)), 0)
            table[index] = entry.values
        return table


_SOME = ("include", "exclude")


def _slices(index: Sequence[int | None]) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else i for i in index)


def _spoken_shape(shape: tuple[int, ...]) -> str:
    if not shape:
        return "one number"
    return f"{shape[0]} numbers" if len(shape) == 1 else f"{shape[0]}×{shape[1]} numbers"
