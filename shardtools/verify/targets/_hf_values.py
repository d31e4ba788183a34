"""How Hugging Face ``datasets`` decodes members. Source: datasets 5.2.0, packaged_modules/webdataset/webdataset.py, DECODERS."""

import json
from typing import Any

OPAQUE = object()
"""A value whose type follows from its extension."""
UNPACKED_EXTENSIONS = ("gz", "bz2", "xz", "zst", "lz4")
_JSON = ("json", "jsn")
_TEXT = ("txt", "text", "transcript")
_NUMBERS = ("cls", "cls2", "index", "inx", "id")
_NPY_MAGIC = b"\x93NUMPY"
_NPY_HEADER_BYTES = 256


def decoded(extension: str, value: memoryview) -> Any:
    """The Python value of JSON and numbers; OPAQUE for everything else. Raises ValueError, or RecursionError, where that fails.

    Text is checked to be UTF-8. Nothing is ever unpickled.
    """
    if extension in _JSON:
        return json.loads(bytes(value))
    if extension in _NUMBERS:
        return int(bytes(value))
    if extension in _TEXT:
        str(value, "utf-8")
    return OPAQUE


def kind_of_field(name: str) -> str:
    """The type of a field whose values have one by their extension: named by it, since no other can come."""
    return "." + name.rpartition(".")[2].lower()


def is_object_array(value: memoryview) -> bool:
    """Whether the header of a .npy file says that its elements are pickled objects."""
    head = bytes(value[:_NPY_HEADER_BYTES])
    return head.startswith(_NPY_MAGIC) and b"'descr': '|O'" in head
