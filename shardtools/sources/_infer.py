"""Column types from the first records, in MDS's words."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shardtools.sample import Field

_SCALARS = {str: "str", int: "int", float: "float64", bool: "uint8"}
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


@dataclass
class _Seen:
    """What one record field held so far."""

    kinds: set[type]
    num_records: int
    is_wide: bool = False
    """An integer was outside int64."""


def infer_fields(records: Sequence[dict[str, Any]], optional: Container[str] = ()) -> tuple[list[Field], dict[str, str]]:
    """Fields in the order they first appear, and for each that became ``json`` the reason.

    Text is ``str``, whole numbers ``int``, numbers ``float64``, booleans ``uint8``. Objects, lists, and whatever is null,
    missing or mixed are ``json``; what is ``optional`` may be null or missing.
    """
    seen: dict[str, _Seen] = {}
    for record in records:
        for name, value in record.items():
            entry = seen.get(name)
            if entry is None:
                entry = seen[name] = _Seen(set(), 0)
            entry.kinds.add(type(value))
            entry.num_records += 1
            if type(value) is int and not _INT64_MIN <= value <= _INT64_MAX:
                entry.is_wide = True
    fields, reasons = [], {}
    for name, entry in seen.items():
        if name in optional:
            entry.kinds.discard(type(None))
            entry.num_records = len(records)
        encoding, reason = _encoding(entry, len(records))
        fields.append(Field(name, encoding))
        if reason:
            reasons[name] = reason
    return fields, reasons


def _encoding(seen: _Seen, num_records: int) -> tuple[str, str | None]:
    kinds = seen.kinds
    if type(None) in kinds:
        return "json", "null in some records"
    if seen.num_records < num_records:
        return "json", f"missing in {num_records - seen.num_records} of the first {num_records} records"
    if kinds and kinds <= {dict, list}:
        return "json", "an object or list"
    if seen.is_wide:
        return "json", "whole numbers above 64 bits"
    if kinds == {int, float}:
        return "float64", None
    if len(kinds) > 1:
        return "json", f"mixed: {_names(kinds)}"
    return _SCALARS[next(iter(kinds), str)], None


def _names(kinds: Iterable[type]) -> str:
    return ", ".join(sorted(kind.__name__ for kind in kinds))
