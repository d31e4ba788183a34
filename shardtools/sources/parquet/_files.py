"""Parquet files as they are opened: their footers for planning, their row groups for reading."""

import io
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from shardtools.errors import StorageError, UsageError
from shardtools.places import at_once
from shardtools.sources._data_files import DataFile
from shardtools.sources._planned import shown
from shardtools.sources._streams import Window, opened
from shardtools.storage import open_storage
from shardtools.units import printable

_BUFFER_BYTES = 1 << 20
_BATCH_BYTES = 4 << 20
_BATCH_ROWS = 4096
_SHOWN_CHARS = 120


class DamagedError(Exception):
    """A file, or a part of it, cannot be read as Parquet; the message says why."""


@dataclass(frozen=True)
class Footer:
    """What a file says of itself, without its data."""

    file: DataFile
    metadata: Any
    schema: Any

    def num_bytes(self, group: int, columns: Sequence[str] | None) -> int:
        """The length of a row group's data before compression; of these columns only. Raises UsageError for a damaged footer."""
        with _footer_of(shown(self.file.path)):
            sizes = [int(chunk.total_uncompressed_size) for chunk in self._chunks(group) if _is_of(chunk.path_in_schema, columns)]
        return max(1, sum(sizes))

    def span(self, group: int) -> tuple[int, int]:
        """Where the data of a row group begins in the file, and where it ends."""
        chunks = self._chunks(group)
        begins = [min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset) for chunk in chunks]
        ends = [begin + chunk.total_compressed_size for begin, chunk in zip(begins, chunks, strict=True)]
        return min(begins, default=0), max(ends, default=0)

    def _chunks(self, group: int) -> list[Any]:
        found = self.metadata.row_group(group)
        return [found.column(i) for i in range(found.num_columns)]


def footers(files: Sequence[DataFile], roots: Sequence[str]) -> list[Footer]:
    """The footer of each file. Raises UsageError for one that is no Parquet file, or whose columns have the same name."""
    found: list[Footer] = []
    for root, place in enumerate(roots):
        some = [file for file in files if file.root == root]
        found += at_once(open_storage(place), partial(_footer, place), some)
    return found


def _footer(root: str, file: DataFile) -> Footer:
    with _footer_of(f"{root}/{shown(file.path)}"), opened_parquet(root, file.window(), until=0) as source:
        footer = Footer(file, source.metadata, source.schema_arrow)
        footer.schema.to_string()  # looks at every name, also inside structs
    names = footer.schema.names
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"expected columns of different names, got two {printable(twice)!r} in {root}/{shown(file.path)}; rename one")
    return footer


@contextmanager
def _footer_of(name: str) -> Iterator[None]:
    try:
        with _damage():
            yield
    except DamagedError as error:
        raise UsageError(_unreadable(name, str(error))) from None


def _unreadable(name: str, reason: str) -> str:
    if "encrypt" in reason:
        return f"expected a Parquet file that is not encrypted, got {name}, which is; decrypt it first"
    return f"expected a Parquet file, got {name}, which cannot be read as one ({reason}); restore it or leave it out"


@contextmanager
def opened_parquet(root: str, window: Window, until: int | None, fetches_whole: bool = False) -> Iterator[Any]:
    """A planned file. Raises StorageError where it is not what was planned, DamagedError where it, or a read of it, is no Parquet.

    ``until``: up to where an object is worth reading ahead. ``fetches_whole``: columns of a row group are read at once, not in
    pieces that are as many requests; memory then grows with the row group.
    """
    with opened(root, window, until) as raw, _damage():
        # An object gives what has come so far, where Arrow wants all that it asked for.
        source = io.BufferedReader(raw, _BUFFER_BYTES)  # type: ignore[type-var]
        buffer_bytes = 0 if fetches_whole else _BUFFER_BYTES
        yield parquet.ParquetFile(source, buffer_size=buffer_bytes, pre_buffer=fetches_whole, page_checksum_verification=True)


@contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno:
            raise  # the storage failed, not the file
        raise DamagedError(_brief(error)) from None


def _brief(error: Exception) -> str:
    text = printable(" ".join(str(error).split()))
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."


def record_batches(source: Any, group: int, columns: Sequence[str], skipped: int, taken: int) -> Iterator[Any]:
    """``taken`` rows of a row group behind the first ``skipped`` ones, a few at a time. Raises DamagedError."""
    metadata = source.metadata.row_group(group)
    num_rows = min(max(1, _BATCH_BYTES * metadata.num_rows // max(metadata.total_byte_size, 1)), _BATCH_ROWS)
    batches = source.iter_batches(num_rows, [group], list(columns), use_threads=False)
    while taken:
        with _damage():
            batch = next(batches, None)
        if batch is None:
            raise DamagedError("it holds fewer rows than its footer says")
        if skipped < batch.num_rows:
            part = batch.slice(skipped, taken)
            taken -= part.num_rows
            del batch
            yield part
            del part
            skipped = 0
        else:
            skipped -= batch.num_rows


def require_columns(source: Any, columns: Sequence[str], name: str) -> None:
    """Raises StorageError where the file is another than the one that was planned."""
    missing = next((column for column in columns if column not in source.schema_arrow.names), None)
    if missing is not None:
        raise StorageError(
            f"expected {name} to have the column {printable(missing)!r} as it had when the run was planned, got none; "
            "run again when nothing writes to it"
        )


def _is_of(path: str, columns: Sequence[str] | None) -> bool:
    return columns is None or path in columns or path.partition(".")[0] in columns
