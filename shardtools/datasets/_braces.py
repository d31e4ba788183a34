"""Brace lists of shards, as WebDataset's users and their shells write them: ``train-{000000..000123}.tar``, ``{train,val}/x.tar``.

Source: GNU Bash manual, "Brace Expansion"; github.com/trendels/braceexpand, which WebDataset uses.
"""

import re
from collections.abc import Iterator

_NUMBERS = re.compile(r"(-?[0-9]+)\.\.(-?[0-9]+)(?:\.\.-?([0-9]+))?")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.-?([0-9]+))?")


def expand_braces(pattern: str) -> Iterator[str]:
    """Every name a pattern lists, in its order; the pattern itself where it has no braces.

    Ranges of numbers keep the width of padded ends, ``{a..c}`` counts letters, a third part is the step, lists may lie in
    each other, and a backslash takes the next character as it is. Braces without a comma or range stay. Raises ValueError
    for a brace that is not closed.
    """
    parts = _first_pair(pattern)
    if parts is None:
        yield re.sub(r"\\(.)", r"\1", pattern)
        return
    before, inside, after = parts
    (head,) = expand_braces(before)
    for middle in _alternatives(inside):
        for tail in expand_braces(after):
            yield head + middle + tail


def count_braces(pattern: str) -> int:
    """How many names ``expand_braces`` lists, reckoned without making them. Raises ValueError as it does."""
    num_names = 1
    while (parts := _first_pair(pattern)) is not None:
        _, inside, pattern = parts
        num_names *= _num_alternatives(inside)
    return num_names


def _first_pair(pattern: str) -> tuple[str, str, str] | None:
    """What stands before, in and after the first pair of braces; None where there is none."""
    begin = _find(pattern, "{")
    if begin is None:
        if _find(pattern, "}") is not None:
            raise ValueError("expected { before }, got none")
        return None
    end = _closing(pattern, begin)
    _first_pair(pattern[:begin])  # which has no { and must have no }
    return pattern[:begin], pattern[begin + 1 : end], pattern[end + 1 :]


def _num_alternatives(inside: str) -> int:
    if numbers := _NUMBERS.fullmatch(inside):
        return abs(int(numbers[2]) - int(numbers[1])) // (int(numbers[3] or 1) or 1) + 1
    if _LETTERS.fullmatch(inside):
        return sum(1 for _ in _alternatives(inside))
    return sum(map(count_braces, _split(inside)))


def _alternatives(inside: str) -> Iterator[str]:
    """What one pair of braces stands for."""
    if numbers := _NUMBERS.fullmatch(inside):
        yield from _range(numbers[1], numbers[2], numbers[3])
    elif letters := _LETTERS.fullmatch(inside):
        first, last = ord(letters[1]), ord(letters[2])
        yield from (chr(i) for i in _steps(first, last, letters[3]) if chr(i).isalpha())
    else:
        parts = _split(inside)
        for part in parts:
            for text in expand_braces(part):
                yield text if len(parts) > 1 else "{" + text + "}"


def _range(first: str, last: str, step: str | None) -> Iterator[str]:
    is_padded = any(end.lstrip("-").startswith("0") and end not in ("0", "-0") for end in (first, last))
    width = max(len(first), len(last)) if is_padded else 0
    return (f"{i:0{width}d}" for i in _steps(int(first), int(last), step))


def _steps(first: int, last: int, step: str | None) -> range:
    distance = int(step or 1) or 1
    return range(first, last + 1, distance) if first <= last else range(first, last - 1, -distance)


def _split(inside: str) -> list[str]:
    """The text at its outer commas."""
    parts, begin, depth = [], 0, 0
    for i, char in _unescaped(inside):
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            parts.append(inside[begin:i])
            begin = i + 1
    return [*parts, inside[begin:]]


def _find(text: str, wanted: str) -> int | None:
    return next((i for i, char in _unescaped(text) if char == wanted), None)


def _closing(pattern: str, begin: int) -> int:
    depth = 0
    for i, char in _unescaped(pattern):
        if i >= begin:
            depth += (char == "{") - (char == "}")
            if depth == 0:
                return i
    raise ValueError("expected } after {, got none")


def _unescaped(text: str) -> Iterator[tuple[int, str]]:
    """Every character that no backslash stands before, with its place."""
    i = 0
    while i < len(text):
        if text[i] == "\\":
            i += 2
            continue
        yield i, text[i]
        i += 1
