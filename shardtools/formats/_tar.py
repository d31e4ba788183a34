"""Tar members byte by byte, parsed strictly.

Source: POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar manual, "Basic Tar Format".
"""

import mmap
import re
from collections.abc import Iterator
from typing import NamedTuple

from shardtools.errors import DamagedShardError
from shardtools.formats import _pax
from shardtools.formats._tar_header import BLOCK, byte_sum

RECORD = 20 * BLOCK
MAX_MEMBER_BYTES = 8**11 - 1

_ZEROS = [bytes(n) for n in range(BLOCK + 1)]
_REGULAR = (b"0", b"\0")
_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")
_OCTAL = re.compile(rb"[ \0]*([0-7]*)[ \0]*")
_COMPARED_BYTES = 1 << 20
_COMPARED_ZEROS = bytes(_COMPARED_BYTES)
_SEARCHED_BYTES = 64 << 20


def padding(num_bytes: int) -> bytes:
    """The zeros after a member's data."""
    return _ZEROS[-num_bytes % BLOCK]


def member_cost(num_bytes: int) -> int:
    """Bytes a member takes up: header, data, padding."""
    return BLOCK + num_bytes + -num_bytes % BLOCK


def end_of_archive(num_bytes: int) -> bytes:
    """What closes an archive of ``num_bytes``: two zero blocks, then zeros to a whole record."""
    return bytes(2 * BLOCK + -(num_bytes + 2 * BLOCK) % RECORD)


class Member(NamedTuple):
    """One entry of an archive."""

    name: bytes
    offset: int
    """Where its first header begins, extension headers included."""
    data_offset: int
    num_bytes: int
    kind: bytes
    """The header's type: ``0`` for a regular file."""

    @property
    def is_file(self) -> bool:
        return self.kind in _REGULAR

    @property
    def end(self) -> int:
        """Where the next entry begins."""
        return self.data_offset + self.num_bytes + -self.num_bytes % BLOCK


def members(archive: memoryview) -> Iterator[Member]:
    """Every regular file, in order; see ``entries``."""
    return (entry for entry in entries(archive) if entry.is_file)


def next_header(archive: memoryview, offset: int) -> int | None:
    """The first block from ``offset`` on that is the header of a file, for reading on behind damage; None if none is near."""
    first = offset + -offset % BLOCK
    for begin in range(first, min(first + _SEARCHED_BYTES, len(archive) - BLOCK + 1), BLOCK):
        block = bytes(archive[begin : begin + BLOCK])
        if block[257:262] == b"ustar":
            try:
                _check_header(block, begin)
                if block[156:157] in _REGULAR and begin + BLOCK + _number(block[124:136], begin) <= len(archive):
                    return begin
            except DamagedShardError:
                continue
    return None


def entries(archive: memoryview, offset: int = 0) -> Iterator[Member]:
    """Every file, folder and link from a header's offset on, in order. Understands the extension headers of foreign writers.

    Raises DamagedShardError where a checksum, a size, the padding or the end marker is not as the format demands.
    """
    start = offset
    described = _pax.Extensions()
    waiting: int | None = None  # where a header begins that is nothing without a member behind it
    while True:
        block = bytes(archive[offset : offset + BLOCK])
        if block.count(0) == len(block):
            _check_end(archive, offset)
            if waiting is not None:
                raise DamagedShardError("an extension header stands without the member it describes", waiting)
            return
        _check_header(block, offset)
        kind = block[156:157]
        num_bytes = _number(block[124:136], offset)
        if kind in _pax.KINDS or kind == _pax.GLOBAL:
            _pax.check_size(num_bytes, offset)
            waiting = offset if waiting is None else waiting
        else:
            # Old writers put the length of the linked file into the header of a link.
            num_bytes = 0 if kind in _WITHOUT_DATA else num_bytes if described.num_bytes is None else described.num_bytes
            waiting = None
        data_offset = offset + BLOCK
        following = _following(archive, data_offset, num_bytes)
        if kind in _pax.KINDS:
            described.add(kind, bytes(archive[data_offset : data_offset + num_bytes]), offset)
            offset = following
            continue
        if kind == _pax.GLOBAL:
            if start != offset:
                raise DamagedShardError("a global header stands between an extension header and the member it describes", start)
            _pax.check_global(bytes(archive[data_offset : data_offset + num_bytes]), offset)
        _check_kind(kind, offset)
        yield Member(described.name if described.name is not None else _name(block), start, data_offset, num_bytes, kind)
        if start != offset:
            described = _pax.Extensions()
        offset = start = following


def _following(archive: memoryview, data_offset: int, num_bytes: int) -> int:
    """Where the header after a member's data begins."""
    end = data_offset + num_bytes
    following = end + -num_bytes % BLOCK
    if following > len(archive):
        raise DamagedShardError(f"a member of {num_bytes} bytes reaches past the end of the file", data_offset - BLOCK)
    if archive[end:following] != _ZEROS[following - end]:
        raise DamagedShardError("the padding after a member is not zero", end)
    return following


def _check_kind(kind: bytes, offset: int) -> None:
    if kind == b"S":
        raise DamagedShardError(_pax.SPARSE, offset)
    if kind not in (*_REGULAR, *_WITHOUT_DATA, _pax.GLOBAL):
        raise DamagedShardError(f"a member of unknown type {kind!r}", offset)


def split_name(name: str) -> tuple[str, str]:
    """Key and field of a member: the field begins after the first dot of the last path component."""
    folder, slash, base = name.rpartition("/")
    stem, _, field = base.partition(".")
    return folder + slash + stem, field


def _check_header(block: bytes, offset: int) -> None:
    if len(block) < BLOCK:
        raise DamagedShardError("the file ends inside a header, without an end marker", offset)
    stored = _number(block[148:156], offset)
    total = byte_sum(block[:256]) + byte_sum(block[256:])
    if stored != total - sum(block[148:156]) + 8 * ord(" "):
        raise DamagedShardError("a header's checksum does not match its bytes", offset)


def _check_end(archive: memoryview, offset: int) -> None:
    if len(archive) - offset < 2 * BLOCK:
        raise DamagedShardError("the file ends without the two zero blocks that close an archive", offset)
    begin = data_after(archive, offset)
    if begin is not None:
        raise DamagedShardError("there is data after the end of the archive", begin)


def data_after(archive: memoryview, offset: int) -> int | None:
    """The first byte from ``offset`` on that is not zero; None if all are."""
    # Compared in C and piece by piece: the tail of a hostile file may be longer than memory.
    begin = offset
    while begin < len(archive):
        end = begin - begin % _COMPARED_BYTES + _COMPARED_BYTES
        piece = bytes(archive[begin:end])
        if piece != _COMPARED_ZEROS[: len(piece)]:
            return begin + len(piece) - len(piece.lstrip(b"\0"))
        if isinstance(archive.obj, mmap.mmap) and end - begin == len(piece) == _COMPARED_BYTES:
            archive.obj.madvise(mmap.MADV_DONTNEED, begin, len(piece))  # zeros once seen need no room
        begin = end
    return None


def _number(digits: bytes, offset: int) -> int:
    if digits[0] & 0x80:
        return int.from_bytes(digits[1:], "big")  # GNU base-256, for members of 8 GiB and more
    match = _OCTAL.fullmatch(digits)
    if match is None:
        raise DamagedShardError(f"a header's number is not octal: {digits!r}", offset)
    return int(match[1] or b"0", 8)


def _name(block: bytes) -> bytes:
    name = block[:100].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0] if block[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name
