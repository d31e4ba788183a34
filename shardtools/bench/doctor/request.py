"""What the doctor is asked."""

import os
from dataclasses import dataclass

from shardtools.bench.places import place_of
from shardtools.errors import UsageError

BATCH_SIZE = 64
"""Samples of a batch where the data is read, or images are assumed."""


@dataclass(frozen=True)
class DoctorRequest:
    """Nothing of it changes anything on the machine."""

    uris: tuple[str, ...] = ()
    batch_bytes: int | None = None
    """Of a collated batch. None: as the data has, else 64 images of 3 x 224 x 224."""
    num_tensors: int = 1
    num_workers: tuple[int, ...] = (1, 2, 4, 8)
    prefetch_factors: tuple[int, ...] = (2, 4, 8)
    num_ranks: int = 1
    """Training processes on this machine, each with a loader of its own."""
    pid: int | None = None
    """What is watched with all it starts; None: this user's processes that have torch loaded."""

    def checked(self) -> "DoctorRequest":
        """Raises UsageError for what is not there."""
        for uri in self.uris:
            if place_of(uri) is not None and not os.path.lexists(uri.removeprefix("file://")) and not _is_pattern(uri):
                raise UsageError(f"expected data at {uri}, got nothing of that name; correct the path")
        if self.pid is not None and not os.path.exists(f"/proc/{self.pid}/stat"):
            raise UsageError(f"expected a process {self.pid} for --pid, got none of that number; see `ps`")
        return self


def _is_pattern(uri: str) -> bool:
    return any(mark in uri for mark in "{*?[")


def numbers(text: str, flag: str, least: int) -> tuple[int, ...]:
    """Rising numbers from ``1,2,4``, each once. Raises UsageError."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() and least <= int(word) <= 1024 for word in words):
        raise UsageError(f"expected {flag} as numbers from {least} to 1024, such as 1,2,4, got {text!r}")
    return tuple(sorted({int(word) for word in words}))
