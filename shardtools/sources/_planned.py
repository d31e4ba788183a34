"""A sample of files as planning left it, and why one cannot be taken."""

from collections.abc import Iterator
from itertools import compress
from typing import NamedTuple

from shardtools.extents import identity
from shardtools.sample import Reject
from shardtools.sources._layout import Layout, Shape


class Planned(NamedTuple):
    """One extent, unpacked. ``names`` and ``sizes`` are those of all its files, of which ``shape`` says what becomes of them."""

    key: bytes
    root: int
    """Index of the input."""
    folder: bytes
    """Relative to the input."""
    names: list[bytes]
    sizes: list[int]
    shape: Shape
    packed: bytes

    def name_of(self, extension: bytes) -> bytes | None:
        """The first file of this extension; None without one."""
        extensions = identity(self.packed).split(b"\0")[3::3]
        return self.names[extensions.index(extension)] if extension in extensions else None

    def taken(self) -> Iterator[tuple[bytes, int]]:
        """Path relative to the input, and planned size, of each file that is stored."""
        prefix = self.folder + b"/" if self.folder else b""
        return ((prefix + name, size) for name, size in compress(zip(self.names, self.sizes, strict=True), self.shape.taken))


class RefusedSampleError(Exception):
    """A sample cannot be taken; carries what the sink is told."""

    def __init__(self, reason: str, path: bytes, sentence: str, head: bytes = b"") -> None:
        super().__init__(sentence)
        self.reject = Reject(reason, shown(path), sentence, head)


def unpacked(packed: bytes, layout: Layout) -> Planned:
    key, root, folder, *rest = identity(packed).split(b"\0")
    return Planned(key, int(root), folder, rest[2::3], list(map(int, rest[1::3])), layout.shape(tuple(rest[::3])), packed)


def first_path(packed: bytes) -> str:
    """Of the sample's first file, for people."""
    _, _, folder, _, _, name, *_ = identity(packed).split(b"\0")
    return shown(join(folder, name))


def changed(path: bytes, num_bytes: int, got: str, head: bytes = b"") -> RefusedSampleError:
    """The file is not what it was when it was planned with that many bytes."""
    sentence = f"expected the {num_bytes} bytes it had when the run was planned, got {got}; run again when nothing writes to the input"
    return RefusedSampleError("changed", path, sentence, head)


def join(folder: bytes, name: bytes) -> bytes:
    """The path below the root."""
    return folder + b"/" + name if folder else name


def shown(path: bytes) -> str:
    """A path for people and for files of text: bytes that are no UTF-8 as backslash escapes."""
    return path.decode("utf-8", "backslashreplace")
