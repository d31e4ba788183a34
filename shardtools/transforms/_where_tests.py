"""What a ``--where`` expression asks of a sample: comparisons of one field each, joined by and, or and not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shardtools.sample import brief
from shardtools.transforms._where_words import name_text, value_text

Test = Callable[[Sequence[Any]], bool]
"""Told the values of a sample's fields, whether it is taken. Raises MisfitError."""
_NUMBERS = (int, float)


class MisfitError(Exception):
    """A value that cannot be compared as asked for; the message is one sentence."""


@dataclass(frozen=True)
class Comparison:
    """A field beside a value, or several. False where the sample lacks the field, or has null in it, but for ``is null``."""

    name: str
    operator: str
    values: tuple[Any, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        return frozenset([self.name])

    @property
    def text(self) -> str:
        """The one way to write it."""
        shown = ", ".join(map(value_text, self.values))
        shown = f"({shown})" if self.operator in ("in", "not in") else shown
        return f"{name_text(self.name)} {self.operator} {shown}".rstrip()

    def test(self, columns: Sequence[str]) -> Test:
        """The test of samples whose values come in the order of these names."""
        at, values, name = columns.index(self.name), self.values, self.name
        if self.operator in ("is null", "is not null"):
            is_null = self.operator == "is null"
            return lambda row: (row[at] is None) == is_null
        is_turned = self.operator.startswith("not ")
        compare = _COMPARE[self.operator.removeprefix("not ")]

        def test(row: Sequence[Any]) -> bool:
            value = row[at]
            return value is not None and compare(name, value, values) != is_turned

        return test


@dataclass(frozen=True)
class Joined:
    """Several of which all (``and``) or one (``or``) must hold; those behind the one that decides are not looked at."""

    word: str
    parts: tuple["Expression", ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(part.names for part in self.parts))

    @property
    def text(self) -> str:
        return f" {self.word} ".join(part.text if self._binds(part) else f"({part.text})" for part in self.parts)

    def test(self, columns: Sequence[str]) -> Test:
        tests = [part.test(columns) for part in self.parts]
        if self.word == "and":
            return lambda row: all(test(row) for test in tests)
        return lambda row: any(test(row) for test in tests)

    def _binds(self, part: "Expression") -> bool:
        """It needs no brackets."""
        return not isinstance(part, Joined) or (self.word, part.word) == ("or", "and")


@dataclass(frozen=True)
class Not:
    """The opposite, so also true where a comparison is false because the field is missing."""

    part: "Expression"

    @property
    def names(self) -> frozenset[str]:
        return self.part.names

    @property
    def text(self) -> str:
        return f"not ({self.part.text})" if isinstance(self.part, Joined) else f"not {self.part.text}"

    def test(self, columns: Sequence[str]) -> Test:
        inner = self.part.test(columns)
        return lambda row: not inner(row)


Expression = Comparison | Joined | Not


def _is_equal(_: str, value: Any, values: Sequence[Any]) -> bool:
    """Numbers by value, so that 1, 1.0 and true are one; a number never equals text."""
    return value in values


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[str, Any, Sequence[Any]], bool]:
    def ordered(name: str, value: Any, values: Sequence[Any]) -> bool:
        (other,) = values
        kind: Any = str if isinstance(other, str) else _NUMBERS
        if not isinstance(value, kind):
            raise _misfit(name, "text" if kind is str else "a number", other, value)
        return compare(value, other)

    return ordered


def _contains(name: str, value: Any, values: Sequence[Any]) -> bool:
    (other,) = values
    if isinstance(value, list):
        return other in value
    if not isinstance(value, str) or not isinstance(other, str):
        raise _misfit(name, "text or a list" if isinstance(other, str) else "a list", other, value)
    return other in value


def _starts(name: str, value: Any, values: Sequence[Any]) -> bool:
    (other,) = values
    if not isinstance(value, str):
        raise _misfit(name, "text", other, value)
    return value.startswith(other)


def _misfit(name: str, wanted: str, other: Any, value: Any) -> MisfitError:
    kind = type(value).__name__
    return MisfitError(f"expected {wanted} in the field {name!r}, to compare with {brief(other)}, got {kind} {brief(value)}")


_COMPARE: dict[str, Callable[[str, Any, Sequence[Any]], bool]] = {
    "==": _is_equal,
    "in": _is_equal,
    "!=": lambda name, value, values: not _is_equal(name, value, values),
    "<": _ordered(lambda a, b: a < b),
    "<=": _ordered(lambda a, b: a <= b),
    ">": _ordered(lambda a, b: a > b),
    ">=": _ordered(lambda a, b: a >= b),
    "contains": _contains,
    "startswith": _starts,
}
