"""Extension headers, by which foreign writers say of the members behind them what a plain header has no room for.

Only what every reader takes alike passes: archives that readers may read in different ways are damaged.

Source: POSIX.1-2017, pax, "pax Extended Header"; GNU tar manual, "Basic Tar Format"; CPython's ``tarfile``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from shardtools.errors import DamagedShardError

KINDS = (b"x", b"L", b"K")
"""Types of the headers that describe the one member behind them."""
GLOBAL = b"g"
"""The type of a header that describes all members behind it."""
SPARSE = "a sparse member, whose holes readers see in different ways: pack it again without --sparse"

_LENGTH = re.compile(rb"[0-9]{1,9} ")
_MAX_BYTES = 1 << 20
# Neither a name nor a byte of a member depends on these. git archive writes the comment.
_HARMLESS = (b"comment", b"charset", b"atime", b"ctime", b"mtime", b"uid", b"gid", b"uname", b"gname", b"GNU.volume.label")
_HARMLESS_BEGINS = (b"SCHILY.xattr.", b"LIBARCHIVE.xattr.", b"RHT.security.")


@dataclass
class Extensions:
    """What the extension headers in front of a member say of it."""

    name: bytes | None = None
    num_bytes: int | None = None
    _kinds: set[bytes] = field(default_factory=set)

    def add(self, kind: bytes, data: bytes, offset: int) -> None:
        """One more header, at ``offset``. Raises DamagedShardError where readers do not agree on what it says."""
        if kind in self._kinds:
            raise DamagedShardError(
                f"two extension headers of type {kind!r} describe one member, and readers differ in which counts", offset
            )
        self._kinds.add(kind)
        if kind == b"K":  # only links have a long target
            return
        name = data.partition(b"\0")[0] if kind == b"L" else self._read(data, offset)
        if name is not None and self.name not in (None, name):
            raise DamagedShardError("two extension headers give one member different names", offset)
        self.name = self.name if name is None else name

    def _read(self, data: bytes, offset: int) -> bytes | None:
        """The name that a PAX header gives; keeps the size it gives."""
        path = None
        for name, value in _records(data, offset):
            if name.startswith(b"GNU.sparse."):
                raise DamagedShardError(SPARSE, offset)
            if name == b"path":
                path = _checked_path(value, offset)
            elif name == b"size":
                self.num_bytes = _size(value, offset)
        return path


def check_global(data: bytes, offset: int) -> None:
    """Raises DamagedShardError unless the global header leaves names and bytes of all members as they are."""
    for name, _ in _records(data, offset):
        if name not in _HARMLESS and not name.startswith(_HARMLESS_BEGINS):
            shown = name[:40].decode("utf-8", "backslashreplace")
            raise DamagedShardError(
                f"a global header sets {shown!r} for the members after it, which readers take in different ways", offset
            )


def check_size(num_bytes: int, offset: int) -> None:
    """Raises DamagedShardError for an extension header longer than any sound one."""
    if num_bytes > _MAX_BYTES:
        raise DamagedShardError(f"an extension header of {num_bytes} bytes", offset)


def _records(data: bytes, offset: int) -> Iterator[tuple[bytes, bytes]]:
    """Keyword and value of each ``length keyword=value`` line."""
    begin = 0
    while begin < len(data):
        head = _LENGTH.match(data, begin)
        end = begin + int(head[0]) if head else 0
        if head is None or end <= head.end() or end > len(data) or data[end - 1 : end] != b"\n":
            raise DamagedShardError("an extension header cannot be parsed", offset)
        name, equals, value = data[head.end() : end - 1].partition(b"=")
        if not name or not equals:
            raise DamagedShardError("an extension header cannot be parsed", offset)
        yield name, value
        begin = end


def _checked_path(value: bytes, offset: int) -> bytes:
    if not value or b"\0" in value:
        raise DamagedShardError(f"an extension header gives a name that is empty or has a NUL in it: {value[:40]!r}", offset)
    return value


def _size(value: bytes, offset: int) -> int:
    if len(value) > 20 or not value.isdigit():
        raise DamagedShardError(f"an extension header's size is not a number: {value[:20]!r}", offset)
    return int(value)
