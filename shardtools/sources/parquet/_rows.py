"""Rows of Parquet files as samples."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from shardtools.npy import npy_bytes
from shardtools.sample import Batch, Reject, RejectSink
from shardtools.sources._data_files import without_suffix
from shardtools.sources._inputs import is_uri
from shardtools.sources._planned import shown
from shardtools.sources._table_layout import Fault, TableColumn, TableLayout, TableRows
from shardtools.sources.parquet._files import DamagedError, opened_parquet, record_batches, require_columns
from shardtools.sources.parquet._folders import SUFFIXES, FolderColumn, folder_values
from shardtools.sources.parquet._pieces import Piece
from shardtools.sources.parquet._schema import column_of, needed_columns
from shardtools.sources.parquet._types import encoding_of, is_binary, media_kind
from shardtools.sources.parquet._values import column_values, json_values, media_values, utf8_texts

_FETCHED_BYTES = 128 << 20
"""The most of an object that is held at once."""


def key_prefix(path: bytes) -> bytes:
    """The file's part of keys made of rows."""
    return without_suffix(path, [suffix.encode() for suffix in SUFFIXES])


@dataclass(frozen=True)
class PieceReader:
    """Reads pieces of files through a layout."""

    layout: TableLayout
    folders: tuple[FolderColumn, ...]
    roots: tuple[str, ...]
    reject: RejectSink
    extras: tuple[str, ...]

    def batches(self, pieces: Sequence[Piece]) -> Iterator[Batch]:
        """The samples of the pieces, in order; those of one file while it is open. Raises StorageError."""
        for (root, window), some in groupby(pieces, lambda piece: (piece.root, piece.window)):
            for batch in self._of_file(window.path, self.roots[root], list(some)):
                batch.root = root
                yield batch
                del batch

    def _of_file(self, path: bytes, root: str, pieces: Sequence[Piece]) -> Iterator[Batch]:
        is_fetched = is_uri(root) and max(piece.data_bytes for piece in pieces) <= _FETCHED_BYTES
        until = max(piece.data_end for piece in pieces)
        place = Place(path)
        try:
            with opened_parquet(root, pieces[0].window, until, is_fetched) as source:
                columns = self._columns(source, shown(path))
                for piece in pieces:
                    yield from self._of_piece(source, columns, piece)
        except DamagedError as error:
            sentence = f"expected a sound Parquet file, got one that cannot be read ({error}); restore it (its other rows are not read)"
            self.reject(Reject("damaged-file", place(pieces[0].begin), sentence))

    def _columns(self, source: Any, name: str) -> list[str]:
        spelled = {folder.name for folder in self.folders}
        names = source.schema_arrow.names
        own = [column.column for column in self.layout.columns] + ([self.layout.key] if self.layout.key else [])
        require_columns(source, [column_of(path, [*names, *spelled]) for path in own if path not in spelled], name)
        return needed_columns([path for path in [*own, *self.extras] if path not in spelled], names)

    def _of_piece(self, source: Any, columns: Sequence[str], piece: Piece) -> Iterator[Batch]:
        place, prefix = Place(piece.window.path), key_prefix(piece.window.path)
        spelled = folder_values(piece.window.path, self.folders)
        at = piece.begin
        try:
            for found in record_batches(source, piece.group, columns, piece.begin - piece.first_row, piece.end - piece.begin):
                rows = table_rows(Table(found, spelled), self.layout, self.extras, at)
                at += found.num_rows
                del found
                batch = self.layout.batch(rows, prefix, place, self.reject)
                del rows
                if batch.keys:
                    yield batch
                del batch
        except DamagedError as error:
            sentence = (
                f"expected a sound row group, got a damaged one ({error}); restore the file (the row group's other rows are not read)"
            )
            self.reject(Reject("damaged-row-group", place(at), sentence))


def read_pieces(
    layout: TableLayout,
    folders: tuple[FolderColumn, ...],
    roots: Sequence[str],
    extents: Sequence[bytes],
    reject: RejectSink,
    extras: Sequence[str],
) -> Iterator[Batch]:
    """The samples of the extents, in order."""
    reader = PieceReader(layout, folders, tuple(roots), reject, tuple(extras))
    return reader.batches([Piece.unpacked(packed) for packed in extents])


@dataclass(frozen=True)
class Place:
    """Names the rows of a file for people."""

    path: bytes

    def __call__(self, number: int) -> str:
        return f"{shown(self.path)}, row {number}"


@dataclass(frozen=True)
class Table:
    """A record batch with the values that its folders spell."""

    batch: Any
    spelled: dict[str, int | str | None]

    @property
    def names(self) -> list[str]:
        return [*self.batch.schema.names, *self.spelled]

    @property
    def names_in_json(self) -> list[str]:
        """Of the columns whose values JSON has: of bytes and files it has none, as of those in shards."""
        return [*(field.name for field in self.batch.schema if not is_binary(field.type)), *self.spelled]

    def values(self, name: str, encoding: str | None) -> tuple[list[Any], dict[int, Fault]]:
        """A column for an encoding; None: as its type has it."""
        if name in self.spelled:
            return [self.spelled[name]] * self.batch.num_rows, {}
        array = self.batch.column(name)
        return column_values(array, encoding if encoding is not None else encoding_of(array.type)[0])

    def texts(self, name: str) -> tuple[list[Any], dict[int, Fault]]:
        """A column for the encoding ``str``, as bytes where all of it can be."""
        found = None if name in self.spelled else utf8_texts(self.batch.column(name))
        return (found, {}) if found is not None else self.values(name, "str")

    def json(self, path: str) -> tuple[list[Any], dict[int, Fault]]:
        """What a path leads to in each row, as JSON has it; None where it leads nowhere."""
        name = column_of(path, self.names)
        if name in self.spelled:
            return [self.spelled[name]] * self.batch.num_rows, {}
        if name not in self.batch.schema.names:
            return [None] * self.batch.num_rows, {}
        values, faults = json_values(self.batch.column(name))
        for part in path[len(name) + 1 :].split(".") if path != name else ():
            values = [value.get(part) if type(value) is dict else None for value in values]
        return values, faults

    def beside(self, path: str) -> tuple[list[Any], dict[int, Fault]]:
        """The same for what is not stored: of bytes and files JSON has no value."""
        if path in self.batch.schema.names and path not in self.names_in_json:
            return [None] * self.batch.num_rows, {}
        values, faults = self.json(path)
        return [None if type(value) is bytes else value for value in values], faults

    def files(self, name: str) -> list[tuple[bytes | None, str | None]]:
        return media_values(self.batch.column(name))


def table_rows(table: Table, layout: TableLayout, extras: Sequence[str], first: int) -> TableRows:
    """The rows of a batch whose first one has the number ``first``."""
    faults: dict[int, Fault] = {}
    values = []
    for column in layout.columns:
        if column.kind is not None:
            found, bad = _of_kind(table, column, layout)
        elif column.nested:
            found, bad = table.json(column.column)
        elif column.is_plain_text:
            found, bad = table.texts(column.column)
        else:
            found, bad = table.values(column.column, column.encoding)
        if column.is_npy:
            found = [None if array is None else npy_bytes(array) for array in found]
        faults |= bad
        values.append(found)
    keys = None
    if layout.key is not None:
        keys, bad = table.values(layout.key, None)
        faults |= bad
    beside = {}
    for name in extras:
        beside[name], bad = table.beside(name)
        faults |= bad
    return TableRows(range(first, first + table.batch.num_rows), values, keys, beside, faults)


def _of_kind(table: Table, column: TableColumn, layout: TableLayout) -> tuple[list[Any], dict[int, Fault]]:
    """The files of one kind; another kind than those of the layout is a fault."""
    known = [other.kind for other in layout.columns if other.column == column.column]
    values, faults = table.values(column.column, column.encoding)
    kinds = [None if data is None else media_kind(data, path) for data, path in table.files(column.column)]
    for i, kind in enumerate(kinds):
        if kind is not None and kind not in known:
            sentence = (
                f"expected a file of the kind {' or '.join(filter(None, known))} in {column.column!r}, as in the first rows, got {kind}"
            )
            faults.setdefault(i, ("other-kind", f"{sentence}; name the field with --map, which takes any kind"))
    return [value if kind == column.kind else None for value, kind in zip(values, kinds, strict=True)], faults
