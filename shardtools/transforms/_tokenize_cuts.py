"""Large texts in pieces that give the ids of the whole: an encoder takes 100 to 300 bytes of memory for each byte it is given."""

import re
from collections.abc import Callable, Iterator

import numpy as np

from shardtools.transforms._tokenize_hf import Ids

_REACH_CHARS = 1 << 16
_CONTEXT_CHARS = 1 << 10
_TRIES = 12
_PLACES = (
    re.compile(r"(?<=[^\s]\n)(?=[^\s])"),
    re.compile(r"(?<=\n)(?=[^\s])"),
    re.compile(r"(?<=\w)(?= \w)"),
    re.compile(r"(?<=\w)(?=[^\w\s])|(?<=[^\w\s])(?=\w)"),
)
"""Where a text may be cut, the best first: between lines, between words, beside a sign."""


class NoPlaceToCutError(Exception):
    """A text has no place near its ``max_bytes`` where cutting it would leave its ids as they are."""


def pieces(text: str, max_bytes: int, encode: Callable[[str], Ids]) -> Iterator[str]:
    """The text in pieces of at most ``max_bytes`` of UTF-8, or of twice as many where there is no place to cut before.

    A place is taken only where the text around it has the same ids in one piece and in two. Depends on the text and
    ``max_bytes`` alone. Raises NoPlaceToCutError where none of the places tried does, as in one endless word.
    """
    begin = 0
    while begin < len(text):
        end = _end(text, begin, max_bytes, encode) or _end(text, begin, 2 * max_bytes, encode)
        if end is None:
            raise NoPlaceToCutError
        yield text[begin:end]
        begin = end


def _end(text: str, begin: int, max_bytes: int, encode: Callable[[str], Ids]) -> int | None:
    """Where a piece ends that begins at ``begin``."""
    window = text[begin : begin + max_bytes].encode()
    most = begin + len(window[:max_bytes].decode("utf-8", "ignore"))
    if most == len(text):
        return most
    low = max(begin + 1, most - _REACH_CHARS)
    # A place is told by what stands on either side of it, up to two characters.
    reach = text[max(begin, low - 2) : most + 2]
    shift = max(begin, low - 2)
    for place in _PLACES:
        found = [at for match in place.finditer(reach) if low <= (at := match.start() + shift) <= most]
        for at in found[: -_TRIES - 1 : -1]:
            if _is_seamless(text[max(begin, at - _CONTEXT_CHARS) : at], text[at : at + _CONTEXT_CHARS], encode):
                return at
    return None


def _is_seamless(left: str, right: str, encode: Callable[[str], Ids]) -> bool:
    return np.array_equal(np.concatenate([encode(left), encode(right)]), encode(left + right))
