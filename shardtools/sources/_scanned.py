"""What listing an input found, and which names are never data."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

_SKIPPED_NAMES = {b"__pycache__": "__pycache__", b"Thumbs.db": "Thumbs.db"}


@dataclass
class Scan:
    """Files of one input."""

    folders: dict[bytes, list[bytes]] = field(default_factory=dict)
    """Relative path of each folder that holds files, sorted by bytes, and in it ``name NUL size NUL version``, sorted too.

    The version of a file is its mtime_ns, that of an object its ETag.
    """
    skipped: Counter[str] = field(default_factory=Counter)
    num_links: int = 0
    newest_ns: int = 0
    has_dotted_stems: bool = False
    """Some name has two dots or more, so its first and its last differ."""

    def sort(self) -> None:
        """Into the order that does not depend on how it was listed."""
        for entries in self.folders.values():
            entries.sort()
        self.folders = dict(sorted(self.folders.items()))

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Every (folder, entry)."""
        return ((folder, entry) for folder, entries in self.folders.items() for entry in entries)


def skip_reason(name: bytes) -> str | None:
    """Why a name is never data, None if it may be."""
    if name.startswith(b"._"):
        return "AppleDouble"
    return "hidden" if name.startswith(b".") else _SKIPPED_NAMES.get(name)
