"""Columns as tar members and back: which member a column is, and what a manifest says of the columns that members were made of."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardtools.formats import MEMBER_ENCODINGS
from shardtools.keys import is_legal_field
from shardtools.sample import Field
from shardtools.sources import _shard_values as convert
from shardtools.sources._shard_fields import RECORD_MEMBER, ColumnMember, ShardField
from shardtools.sources._shard_inputs import ShardInputs

_SUFFIXES = {"jpeg": (".jpg", ".jpeg"), "png": (".png",), "pkl": (".pkl",)}
_ILLEGAL = re.compile(r"[^a-z0-9_.]")
_MEMBER_SOURCES = ("files", "wds")
"""What makes samples of files, each of which is a member."""


def as_members(columns: Sequence[Field]) -> tuple[ColumnMember, ...]:
    """Bytes, images and arrays as members of their own, named as readers decode them; all others in one JSON member."""
    inside = [column.name for column in columns if convert.is_in_record(column.encoding)]
    is_record = inside == [RECORD_MEMBER] and any(column.name == RECORD_MEMBER and column.encoding == "json" for column in columns)
    return tuple(
        ColumnMember(column.name, column.encoding, column.optional, _members(column, is_record and column.name == RECORD_MEMBER))
        for column in columns
    )


def _members(column: Field, is_record: bool) -> tuple[str, ...]:
    if is_record:
        return (RECORD_MEMBER,)
    return () if convert.is_in_record(column.encoding) else (_member(column.name, column.encoding),)


def _member(name: str, encoding: str) -> str:
    plain = name if is_legal_field(name) else _ILLEGAL.sub("_", name.lower())
    suffixes = (".npy",) if convert.is_array(encoding) else _SUFFIXES.get(encoding, ())
    if suffixes:
        return plain if f".{plain}".endswith(suffixes) else plain + suffixes[0]
    # Readers would decode bytes by such an ending.
    return f"{plain}.bin" if plain.rpartition(".")[2] in MEMBER_ENCODINGS else plain


def tar_parts(schema: Sequence[ColumnMember]) -> tuple[tuple[ShardField, ...], dict[str, str]]:
    """How the members of columns are made, and the encodings of the fields that they are."""
    parts = [tar_part(column.members[0], column) for column in schema if column.members]
    encodings = {column.members[0]: tar_encoding(column.encoding) for column in schema if column.members}
    inside = [column for column in schema if not column.members]
    if inside:
        are_optional = all(column.optional for column in inside)
        parts.append(ShardField(RECORD_MEMBER, tuple(column.name for column in inside), "record", optional=are_optional))
        encodings[RECORD_MEMBER] = "json"
    return tuple(parts), encodings


def tar_part(name: str, column: ColumnMember) -> ShardField:
    """One column as one member."""
    form = "npy" if convert.is_array(column.encoding) else "column" if convert.is_number(column.encoding) else "stored"
    empty = None if not column.optional else "null" if column.encoding == "json" else ""
    return ShardField(name, (column.name,), form, column.encoding, optional=column.optional, empty=empty)


def tar_encoding(encoding: str) -> str:
    """What a member holds: numbers are text there, which knows no widths, and arrays are files."""
    if convert.is_number(encoding):
        return "float64" if encoding.startswith("float") else "int"
    if encoding in convert.TEXTS:
        return "str"
    return encoding if encoding in ("json", "jpeg", "png") else "bytes"


def column_parts(schema: Sequence[ColumnMember]) -> tuple[ShardField, ...]:
    """How the columns are made again of the members that were made of them."""
    return tuple(_column_part(column) for column in schema)


def made_members(schema: Sequence[ColumnMember]) -> set[str]:
    """The members that the columns are."""
    return {member for column in schema for member in column.members or (RECORD_MEMBER,)}


def _column_part(column: ColumnMember) -> ShardField:
    if not column.members:
        form = "dumped" if column.encoding == "json" else "json"
        return ShardField(column.name, (RECORD_MEMBER,), form, "json", column.name, column.optional)
    form = "array" if convert.is_array(column.encoding) else "stored"
    return ShardField(column.name, column.members, form, optional=column.optional)


def common_schema(inputs: ShardInputs) -> tuple[ColumnMember, ...] | None:
    """The columns that the members of all inputs were made of; None where they are not, or not the same."""
    found = [None if dataset.manifest is None else schema_of(dataset.manifest.recipe) for dataset in inputs.datasets]
    return found[0] if all(schema == found[0] for schema in found) else None


def came_of_members(inputs: ShardInputs) -> bool:
    """Whether the columns of all inputs were members, or files, each by itself."""
    return all(dataset.manifest is not None and are_members(dataset.manifest.recipe) for dataset in inputs.datasets)


def are_members(recipe: Mapping[str, Any]) -> bool:
    """The same of one dataset."""
    source = recipe["source"]
    return source["name"] in _MEMBER_SOURCES and not recipe.get("transforms") and not (source.get("layout") or {}).get("schema")


def schema_of(recipe: Mapping[str, Any]) -> tuple[ColumnMember, ...] | None:
    """Never raises: of a manifest whose recipe is of another kind nothing is known."""
    try:
        if recipe.get("transforms"):
            return _tokens(recipe["transforms"][-1])
        layout = recipe["source"]["layout"]
        if recipe["source"].get("map"):
            return None  # its columns are those that were read
        if layout.get("schema"):
            found = [ColumnMember(one["name"], one["encoding"], one["optional"], tuple(one["members"])) for one in layout["schema"]]
            return tuple(found)
        return tuple(_of_table(layout["columns"])) if layout.get("has_record") else None
    except (LookupError, TypeError, AttributeError):
        return None


def _of_table(columns: Sequence[Mapping[str, Any]]) -> Iterator[ColumnMember]:
    """The columns of a table, each of which may be several members by the kind of its files."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for column in columns:
        by_name.setdefault(column["column"], []).append(column)
    for name, same in by_name.items():
        members = tuple(one["field"] for one in same if one["field"] != RECORD_MEMBER)
        encoding = same[0]["encoding"] if len(same) == 1 else "bytes"
        # A null among other values is one that JSON knows.
        is_null_inside = not members and same[0]["optional"]
        yield ColumnMember(name, "json" if is_null_inside else encoding, any(one["optional"] for one in same), members)


def _tokens(packing: Mapping[str, Any]) -> tuple[ColumnMember, ...] | None:
    """The arrays of packed tokens, which are files of arrays in tars."""
    if not packing.get("npy"):
        return None
    shape = "" if packing["strategy"] == "none" else f":{packing['seq_len']}"
    arrays = {"tokens": f"ndarray:{packing['dtype']}{shape}", "seq_lens": "ndarray:int32"}
    arrays |= {"loss_mask": f"ndarray:uint8{shape}"} if packing["has_mask"] else {}
    found = [ColumnMember(name, encoding, False, (f"{name}.npy",)) for name, encoding in arrays.items()]
    if packing["doc_ids"]:
        found.append(ColumnMember("doc_ids", "json", False, ("doc_ids.json",)))
    return tuple(found)
