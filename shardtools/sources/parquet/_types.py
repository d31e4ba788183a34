"""What the columns of a table are in MDS's words, by their Arrow types."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from shardtools.formats import IMAGE_MAGIC
from shardtools.keys import is_legal_field

MEDIA = "media"
"""The encoding of structs of bytes and a path, before the files have been looked at."""
_KIND_OF_MAGIC = {"jpeg": "jpg", "png": "png"}
_UNKNOWN_KIND = "bin"


class UnsupportedTypeError(Exception):
    """No field can hold such values; the message names the type."""


def plain_type(kind: Any) -> Any:
    """The type of the values themselves: of a dictionary its values, of an extension type its storage."""
    while True:
        if isinstance(kind, pa.BaseExtensionType) and array_spec(kind) is None:
            kind = kind.storage_type
        elif types.is_dictionary(kind) or types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def encoding_of(kind: Any) -> tuple[str, str]:
    """The encoding of a column of this type, and in a word or two what is stored otherwise. Raises UnsupportedTypeError."""
    kind = plain_type(kind)
    spec = array_spec(kind)
    if spec is not None:
        dtype, shape = spec
        return f"ndarray:{dtype}:{','.join(map(str, shape))}", ""
    if is_media(kind):
        return MEDIA, ""
    if types.is_boolean(kind):
        return "uint8", ""
    if types.is_integer(kind):
        return ("int" if types.is_int64(kind) else str(kind)), ""
    if types.is_floating(kind):
        return np.dtype(kind.to_pandas_dtype()).name, ""
    if is_text(kind):
        return "str", ""
    if is_bytes(kind):
        return "bytes", ""
    if types.is_decimal(kind) or is_time(kind):
        return "str", f"{kind} as text"
    if types.is_duration(kind):
        return "int", f"whole numbers of {kind.unit}"
    json_type(kind)  # refuses what JSON cannot hold
    return "json", f"{_word(kind)} as json"


def json_type(kind: Any) -> Any:
    """The type whose Python values JSON knows. Raises UnsupportedTypeError."""
    kind = plain_type(kind)
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if types.is_struct(kind):
        if len({field.name for field in kind}) < kind.num_fields:
            raise UnsupportedTypeError(f"{kind} (a name twice)")
        return pa.struct([pa.field(field.name, json_type(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(pa.string(), json_type(kind.item_type))
    if types.is_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(json_type(kind.value_type))
    if types.is_large_list(kind):
        return pa.large_list(json_type(kind.value_type))
    if types.is_decimal(kind) or is_time(kind):
        return pa.string()
    if types.is_duration(kind):
        return pa.int64()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_primitive(kind) or types.is_null(kind) or is_text(kind):
        return kind
    raise UnsupportedTypeError(str(kind))


def array_spec(kind: Any) -> tuple[str, tuple[int, ...]] | None:
    """Data type and shape of a type whose values are arrays of numbers of one shape, None for any other."""
    shape: tuple[int, ...] = ()
    if isinstance(kind, pa.FixedShapeTensorType):
        if kind.permutation not in (None, list(range(len(kind.shape)))):
            return None
        shape, kind = tuple(kind.shape), kind.value_type
    while types.is_fixed_size_list(kind):
        shape, kind = (*shape, kind.list_size), kind.value_type
    if not shape or min(shape) < 1 or not (types.is_integer(kind) or types.is_floating(kind)):
        return None
    return np.dtype(kind.to_pandas_dtype()).name, shape


def is_media(kind: Any) -> bool:
    """A struct of ``bytes`` and ``path``, as images, sounds and films are stored by Hugging Face's datasets."""
    if not types.is_struct(kind) or kind.num_fields != 2:
        return False
    inner = {field.name: plain_type(field.type) for field in kind}
    return set(inner) == {"bytes", "path"} and is_bytes(inner["bytes"]) and (is_text(inner["path"]) or types.is_null(inner["path"]))


def is_text(kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_bytes(kind: Any) -> bool:
    simple = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(simple or types.is_fixed_size_binary(kind))


def is_binary(kind: Any) -> bool:
    """Its values are bytes, or files."""
    kind = plain_type(kind)
    return is_bytes(kind) or is_media(kind)


def is_time(kind: Any) -> bool:
    """A date, a time of day, or both."""
    return bool(types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind))


def has_time(kind: Any) -> bool:
    """It is a time, or has some inside."""
    kind = plain_type(kind)
    return is_time(kind) or any(has_time(kind.field(i).type) for i in range(kind.num_fields))


def media_kind(data: bytes, path: str | None) -> str:
    """The extension of a file of these bytes: by what they begin with, else by its path."""
    for encoding, magic in IMAGE_MAGIC.items():
        if data.startswith(magic):
            return _KIND_OF_MAGIC[encoding]
    extension = os.path.splitext(path or "")[1][1:].lower()
    return extension if is_legal_field(extension) and extension not in _KIND_OF_MAGIC.values() else _UNKNOWN_KIND


def _word(kind: Any) -> str:
    words: Sequence[tuple[str, bool]] = (
        ("struct", types.is_struct(kind)),
        ("map", types.is_map(kind)),
        ("nothing but null", types.is_null(kind)),
    )
    return next((word for word, is_it in words if is_it), "list")
