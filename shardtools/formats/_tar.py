"""Tar members byte by byte: pure ustar headers out, strict parsing in.

Source: POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar manual, "Basic Tar Format".
"""

from collections.abc import Iterator
from typing import NamedTuple

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


def header(name: bytes, num_bytes: int) -> bytes:
    """The 512-byte header of a regular file; ``name`` at most 100 bytes, ``num_bytes`` below 8 GiB."""
    digits = b"%011o" % num_bytes
    checksum = _CHECKSUM_BASE + sum(name) + sum(digits)
    return b"%b%b%b%b%b%06o%b" % (
        name,
        _ZEROS[100 - len(name)],
        _AFTER_NAME,
        digits,
        _AFTER_SIZE,
        checksum,
        _AFTER_CHECKSUM,
    )


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
    """A regular file in an archive."""

    name: bytes
    offset: int
    """Where its first header begins, extension headers included."""
    data_offset: int
    num_bytes: int


def members(archive: memoryview) -> Iterator[Member]:
    """Every regular file, in order. Understands the extension headers of foreign writers; skips folders and links.

    Raises DamagedShardError where a checksum, a size, the padding or the end marker is not as the format demands.
    """
    offset = start = 0
    long_name: bytes | None = None
    long_bytes: int | None = None
    while True:
        block = bytes(archive[offset : offset + BLOCK])
        if block.count(0) == len(block):
            _check_end(archive, offset)
            return
        _check_header(block, offset)
        num_bytes = _number(block[124:136], offset) if long_bytes is None else long_bytes
        data_offset = offset + BLOCK
        following = data_offset + num_bytes + -num_bytes % BLOCK
        if following > len(archive):
            raise DamagedShardError(f"a member of {num_bytes} bytes reaches past the end of the file", offset)
        kind = block[156:157]
        if kind in b"xL":
            long_name, long_bytes = _extension(kind, bytes(archive[data_offset : data_offset + num_bytes]), offset, long_name)
            offset = following
            continue
        if kind in (b"0", b"\0"):
            if any(archive[data_offset + num_bytes : following]):
                raise DamagedShardError("the padding after a member is not zero", data_offset + num_bytes)
            yield Member(long_name if long_name is not None else _name(block), start, data_offset, num_bytes)
        elif kind not in b"12346gS":
            raise DamagedShardError(f"a member of unknown type {kind!r}", offset)
        long_name = long_bytes = None
        offset = start = following


def _check_header(block: bytes, offset: int) -> None:
    if len(block) < BLOCK:
        raise DamagedShardError("the file ends inside a header, without an end marker", offset)
    stored = _number(block[148:156], offset)
    if stored != sum(block) - sum(block[148:156]) + 8 * ord(" "):
        raise DamagedShardError("a header's checksum does not match its bytes", offset)


def _check_end(archive: memoryview, offset: int) -> None:
    tail = archive[offset:]
    if len(tail) < 2 * BLOCK:
        raise DamagedShardError("the file ends without the two zero blocks that close an archive", offset)
    # Blocks of the map are compared in C; a Python loop over a long tail would take minutes.
    if bytes(tail).count(0) != len(tail):
        raise DamagedShardError("there is data after the end of the archive", offset)


def _number(digits: bytes, offset: int) -> int:
    if digits[0] & 0x80:
        return int.from_bytes(digits[1:], "big")  # GNU base-256, for members of 8 GiB and more
    text = digits.strip(b" \0")
    if not text:
        return 0
    try:
        return int(text, 8)
    except ValueError:
        raise DamagedShardError(f"a header's number is not octal: {digits!r}", offset) from None


def _name(block: bytes) -> bytes:
    name = block[:100].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0] if block[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _extension(kind: bytes, data: bytes, offset: int, long_name: bytes | None) -> tuple[bytes | None, int | None]:
    """The name and size an extension header gives to the member after it."""
    if kind == b"L":
        return data.partition(b"\0")[0], None
    long_bytes = None
    while data:
        length_text, _, _ = data.partition(b" ")
        length = int(length_text) if length_text.isdigit() else 0
        record = data[len(length_text) + 1 : length]
        if length < len(length_text) + 3 or not record.endswith(b"\n"):
            raise DamagedShardError("an extension header cannot be parsed", offset)
        name, _, value = record[:-1].partition(b"=")
        if name == b"path":
            long_name = value
        elif name == b"size" and value.isdigit():
            long_bytes = int(value)
        data = data[length:]
    return long_name, long_bytes
