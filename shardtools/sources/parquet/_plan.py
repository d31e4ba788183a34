"""Parquet files looked at for a plan: footers, first rows, partitions."""

from collections.abc import Iterator, Sequence
from itertools import repeat

from shardtools.errors import UsageError
from shardtools.formats import Encoder
from shardtools.partitions import partition_bytes, tapered
from shardtools.sample import Batch, Field
from shardtools.sources import Survey, SurveyRequest
from shardtools.sources._data_files import data_files, refuse_same_prefixes
from shardtools.sources._table_cuts import cut_by_bytes, cut_by_rows
from shardtools.sources._table_layout import TableLayout, TableOptions
from shardtools.sources._table_settle import settle_table
from shardtools.sources._table_survey import PartitionInput, Sampled, partitions, sampled, with_keys
from shardtools.sources.parquet._files import footers
from shardtools.sources.parquet._first import FirstRows, column_facts, first_records, first_rows, row_groups
from shardtools.sources.parquet._folders import SUFFIXES, FolderColumn, folder_columns
from shardtools.sources.parquet._pieces import Piece, RowGroup
from shardtools.sources.parquet._rows import key_prefix, table_rows
from shardtools.sources.parquet._schema import TableSchema, column_of, table_schema


def survey_files(
    options: TableOptions, layout: TableLayout | None, request: SurveyRequest
) -> tuple[Survey, TableLayout, tuple[FolderColumn, ...]]:
    """The survey, but for its source, and what that is to be settled to; ``layout`` is that of a recipe which is planned again."""
    roots = [given.root for given in request.inputs]
    listed = data_files(request.inputs, SUFFIXES, "Parquet")
    if options.key is None:
        refuse_same_prefixes(listed.files, roots, key_prefix)
    found = footers(listed.files, roots)
    folders = folder_columns([file.path for file in listed.files])
    schema = table_schema(found, folders, roots, _paths(options, request, [*found[0].schema.names, *(one.name for one in folders)]))
    first = first_rows(row_groups(found, None), roots, schema)
    if not first:
        raise UsageError(f"expected at least one row that can be read, got none in {', '.join(roots)}")
    layout, fields, notes = _settled(options, layout, schema, first, request)
    groups = row_groups(found, schema.needed(layout, request.extras))
    ahead = _sampled(layout, first, groups, request, request.format.encoder(fields, request.limit.num_bytes))
    survey = with_keys(
        Survey(
            source=None,
            fields=fields,
            partitions=list(partitions(_inputs(groups, ahead, request), ahead.stored_ratio, request.limit)),
            preview=[],
            notes=notes,
            skipped=listed.skipped,
            newest_ns=listed.newest_ns,
            expected_bytes=int(ahead.stored_ratio * sum(group.num_bytes for group in groups)),
        ),
        ahead.keys,
    )
    return survey, layout, folders


def _paths(options: TableOptions, request: SurveyRequest, names: Sequence[str]) -> list[str] | None:
    """What is asked for of the table; None: every column."""
    if request.wanted is not None:
        chosen = [request.wanted.path or request.wanted.field.name]
    elif options.map is not None:
        chosen = [mapping.record_field for mapping in options.map]
    else:
        return None
    if any(column_of(path, names) not in names for path in chosen):
        return None  # what is said of it names all that there are
    return [*chosen, *([options.key] if options.key is not None else []), *request.extras]


def _settled(
    options: TableOptions, layout: TableLayout | None, schema: TableSchema, first: Sequence[FirstRows], request: SurveyRequest
) -> tuple[TableLayout, tuple[Field, ...], list[str]]:
    if request.settled is not None and layout is not None:
        return layout, request.settled, []
    records = first_records(schema, first) if request.wanted is not None else []
    return settle_table(options, column_facts(schema, first), records, request)


def _sampled(
    layout: TableLayout, first: Sequence[FirstRows], groups: Sequence[RowGroup], request: SurveyRequest, encoder: Encoder
) -> Sampled:
    num_bytes = {(group.root, group.path, group.index): group.num_bytes for group in groups}

    def batches() -> Iterator[tuple[Batch, float]]:
        for one in first:
            group = one.group
            rows = table_rows(one.table, layout, request.extras, one.number)
            batch = layout.batch(rows, key_prefix(group.path), lambda _: "", lambda _: None)
            batch.root = group.root
            yield batch, num_bytes[group.root, group.path, group.index] * one.share

    return sampled(batches(), first[0].table.names_in_json, request, lambda batch: encoder.encode(batch, lambda _: None).costs)


def _inputs(groups: Sequence[RowGroup], ahead: Sampled, request: SurveyRequest) -> Iterator[PartitionInput]:
    num_bytes = sum(group.num_bytes for group in groups)
    target = partition_bytes(num_bytes, ahead.stored_ratio, request.limit.num_bytes, ahead.beside_ratio)
    sizes = tapered(num_bytes, target) if request.is_slow else repeat(target)
    limit = request.limit.num_samples
    cuts = cut_by_bytes(groups, sizes) if limit is None else cut_by_rows(groups, limit, target)
    return (PartitionInput([Piece.of(*part).packed() for part in cut.parts], cut.num_bytes, cut.num_rows) for cut in cuts)
