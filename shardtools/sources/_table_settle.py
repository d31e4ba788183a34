"""The layout of a table and the fields that its columns settle, with notes for people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardtools.errors import UsageError
from shardtools.formats import MEMBER_ENCODINGS, ShardFormat
from shardtools.sample import Field
from shardtools.sources import PATH_FIELD, SurveyRequest
from shardtools.sources._record_layout import RECORD_FIELD, FieldMapping
from shardtools.sources._shard_fields import ColumnMember
from shardtools.sources._shard_schema import as_members, tar_encoding
from shardtools.sources._table_layout import TableColumn, TableLayout, TableOptions
from shardtools.sources._wanted_field import wanted_mapping

_IMAGES = ("jpeg", "png")


@dataclass(frozen=True)
class ColumnFacts:
    """One column as its type and its first rows show it."""

    name: str
    encoding: str
    """Of its values where none is null, in MDS's words; ``media`` for files."""
    why: str = ""
    """What is stored otherwise than the table has it, and how."""
    has_null: bool = False
    """In the first rows."""
    kinds: tuple[str, ...] = ()
    """Extensions of its files, in the first rows, sorted."""
    is_flag: bool = False
    """Numbers that are true or false."""

    @property
    def is_binary(self) -> bool:
        """Its values are bytes, images or arrays, which no JSON can hold."""
        return self.encoding in ("media", "bytes") or self.encoding.startswith("ndarray")


def settle_table(
    options: TableOptions, facts: Sequence[ColumnFacts], records: Sequence[dict[str, Any]], request: SurveyRequest
) -> tuple[TableLayout, tuple[Field, ...], list[str]]:
    """Layout and fields, with notes on the types. ``records`` are the first rows. Raises UsageError for a name no column has."""
    by_name = {one.name: one for one in facts}
    is_tar = request.format.index_name is None
    if options.key is not None and options.key not in by_name:
        raise UsageError(f"expected --key of {_listed(by_name)}, got {options.key!r}")
    if request.wanted is not None:
        return _wanted(options, records, request)
    if is_tar and request.encodings:
        raise UsageError("expected --columns with MDS only, got it with WDS, whose members have no types; leave it out")
    has_record = is_tar and options.map is None
    mappings = options.map or tuple(FieldMapping(name, name) for name in by_name if not _is_key_column(name, options, request.format))
    columns: list[TableColumn] = []
    for mapping in mappings:
        if mapping.record_field not in by_name:
            raise UsageError(f"expected columns among {_listed(by_name)} in --map, got {mapping.record_field!r}")
        columns += _columns_of(mapping, by_name[mapping.record_field], is_tar, has_record, request.encodings)
    unknown = sorted(request.encodings.keys() - {column.field for column in columns})
    if unknown:
        raise UsageError(f"expected --columns among {_listed(sorted(column.field for column in columns))}, got {unknown[0]!r}")
    schema = _schema(columns) if has_record else None
    layout = TableLayout(options.key, tuple(columns), has_record, options.keep_path, schema)
    fields = tuple(field for field in _fields(layout, by_name, is_tar) if field.name not in request.replaced)
    return layout, fields, _notes([column for column in columns if column.field not in request.replaced], by_name, request.encodings)


def _schema(columns: Sequence[TableColumn]) -> tuple[ColumnMember, ...]:
    """What a conversion of the tars restores the columns by."""
    members: dict[str, list[TableColumn]] = {}
    for column in columns:
        members.setdefault(column.column, []).append(column)
    return tuple(
        ColumnMember(
            name,
            # As MDS has it, where no image is ever absent.
            some[0].encoding if len(some) == 1 and not some[0].optional else "bytes",
            some[0].optional,
            tuple(column.field for column in some if column.field != RECORD_FIELD),
        )
        for name, some in members.items()
    )


def _wanted(
    options: TableOptions, records: Sequence[dict[str, Any]], request: SurveyRequest
) -> tuple[TableLayout, tuple[Field, ...], list[str]]:
    assert request.wanted is not None
    if options.map is not None or options.keep_path:
        raise UsageError("expected neither --map nor --keep-path with --tokenizer, which packs one field, got one; use --text-key")
    mapping, wanted = wanted_mapping(request.wanted, records), request.wanted.field
    column = TableColumn(mapping.record_field, wanted.name, wanted.encoding, nested=mapping.nested)
    return TableLayout(options.key, (column,), False, False), (Field(wanted.name, wanted.encoding),), []


def _is_key_column(name: str, options: TableOptions, shard_format: ShardFormat) -> bool:
    """A column that is the key and is called like the key column is that column."""
    return options.key == name and name == shard_format.key_name


def _columns_of(
    mapping: FieldMapping, facts: ColumnFacts, is_tar: bool, has_record: bool, encodings: Mapping[str, str]
) -> list[TableColumn]:
    encoding, optional = facts.encoding, mapping.optional
    if mapping.name in encodings:
        return [TableColumn(facts.name, mapping.name, encodings[mapping.name], optional)]
    if facts.has_null and not optional:
        # Bytes are absent then; a null among other values is one that JSON knows.
        optional = facts.is_binary and not encoding.startswith("ndarray")
        encoding = encoding if optional else "json"
    if encoding == "media":
        return _media_columns(mapping, facts, optional, is_tar, has_record)
    is_npy = is_tar and encoding.startswith("ndarray")
    if not has_record:
        return [TableColumn(facts.name, mapping.name, encoding, optional, is_npy=is_npy)]
    if is_npy or encoding == "bytes":
        return [TableColumn(facts.name, _member(facts.name, encoding), encoding, optional, is_npy=is_npy)]
    return [TableColumn(facts.name, RECORD_FIELD, encoding)]


def _media_columns(mapping: FieldMapping, facts: ColumnFacts, optional: bool, is_tar: bool, has_record: bool) -> list[TableColumn]:
    kinds = facts.kinds or ("bin",)
    if not has_record:
        one = MEMBER_ENCODINGS.get(kinds[0], "bytes") if len(kinds) == 1 else "bytes"
        encoding = one if one in _IMAGES and (is_tar or not optional) else "bytes"
        return [TableColumn(facts.name, mapping.name, encoding, optional)]
    return [
        TableColumn(
            facts.name,
            _file_member(facts.name, kind),
            encoding if (encoding := MEMBER_ENCODINGS.get(kind, "bytes")) in _IMAGES else "bytes",
            optional or len(kinds) > 1,
            kind=kind,
        )
        for kind in kinds
    ]


def _member(name: str, encoding: str) -> str:
    """The tar field of a column of bytes or arrays, by whose end readers know what it holds."""
    return as_members([Field(name, encoding)])[0].members[0]


def _file_member(name: str, kind: str) -> str:
    encoding = MEMBER_ENCODINGS.get(kind)
    if encoding in _IMAGES:
        return _member(name, encoding)
    plain = _member(name, "bytes").removesuffix(".bin")
    return plain if f".{plain}".endswith(f".{kind}") else f"{plain}.{kind}"


def _fields(layout: TableLayout, by_name: Mapping[str, ColumnFacts], is_tar: bool) -> tuple[Field, ...]:
    fields: dict[str, Field] = {}
    for column in layout.columns:
        if layout.has_record and column.field == RECORD_FIELD:
            fields[RECORD_FIELD] = Field(RECORD_FIELD, "json")
            continue
        encoding = column.encoding
        if is_tar and not by_name[column.column].is_flag:
            encoding = tar_encoding(encoding)
        if column.field in fields:
            raise UsageError(f"expected every field once, got {column.field!r} of two columns; name fields with --map")
        fields[column.field] = Field(column.field, encoding, column.optional)
    if layout.keep_path:
        if PATH_FIELD in fields:
            raise UsageError(f"expected no column {PATH_FIELD!r} beside --keep-path, got one; rename it with --map")
        fields[PATH_FIELD] = Field(PATH_FIELD, "str")
    return tuple(sorted(fields.values(), key=lambda one: one.name))


def _notes(columns: Sequence[TableColumn], by_name: Mapping[str, ColumnFacts], encodings: Mapping[str, str]) -> list[str]:
    notes = ["fields: " + ", ".join(_described(column) for column in columns)]
    inferred = [column for column in columns if column.field not in encodings]
    nulls = [c.field for c in inferred if c.encoding == "json" and by_name[c.column].has_null and c.field != RECORD_FIELD]
    whys = [f"{column.column} ({by_name[column.column].why})" for column in inferred if by_name[column.column].why]
    absent = sorted({column.column for column in inferred if column.optional and column.field != RECORD_FIELD})
    if nulls:
        notes.append(f"stored as json, since some are null: {', '.join(nulls)}")
    if absent:
        notes.append(f"fields that not every sample has: {', '.join(absent)}")
    if whys:
        notes.append("stored otherwise than in the table: " + ", ".join(whys))
    return notes


def _described(column: TableColumn) -> str:
    inside = f" in {column.field}" if column.field not in (column.column, RECORD_FIELD) else ""
    return f"{column.column} {column.encoding}{inside}"


def _listed(names: Mapping[str, Any] | Sequence[str]) -> str:
    return ", ".join(sorted(names)) or "none"
