"""The words of a `.POMDP` file, each with its line and column, so that every complaint can say where."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from npro_aif.errors import PomdpError

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])"
_TOKEN = re.compile(rf"(?P<number>{_NUMBER})|(?P<word>[A-Za-z][\w-]*)|(?P<sign>[:*])|(?P<blank>\s+|#.*)")


class Token(NamedTuple):
    """A word, a number or a sign."""

    kind: str  # "number", "word", "sign" or "end"
    text: str
    line: int  # from 1
    column: int  # from 1

    def __str__(self) -> str:
        return "the end of the file" if self.kind == "end" else repr(self.text)

    @property
    def is_count(self) -> bool:
        """Whether it is a whole number, written without a sign or a point."""
        return self.text.isdigit()


def decode(data: bytes, file: str = "<text>") -> str:
    """The text of a file in UTF-8, with or without the mark that some editors put before it.

    >>> decode("discount: 1  # échantillon".encode("utf-8-sig"))
    'discount: 1  # échantillon'
    """
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        lines = (data[: error.start].decode() + "?").splitlines()
        found = f"found the byte 0x{data[error.start]:02x}, expected text in UTF-8 (save the file as UTF-8)"
        raise PomdpError(file, len(lines), len(lines[-1]), found) from error


def tokenize(text: str, file: str = "<text>") -> list[Token]:
    """All words of a file, and its end; what follows a `#` in a line is left out.

    >>> [(token.text, token.line, token.column) for token in tokenize("T: listen  # no move\\nidentity")]
    [('T', 1, 1), (':', 1, 2), ('listen', 1, 4), ('identity', 2, 1), ('', 2, 9)]
    """
    tokens, lines = [], text.splitlines() or [""]
    for number, line in enumerate(lines, start=1):
        place = 0
        while place < len(line):
            match = _TOKEN.match(line, place)
            if match is None:
                word = line[place:].split()[0]
                raise PomdpError(file, number, place + 1, f"found {word!r}, expected a word, a number, ':' or '*'")
            if match.lastgroup != "blank":
                tokens.append(Token(str(match.lastgroup), match.group(), number, place + 1))
            place = match.end()
    return [*tokens, Token("end", "", len(lines), len(lines[-1]) + 1)]
