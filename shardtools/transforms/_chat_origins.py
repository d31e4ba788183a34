"""Where each character of a rendered chat came from: the template, or a message.

Every character of a message is put into the template as a private one of its own, which no chat and no template holds.
So whatever a template does with it, what comes out as an ordinary character is the template's, and text of a message can
never be taken for a control token. Turned back, the rendered text has to be what the template makes of the plain chat.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, SupportsIndex, cast

TEMPLATE, OTHERS, ANSWER, TAGGED_ANSWER = range(4)
"""Who wrote a character: the template; a message that is no answer; an answer; a part of an answer that the template puts tags around."""

_PRIVATE = (range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))


class TooManyCharactersError(Exception):
    """A chat has more different characters than there are private ones."""


class _Writer(dict[int, str]):
    """Code points of one origin to their private characters, made as they are asked for."""

    def __init__(self, new: Callable[[int], str]) -> None:
        super().__init__()
        self._new = new

    def __missing__(self, code: int) -> str:
        self[code] = private = self._new(code)
        return private


class _Origins(dict[int, str]):
    """Private characters to ``chr(origin)``, all others to that of the template."""

    def __missing__(self, code: int) -> str:
        return chr(TEMPLATE)


class PrivateCharacters:
    """The private characters of one chat."""

    def __init__(self, taken: Set[str]) -> None:
        """``taken``: characters of the chat and the template, none of which is used."""
        self._free: Iterator[str] = (chr(code) for codes in _PRIVATE for code in codes if chr(code) not in taken)
        self._real: dict[int, str] = {}
        self._origins = _Origins()
        self._writers = {origin: _Writer(self._maker(origin)) for origin in (OTHERS, ANSWER, TAGGED_ANSWER)}

    def one(self) -> str:
        """One that stands for nothing."""
        private = next(self._free, None)
        if private is None:
            raise TooManyCharactersError
        return private

    def write(self, text: str, origin: int) -> str:
        return text.translate(self._writers[origin]) if origin != TEMPLATE else text

    def real(self, text: str) -> str:
        return str.translate(text, self._real)

    def origins(self, text: str) -> str:
        """``chr(origin)`` of each character."""
        return str.translate(text, self._origins)

    def _maker(self, origin: int) -> Callable[[int], str]:
        def make(code: int) -> str:
            private = self.one()
            self._real[ord(private)] = chr(code)
            self._origins[ord(private)] = chr(origin)
            return private

        return make


class Traced(str):
    """Text of private characters that answers a template's questions as the real text would."""

    _private: PrivateCharacters

    @classmethod
    def of(cls, data: str, private: PrivateCharacters) -> "Traced":
        traced = cls(data)
        traced._private = private
        return traced

    def _real(self) -> str:
        return self._private.real(self)

    def _again(self, data: str) -> "Traced":
        return Traced.of(data, self._private)

    def __str__(self) -> str:
        return self

    def __eq__(self, other: object) -> bool:
        return bool(self._real() == plain(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._real())

    def __contains__(self, item: object) -> bool:
        return plain(item) in self._real()

    def __add__(self, other: str) -> "Traced":
        return self._again(str.__add__(self, other))

    def __radd__(self, other: str) -> "Traced":
        return self._again(str.__add__(other, self))

    def __getitem__(self, index: SupportsIndex | slice) -> "Traced":
        return self._again(str.__getitem__(self, index))

    def startswith(self, *given: Any) -> bool:
        return self._real().startswith(*map(plain, given))

    def endswith(self, *given: Any) -> bool:
        return self._real().endswith(*map(plain, given))

    def find(self, *given: Any) -> int:
        return self._real().find(*map(plain, given))

    def rfind(self, *given: Any) -> int:
        return self._real().rfind(*map(plain, given))

    def count(self, *given: Any) -> int:
        return self._real().count(*map(plain, given))

    def strip(self, chars: str | None = None, /) -> "Traced":
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> "Traced":
        return self[len(self) - len(self._real().lstrip(plain(chars))) :]

    def rstrip(self, chars: str | None = None, /) -> "Traced":
        return self[: len(self._real().rstrip(plain(chars)))]

    def lower(self) -> "Traced":
        return self._letter_by_letter(str.lower)

    def upper(self) -> "Traced":
        return self._letter_by_letter(str.upper)

    def capitalize(self) -> "Traced":
        return self[:1].upper() + self[1:].lower()

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Any]:
        return self._slices(self._real().split(plain(sep), maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Any]:
        return self._slices(self._real().rsplit(plain(sep), maxsplit), sep)

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> "Traced":
        if not old:
            raise ValueError("a template replaces nothing by something between all characters of a message")
        return self._again(new.join(self.split(old, count)))

    def _slices(self, pieces: list[str], sep: str | None) -> "list[Traced]":
        real, at, found = self._real(), 0, []
        for piece in pieces:
            if sep is None:
                at = real.index(piece, at)
            found.append(self[at : at + len(piece)])
            at += len(piece) + (len(sep) if sep is not None else 0)
        return found

    def _letter_by_letter(self, change: Callable[[str], str]) -> "Traced":
        changed = (
            self._private.write(change(self._private.real(letter)), ord(self._private.origins(letter))) for letter in str(self).__iter__()
        )
        return self._again("".join(changed))


def plain(value: Any) -> Any:
    """A value with real text for traced text; a tuple, as ``startswith`` takes one, too."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value._real() if isinstance(value, Traced) else value


def traced(value: Any, private: PrivateCharacters, origin: int) -> Any:
    """A message's value with all its text, and that of its keys, traced."""
    if isinstance(value, str):
        return Traced.of(private.write(value, origin), private)
    if isinstance(value, list):
        return [traced(inner, private, origin) for inner in value]
    if isinstance(value, Mapping):
        return {traced(key, private, origin): traced(inner, private, origin) for key, inner in value.items()}
    return value


def joined(parts: Iterable[str]) -> str:
    """The parts as one text, traced where one of them is."""
    given = list(parts)
    private = next((part._private for part in given if isinstance(part, Traced)), None)
    text = "".join(given)
    return text if private is None else Traced.of(text, private)


def to_json(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
    """JSON as chat templates expect it: nothing escaped for HTML.

    Source: huggingface/transformers, src/transformers/utils/chat_template_utils.py, tojson.
    """
    escaped = _escaped(value, ensure_ascii, sort_keys)
    # What is private already is not escaped again; all else that is left is plain.
    keep = ensure_ascii and escaped is value
    return json.dumps(escaped, ensure_ascii=keep, indent=indent, separators=separators, sort_keys=sort_keys and escaped is value)


def _escaped(value: Any, ensure_ascii: bool, sort_keys: bool) -> Any:
    """``value`` itself where nothing in it is traced, else a copy whose traced text is escaped as JSON has it."""
    if isinstance(value, Traced):
        private = value._private
        letters = ((private.real(letter), ord(private.origins(letter))) for letter in str.__iter__(value))
        return "".join(private.write(json.dumps(real, ensure_ascii=ensure_ascii)[1:-1], origin) for real, origin in letters)
    if isinstance(value, list | tuple):
        inner = [_escaped(item, ensure_ascii, sort_keys) for item in value]
        return value if all(new is old for new, old in zip(inner, value, strict=True)) else inner
    if isinstance(value, Mapping):
        items = sorted(value.items(), key=lambda item: str(plain(item[0]))) if sort_keys else list(value.items())
        new = {_escaped(key, ensure_ascii, sort_keys): _escaped(item, ensure_ascii, sort_keys) for key, item in items}
        same = all(a is b and new[a] is value[b] for a, b in zip(new, (key for key, _ in items), strict=True))
        return cast(Any, value) if same else new
    return value
