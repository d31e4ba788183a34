"""The layout and the fields that the first records settle, with notes for people."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shardtools.errors import UsageError
from shardtools.formats import ShardFormat
from shardtools.sample import Field
from shardtools.sources._infer import infer_fields
from shardtools.sources._json_records import Record
from shardtools.sources._record_layout import FieldMapping, RecordLayout, Scalar
from shardtools.units import listed

_SCALARS = ("int", "float64", "uint8")
_NEVER_NUMBERS = ("str", "bytes", "jpeg", "png")


def settle_layout(
    draft: RecordLayout,
    mappings: tuple[FieldMapping, ...] | None,
    records: Sequence[Record],
    encodings: dict[str, str],
    shard_format: ShardFormat,
    replaced: frozenset[str] = frozenset(),
) -> tuple[RecordLayout, tuple[Field, ...], list[str]]:
    """Layout and fields from the first records, with notes on the types.

    ``mappings`` None takes every record field; ``encodings`` are the user's, in place of inferred ones; fields that are
    ``replaced`` are none of the result. Raises UsageError for a name no record has.
    """
    inferred, reasons = infer_fields(records, {mapping.record_field for mapping in mappings or () if mapping.optional})
    by_name = {field.name: field for field in inferred}
    is_closed = mappings is None
    if mappings is None:
        # A record field that is the key and is called like the key column is that column.
        is_key_column = draft.key is not None and draft.key == shard_format.key_name
        mappings = tuple(FieldMapping(name, name) for name in sorted(by_name) if not (is_key_column and name == draft.key))
    fields = _fields(mappings, by_name, encodings)
    named = [(mapping.record_field, field) for mapping, field in zip(mappings, fields, strict=True)]
    numbers = {name for name, field in named if field.encoding not in _NEVER_NUMBERS}
    layout = replace(
        draft,
        mappings=mappings,
        known=tuple(sorted(by_name)) if is_closed else None,
        exact=tuple(sorted(numbers | ({draft.key} if draft.key else set()))),
        scalars=tuple(
            Scalar(name, field.name, field.encoding, shard_format.index_name is not None)
            for name, field in named
            if field.encoding in _SCALARS and field.name not in encodings
        ),
    )
    kept = [(mapping, field) for mapping, field in zip(mappings, fields, strict=True) if field.name not in replaced]
    notes = ["fields: " + ", ".join(f"{field.name} {field.encoding}" for _, field in kept)]
    as_json = [f"{m.name} ({reasons[m.record_field]})" for m, _ in kept if m.record_field in reasons and m.name not in encodings]
    if as_json:
        notes.append("stored as json: " + ", ".join(as_json))
    return layout, tuple(field for _, field in kept), notes


def _fields(mappings: Sequence[FieldMapping], by_name: Mapping[str, Field], encodings: Mapping[str, str]) -> list[Field]:
    """One for each mapping. Raises UsageError for a record field, or a field of ``encodings``, that there is not."""
    fields = []
    for mapping in mappings:
        if mapping.record_field not in by_name and not mapping.nested:
            raise UsageError(f"expected record fields among {listed(sorted(by_name))}, got {mapping.record_field!r}; name one of these")
        encoding = encodings.get(mapping.name) or by_name[mapping.record_field].encoding
        fields.append(Field(mapping.name, encoding, mapping.optional))
    unknown = sorted(encodings.keys() - {field.name for field in fields})
    if unknown:
        raise UsageError(f"expected --columns among {listed(sorted(field.name for field in fields))}, got {unknown[0]!r}")
    return fields
