"""Finding the places where text spells an added token, all of them in one pass."""

import re
from collections.abc import Iterable
from typing import Any

_END = ""


def literal_pattern(contents: Iterable[str]) -> re.Pattern[str]:
    """Matches the longest of ``contents`` at the leftmost place, as tokenizers look for added tokens; nothing where there are none.

    An alternation would try each of a thousand tokens at every ``<``; this tries one letter after the other.
    """
    root: dict[str, Any] = {}
    for content in contents:
        node = root
        for letter in content:
            node = node.setdefault(letter, {})
        node[_END] = {}
    return re.compile(_source(root) if root else r"(?!)", re.DOTALL)


def _source(node: dict[str, Any]) -> str:
    run = ""
    while len(node) == 1 and _END not in node:
        ((letter, node),) = node.items()
        run += re.escape(letter)
    branches = [re.escape(letter) + _source(child) for letter, child in sorted(node.items()) if letter != _END]
    if not branches:
        return run
    # Python's alternation takes the first that fits; the letters differ, so only going on or ending here is a choice.
    return f"{run}(?:{'|'.join(branches)}){'?' if _END in node else ''}"
