"""Row groups and pieces of them, as planning hands them to reading."""

from dataclasses import dataclass

from shardtools.extents import extent, identity, version
from shardtools.sources._streams import Window


@dataclass(frozen=True)
class RowGroup:
    """One row group of a file."""

    root: int
    """Index of the input."""
    path: bytes
    file_bytes: int
    file_version: bytes
    index: int
    """In its file."""
    first_row: int
    """Its number in the file."""
    num_rows: int
    num_bytes: int
    """Of the columns that are read, before compression."""
    data_begin: int
    """Where its data begins in the file."""
    data_end: int

    @property
    def window(self) -> Window:
        """The whole file."""
        return Window(self.path, 0, -1, self.file_bytes, self.file_version)


@dataclass(frozen=True)
class Piece:
    """Rows of one row group."""

    window: Window
    root: int
    group: int
    first_row: int
    """Of the row group; ``begin`` and ``end`` count from the file's first row on, too."""
    begin: int
    end: int
    data_begin: int
    data_end: int

    @property
    def data_bytes(self) -> int:
        """How much of the file the row group takes."""
        return self.data_end - self.data_begin

    @classmethod
    def of(cls, group: RowGroup, begin: int, end: int) -> "Piece":
        """The rows from ``begin`` up to ``end`` of a row group."""
        first = group.first_row
        return cls(group.window, group.root, group.index, first, first + begin, first + end, group.data_begin, group.data_end)

    @classmethod
    def unpacked(cls, packed: bytes) -> "Piece":
        """What ``packed`` was made of."""
        _, root, path, *numbers = identity(packed).split(b"\0")
        *rows, file_bytes = map(int, numbers)
        return cls(Window(path, 0, -1, file_bytes, version(packed)), int(root), *rows)

    def packed(self) -> bytes:
        """As an extent."""
        path = self.window.path
        rows = (self.group, self.first_row, self.begin, self.end)
        numbers = (*rows, self.data_begin, self.data_end, self.window.file_bytes)
        return extent([b"%b@%d" % (path, self.begin), b"%d" % self.root, path, *(b"%d" % n for n in numbers)], self.window.version)
