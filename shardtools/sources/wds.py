"""Shards of WebDataset: tars of this package or of others, whose members are fields by their extensions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from shardtools import plugins
from shardtools.datasets import TAR_SUFFIXES, Dataset
from shardtools.errors import UsageError
from shardtools.formats import ShardFormat
from shardtools.sample import Batch, Field, RejectSink
from shardtools.sources import PATH_FIELD, Survey, SurveyRequest
from shardtools.sources._grouping import FieldRule, parse_field_rules
from shardtools.sources._record_layout import FieldMapping, parse_mappings
from shardtools.sources._shard_fields import ColumnMember, ShardField, ShardLayout, fields_of
from shardtools.sources._shard_inputs import ShardInputs
from shardtools.sources._shard_members import (
    field_sets,
    key_member,
    known_encodings,
    mapped_parts,
    member_rules,
    parts_of,
    refuse_taken,
    wanted_part,
)
from shardtools.sources._shard_reading import read_pieces
from shardtools.sources._shard_schema import column_parts, common_schema, made_members, schema_of
from shardtools.sources._shard_survey import First, Settled, survey_shards
from shardtools.units import listed

__all__ = ["ColumnMember", "Wds", "kept_columns"]


@dataclass(frozen=True)
class Wds:
    """Samples in the order of shards. Bytes of members pass through unchanged, keys too where they are legal."""

    fields: tuple[FieldRule, ...] | None = None
    """None: as the samples show. Otherwise other members are left out."""
    map: tuple[FieldMapping, ...] | None = None
    """Fields made of members, or of fields of their JSON. None: every member."""
    key: str | None = None
    """The member, or the field of its JSON, that is the key. None: the key that the sample has."""
    keep_path: bool = False
    """Adds the field ``path``: the key before it was escaped."""
    layout: ShardLayout | None = None
    """Settled by planning."""

    file_suffixes: ClassVar[tuple[str, ...]] = TAR_SUFFIXES

    option_names: ClassVar[tuple[str, ...]] = ("fields", "map", "key", "keep_path")

    @classmethod
    def from_options(cls, words: Mapping[str, str]) -> "Wds":
        if "fields" in words and "map" in words:
            raise UsageError("expected --fields, which takes whole members, or --map, got both; choose one")
        return cls(
            fields=parse_field_rules(words["fields"]) if "fields" in words else None,
            map=parse_mappings(words["map"]) if "map" in words else None,
            key=words.get("key"),
            keep_path="keep_path" in words,
        )

    def survey(self, request: SurveyRequest) -> Survey:
        return survey_shards(self, "wds", request, self._settled)

    def read(self, roots: Sequence[str], extents: Sequence[bytes], reject: RejectSink, extras: Sequence[str] = ()) -> Iterator[Batch]:
        assert self.layout is not None, "a recipe holds a surveyed source"
        return read_pieces(self.layout, _shard_format(), roots, extents, reject, extras)

    def _settled(self, inputs: ShardInputs, first: First, request: SurveyRequest) -> Settled:
        blocks = [block for _, block in first.blocks]
        key = None if self.key is None else key_member(self.key, blocks)
        if request.wanted is not None:
            return self._tokens(first, request, key)
        is_tar = request.format.index_name is None
        if is_tar and request.encodings:
            raise UsageError("expected --columns with MDS only, got it with WDS, whose members have no types; leave it out")
        schema = common_schema(inputs) if self.fields is None and self.map is None else None
        layout, encodings = self._layout(inputs, first, is_tar, schema is not None)
        if schema is not None and not is_tar:
            layout, encodings = _restored(layout, schema, encodings)
        unknown = sorted(request.encodings.keys() - encodings.keys())
        if unknown:
            raise UsageError(f"expected --columns among {listed(sorted(encodings))}, got {unknown[0]!r}")
        encodings |= request.encodings
        dropped = {*request.replaced, *({self.key} if self.key == request.format.key_name else ())}
        parts = tuple(_as_text(part, request.encodings) for part in layout.parts if part.name not in dropped)
        layout = replace(layout, parts=parts, key=key, keep_path=self.keep_path, schema=schema)
        fields = fields_of(parts, encodings, keep_path=False)
        if self.keep_path:
            refuse_taken(fields, PATH_FIELD, "--keep-path")
        return Settled(layout, fields_of(parts, encodings, self.keep_path), ("fields: " + _described(fields),))

    def _layout(self, inputs: ShardInputs, first: First, is_tar: bool, has_schema: bool) -> tuple[ShardLayout, dict[str, str]]:
        blocks = [block for _, block in first.blocks]
        if self.map is not None:
            parts, encodings = mapped_parts(self.map, blocks)
            return ShardLayout(tuple(parts)), encodings
        sets = field_sets(inputs, blocks)
        is_known = all(dataset.manifest is not None for dataset in inputs.datasets)
        rules = member_rules(sets, self.fields, is_tar or has_schema, is_known)
        parts, encodings = parts_of(rules, sets, known_encodings(inputs), is_tar)
        known = None if self.fields is not None else tuple(sorted({alias for rule in rules for alias in rule.aliases}))
        return ShardLayout(tuple(parts), rules, known), encodings

    def _tokens(self, first: First, request: SurveyRequest, key: tuple[str, str | None] | None) -> Settled:
        if self.fields is not None or self.map is not None or self.keep_path:
            raise UsageError(
                "expected none of --fields, --map and --keep-path with --tokenizer, which packs one field, got one; use --text-key"
            )
        assert request.wanted is not None
        part: ShardField = wanted_part(request.wanted, [block for _, block in first.blocks])
        return Settled(ShardLayout((part,), key=key), (Field(part.name, request.wanted.field.encoding),))


def kept_columns(dataset: Dataset) -> tuple[ColumnMember, ...] | None:
    """The columns that the members of tars were made of, as a conversion restores them; None where members are what there is."""
    return None if dataset.manifest is None else schema_of(dataset.manifest.recipe)


def _as_text(part: ShardField, encodings: Mapping[str, str]) -> ShardField:
    """A value of the JSON member as its text where the user says so: then null is one, too."""
    is_text = part.form == "json" and part.path is not None and encodings.get(part.name) == "json"
    return replace(part, form="dumped") if is_text else part


def _restored(layout: ShardLayout, schema: Sequence[ColumnMember], encodings: Mapping[str, str]) -> tuple[ShardLayout, dict[str, str]]:
    """The columns that members were made of, and beside them the members that were none of them."""
    columns = {column.name: column.encoding for column in schema}
    made = made_members(schema)
    added = tuple(part for part in layout.parts if not made.issuperset(part.origins))
    taken = next((part.name for part in added if part.name in columns), None)
    if taken is not None:
        raise UsageError(f"expected no member .{taken} beside the column {taken!r} of the JSON member, got one; name fields with --map")
    parts = (*column_parts(schema), *added)
    return replace(layout, parts=parts, rules=()), columns | {part.name: encodings[part.name] for part in added}


def _described(fields: Sequence[Field]) -> str:
    return ", ".join(f"{field.name} {field.encoding}{'?' if field.optional else ''}" for field in fields)


def _shard_format() -> ShardFormat:
    shard_format: ShardFormat = plugins.load("formats", "wds")()
    return shard_format
