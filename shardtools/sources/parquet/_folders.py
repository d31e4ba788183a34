"""Columns that folders spell: ``year=2024/month=01``, as Hive, Spark and pyarrow write and read them.

Source: arrow.apache.org/docs/python/dataset.html, "Reading partitioned data": values are whole numbers of 32 bits if all of them
are, else text; percent signs are decoded; ``__HIVE_DEFAULT_PARTITION__`` is null.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

SUFFIXES = (".parquet", ".pq")
_NULL = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_LIMIT = 2**31


@dataclass(frozen=True)
class FolderColumn:
    """A column that folders spell; its type follows from the names of all of them."""

    name: str
    is_whole: bool

    @property
    def encoding(self) -> str:
        """In MDS's words."""
        return "int32" if self.is_whole else "str"


def folder_columns(paths: Sequence[bytes]) -> tuple[FolderColumn, ...]:
    """What the folders of all files spell, in the order in which they come."""
    texts: dict[str, set[str | None]] = {}
    for folder in dict.fromkeys(path.rpartition(b"/")[0] for path in paths):
        for name, text in _spelled(folder).items():
            texts.setdefault(name, set()).add(text)
    return tuple(FolderColumn(name, all(map(_is_whole, found)) and found != {None}) for name, found in texts.items())


def folder_values(path: bytes, columns: Sequence[FolderColumn]) -> dict[str, int | str | None]:
    """The value of each column in every row of a file; None where its folders do not spell it."""
    spelled = _spelled(path.rpartition(b"/")[0])
    return {column.name: _value(spelled.get(column.name), column.is_whole) for column in columns}


def _value(text: str | None, is_whole: bool) -> int | str | None:
    return int(text) if text is not None and is_whole else text


def _is_whole(text: str | None) -> bool:
    return text is None or (_WHOLE.fullmatch(text) is not None and -_LIMIT <= int(text) < _LIMIT)


def _spelled(folder: bytes) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for part in folder.decode("utf-8", "backslashreplace").split("/"):
        name, separator, value = part.partition("=")
        if separator and name:
            found[unquote(name)] = None if value == _NULL else unquote(value)
    return found
