"""What was delivered against what is stored: joined by digests, in memory that does not grow with the dataset."""

import struct
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shardtools.digests import DigestTable, Records, grouped, together
from shardtools.duplicates import DIGEST_BYTES, key_digest
from shardtools.verify.delivery._logs import read_log
from shardtools.verify.delivery._spec import RunSpec
from shardtools.verify.stored import digest_of

_RECORD = struct.Struct("<16sHHB")
_UNKNOWN_WORKER = 0xFFFF
_MEMORY_BYTES = 16 << 20


class Reader(NamedTuple):
    """One process that reads."""

    rank: int
    worker: int | None
    is_resumed: bool = False
    """It read the rest of an epoch that was stopped."""

    def __str__(self) -> str:
        worker = "a worker that cannot be told" if self.worker is None else f"worker {self.worker}"
        return f"rank {self.rank} {worker}{' after the resume' if self.is_resumed else ''}"


def _place(counted: tuple[Reader, int]) -> tuple[int, int, bool]:
    reader = counted[0]
    return reader.rank, reader.worker or 0, reader.is_resumed


@dataclass
class Stream:
    """What one reader delivered in one epoch."""

    num_ids: int = 0
    largest_batch: int = 0
    """Ids that the reader itself put together; 1 where it delivers them one by one."""
    smallest_batch: int = 1 << 62
    last: bytes = b""
    """The digest that came last."""
    order: int = 0
    """A hash of all ids in their order."""


@dataclass
class Delivery:
    """Everything that was delivered in one epoch of one run."""

    table: DigestTable = field(default_factory=lambda: DigestTable(_RECORD.size, _MEMORY_BYTES))
    streams: dict[Reader, Stream] = field(default_factory=lambda: defaultdict(Stream))

    def read(self, spec: RunSpec, epoch: str, is_resumed: bool = False) -> "Delivery":
        """Add the logs of an epoch."""
        for rank in range(spec.world_size):
            for worker, ids, is_batch in read_log(spec.log_path(rank, epoch)):
                self._add(Reader(rank, worker, is_resumed), [id_digest(each) for each in ids], len(ids) if is_batch else 1)
        return self

    def _add(self, reader: Reader, digests: list[bytes], batch_length: int) -> None:
        worker = _UNKNOWN_WORKER if reader.worker is None else reader.worker
        self.table.add(b"".join(_RECORD.pack(digest, reader.rank, worker, reader.is_resumed) for digest in digests))
        stream = self.streams[reader]
        stream.num_ids += len(digests)
        stream.largest_batch = max(stream.largest_batch, batch_length)
        stream.smallest_batch = min(stream.smallest_batch, batch_length)
        stream.order = hash((stream.order, *digests))
        stream.last = digests[-1] if digests else stream.last

    def readers_of(self, digests: Collection[bytes]) -> dict[bytes, Counter[Reader]]:
        """Who delivered each of a few ids, and how often, in order of ranks and workers."""
        wanted = np.frombuffer(b"".join(digest[:8] for digest in digests), np.uint64)
        found: dict[bytes, Counter[Reader]] = {digest: Counter() for digest in digests}
        for (records,) in together([self.table]) if found else ():
            heads = np.ascontiguousarray(records[:, :8]).view(np.uint64).ravel()
            for record in records[np.isin(heads, wanted)]:
                digest, rank, worker, is_resumed = _RECORD.unpack(record.tobytes())
                if digest in found:
                    found[digest][Reader(rank, None if worker == _UNKNOWN_WORKER else worker, bool(is_resumed))] += 1
        return {digest: Counter(dict(sorted(readers.items(), key=_place))) for digest, readers in found.items()}


@dataclass
class Differences:
    """How a delivery differs from what is stored: all counts, and some of the ids."""

    num_delivered: int = 0
    num_missing: int = 0
    num_repeats: int = 0
    """Deliveries above what is stored."""
    num_unknown: int = 0
    missing: list[bytes] = field(default_factory=list)
    repeated: list[bytes] = field(default_factory=list)
    unknown: list[bytes] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        return not (self.num_missing or self.num_repeats or self.num_unknown)


def compare(stored: DigestTable, delivery: Delivery, limit: int) -> Differences:
    """Count, and name at most ``limit`` of each kind. A key that is stored twice is rightly delivered twice."""
    found = Differences(num_delivered=len(delivery.table))
    for stored_records, delivered_records in together([stored, delivery.table]):
        digests, num_stored, num_delivered = _tallies(stored_records, delivered_records)
        missing = np.maximum(num_stored - num_delivered, 0)
        extra = np.maximum(num_delivered - num_stored, 0)
        is_known = num_stored > 0
        found.num_missing += int(missing.sum())
        found.num_repeats += int(extra[is_known].sum())
        found.num_unknown += int(extra[~is_known].sum())
        _keep(found.missing, digests, missing > 0, limit)
        _keep(found.repeated, digests, is_known & (extra > 0), limit)
        _keep(found.unknown, digests, ~is_known, limit)
    return found


def id_digest(text: str) -> bytes:
    """As ``digest_of``; also of what no key can be, which is unknown then."""
    try:
        return digest_of(text)
    except UnicodeEncodeError:
        return key_digest(text.encode("utf-8", "surrogatepass"))


def texts_of(spec: RunSpec, epochs: Iterable[str], digests: Collection[bytes]) -> dict[bytes, str]:
    """The ids behind digests, as they were delivered."""
    wanted = frozenset(digests)
    found: dict[bytes, str] = {}
    for each in _ids(spec, epochs) if wanted else ():
        if (digest := id_digest(each)) in wanted:
            found.setdefault(digest, each)
    return found


def _ids(spec: RunSpec, epochs: Iterable[str]) -> Iterator[str]:
    for epoch in epochs:
        for rank in range(spec.world_size):
            for _, ids, _ in read_log(spec.log_path(rank, epoch)):
                yield from ids


def _tallies(stored: Records, delivered: Records) -> tuple[Records, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Each distinct digest of a slice, how often it is stored, how often delivered."""
    digests = np.concatenate([stored[:, :DIGEST_BYTES], delivered[:, :DIGEST_BYTES]])
    order, begins = grouped(digests)
    is_stored = (order < len(stored)).astype(np.int64)
    num_stored = np.add.reduceat(is_stored, begins)
    num_delivered = np.add.reduceat(1 - is_stored, begins)
    return digests[order[begins]], num_stored, num_delivered


def _keep(kept: list[bytes], digests: Records, which: npt.NDArray[np.bool_], limit: int) -> None:
    kept += (digest.tobytes() for digest in digests[which][: max(limit - len(kept), 0)])
