"""Tar members byte by byte: pure ustar headers out, strict parsing in.

Source: POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar manual, "Basic Tar Format".
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple
from zlib import adler32

from shardtools.errors import DamagedShardError

BLOCK = 512
RECORD = 20 * BLOCK
MAX_MEMBER_BYTES = 8**11 - 1

_AFTER_NAME = b"0000444\0" + b"0000000\0" * 2  # mode, uid, gid
_AFTER_SIZE = b"\0" + b"00000000000\0"  # end of size, mtime
_AFTER_CHECKSUM = b"\0 0" + bytes(100) + b"ustar\x0000" + bytes(32 + 32 + 8 + 8 + 155 + 12)
# The checksum counts its own eight bytes as spaces; name and size are added per member.
_CHECKSUM_BASE = sum(_AFTER_NAME) + sum(_AFTER_SIZE) + sum(_AFTER_CHECKSUM[2:]) + 8 * ord(" ")
_ZEROS = [bytes(n) for n in range(BLOCK + 1)]
_REGULAR = (b"0", b"\0")
_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")
_OCTAL = re.compile(rb"[ \0]*([0-7]*)[ \0]*")
_PAX_LENGTH = re.compile(rb"[0-9]{1,9} ")
_MAX_EXTENSION_BYTES = 1 << 20
_COMPARED_BYTES = 1 << 20
_SEARCHED_BYTES = 64 << 20
_SPARSE = "a sparse member, whose holes readers see in different ways: pack it again without --sparse"


def header(name: bytes, num_bytes: int) -> bytes:
    """The 512-byte header of a regular file; ``name`` at most 100 bytes, ``num_bytes`` below 8 GiB."""
    digits, digits_sum = _size_field(num_bytes)
    checksum = _CHECKSUM_BASE + sum(name) + digits_sum
    return b"%b%b%b%b%b%06o%b" % (
        name,
        _ZEROS[100 - len(name)],
        _AFTER_NAME,
        digits,
        _AFTER_SIZE,
        checksum,
        _AFTER_CHECKSUM,
    )


@lru_cache(1 << 16)
def _size_field(num_bytes: int) -> tuple[bytes, int]:
    """The size in octal, and what it adds to the checksum; small files share few sizes."""
    digits = b"%011o" % num_bytes
    return digits, sum(digits)


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
    long_name: bytes | None = None
    long_bytes: int | None = None
    while True:
        block = bytes(archive[offset : offset + BLOCK])
        if block.count(0) == len(block):
            _check_end(archive, offset)
            if start != offset:
                raise DamagedShardError("an extension header stands without the member it describes", start)
            return
        _check_header(block, offset)
        kind = block[156:157]
        num_bytes = _number(block[124:136], offset) if long_bytes is None else long_bytes
        if kind in _WITHOUT_DATA:
            num_bytes = 0  # old writers put the length of the linked file there
        data_offset = offset + BLOCK
        following = data_offset + num_bytes + -num_bytes % BLOCK
        if following > len(archive):
            raise DamagedShardError(f"a member of {num_bytes} bytes reaches past the end of the file", offset)
        if archive[data_offset + num_bytes : following] != _ZEROS[following - data_offset - num_bytes]:
            raise DamagedShardError("the padding after a member is not zero", data_offset + num_bytes)
        if kind in (b"x", b"L", b"K"):
            if num_bytes > _MAX_EXTENSION_BYTES:
                raise DamagedShardError(f"an extension header of {num_bytes} bytes", offset)
            if kind != b"K":  # only links have a long target
                long_name, long_bytes = _extension(kind, bytes(archive[data_offset : data_offset + num_bytes]), offset, long_name)
            offset = following
            continue
        if kind == b"S":
            raise DamagedShardError(_SPARSE, offset)
        if kind not in (*_REGULAR, *_WITHOUT_DATA, b"g"):
            raise DamagedShardError(f"a member of unknown type {kind!r}", offset)
        yield Member(long_name if long_name is not None else _name(block), start, data_offset, num_bytes, kind)
        long_name = long_bytes = None
        offset = start = following


def split_name(name: str) -> tuple[str, str]:
    """Key and field of a member: the field begins after the first dot of the last path component."""
    folder, slash, base = name.rpartition("/")
    stem, _, field = base.partition(".")
    return folder + slash + stem, field


def _check_header(block: bytes, offset: int) -> None:
    if len(block) < BLOCK:
        raise DamagedShardError("the file ends inside a header, without an end marker", offset)
    stored = _number(block[148:156], offset)
    # The low half of adler32 adds bytes up in C; below 257 of them its modulus is never reached.
    total = (adler32(block[:256]) & 0xFFFF) + (adler32(block[256:]) & 0xFFFF) - 2
    if stored != total - sum(block[148:156]) + 8 * ord(" "):
        raise DamagedShardError("a header's checksum does not match its bytes", offset)


def _check_end(archive: memoryview, offset: int) -> None:
    if len(archive) - offset < 2 * BLOCK:
        raise DamagedShardError("the file ends without the two zero blocks that close an archive", offset)
    # Compared in C and piece by piece: the tail of a hostile file may be longer than memory.
    for begin in range(offset, len(archive), _COMPARED_BYTES):
        piece = bytes(archive[begin : begin + _COMPARED_BYTES])
        if piece.count(0) != len(piece):
            raise DamagedShardError("there is data after the end of the archive", begin + len(piece) - len(piece.lstrip(b"\0")))


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


def _extension(kind: bytes, data: bytes, offset: int, long_name: bytes | None) -> tuple[bytes | None, int | None]:
    """The name and size an extension header gives to the member after it."""
    if kind == b"L":
        return data.partition(b"\0")[0], None
    long_bytes = None
    begin = 0
    while begin < len(data):
        head = _PAX_LENGTH.match(data, begin)
        end = begin + int(head[0]) if head else 0
        if head is None or end <= head.end() or end > len(data) or data[end - 1 : end] != b"\n":
            raise DamagedShardError("an extension header cannot be parsed", offset)
        name, _, value = data[head.end() : end - 1].partition(b"=")
        if name.startswith(b"GNU.sparse."):
            raise DamagedShardError(_SPARSE, offset)
        if name == b"path":
            long_name = value
        elif name == b"size":
            long_bytes = _pax_size(value, offset)
        begin = end
    return long_name, long_bytes


def _pax_size(value: bytes, offset: int) -> int:
    if len(value) > 20 or not value.isdigit():
        raise DamagedShardError(f"an extension header's size is not a number: {value[:20]!r}", offset)
    return int(value)
