"""Mosaic data shards as they are, of this package or of MDSWriter, read without the reference library."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from shardtools import plugins
from shardtools.datasets import Dataset
from shardtools.errors import UsageError
from shardtools.formats import ShardFormat
from shardtools.places import join
from shardtools.sample import Batch, Field, RejectSink
from shardtools.sources import PATH_FIELD, Survey, SurveyRequest
from shardtools.sources import _shard_values as convert
from shardtools.sources._infer import infer_fields
from shardtools.sources._record_layout import FieldMapping, parse_mappings
from shardtools.sources._shard_columns import (
    column_at,
    columns_of,
    key_at,
    key_column,
    refuse_pickles,
    refuse_unknown,
    schema_for,
    wanted_column,
)
from shardtools.sources._shard_fields import ColumnMember, ShardField, ShardLayout, fields_of
from shardtools.sources._shard_inputs import ShardInputs
from shardtools.sources._shard_members import refuse_taken
from shardtools.sources._shard_reading import read_pieces
from shardtools.sources._shard_schema import are_members, as_members, tar_encoding, tar_part, tar_parts
from shardtools.sources._shard_survey import First, Settled, survey_shards
from shardtools.units import listed


@dataclass(frozen=True)
class Mds:
    """Samples in the order of shards. Stored values pass through unchanged; no pickle is ever opened."""

    map: tuple[FieldMapping, ...] | None = None
    """Fields made of columns, or of what dotted names lead to in their JSON. None: every column."""
    key: str | None = None
    """The column, or what a dotted name leads to in its JSON, that is the key. None: the column ``key``, else shard and row."""
    keep_path: bool = False
    """Adds the field ``path``: the key before it was escaped."""
    allow_pickle: bool = False
    """Takes columns of pickles, whose bytes pass through; reading what comes of it with other programs may run code."""
    layout: ShardLayout | None = None
    """Settled by planning."""
    key_column: str | None = None
    """Settled by planning: the column that holds the keys of the shards that are read."""

    file_suffixes: ClassVar[tuple[str, ...]] = (".mds", ".mds.zstd")

    option_names: ClassVar[tuple[str, ...]] = ("map", "key", "keep_path", "allow_pickle")

    @classmethod
    def from_options(cls, words: Mapping[str, str]) -> "Mds":
        return cls(
            map=parse_mappings(words["map"]) if "map" in words else None,
            key=words.get("key"),
            keep_path="keep_path" in words,
            allow_pickle="allow_pickle" in words,
        )

    def survey(self, request: SurveyRequest) -> Survey:
        found: dict[str, str | None] = {}

        def settle(inputs: ShardInputs, first: First, request: SurveyRequest) -> Settled:
            found["key_column"] = key_column(inputs)
            return self._settled(inputs, first, request)

        survey = survey_shards(self, "mds", request, settle)
        if found:
            survey.source = replace(survey.source, key_column=found["key_column"])
        return survey

    def read(self, roots: Sequence[str], extents: Sequence[bytes], reject: RejectSink, extras: Sequence[str] = ()) -> Iterator[Batch]:
        assert self.layout is not None, "a recipe holds a surveyed source"
        return read_pieces(self.layout, _shard_format(self.key_column), roots, extents, reject, extras)

    def _settled(self, inputs: ShardInputs, first: First, request: SurveyRequest) -> Settled:
        columns = columns_of(inputs)
        refuse_pickles(columns, self.allow_pickle, join(inputs.datasets[0].uri, ""))
        schema = schema_for(columns, inputs)
        key = None if self.key is None else key_at(self.key, columns, first)
        layout = ShardLayout((), key=key, schema=schema, is_table=True)
        if request.wanted is not None:
            if self.map is not None or self.keep_path:
                raise UsageError("expected neither --map nor --keep-path with --tokenizer, which packs one field, got one; use --text-key")
            part = wanted_column(request.wanted, columns, first)
            return Settled(replace(layout, parts=(part,)), (Field(part.name, request.wanted.field.encoding),))
        is_tar = request.format.index_name is None
        if is_tar and request.encodings:
            raise UsageError("expected --columns with MDS only, got it with WDS, whose members have no types; leave it out")
        parts, encodings = self._parts(schema, first, is_tar)
        if not is_tar:
            refuse_unknown({name: one for name, one in encodings.items() if name not in request.encodings}, inputs)
        unknown = sorted(request.encodings.keys() - encodings.keys())
        if unknown:
            raise UsageError(f"expected --columns among {listed(sorted(encodings))}, got {unknown[0]!r}")
        dropped = {*request.replaced, *({self.key} if self.key == request.format.key_name else ())}
        parts = tuple(part for part in parts if part.name not in dropped)
        parts = tuple(_with_encoding(part, request.encodings.get(part.name)) for part in parts)
        fields = fields_of(parts, encodings | request.encodings, keep_path=False)
        if self.keep_path:
            refuse_taken(fields, PATH_FIELD, "--keep-path")
        layout = replace(layout, parts=parts, keep_path=self.keep_path)
        note = "fields: " + ", ".join(f"{field.name} {field.encoding}" for field in fields)
        return Settled(layout, fields_of(parts, encodings | request.encodings, self.keep_path), (note,))

    def _parts(self, schema: Sequence[ColumnMember], first: First, is_tar: bool) -> tuple[tuple[ShardField, ...], dict[str, str]]:
        if self.map is not None:
            return _mapped(self.map, schema, first, is_tar)
        if is_tar:
            return tar_parts(schema)
        parts = tuple(_column(column.name, column) for column in schema)
        return parts, {column.name: column.encoding for column in schema}


def members_of_columns(columns: Sequence[Field]) -> tuple[ColumnMember, ...]:
    """The tar members that columns become where nothing says that they were members before."""
    return as_members(columns)


def member_columns(dataset: Dataset) -> tuple[ColumnMember, ...] | None:
    """The columns of a dataset in which each was a member, or a file, by itself; None for any other."""
    recipe = None if dataset.manifest is None else dataset.manifest.recipe
    if recipe is None or recipe["format"]["name"] != "mds" or not are_members(recipe):
        return None
    return tuple(ColumnMember(one["name"], one["encoding"], one["optional"], (one["name"],)) for one in recipe["fields"])


def _column(name: str, column: ColumnMember) -> ShardField:
    # Empty bytes stand for a value that is absent: no step may take them for a damaged one.
    empty = "" if column.optional and column.encoding == "bytes" else None
    return ShardField(name, (column.name,), "column", column.encoding, optional=column.optional, empty=empty)


def _with_encoding(part: ShardField, encoding: str | None) -> ShardField:
    """What JSON calls a value, where it is to be stored as that."""
    is_other = encoding == "json" != part.encoding and part.form == "column" and convert.is_in_record(part.encoding)
    return replace(part, form="json") if is_other else part


def _mapped(
    mappings: Sequence[FieldMapping], schema: Sequence[ColumnMember], first: First, is_tar: bool
) -> tuple[tuple[ShardField, ...], dict[str, str]]:
    by_name = {column.name: column for column in schema}
    parts, encodings = [], {}
    for mapping in mappings:
        origin, path = column_at(mapping.record_field, [Field(column.name, column.encoding) for column in schema], first, "--map")
        column = replace(by_name[origin], optional=mapping.optional or by_name[origin].optional)
        if path is None:
            parts.append(tar_part(mapping.name, column) if is_tar else _column(mapping.name, column))
            encodings[mapping.name] = tar_encoding(column.encoding) if is_tar else column.encoding
            continue
        texts = [value for _, block in first.blocks for value in block.column(origin)]
        values = convert.inner([convert.parsed(text) for text in texts if text is not None], path)
        found, _ = infer_fields([{mapping.name: value} for value in values if value is not None or not mapping.optional])
        encodings[mapping.name] = found[0].encoding if found else "json"
        form = "dumped" if encodings[mapping.name] == "json" else "json"
        parts.append(ShardField(mapping.name, (origin,), form, "json", path, mapping.optional))
    return tuple(parts), encodings


def _shard_format(key: str | None) -> ShardFormat:
    shard_format: ShardFormat = plugins.load("formats", "mds")(key_column=key)
    return shard_format
