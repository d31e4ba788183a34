"""Planned files that are objects of a store: asked for before they are needed, with the check that each is still what was planned."""

from collections.abc import Iterable, Iterator
from itertools import compress

from shardtools.extents import version
from shardtools.sources._bucket_scan import name_of
from shardtools.sources._file_plan import VERSIONS_APART
from shardtools.sources._planned import Planned, RefusedSampleError, changed
from shardtools.storage import Whole, open_storage


class ObjectFiles:
    """The objects of one input that the given samples take, in their order."""

    def __init__(self, root: str, samples: Iterable[Planned]) -> None:
        wanted = ((name_of(path), num_bytes) for sample in samples for path, num_bytes in sample.taken())
        self._wholes: Iterator[Whole | None] = open_storage(root).wholes(wanted)

    def read(self, sample: Planned) -> list[bytes]:
        """The bytes of every file that is stored. Raises RefusedSampleError; trouble with the store is a StorageError."""
        # All of them, whatever the first is like, for the next sample's come after them.
        files = [(path, num_bytes, next(self._wholes)) for path, num_bytes in sample.taken()]
        versions = compress(version(sample.packed).split(VERSIONS_APART), sample.shape.taken)
        return [_checked(*file, planned) for file, planned in zip(files, versions, strict=True)]

    def close(self) -> None:
        self._wholes.close()  # type: ignore[attr-defined]


def _checked(path: bytes, num_bytes: int, whole: Whole | None, planned: bytes) -> bytes:
    if whole is None:
        raise RefusedSampleError("unreadable", path, "expected a readable object, got none of that name; it was removed after planning")
    if whole.num_bytes != num_bytes:
        raise changed(path, num_bytes, str(whole.num_bytes))
    if planned and whole.version != planned.decode():
        raise changed(path, num_bytes, "as many others")
    return whole.data
