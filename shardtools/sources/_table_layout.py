"""How rows of a table become samples: their keys, and which column becomes which field."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import orjson

from shardtools.formats import MEMBER_ENCODINGS
from shardtools.sample import HEAD_BYTES, Batch, Reject, RejectSink, Utf8Texts, brief
from shardtools.sources import PATH_FIELD
from shardtools.sources._record_keys import key_bytes, keys_of
from shardtools.sources._record_layout import RECORD_FIELD, FieldMapping, parse_mappings
from shardtools.sources._shard_fields import ColumnMember

Fault = tuple[str, str]
"""Why a row is bad: a reason to count by and a sentence."""


@dataclass(frozen=True)
class TableOptions:
    """What the user said of fields."""

    key: str | None
    map: tuple[FieldMapping, ...] | None
    keep_path: bool

    names: ClassVar[tuple[str, ...]] = ("key", "map", "keep_path")

    @classmethod
    def of(cls, words: Mapping[str, str]) -> "TableOptions":
        """The words of the command line. Raises UsageError for a mapping that cannot be read."""
        return cls(words.get("key"), parse_mappings(words["map"]) if "map" in words else None, "keep_path" in words)


@dataclass(frozen=True)
class TableColumn:
    """A column of the table, and what becomes of it."""

    column: str
    """Its name in the table; where it is nested, dots lead into structs."""
    field: str
    """The field that holds its values. In a record it is one of many."""
    encoding: str
    """Of its values, in MDS's words: what restores the column where the format has no types."""
    optional: bool = False
    """A row may be null in it: the sample then lacks the field."""
    nested: bool = False
    is_npy: bool = False
    """Its arrays are stored as files of NumPy."""
    kind: str | None = None
    """Where the column's files differ in kind and each kind is a field of its own: that one's extension."""

    @property
    def is_plain_text(self) -> bool:
        """Its texts are stored as they are: a member of another kind, such as ``cls``, may want to see them first."""
        return self.encoding == "str" and MEMBER_ENCODINGS.get(self.field.rpartition(".")[2], "str") == "str"


@dataclass(slots=True)
class TableRows:
    """Rows in order, by column. Values are Python values as the encodings of the layout's columns have them, None for null."""

    numbers: Sequence[int]
    """The number of each row in its file, from 0 on."""
    values: list[list[Any]]
    """[column][row], in the order of the layout's columns. Plain texts may be Utf8Texts."""
    keys: list[Any] | None = None
    """Values of the key column, where there is one."""
    extras: dict[str, list[Any]] = field(default_factory=dict)
    faults: dict[int, Fault] = field(default_factory=dict)
    """The rows that could not be read, by their index here."""


@dataclass(frozen=True)
class TableLayout:
    """Everything about fields that planning settled; part of the recipe."""

    key: str | None
    """The column that is the key. None: ``{path without suffix}/{row, 12 digits}``."""
    columns: tuple[TableColumn, ...]
    has_record: bool
    """The columns whose field is ``json`` are in one object there."""
    keep_path: bool
    """A field ``path`` holds the key before it was escaped."""
    schema: tuple[ColumnMember, ...] | None = None
    """What restores the columns of members and record. None: the fields are as the user mapped them, or columns themselves."""

    def batch(self, rows: TableRows, prefix: bytes, place: Callable[[int], str], reject: RejectSink) -> Batch:
        """The rows that are sound; ``prefix`` is their file's part of keys made of rows, ``place`` names a row by its number."""
        raw_keys = self._raw_keys(rows, prefix)
        faults = self._faults(rows, raw_keys)
        columns = self._columns(rows)
        if self.keep_path:
            columns[PATH_FIELD] = [(raw or b"").decode("utf-8", "backslashreplace") for raw in raw_keys]
        numbers, extras = rows.numbers, rows.extras
        if faults:
            for i, (reason, sentence) in sorted(faults.items()):
                reject(Reject(reason, place(numbers[i]), sentence, self._head(rows, i)))
            kept = [i for i in range(len(numbers)) if i not in faults]
            raw_keys = [raw_keys[i] for i in kept]
            numbers = [numbers[i] for i in kept]
            columns = {name: [values[i] for i in kept] for name, values in columns.items()}
            extras = {name: [values[i] for i in kept] for name, values in extras.items()}
        keys = keys_of(raw_keys, None if self.key is not None else prefix)
        return Batch(keys, columns, lambda i: place(numbers[i]), extras=extras)

    def _raw_keys(self, rows: TableRows, prefix: bytes) -> Sequence[bytes | None]:
        if rows.keys is None:
            return [b"%b/%012d" % (prefix, number) for number in rows.numbers]
        return [key_bytes(value) for value in rows.keys]

    def _faults(self, rows: TableRows, raw_keys: Sequence[bytes | None]) -> dict[int, Fault]:
        faults = dict(rows.faults)
        if rows.keys is not None and None in raw_keys:
            for i, raw in enumerate(raw_keys):
                if raw is None and i not in faults:
                    sentence = f"expected text or a whole number in the key column {self.key!r}, got {brief(rows.keys[i])}"
                    faults[i] = ("no-key", sentence)
        return faults

    def _columns(self, rows: TableRows) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {}
        names: list[str] = []
        inner: list[list[Any]] = []
        for column, values in zip(self.columns, rows.values, strict=True):
            if self.has_record and column.field == RECORD_FIELD:
                names.append(column.column)
                inner.append(values)
            else:
                columns[column.field] = values
        if names:
            # A row that could not be read has values that no record can hold, and is left out anyway.
            records = (dict(zip(names, row, strict=True)) for row in zip(*inner, strict=True))
            columns[RECORD_FIELD] = [b"" if i in rows.faults else record_bytes(record) for i, record in enumerate(records)]
        return columns

    def _head(self, rows: TableRows, i: int) -> bytes:
        shown = {}
        for column, values in zip(self.columns, rows.values, strict=True):
            value = values[i].decode() if isinstance(values, Utf8Texts) else values[i]
            if not isinstance(value, bytes):
                shown[column.column] = value
        return brief(shown).encode(errors="backslashreplace")[:HEAD_BYTES]


def record_bytes(record: dict[str, Any]) -> bytes:
    """Compact JSON. What is no number is written ``NaN`` or ``Infinity``, as Python's reader takes it."""
    data = orjson.dumps(record)
    # orjson writes null for them, which would be another value.
    if b"null" in data and _holds_no_number(list(record.values())):
        return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()
    return data


def _holds_no_number(level: list[Any]) -> bool:
    while level:
        if any(type(value) is float and value - value != 0 for value in level):
            return True
        containers = [value for value in level if type(value) in (dict, list)]
        level = [inner for value in containers for inner in (value.values() if type(value) is dict else value)]
    return False
