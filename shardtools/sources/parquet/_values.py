"""Columns of Arrow as Python values, as fields have them."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import types

from shardtools.sample import Utf8Texts, brief
from shardtools.sources._table_layout import Fault
from shardtools.sources.parquet._types import array_spec, has_time, is_binary, is_bytes, is_media, is_text, is_time, json_type

_BEYOND = "<value out of range"
"""What Arrow writes in place of a time that no calendar has."""


class UnfitValueError(Exception):
    """One value cannot be had; carries the reason and the sentence."""


def column_values(array: Any, encoding: str) -> tuple[list[Any], dict[int, Fault]]:
    """The values of a column for this encoding, None for null; and which of them cannot be had, and why."""
    array = plain_array(array)
    try:
        return _values(array, encoding), {}
    except (UnfitValueError, UnicodeDecodeError, KeyError, pa.ArrowException):
        return _one_by_one(array, lambda one: _values(one, encoding))


def utf8_texts(array: Any) -> Utf8Texts | None:
    """The texts of a column as bytes; None where it has others, or a text that is null or no UTF-8.

    By Arrow's own look at all of them: text of Python would be decoded here, and encoded again where it is stored.
    """
    array = plain_array(array)
    if not is_text(array.type) or array.null_count:
        return None
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return None
    return Utf8Texts(_plain(_text_bytes(array)))


def json_values(array: Any) -> tuple[list[Any], dict[int, Fault]]:
    """The values as JSON has them, but for bytes, which stay bytes."""
    array = plain_array(array)
    kind = array.type
    if is_binary(kind):
        return _plain(array), {}
    try:
        return _json(array), {}
    except (UnfitValueError, UnicodeDecodeError, KeyError, pa.ArrowException):
        return _one_by_one(array, _json)


def media_values(array: Any) -> list[tuple[bytes | None, str | None]]:
    """Bytes and path of a column of files; None where they are null."""
    array = plain_array(array)
    if types.is_null(array.type):
        return [(None, None)] * len(array)
    children = dict(zip([array.type.field(i).name for i in range(2)], array.flatten(), strict=True))
    return list(zip(_plain(children["bytes"]), _plain(plain_array(children["path"])), strict=True))


def plain_array(array: Any) -> Any:
    """The same values, of a type that needs no other to be understood."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return array if array_spec(kind) is not None else plain_array(array.storage)
    if types.is_dictionary(kind):
        return plain_array(array.dictionary_decode())
    if types.is_run_end_encoded(kind):
        return plain_array(pa.compute.run_end_decode(array))
    return array


def _one_by_one(array: Any, convert: Callable[[Any], list[Any]]) -> tuple[list[Any], dict[int, Fault]]:
    values: list[Any] = []
    faults: dict[int, Fault] = {}
    for i in range(len(array)):
        value = None
        try:
            (value,) = convert(array.slice(i, 1))
        except UnfitValueError as unfit:
            faults[i] = unfit.args[0], unfit.args[1]
        except UnicodeDecodeError as error:
            bad = error.object[error.start]
            faults[i] = "invalid-utf8", f"expected UTF-8, got byte 0x{bad:02x} at position {error.start} of a text; convert the column"
        except KeyError:
            faults[i] = "wrong-type", "expected every key of a map once, got one twice; correct the value"
        except pa.ArrowException as error:
            faults[i] = "wrong-type", f"expected a value that can be stored, got one that cannot: {brief(str(error))}"
        values.append(value)
    return values, faults


def _values(array: Any, encoding: str) -> list[Any]:
    kind = array.type
    if types.is_null(kind):
        return [None] * len(array)
    if encoding.startswith("ndarray") and (spec := array_spec(kind)) is not None:
        return _arrays(array, spec[1])
    if is_media(kind):
        return _media(array)
    if is_bytes(kind):
        return _plain(array)
    if is_text(kind):
        return _plain(_text_bytes(array) if encoding == "bytes" else array)
    if encoding.startswith(("int", "uint")) and (is_time(kind) or types.is_decimal(kind)):
        return _plain(array.cast(pa.int32() if types.is_date32(kind) else pa.int64()))
    if encoding.startswith("float") and types.is_decimal(kind):
        return _plain(array.cast(pa.float64()))
    return _json(array)


def _json(array: Any) -> list[Any]:
    """The values as JSON has them: numbers, texts, objects and lists of them."""
    kind = array.type
    wanted = json_type(kind)
    values = _plain(array if wanted == kind else _storage(array).cast(wanted))
    if has_time(kind):
        for value in values:
            if value is not None and _BEYOND in (value if type(value) is str else str(value)):
                raise UnfitValueError("wrong-type", f"expected a time that can be written as a date, got {brief(value)}; correct the value")
    return values


def _text_bytes(array: Any) -> Any:
    return array.cast(pa.large_string()).cast(pa.large_binary())


def _storage(array: Any) -> Any:
    return array.storage if isinstance(array.type, pa.BaseExtensionType) else array


def _plain(array: Any) -> list[Any]:
    # What knows of maps takes several times as long.
    values: list[Any] = array.to_pylist(maps_as_pydicts="strict") if types.is_nested(array.type) else array.to_pylist()
    return values


def _media(array: Any) -> list[Any]:
    found = media_values(array)
    for data, path in found:
        if data is None and path is not None:
            raise UnfitValueError(
                "no-bytes", f"expected the bytes of a file, got only its path {brief(path)}; store the files in the table"
            )
    return [data for data, _ in found]


def _arrays(array: Any, shape: tuple[int, ...]) -> list[Any]:
    """Each value as an array of its own, a view of all of them."""
    there = array.drop_null() if array.null_count else array
    flat = _storage(there)
    while types.is_fixed_size_list(flat.type) and not flat.null_count:
        flat = flat.flatten()
    if flat.null_count:
        raise UnfitValueError("wrong-type", "expected arrays of numbers without gaps, got one with a null in it; correct the value")
    rows = iter(flat.to_numpy(zero_copy_only=False).reshape(len(there), *shape))
    if len(there) == len(array):
        return list(rows)
    return [next(rows) if is_valid else None for is_valid in array.is_valid().to_pylist()]
