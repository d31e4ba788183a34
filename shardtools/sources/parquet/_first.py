"""The first rows of a table: for what its types do not settle."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyarrow import types

from shardtools.errors import UsageError
from shardtools.sources._table_settle import ColumnFacts
from shardtools.sources._table_survey import FIRST_BYTES, FIRST_ROWS
from shardtools.sources.parquet._files import DamagedError, Footer, opened_parquet, record_batches
from shardtools.sources.parquet._folders import folder_values
from shardtools.sources.parquet._pieces import RowGroup
from shardtools.sources.parquet._rows import Table
from shardtools.sources.parquet._schema import TableSchema
from shardtools.sources.parquet._types import MEDIA, UnsupportedTypeError, encoding_of, media_kind
from shardtools.sources.parquet._values import media_values
from shardtools.units import printable


@dataclass(frozen=True)
class FirstRows:
    """Some rows of one row group."""

    table: Table
    group: RowGroup
    number: int
    """Of the first of them in the file."""

    @property
    def share(self) -> float:
        """Of their row group."""
        return int(self.table.batch.num_rows) / self.group.num_rows


def row_groups(footers: Sequence[Footer], columns: Sequence[str] | None) -> list[RowGroup]:
    """The row groups that have rows, in order; sizes are those of these columns."""
    groups = []
    for footer in footers:
        file, first = footer.file, 0
        for index in range(footer.metadata.num_row_groups):
            num_rows = footer.metadata.row_group(index).num_rows
            if num_rows:
                place = (file.root, file.path, file.num_bytes, file.version, index)
                groups.append(RowGroup(*place, first, num_rows, footer.num_bytes(index, columns), *footer.span(index)))
            first += num_rows
    return groups


def first_rows(groups: Sequence[RowGroup], roots: Sequence[str], schema: TableSchema) -> list[FirstRows]:
    """Up to 1,000 rows or 32 MiB, but one at least. What is damaged is left to the run."""
    found: list[FirstRows] = []
    missing, missing_bytes = FIRST_ROWS, FIRST_BYTES
    for group in groups:
        spelled = folder_values(group.path, schema.folders)
        try:
            with opened_parquet(roots[group.root], group.window, group.data_end) as source:
                at = group.first_row
                for batch in record_batches(source, group.index, list(schema.types), 0, min(missing, group.num_rows)):
                    found.append(FirstRows(Table(batch, spelled), group, at))
                    at += batch.num_rows
                    missing -= batch.num_rows
                    missing_bytes -= batch.nbytes
                    if missing <= 0 or missing_bytes <= 0:
                        return found
        except DamagedError:
            continue
    return found


def column_facts(schema: TableSchema, first: Sequence[FirstRows]) -> list[ColumnFacts]:
    """What types and first rows tell of each column. Raises UsageError for a type that no field can hold."""
    facts = []
    for name, kind in schema.types.items():
        try:
            encoding, why = encoding_of(kind)
        except UnsupportedTypeError as unsupported:
            raise UsageError(
                f"expected columns of numbers, text, bytes, dates, lists or structs, got {printable(name)!r} with {unsupported} inside, "
                "which no field can hold; name the columns to take with --map"
            ) from None
        arrays = [one.table.batch.column(name) for one in first]
        has_null, kinds = any(array.null_count for array in arrays), frozenset[str]()
        if encoding == MEDIA:
            files = [file for array in arrays for file in media_values(array)]
            has_null = any(data is None and path is None for data, path in files)
            kinds = frozenset(media_kind(data, path) for data, path in files if data is not None)
        facts.append(ColumnFacts(name, encoding, why, has_null, tuple(sorted(kinds)), types.is_boolean(kind)))
    for folder in schema.folders:
        facts.append(ColumnFacts(folder.name, folder.encoding, "", any(one.table.spelled[folder.name] is None for one in first)))
    return facts


def first_records(schema: TableSchema, first: Sequence[FirstRows]) -> list[dict[str, Any]]:
    """The rows as JSON has them."""
    records: list[dict[str, Any]] = []
    for one in first:
        columns = [one.table.json(name)[0] for name in schema.names]
        records += (dict(zip(schema.names, row, strict=True)) for row in zip(*columns, strict=True))
    return records
