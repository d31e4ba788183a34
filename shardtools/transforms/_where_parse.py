"""``--where`` as it is typed, made into what it asks, by recursive descent: ``or`` binds least, then ``and``, then ``not``."""

from typing import NoReturn

from shardtools.transforms._where_tests import Comparison, Expression, Joined, Not
from shardtools.transforms._where_words import Word, misplaced, words

_ORDERS = ("==", "!=", "<", "<=", ">", ">=")
_MAX_DEPTH = 50
_VALUE = "a value (text in quotes, a number, true or false)"
_COMPARISON = "a comparison (= != < <= > >= in contains startswith is)"


def parse_where(text: str) -> Expression:
    """Raises UsageError with the place of the first word that does not belong there."""
    parser = _Parser(text)
    expression = parser.either(0)
    if parser.word.kind != "end":
        parser.refuse("and, or, or the end")
    return expression


class _Parser:
    """Stands at one word, ``word``, and looks no further."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = words(text)
        self.word = next(self._words)

    def refuse(self, wanted: str) -> NoReturn:
        raise misplaced(self._text, self.word.position, wanted, self.word.typed)

    def either(self, depth: int) -> Expression:
        return self._joined("or", depth)

    def _joined(self, word: str, depth: int) -> Expression:
        parts = [self._part_of(word, depth)]
        while self._is_keyword(word):
            self._next()
            parts.append(self._part_of(word, depth))
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def _part_of(self, word: str, depth: int) -> Expression:
        return self._joined("and", depth) if word == "or" else self._term(depth)

    def _term(self, depth: int) -> Expression:
        if depth == _MAX_DEPTH:
            self.refuse(f"at most {_MAX_DEPTH} brackets and nots in each other")
        if self._is_keyword("not"):
            self._next()
            return Not(self._term(depth + 1))
        if self._is_sign("("):
            self._next()
            inner = self.either(depth + 1)
            self._close()
            return inner
        return self._comparison()

    def _comparison(self) -> Comparison:
        if self.word.kind != "name":
            self.refuse("the name of a field (in `backticks` where it is no plain word)")
        name = self._next().value
        if self.word.kind == "sign" and self.word.value in _ORDERS:
            return Comparison(name, self._next().value, (self._value(),))
        if self._is_keyword("is"):
            self._next()
            return Comparison(name, f"is {self._turned()}{self._keyword('null')}")
        turned = self._turned()
        if self._is_keyword("in"):
            self._next()
            return Comparison(name, f"{turned}in", self._values())
        if self._is_keyword("contains"):
            return Comparison(name, turned + self._next().value, (self._value(),))
        if not self._is_keyword("startswith"):
            self.refuse("in, contains or startswith" if turned else _COMPARISON)
        operator = turned + self._next().value
        if self.word.kind != "text":
            self.refuse("text in quotes")
        return Comparison(name, operator, (self._value(),))

    def _turned(self) -> str:
        return f"{self._next().value} " if self._is_keyword("not") else ""

    def _values(self) -> tuple[object, ...]:
        if not self._is_sign("("):
            self.refuse("( and the values")
        self._next()
        values = [self._value()]
        while self._is_sign(","):
            self._next()
            values.append(self._value())
        self._close()
        return tuple(values)

    def _value(self) -> object:
        if self._is_keyword("null"):
            self.refuse(f"{_VALUE}; nothing equals null, write FIELD is null")
        if self._is_keyword("true") or self._is_keyword("false"):
            return self._next().value == "true"
        if self.word.kind not in ("text", "number"):
            self.refuse(_VALUE)
        return self._next().value

    def _keyword(self, wanted: str) -> str:
        if not self._is_keyword(wanted):
            self.refuse(wanted)
        return str(self._next().value)

    def _close(self) -> None:
        if not self._is_sign(")"):
            self.refuse("a closing )")
        self._next()

    def _is_keyword(self, keyword: str) -> bool:
        return self.word.kind == "keyword" and self.word.value == keyword

    def _is_sign(self, sign: str) -> bool:
        return self.word.kind == "sign" and self.word.value == sign

    def _next(self) -> Word:
        taken = self.word
        self.word = next(self._words)
        return taken
