"""JSON lines as a catalog: every file is a shard, every line that is not blank a sample with the one field ``json``."""

import hashlib
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from shardtools.errors import ShardtoolsError, StorageError, UsageError
from shardtools.loaders._ahead import Note, ReadAhead
from shardtools.loaders._cache import ShardCache
from shardtools.loaders._catalog import Read, make_room, most_open
from shardtools.places import is_here, split
from shardtools.sources.jsonl import BOM, JSON_SPACE, TextFile
from shardtools.storage import one_sentence, open_storage

_WINDOW_BYTES = 16 << 20

Text = mmap.mmap | bytes
"""Of one file; bytes where it is empty, which cannot be mapped."""


class ShardedJsonl:
    """Finds where lines begin by reading all text once, about 1 GB/s: what is read often is better packed. Memory: 8 bytes a line.

    What is compressed or remote is read from whole copies in the cache.
    """

    def __init__(self, files: list[TextFile], cache: ShardCache, block_shards: int) -> None:
        self.field_encodings = {"json": "json"}
        self.is_remote = not all(is_here(file.path) for file in files)
        self._files = files
        self._cache = cache
        self._most_open = most_open(block_shards, cache, max((file.num_bytes for file in files if _is_copied(file)), default=0))
        self._ahead: ReadAhead | None = None
        self._texts: dict[int, Text] = {}
        self._versions = [_version(file) for file in files]
        with self.read_ahead([[i] for i in range(len(files))]):
            self._offsets = [_line_offsets(self._text(i)) for i in range(len(files))]
        self._texts.clear()
        self.counts = np.array([len(offsets) for offsets in self._offsets], np.int64)
        identity = [(file.prefix, file.num_bytes, int(count)) for file, count in zip(files, self.counts, strict=True)]
        self.digest = hashlib.sha256(repr(identity).encode()).hexdigest()
        if not self.counts.sum():
            raise UsageError(f"expected at least one JSON line, got only blank ones in {files[0].path}")

    @contextmanager
    def read_ahead(self, blocks: Sequence[Sequence[int]]) -> Iterator[None]:
        num_bytes = {i: self._files[i].num_bytes for block in blocks for i in block}
        self._ahead = ahead = ReadAhead(blocks, num_bytes, self._fetch, self._cache.ahead_bytes if self.is_remote else 0)
        try:
            yield
        finally:
            ahead.close()

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
        return {**self.__dict__, "_texts": {}, "_ahead": None}

    def _text(self, shard: int) -> Text:
        text = self._texts.get(shard)
        if text is None:
            file = self._files[shard]
            if self._ahead is not None:
                self._ahead.wait_for(shard)
            make_room(self._texts, self._most_open)
            self._demand_unchanged(shard)
            text = _mapped(file, self._cache)
            self._demand_unchanged(shard)  # until it was mapped
            self._texts[shard] = text
            if self._ahead is not None:
                self._ahead.begin(shard)
        return text

    def _demand_unchanged(self, shard: int) -> None:
        if _version(self._files[shard]) != self._versions[shard]:
            raise _changed(self._files[shard])

    def _fetch(self, shard: int, note: Note) -> None:
        file = self._files[shard]

        def make(path: str) -> None:
            note(path)
            _make(file, path)

        if _is_copied(file):
            self._cache.make_ahead(_key(file), make)


def _is_copied(file: TextFile) -> bool:
    return file.is_compressed or not is_here(file.path)


def _version(file: TextFile) -> tuple[int, int, bytes]:
    """Another one for other text of that name; of an object, as it was when it was listed."""
    if not is_here(file.path):
        return 0, file.num_bytes, file.version
    with one_sentence("read", file.path):
        status = os.stat(file.path)
    return status.st_ino, status.st_size, b"%d" % status.st_mtime_ns


def _key(file: TextFile) -> str:
    return f"{file.path}\0{file.num_bytes}\0{_version(file)[2].decode()}"


def _mapped(file: TextFile, cache: ShardCache) -> Text:
    def opened() -> IO[bytes]:
        return cache.open(_key(file), lambda path: _make(file, path)) if _is_copied(file) else open(file.path, "rb")

    with one_sentence("read", file.path), opened() as stored:
        if not stored.seek(0, 2):
            return b""
        return mmap.mmap(stored.fileno(), 0, access=mmap.ACCESS_READ)


def _make(file: TextFile, path: str) -> None:
    """Write its text to the path. Raises StorageError where an object is no longer the one that was listed."""
    folder, name = split(file.path)
    if file.is_compressed:
        with open(path, "wb") as out:
            try:
                for piece in file.text():
                    out.write(piece)
            except ValueError as damage:
                raise ShardtoolsError(f"expected sound JSON lines, got {file.path} with this fault: {damage}; restore it") from None
    else:
        open_storage(folder).fetch(name, path, file.version.decode())


def _changed(file: TextFile) -> StorageError:
    return StorageError(f"expected {file.path} as it was when the dataset was opened, got it changed since; open it again")


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
