"""Single samples of a tar at known places, for readers that jump: every header is proved, none is searched for."""

from collections.abc import Sequence
from functools import lru_cache
from mmap import mmap
from typing import Any

from shardtools.errors import DamagedShardError
from shardtools.formats import _tar

_NAME_END, _SIZE_BEGIN, _SIZE_END = 100, 124, 135


class WdsRows:
    """The samples of one mapped tar. ``offsets``: where each begins, and the end of the last; values are slices of ``values``."""

    def __init__(self, archive: mmap | bytes, offsets: Sequence[int], values: mmap | bytes | memoryview) -> None:
        self._archive = archive
        self._values = values
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, i: int) -> dict[str, Any]:
        """``__key__`` (str) and the members' values by field. Raises DamagedShardError."""
        archive, values, begin, end = self._archive, self._values, int(self.offsets[i]), int(self.offsets[i + 1])
        start = begin
        key = b""
        sample: dict[str, Any] = {}
        try:
            while begin < end:
                data_begin = begin + _tar.BLOCK
                block = archive[begin:data_begin]
                name = block[:_NAME_END].rstrip(b"\0")
                num_bytes = int(block[_SIZE_BEGIN:_SIZE_END], 8)
                # A header of ours follows from name and size; so no bit of it is taken on trust.
                if _tar.header(name, num_bytes) != block:
                    return self._foreign_row(start, end)
                dot = name.index(b".", name.rfind(b"/") + 1)
                field = _field(name[dot + 1 :])
                if (sample and name[:dot] != key) or field in sample:
                    return self._foreign_row(start, end)
                key = name[:dot]
                sample[field] = values[data_begin : data_begin + num_bytes]
                begin = data_begin + num_bytes + -num_bytes % _tar.BLOCK
        except (ValueError, UnicodeDecodeError):
            return self._foreign_row(start, end)
        if begin != end or not sample:
            return self._foreign_row(start, end)
        sample["__key__"] = key.decode()
        return sample

    def _foreign_row(self, begin: int, end: int) -> dict[str, Any]:
        """By the whole strict parser, which knows what other writers do and says what is wrong."""
        key = ""
        sample: dict[str, Any] = {}
        for member in _tar.entries(memoryview(self._archive), begin):
            if member.offset >= end:
                break
            if not member.is_file:
                continue
            member_key, field = _tar.split_name(member.name.decode("utf-8", "surrogateescape"))
            if sample and (member_key != key or field in sample):
                raise DamagedShardError(f"expected one sample, got members of {key!r} and of {member_key!r}", member.offset)
            key = member_key
            sample[field] = self._values[member.data_offset : member.data_offset + member.num_bytes]
        if not sample:
            raise DamagedShardError("expected a sample, got none where the offsets say that one begins", begin)
        sample["__key__"] = key
        return sample


@lru_cache(1 << 10)
def _field(name: bytes) -> str:
    return name.decode()
