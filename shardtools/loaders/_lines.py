"""JSON lines as a catalog: every file is a shard, every line that is not blank a sample with the one field ``json``."""

import hashlib
import mmap
import os
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from shardtools.errors import ShardtoolsError, StorageError, UsageError
from shardtools.loaders._cache import ShardCache
from shardtools.loaders._catalog import Read, make_room
from shardtools.sources.jsonl import BOM, JSON_SPACE, TextFile
from shardtools.storage import one_sentence

_WINDOW_BYTES = 16 << 20

Text = mmap.mmap | bytes
"""Of one file; bytes where it is empty, which cannot be mapped."""


class ShardedJsonl:
    """Finds where lines begin by reading all text once, about 1 GB/s: what is read often is better packed. Memory: 8 bytes a line."""

    def __init__(self, files: list[TextFile], cache: ShardCache, block_shards: int) -> None:
        self.field_encodings = {"json": "json"}
        self._files = files
        self._cache = cache
        self._block_shards = block_shards
        self._texts: dict[int, Text] = {}
        self._versions = [_version(file.path) for file in files]
        self._offsets = [_line_offsets(self._text(i)) for i in range(len(files))]
        self._texts.clear()
        self.counts = np.array([len(offsets) for offsets in self._offsets], np.int64)
        identity = [(file.prefix, file.num_bytes, int(count)) for file, count in zip(files, self.counts, strict=True)]
        self.digest = hashlib.sha256(repr(identity).encode()).hexdigest()
        if not self.counts.sum():
            raise UsageError(f"expected at least one JSON line, got only blank ones in {files[0].path}")

    def name(self, shard: int) -> str:
        return self._files[shard].path

    def reader(self, shard: int) -> Read:
        text, offsets, key = self._text(shard), self._offsets[shard], self._files[shard].key

        def read(row: int) -> dict[str, Any]:
            begin = int(offsets[row])
            end = text.find(b"\n", begin)
            line = text[begin:] if end < 0 else text[begin:end]
            return {"__key__": key(begin), "json": (line if begin else line.removeprefix(BOM)).rstrip(b"\r")}

        return read

    def key(self, shard: int, row: int) -> str:
        return self._files[shard].key(int(self._offsets[shard][row]))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_texts": {}}

    def _text(self, shard: int) -> Text:
        text = self._texts.get(shard)
        if text is None:
            make_room(self._texts, self._block_shards)
            file = self._files[shard]
            text = _mapped(file, self._cache)
            if _version(file.path) != self._versions[shard]:
                raise StorageError(f"expected {file.path} as it was when the dataset was opened, got it changed since; open it again")
            self._texts[shard] = text
        return text


def _version(path: str) -> tuple[int, int, int]:
    with one_sentence("read", path):
        status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns


def _mapped(file: TextFile, cache: ShardCache) -> Text:
    def make(path: str) -> None:
        with open(path, "wb") as out:
            try:
                for piece in file.text():
                    out.write(piece)
            except ValueError as damage:
                raise ShardtoolsError(f"expected sound JSON lines, got {file.path} with this fault: {damage}; restore it") from None

    def opened() -> IO[bytes]:
        key = f"{file.path}\0{file.num_bytes}\0{os.stat(file.path).st_mtime_ns}"
        return cache.open(key, make) if file.is_compressed else open(file.path, "rb")

    with one_sentence("read", file.path), opened() as stored:
        if not stored.seek(0, 2):
            return b""
        return mmap.mmap(stored.fileno(), 0, access=mmap.ACCESS_READ)


def _line_offsets(text: Text) -> npt.NDArray[np.int64]:
    """Where each line that is not blank begins."""
    data = np.frombuffer(text, np.uint8)
    windows = range(0, len(data), _WINDOW_BYTES)
    found = (np.flatnonzero(data[i : i + _WINDOW_BYTES] == ord("\n")) + (i + 1) for i in windows)
    begins = np.concatenate([np.zeros(1, np.int64), *found])
    if begins[-1] == len(data):
        begins = begins[:-1]
    # Few lines begin with white space; only they may be blank.
    suspects = np.flatnonzero(np.isin(data[begins], np.frombuffer(JSON_SPACE + BOM[:1], np.uint8)))
    blank = np.fromiter(_blank(text, begins[suspects]), bool, len(suspects))
    return np.delete(begins, suspects[blank])


def _blank(text: Text, begins: npt.NDArray[np.int64]) -> Iterator[bool]:
    """Whether each of the lines that begin there is blank, as packing sees it."""
    for begin in begins.tolist():
        end = text.find(b"\n", begin)
        line = text[begin : end if end >= 0 else len(text)]
        yield not (line if begin else line.removeprefix(BOM)).strip(JSON_SPACE)
