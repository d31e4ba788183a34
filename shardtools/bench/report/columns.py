"""Text in a terminal's columns: a Chinese character takes two, and lines of Chinese break anywhere but before a comma."""

import unicodedata
from collections.abc import Iterator, Sequence

_NEVER_FIRST = set("，。；：、！？）》」』”%％,.;:!?)]}")
"""A line does not begin with these."""
_NEVER_LAST = set("（《「『“([{")


def width(text: str) -> int:
    """Columns of a terminal."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else not unicodedata.combining(character) for character in text)


def padded(text: str, columns: int, to_right: bool = False) -> str:
    """Filled up with spaces; ``to_right``: before it."""
    spaces = " " * max(0, columns - width(text))
    return spaces + text if to_right else text + spaces


def cut(text: str, columns: int) -> str:
    """Its end, which tells names apart, behind three dots where it is too long."""
    if width(text) <= columns:
        return text
    while width(text) > columns - 3:
        text = text[1:]
    return f"...{text}"


def wrapped(text: str, columns: int, indent: str = "") -> Iterator[str]:
    """Lines of at most so many columns, all but the first behind ``indent``. Words longer than a line are broken."""
    line = ""
    for piece in _pieces(text):
        fits = width(line) + width(piece.rstrip()) <= columns
        if not fits and line.strip():
            yield line.rstrip()
            line, piece = indent, piece.lstrip()
        while width(line) + width(piece) > columns and piece.strip() and width(line) + width(piece.rstrip()) > columns:
            head = _head(piece, columns - width(line))
            yield line + head
            line, piece = indent, piece[len(head) :]
        line += piece
    if line.strip():
        yield line.rstrip()


def _head(piece: str, columns: int) -> str:
    """The beginning of a word that fits; one character at least."""
    end = 1
    while end < len(piece) and width(piece[: end + 1]) <= columns:
        end += 1
    return piece[:end]


def _pieces(text: str) -> Sequence[str]:
    """What a line may end after: words with the spaces behind them, and single Chinese characters with the marks that belong to them."""
    pieces: list[str] = []
    for character in text:
        if pieces and not _may_break(pieces[-1], character):
            pieces[-1] += character
        else:
            pieces.append(character)
    return pieces


def _may_break(before: str, character: str) -> bool:
    last = before[-1]
    if character.isspace() or last in _NEVER_LAST or character in _NEVER_FIRST:
        return False
    if last.isspace():
        return True
    return width(last) == 2 or width(character) == 2
