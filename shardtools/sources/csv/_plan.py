"""CSV files looked at for a plan: headers, first rows, partitions."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from shardtools.errors import UsageError
from shardtools.formats import Encoder
from shardtools.partitions import partition_bytes, tapered
from shardtools.places import at_once
from shardtools.sample import Batch, Field
from shardtools.sources import Survey, SurveyRequest
from shardtools.sources._data_files import DataFile, data_files, refuse_same_prefixes
from shardtools.sources._lines import WHOLE_FILE, expansion
from shardtools.sources._planned import shown
from shardtools.sources._streams import DamagedStreamError
from shardtools.sources._table_layout import TableLayout, TableOptions
from shardtools.sources._table_settle import ColumnFacts, settle_table
from shardtools.sources._table_survey import FIRST_BYTES, FIRST_ROWS, PartitionInput, Sampled, partitions, sampled, with_keys
from shardtools.sources.csv._cells import encoding_of
from shardtools.sources.csv._parse import Parsed, UnreadableError
from shardtools.sources.csv._rows import FLAG, key_prefix, rows_of, table_rows
from shardtools.sources.csv._spans import CsvFile, Spans
from shardtools.sources.csv._text import SUFFIXES, delimiter_of, read_header
from shardtools.storage import open_storage

_SHOWN_FILES = 3


def survey_files(
    options: TableOptions, layout: TableLayout | None, types: tuple[Field, ...], request: SurveyRequest
) -> tuple[Survey, TableLayout, tuple[Field, ...]]:
    """The survey, but for its source, and what that is to be settled to; ``layout`` and ``types`` are those of a recipe, if any."""
    roots = [given.root for given in request.inputs]
    listed = data_files(request.inputs, SUFFIXES, "CSV")
    if options.key is None:
        refuse_same_prefixes(listed.files, roots, key_prefix)
    files = csv_files(listed.files, roots)
    first = _first_rows(files)
    if not first:
        raise UsageError(f"expected at least one row that can be read below the headers, got none in {', '.join(roots)}")
    notes: list[str] = []
    if request.settled is not None and layout is not None:
        fields = request.settled
    else:
        types = _types(options, first)
        layout, fields, notes = _settled(options, types, first, request)
    ahead = _sampled(layout, types, first, request, request.format.encoder(fields, request.limit.num_bytes))
    spans = Spans(files, [])
    inputs = _inputs(spans, ahead, request)
    survey = with_keys(
        Survey(
            source=None,
            fields=fields,
            partitions=list(partitions(inputs, ahead.stored_ratio, request.limit)),
            preview=[],
            notes=notes + _delimiter_note(files[0]) + _uncut_note(spans.uncut),
            skipped=listed.skipped,
            newest_ns=listed.newest_ns,
            expected_bytes=int(ahead.stored_ratio * sum(file.text_bytes for file in files)),
        ),
        ahead.keys,
    )
    return survey, layout, types


def _types(options: TableOptions, first: Sequence[tuple[CsvFile, Parsed]]) -> tuple[Field, ...]:
    """The type of every column; where an empty cell is none, by the others."""
    optional = {mapping.record_field for mapping in options.map or () if mapping.optional}
    types = []
    for name, cells in _cells(first).items():
        types.append(Field(name, encoding_of([cell or None for cell in cells] if name in optional else cells)))
    return tuple(types)


def _cells(first: Sequence[tuple[CsvFile, Parsed]]) -> dict[str, list[Any]]:
    names = first[0][0].header.names
    return {name: [cell for _, rows in first for cell in rows.cells.column(name).to_pylist()] for name in names}


def _settled(
    options: TableOptions, types: Sequence[Field], first: Sequence[tuple[CsvFile, Parsed]], request: SurveyRequest
) -> tuple[TableLayout, tuple[Field, ...], list[str]]:
    facts = [ColumnFacts(one.name, one.encoding, is_flag=one.encoding == FLAG) for one in types]
    cells = _cells(first)
    records = [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]
    return settle_table(options, facts, records, request)


def csv_files(files: Sequence[DataFile], roots: Sequence[str]) -> list[CsvFile]:
    """The files with their headers. Raises UsageError for files that differ in their columns, naming two of them."""
    found: list[CsvFile] = []
    for root, place in enumerate(roots):
        some = [file for file in files if file.root == root]
        found += at_once(open_storage(place), partial(_csv_file, place), some)
    for other in found[1:]:
        names = [set(one.header.names) for one in (found[0], other)]
        if names[0] != names[1]:
            first, second = (f"{one.root}/{shown(one.file.path)}" for one in (found[0], other))
            name = min(names[0] ^ names[1])
            here = first if name in names[0] else second
            raise UsageError(
                f"expected the same columns in every file, got {name!r} only in {here} of {first} and {second}; correct a header"
            )
    return found


def _csv_file(root: str, file: DataFile) -> CsvFile:
    return CsvFile(file, root, read_header(root, file.window()), int(file.num_bytes * expansion(root, file.window())))


def _first_rows(files: Sequence[CsvFile]) -> list[tuple[CsvFile, Parsed]]:
    """Up to 1,000 rows or 32 MiB, but one at least; what is bad is left to the run."""
    found: list[tuple[CsvFile, Parsed]] = []
    missing, missing_bytes = FIRST_ROWS, FIRST_BYTES
    for file in files:
        try:
            for rows in rows_of(file.root, file.stretch(file.header.end, WHOLE_FILE, 0), file.header.names):
                taken = min(missing, len(rows.indices))
                if taken:
                    found.append((file, Parsed(rows.indices[:taken], rows.cells.slice(0, taken), has_escaped=rows.has_escaped)))
                    missing -= taken
                    missing_bytes -= found[-1][1].cells.nbytes
                if missing <= 0 or missing_bytes <= 0:
                    return found
        except (DamagedStreamError, UnreadableError):
            continue
    return found


def _sampled(
    layout: TableLayout, types: Sequence[Field], first: Sequence[tuple[CsvFile, Parsed]], request: SurveyRequest, encoder: Encoder
) -> Sampled:
    def batches() -> Iterator[tuple[Batch, float]]:
        for file, rows in first:
            found = table_rows(rows, rows.indices, layout, types, request.extras)
            batch = layout.batch(found, key_prefix(file.file.path), lambda _: "", lambda _: None)
            batch.root = file.file.root
            # Cells and what stands between them.
            num_bytes = sum(column.nbytes - 4 * len(column) for column in rows.cells.columns)
            yield batch, float(num_bytes + len(rows.indices) * rows.cells.num_columns)

    return sampled(batches(), [one.name for one in types], request, lambda batch: encoder.encode(batch, lambda _: None).costs)


def _inputs(spans: Spans, ahead: Sampled, request: SurveyRequest) -> Iterator[PartitionInput]:
    num_bytes = sum(file.text_bytes for file in spans.files)
    target = partition_bytes(num_bytes, ahead.stored_ratio, request.limit.num_bytes, ahead.beside_ratio)
    if request.limit.num_samples is not None:
        return spans.by_rows(request.limit.num_samples, target)
    return spans.by_bytes(target, tapered(num_bytes, target) if request.is_slow else repeat(target))


def _delimiter_note(file: CsvFile) -> list[str]:
    """A table of one column is most often one whose delimiter is another."""
    names, own = file.header.names, delimiter_of(file.file.path)
    other = next((mark for mark in ";\t|," if mark in names[0] and mark != own), None) if len(names) == 1 else None
    if other is None:
        return []
    return [
        f"one column, {names[0]!r}: cells lie between commas, in .tsv between tabs; if {other!r} is meant to part them, convert the file"
    ]


def _uncut_note(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _SHOWN_FILES:,} more" if len(names) > _SHOWN_FILES else ""
    return [
        f"read from end to end by one worker, since no place in it is proved to be between rows: {', '.join(names[:_SHOWN_FILES])}{more}"
    ]
