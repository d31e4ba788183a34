"""A file or an object, opened as a user's own ``Dataset`` would open it."""

import io
import os
from functools import lru_cache
from typing import Any

from shardtools.bench.places import is_remote, split_object
from shardtools.errors import StorageError
from shardtools.storage import Storage, open_storage

_BUFFER_BYTES = 1 << 20


def open_file(path: "str | bytes", mode: str = "rb") -> Any:
    """``open`` of a file on this machine. Of an object, all its bytes, by one GET."""
    name = os.fsdecode(path)
    if not is_remote(name):
        return open(path, mode)
    root, name = split_object(name)
    data = _storage(root).get(name)
    if data is None:
        raise StorageError(f"expected an object at {root}/{name}, got none; run again when nothing is removed from there")
    return io.BytesIO(data)


def open_text(path: str) -> Any:
    """Lines from any place on: a file, or an object that is read ahead from where it is read."""
    if not is_remote(path):
        return open(path, "rb")
    root, name = split_object(path)
    return io.BufferedReader(_storage(root).open(name), _BUFFER_BYTES)


def read_at(file: Any, begin: int, num_bytes: int) -> bytes:
    """A stretch of what ``open_text`` opened; of an object, by one GET with a range."""
    stretch = getattr(file.raw, "read_at", None)
    if stretch is None:
        file.seek(begin)
        data: bytes = file.read(num_bytes)
        return data
    found: bytes = stretch(begin, num_bytes)
    return found


@lru_cache(maxsize=64)
def _storage(root: str) -> Storage:
    return open_storage(root)
