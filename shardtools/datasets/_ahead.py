"""Samples of a shard that lies elsewhere, while it still comes: whoever wants the first of them waits for little more."""

import tempfile
from collections.abc import Iterator
from itertools import islice
from typing import IO

from shardtools.datasets._unpack import let_go, map_file, write_temporary
from shardtools.errors import DamagedShardError, StorageError
from shardtools.formats import ShardFormat, StoredSample
from shardtools.places import join
from shardtools.storage import Storage, Stored

_FIRST_BYTES = 1 << 20
_GROWTH = 4
"""What has come is parsed again from its beginning each time it has grown so much: a third more work in all."""
_BLOCK_BYTES = 1 << 20
_SEEN_BYTES = 32 << 20
"""After so many bytes of samples the memory of the process is given back; whoever still holds a sample reads it from the file again."""


def samples_ahead(storage: Storage, name: str, shard_format: ShardFormat) -> Iterator[StoredSample]:
    """Every sample of an uncompressed shard, strictly parsed. Raises StorageError, and DamagedShardError where its samples end before.

    Disk: an unnamed file as long as what was read.
    """
    found = storage.entry(name)
    if found is None:
        raise StorageError(f"expected the file {name} in {storage.uri}, got none; restore it")
    with tempfile.TemporaryFile() as file:
        file.truncate(found.num_bytes)  # which takes no room yet
        whole = map_file(file)
        file.seek(0)
        end = num_yielded = 0
        while end < found.num_bytes:
            begin, end = end, min(max(_GROWTH * end, _FIRST_BYTES), found.num_bytes)
            _copy(storage, found, begin, end, file)
            seen = 0
            for sample in islice(_known(shard_format, whole, end), num_yielded, None):
                if sample.offset - seen > _SEEN_BYTES:
                    let_go(whole)
                    seen = sample.offset
                yield sample
                num_yielded += 1
            let_go(whole)
        if not found.num_bytes:
            yield from shard_format.stored_samples(whole)


def _known(shard_format: ShardFormat, whole: memoryview, end: int) -> Iterator[StoredSample]:
    """The samples that lie before ``end`` for certain; where that is the end of the shard, all of them, and what ends them."""
    if end == len(whole):
        yield from shard_format.stored_samples(whole)
        return
    # The tables of MDS tell of the whole shard; a tar ends where its bytes do.
    shard = whole[:end] if shard_format.index_name is None else whole
    last: StoredSample | None = None
    try:
        for sample in shard_format.stored_samples(shard):
            if sample.offset > end:
                return
            if last is not None:
                yield last
            last = sample
    except DamagedShardError:
        return  # at the end of what has come, if not before


def _copy(storage: Storage, found: Stored, begin: int, end: int, file: IO[bytes]) -> None:
    """One part more of the very object that was found; nothing is read ahead of it."""
    with storage.open(found.name, end, found.version) as source:
        source.seek(begin)
        while begin < end:
            block = source.read(min(end - begin, _BLOCK_BYTES))
            if not block:
                raise StorageError(
                    f"expected {end - begin} more bytes of {join(storage.uri, found.name)}, got none; run the same command again"
                )
            write_temporary(file, block)
            begin += len(block)
