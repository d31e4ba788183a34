"""Single samples of a tar at known places, for readers that jump: every header is proved, none is searched for."""

from collections.abc import Sequence
from functools import lru_cache
from mmap import mmap
from typing import Any

from shardtools.errors import DamagedShardError
from shardtools.formats import _tar
from shardtools.formats._tar_header import BLOCK, own_header


class WdsRows:
    """The samples of one mapped tar. ``offsets``: where each begins, and the end of the last; values are slices of ``values``."""

    def __init__(self, archive: mmap | bytes, offsets: Sequence[int], values: mmap | bytes | memoryview) -> None:
        self._archive = archive
        self._values = values
        self.offsets = offsets
        self._places = memoryview(offsets)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, i: int) -> dict[str, Any]:
        """``__key__`` (str) and the members' values by field. Raises DamagedShardError."""
        archive, values, begin, end = self._archive, self._values, self._places[i], self._places[i + 1]
        sample: dict[str, Any] = {}
        place = begin
        try:
            name, num_bytes = own_header(archive, place)
            begin_field = name.index(b".", name.rfind(b"/") + 1) + 1
            prefix = name[:begin_field]
            while True:
                field = _field(name[begin_field:])
                if field in sample:
                    break
                place += BLOCK
                sample[field] = values[place : place + num_bytes]
                place += num_bytes + -num_bytes % BLOCK
                if place >= end:
                    break
                name, num_bytes = own_header(archive, place)
                if not name.startswith(prefix):
                    break
            if place == end:
                sample["__key__"] = prefix[:-1].decode()
                return sample
        except ValueError:
            pass
        return self._foreign_row(begin, end)

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
    """Out of what is behind a key's dot. ValueError where that is part of a key."""
    field = name.rstrip(b"\0")
    if b"/" in field or b"\0" in field:
        raise ValueError("not the end of a name")
    return field.decode()
