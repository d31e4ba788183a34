"""The words of a ``--where`` expression, each with its place."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from shardtools.errors import UsageError
from shardtools.sample import brief

KEYWORDS = ("and", "or", "not", "in", "is", "null", "true", "false", "contains", "startswith")
_BARE_NAME = r"[^\W\d][\w-]*(?:\.[\w-]+)*"
_WORD = re.compile(
    rf"""(?P<name>{_BARE_NAME}|`[^`]+`)
       | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
       | (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
       | (?P<sign><=|>=|==|!=|[=<>(),])""",
    re.VERBOSE,
)
_BLANK = re.compile(r"\s*")
_MAX_NUMBER_CHARS = 400
_EXACT_FLOAT = 2**53


class Word(NamedTuple):
    """One word. ``kind`` is ``name``, ``text``, ``number``, ``keyword``, ``sign`` or ``end``."""

    kind: str
    value: Any
    """A name without backticks, the text or number itself, a keyword in lower case, a sign as it is."""
    position: int
    """Of its first character, counted from 1."""
    typed: str


def words(expression: str) -> Iterator[Word]:
    """The words up to one of the kind ``end``. Raises UsageError at a character that begins none."""
    at = 0
    while True:
        at += len(_BLANK.match(expression, at)[0])  # type: ignore[index]
        if at == len(expression):
            yield Word("end", None, at + 1, "the end")
            return
        found = _WORD.match(expression, at)
        if found is None:
            is_quote = expression[at] in "'\"`"
            wanted = f"a closing {expression[at]} for the one" if is_quote else "a field, a value or a comparison"
            raise misplaced(expression, at + 1, wanted, "none" if is_quote else expression[at])
        yield _word(expression, found)
        at = found.end()


def misplaced(expression: str, position: int, wanted: str, got: str) -> UsageError:
    """The error for what is not as it should be at a place of the expression."""
    return UsageError(f"expected --where with {wanted} at character {position}, got {got}: {brief(expression)}")


def name_text(name: str) -> str:
    """A field's name as it can be typed."""
    is_bare = re.fullmatch(_BARE_NAME, name) is not None and name.lower() not in KEYWORDS
    return name if is_bare else f"`{name}`"


def value_text(value: Any) -> str:
    """A value as it can be typed."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return repr(value)


def _word(expression: str, found: re.Match[str]) -> Word:
    typed, position = found[0], found.start() + 1
    if found["sign"] is not None:
        return Word("sign", "==" if typed == "=" else typed, position, typed)
    if found["text"] is not None:
        return Word("text", typed[1:-1].replace(typed[0] * 2, typed[0]), position, brief(typed))
    if found["number"] is not None:
        return Word("number", _number(expression, typed, position), position, typed)
    if typed.lower() in KEYWORDS:
        return Word("keyword", typed.lower(), position, typed)
    return Word("name", typed.strip("`"), position, brief(typed.strip("`")))


def _number(expression: str, typed: str, position: int) -> int | float:
    """Whole numbers exactly; a fraction that is none as the whole number it is."""
    if len(typed) > _MAX_NUMBER_CHARS:
        raise misplaced(expression, position, f"numbers of at most {_MAX_NUMBER_CHARS} characters", f"{len(typed)}")
    if typed.lstrip("+-").isdecimal():
        return int(typed)
    number = float(typed)
    if number in (float("inf"), -float("inf")):
        raise misplaced(expression, position, "numbers that a float can hold", typed)
    return int(number) if number.is_integer() and abs(number) <= _EXACT_FLOAT else number
