"""The one record field that becomes tokens: where it is, and what to say where it is not."""

from collections.abc import Iterator, Sequence
from typing import Any

from shardtools.errors import UsageError
from shardtools.sources import Wanted
from shardtools.sources._json_records import Record
from shardtools.sources._record_layout import FieldMapping, nested_column
from shardtools.units import listed

_CHAT_FIELD = "messages"


def wanted_mapping(wanted: Wanted, records: Sequence[Record]) -> FieldMapping:
    """Raises UsageError where the field is in none of the first records: a slip of the pen, or another kind of records."""
    path = wanted.field.name if wanted.path is None else wanted.path
    mapping = FieldMapping(wanted.field.name, path, nested="." in path)
    if any(value is not None for value in nested_column(records, path)) or (not mapping.nested and any(path in one for one in records)):
        return mapping
    is_chat = wanted.field.encoding == "json"
    names = sorted({path for record in records for path in _paths(record, list if is_chat else str)})
    or_chat = ", or use --chat" if wanted.path is None and not is_chat and _CHAT_FIELD in names else ""
    raise UsageError(f"expected a field {path!r} in the records, got {listed(names)}; choose with --text-key{or_chat}")


def _paths(record: Record, kind: type) -> Iterator[str]:
    """The fields of a record, and within its objects those of a kind, as ``--text-key`` names them."""
    pending: list[tuple[str, Any]] = []
    for name, value in record.items():
        if "." not in name:
            yield name
            pending.append((name, value))
    while pending:
        path, value = pending.pop()
        for name, inner in value.items() if type(value) is dict else ():
            if "." not in name:
                pending.append((f"{path}.{name}", inner))
                if type(inner) is kind:
                    yield f"{path}.{name}"
