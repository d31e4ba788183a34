"""The types that Hugging Face ``datasets`` infers from a few JSON values, and what it makes of the values that follow.

Source: datasets 5.2.0 with pyarrow 26, by trial: packaged_modules/webdataset, arrow_writer, features.
"""

from collections.abc import Iterator
from typing import Any

Type = str | tuple["Type"] | dict[str, "Type"]
"""``null``, ``bool``, ``int``, ``float``, ``str``; a list of one type as a 1-tuple; an object as a dict."""

ANY: Type = "any"
"""Where no type was found; nothing more is said of its values."""

_MAX_INT = 2**63
_NAMES = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str", list: "list", dict: "object"}


class UnfitError(ValueError):
    """A value, or several together, that no type holds."""


def type_of(value: Any) -> Type:
    """The type of one JSON value. Raises UnfitError for lists of mixed values and numbers above 64 bits."""
    if type(value) is int:
        if not -_MAX_INT <= value < _MAX_INT:
            raise UnfitError("a number above 64 bits")
        return "int"
    if type(value) is dict:
        return {name: type_of(inner) for name, inner in value.items()}
    if type(value) is list:
        element: Type = "null"
        for inner in value:
            element = merged(element, type_of(inner), widen=True)
        return (element,)
    return _NAMES[type(value)]


def merged(one: Type, other: Type, widen: bool = False) -> Type:
    """One type for values of both: null gives way and objects unite. ``widen``: so do int and float, within one list.

    Raises UnfitError where there is none.
    """
    if one == other or other == "null":
        return one
    if one == "null" or other == ANY:
        return other
    if one == ANY:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        return {**one, **{name: merged(one.get(name, "null"), inner, widen) for name, inner in other.items()}}
    if isinstance(one, tuple) and isinstance(other, tuple):
        return (merged(one[0], other[0], widen),)
    if widen and {str(one), str(other)} == {"int", "float"}:
        return "float"
    raise UnfitError(f"{name_of(one)} and {name_of(other)}")


def faults(schema: Type, value: Any) -> Iterator[str]:
    """What happens to a value that comes when the types are settled: ``rejects``, ``changes`` (a value) or ``drops`` (a name)."""
    if value is None or schema == ANY:
        return
    if isinstance(schema, dict):
        yield from _object_faults(schema, value)
    elif isinstance(schema, tuple):
        if type(value) is not list:
            yield "rejects"
            return
        for inner in value:
            yield from faults(schema[0], inner)
    else:
        yield from _scalar_faults(schema, value)


def name_of(kind: Type) -> str:
    return kind if isinstance(kind, str) else "object" if isinstance(kind, dict) else "list"


def _object_faults(schema: dict[str, Type], value: Any) -> Iterator[str]:
    if type(value) is not dict:
        yield "rejects"
        return
    for name, inner in value.items():
        if name not in schema:
            yield "drops"
        else:
            yield from faults(schema[name], inner)


def _scalar_faults(schema: str, value: Any) -> Iterator[str]:
    kind = type(value)
    name = _NAMES[kind]
    if schema == "null" or (kind is int and schema != "str" and not -_MAX_INT <= value < _MAX_INT):
        yield "rejects"
    elif schema == "int" and kind is float:
        if not value.is_integer():
            yield "changes"
    elif schema in ("int", "float") and kind in (str, list, dict):
        yield "rejects"  # but for text that looks like a number, which is changed
    elif name != schema and {schema, name} != {"float", "int"}:
        yield "changes"
