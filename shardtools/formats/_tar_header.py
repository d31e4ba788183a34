"""The one header this package writes for a tar member: pure ustar, all owners and times zero.

Source: POSIX.1-2017, pax, "ustar Interchange Format".
"""

import struct
from functools import lru_cache
from mmap import mmap
from zlib import adler32

BLOCK = 512

_AFTER_NAME = b"0000444\0" + b"0000000\0" * 2  # mode, uid, gid
_AFTER_SIZE = b"\0" + b"00000000000\0"  # end of size, mtime
_AFTER_CHECKSUM = b"\0 0" + bytes(100) + b"ustar\x0000" + bytes(32 + 32 + 8 + 8 + 155 + 12)
# The checksum counts its own eight bytes as spaces; name and size are added per member.
_CHECKSUM_BASE = sum(_AFTER_NAME) + sum(_AFTER_SIZE) + sum(_AFTER_CHECKSUM[2:]) + 8 * ord(" ")
_HEADER = struct.Struct(f"100s{len(_AFTER_NAME)}s11s{len(_AFTER_SIZE)}s6s{len(_AFTER_CHECKSUM)}s")


def header(name: bytes, num_bytes: int) -> bytes:
    """The 512-byte header of a regular file; ``name`` at most 100 bytes, ``num_bytes`` below 8 GiB."""
    digits, digits_sum = _size_field(num_bytes)
    checksum = _CHECKSUM_BASE + byte_sum(name) + digits_sum
    return _HEADER.pack(name, _AFTER_NAME, digits, _AFTER_SIZE, _checksum_field(checksum), _AFTER_CHECKSUM)


def own_header(archive: mmap | bytes, offset: int) -> tuple[bytes, int]:
    """Name, filled up with zeros, and size out of a header that ``header`` made: no bit is taken on trust. ValueError for others."""
    try:
        name, after_name, digits, after_size, checksum, after_checksum = _HEADER.unpack_from(archive, offset)
    except struct.error:
        raise ValueError("too short for a header") from None
    num_bytes, other_sum = _size_of(digits)
    if (
        after_name != _AFTER_NAME
        or after_size != _AFTER_SIZE
        or after_checksum != _AFTER_CHECKSUM
        or checksum != _checksum_field((adler32(name) & 0xFFFF) + other_sum)
    ):
        raise ValueError("not a header of this package")
    return name, num_bytes


def byte_sum(data: bytes) -> int:
    """Of at most 256 bytes: the low half of adler32 adds them up in C, and its modulus is not reached."""
    return (adler32(data) & 0xFFFF) - 1


@lru_cache(1 << 12)
def _checksum_field(total: int) -> bytes:
    return b"%06o" % total


@lru_cache(1 << 16)
def _size_of(digits: bytes) -> tuple[int, int]:
    """The size, and what the checksum is beside ``adler32`` of the name."""
    num_bytes = int(digits, 8)
    if digits != b"%011o" % num_bytes:
        raise ValueError("not the digits this package writes")
    return num_bytes, _CHECKSUM_BASE + sum(digits) - 1


@lru_cache(1 << 16)
def _size_field(num_bytes: int) -> tuple[bytes, int]:
    """The size in octal, and what it adds to the checksum; small files share few sizes."""
    digits = b"%011o" % num_bytes
    return digits, sum(digits)
