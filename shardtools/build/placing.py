"""Shards on their way to their final names."""

from collections.abc import Mapping, Sequence

from shardtools.build.progress import BuildProgress, Numbered, listing
from shardtools.build.receipts import StagedShard
from shardtools.errors import StorageError
from shardtools.places import at_once
from shardtools.storage import Storage, Stored


def place_shards(storage: Storage, progress: BuildProgress, shards: Sequence[Numbered]) -> None:
    """Give every shard its final name that was not written under it. Can be repeated. Raises StorageError for other bytes."""
    there = listing(storage)
    list(at_once(storage, lambda shard: _place(storage, progress, shard, there), shards))
    storage.sync(final for _, final, _ in shards)


def _place(storage: Storage, progress: BuildProgress, shard: Numbered, there: Mapping[str, Stored]) -> None:
    staged, final, what = shard
    if what.version and not _is_version(there.get(staged), what):
        # It has its final name, and what is staged, if anything is, is left of an earlier attempt.
        if progress.is_right(there.get(final), what):
            return
        if not progress.is_right(there.get(staged), what):
            raise _other_bytes(storage, final)
    if storage.place(staged, final):
        return
    # A target that is there without a move is another run's work, or this run's before it was killed.
    if not progress.is_right(storage.entry(final), what):
        raise _other_bytes(storage, final)


def _is_version(found: Stored | None, shard: StagedShard) -> bool:
    return found is not None and (found.num_bytes, found.version) == (shard.facts.num_bytes, shard.version)


def _other_bytes(storage: Storage, final: str) -> StorageError:
    return StorageError(
        f"expected {final} in {storage.uri} to be the shard its receipt describes, got none or other bytes; "
        "run the same command again with --overwrite"
    )
