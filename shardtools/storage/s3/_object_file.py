"""An object as a file."""

import io
from collections.abc import Iterator
from typing import Any

from shardtools.storage.s3._attempts import one_sentence
from shardtools.storage.s3._reading import Object, get_range, pieces_ahead, pieces_asked


class ObjectFile(io.RawIOBase):
    """An object as a readable file, read ahead from wherever it stands, at first not beyond ``until``.

    Reading raises StorageError, and can be tried again.
    """

    def __init__(self, found: Object, until: int | None = None) -> None:
        self._found = found
        self._until = found.num_bytes if until is None else min(until, found.num_bytes)
        self._position = 0
        self._pieces: Iterator[bytes] | None = None
        self._piece = memoryview(b"")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._found.num_bytes}[whence]
        target = max(origin + offset, 0)
        distance = target - self._position
        if 0 <= distance < len(self._piece):
            self._piece = self._piece[distance:]
        elif distance:
            self._end_reading()
        self._position = target
        return target

    def readinto(self, buffer: Any) -> int:
        if not self._piece and len(buffer) and self._position < self._found.num_bytes:
            self._piece = memoryview(self._next())
        taken = self._piece[: len(buffer)]
        buffer[: len(taken)] = taken
        self._piece = self._piece[len(taken) :]
        self._position += len(taken)
        return len(taken)

    def read_at(self, begin: int, num_bytes: int) -> bytes:
        """So many bytes from there on, or up to the end, in one request and nothing ahead. Raises StorageError."""
        end = min(begin + num_bytes, self._found.num_bytes)
        with one_sentence("read", f"s3://{self._found.bucket}/{self._found.key}"):
            return get_range(self._found, begin, max(begin, end))

    def close(self) -> None:
        self._end_reading()
        super().close()

    def _next(self) -> bytes:
        if self._pieces is None or self._position == self._until:
            is_near = self._position < self._until
            self._pieces = pieces_ahead(self._found, self._position, self._until) if is_near else pieces_asked(self._found, self._position)
        try:
            with one_sentence("read", f"s3://{self._found.bucket}/{self._found.key}"):
                return next(self._pieces)
        except BaseException:
            # A generator that has raised would end quietly, and the object would look shorter than it is.
            self._end_reading()
            raise

    def _end_reading(self) -> None:
        self._piece = memoryview(b"")
        pieces, self._pieces = self._pieces, None
        if pieces is not None:
            pieces.close()  # type: ignore[attr-defined]
