"""One worker's work in a merge: bring one shard, as it is, to where a build stages its own, and leave a receipt."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from shardtools.build.existing.examine import Examined
from shardtools.build.receipts import BuildNames, Receipt, StagedShard
from shardtools.engines import Progress, Report
from shardtools.errors import StorageError
from shardtools.manifest import Ledger
from shardtools.sample import Reject
from shardtools.storage import Storage, Stored, one_sentence, open_storage

_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class StageItem:
    """One shard of a merge."""

    partition: int
    inputs_digest: str
    shard: Examined
    ledger: Ledger
    """Its samples; on the first shard of a dataset, also what that dataset's ledger counts beside them."""
    rejects: tuple[Reject, ...] = ()
    listed: Stored | None = None
    """As its storage listed it before it was looked at; a storage that still has that very object may copy it by itself."""


@dataclass(frozen=True)
class StageShard:
    """The task. A file that changes between the strict look and the copy is noticed."""

    destination: str
    plan_digest: str
    link: bool

    def __call__(self, item: StageItem, report: Report) -> None:
        storage = open_storage(self.destination)
        names = BuildNames(self.plan_digest)
        staged = names.staged(item.partition, 0)
        version = ""
        if self.link:
            _link(item.shard, storage, temporary := self._temporary(item))
            storage.move(temporary, staged)
        elif item.listed is not None and storage.adopt(item.shard.candidate.uri, item.listed, staged):
            report(Progress(0, item.listed.num_bytes, 0))
        elif storage.finishes_at_once:
            version = _copy(item.shard, storage, staged, report)
        else:
            _copy(item.shard, storage, temporary := self._temporary(item), report)
            storage.move(temporary, staged)
        receipt = Receipt(
            partition=item.partition,
            plan_digest=self.plan_digest,
            inputs_digest=item.inputs_digest,
            shards=(StagedShard(item.shard.facts, item.shard.field_sets, version, item.shard.candidate.shard.split),),
            ledger=item.ledger,
            rejects=item.rejects,
            oversize_keys=(),
            keys=item.shard.keys,
            folded_keys=item.shard.folded_keys,
        )
        storage.put(names.receipt(item.partition), receipt.serialize())

    def _temporary(self, item: StageItem) -> str:
        return BuildNames(self.plan_digest).temporary(item.partition, os.urandom(8).hex(), 0)


def _copy(shard: Examined, storage: Storage, name: str, report: Report) -> str:
    """The version of what was written, empty where that is not known."""
    writer = storage.writer(name)
    digest = hashlib.sha256()
    try:
        for block in _blocks(shard):
            digest.update(block)
            writer.write(block)
            report(Progress(0, len(block), 0))
        if digest.hexdigest() != shard.facts.sha256:
            raise StorageError(
                f"expected {shard.candidate.place} to stay as it is during the merge, got other bytes; run the same command again"
            )
        writer.finish()
    except BaseException:
        writer.abort()
        raise
    return writer.version


def _blocks(shard: Examined) -> Iterator[bytes]:
    stored = shard.candidate.folder.stored(shard.candidate.shard)
    for begin in range(0, len(stored), _BLOCK_BYTES):
        yield bytes(stored[begin : begin + _BLOCK_BYTES])


def _link(shard: Examined, storage: Storage, name: str) -> None:
    # A link to a link would still depend on the name it points to.
    source, target = os.path.realpath(shard.candidate.place), storage.local_path(name)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.link(source, target)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise StorageError(f"could not link {source} to {target}: {reason}; run the same command without --link, it copies") from error
    with one_sentence("write", source):
        fd = os.open(source, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
