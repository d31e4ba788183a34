"""Extents: the smallest pieces of input that may not be cut, as bytes only their source can read.

NUL-separated parts, the first of which names the extent, then, after two NULs, the version of the input (such as its
modification time), which is no part of the plan's identity.
"""

from collections.abc import Iterable, Sequence

_VERSION_MARK = b"\0\0"


def extent(parts: Iterable[bytes], version: bytes) -> bytes:
    """Pack the parts, none of which holds a NUL, and the version of the input into one extent."""
    return b"\0".join(parts) + _VERSION_MARK + version


def identity(packed: bytes) -> bytes:
    """The extent without its version."""
    return packed.rpartition(_VERSION_MARK)[0]


def version(packed: bytes) -> bytes:
    """What the version of the input was."""
    return packed.rpartition(_VERSION_MARK)[2]


def printable_extent(packed: bytes) -> bytes:
    """The extent without its version, as one line: parts separated by tabs."""
    return identity(packed).replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\0", b"\t")


def printable_extents(extents: Sequence[bytes]) -> bytes:
    """``printable_extent`` of each, joined by newlines."""
    plain = b"\n".join(map(identity, extents))
    if b"\\" in plain or plain.count(b"\n") >= len(extents):
        return b"\n".join(map(printable_extent, extents))
    return plain.replace(b"\0", b"\t")
