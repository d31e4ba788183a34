"""An opened dataset: its description as plain values, its samples on demand."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from shardtools.datasets import _unpack
from shardtools.datasets._ahead import samples_ahead
from shardtools.datasets._mds_index import IndexEntry
from shardtools.errors import DamagedShardError, UsageError
from shardtools.formats import MEMBER_ENCODINGS, Audit, Fault, ShardFormat, StoredSample
from shardtools.manifest import Manifest
from shardtools.places import Listing
from shardtools.sample import Field
from shardtools.storage import Storage, open_storage


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with what describes a dataset: its manifest or its index."""

    kind: str
    name: str
    """The file it was found in, or the shard it is about."""
    detail: str
    is_fatal: bool
    """Samples cannot be read, or not those that are meant."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard of an opened dataset."""

    index: int
    name: str
    """Of the stored file, below the dataset's folder."""
    format: ShardFormat
    """How this shard is read."""
    num_bytes: int | None
    """The stored file's length as the manifest or index has it; else as found, None for a file that is not there."""
    num_samples: int | None
    """As the manifest or index has it."""
    compression: str | None = None
    """``gzip``, ``zstd``, or the name of one that cannot be read."""
    entry: IndexEntry | None = None
    """What ``index.json`` says, for MDS; None where a shard was named by itself and no index beside it names it."""
    is_keyless: bool = False
    """No column holds the keys: samples are named ``{shard:05d}/{row:08d}``."""
    split: str = ""
    """Which split it belongs to; empty where the dataset has none."""


@dataclass(frozen=True)
class Dataset:
    """A dataset's description; shards are opened when their samples are asked for. Picklable."""

    uri: str
    format_name: str
    fields: tuple[Field, ...]
    """The schema; empty for foreign WDS, where only the samples tell."""
    shards: tuple[Shard, ...]
    manifest: Manifest | None
    """None for a foreign dataset."""
    problems: tuple[Problem, ...] = ()
    is_selection: bool = False
    """Its shards were named one by one, by a pattern or by their split: what else lies beside them is none of it."""
    split: str | None = None
    """The split that was asked for, whose shards alone are here; None: those of all."""

    @property
    def storage(self) -> Storage:
        return open_storage(self.uri)

    def listing(self) -> Listing:
        """The files that are there, of a selection those alone that it names."""
        if not self.is_selection:
            return Listing(self.storage)
        files = (file.name for shard in self.shards if shard.entry is not None for file in shard.entry.files)
        return Listing(self.storage, only=[*(shard.name for shard in self.shards), *files])

    @property
    def num_samples(self) -> int | None:
        """As recorded; None if any shard's count is unknown."""
        counts = [shard.num_samples for shard in self.shards]
        return None if None in counts else sum(count for count in counts if count is not None)

    def stored(self, shard: Shard) -> memoryview:
        """The stored file, safe from what happens to it meanwhile where it is at most ``MAX_HELD_BYTES`` long, else mapped.

        Raises StorageError if it is not there or no regular file, DamagedShardError where it becomes shorter meanwhile.
        """
        return _unpack.held(self.storage, shard.name)

    def stored_file(self, name: str) -> memoryview:
        """Any file of the dataset, mapped; from elsewhere a copy. Raises StorageError if it is not there or no regular file."""
        return _unpack.mapped(self.storage, name)

    def part_of(self, name: str, begin: int, end: int) -> bytes:
        """Bytes of any file of the dataset. Raises StorageError if it is not there or ends before ``end``."""
        part = bytearray(end - begin)
        self.storage.read_into(name, memoryview(part), begin)
        return bytes(part)

    def unpacked(self, shard: Shard, stored: memoryview) -> memoryview:
        """The shard's uncompressed bytes, on disk and mapped where they are not the stored ones.

        Raises DamagedShardError for a damaged stream and where more comes out than should, UsageError for a compression
        that is not supported.
        """
        return _unpack.unpacked(shard.name, shard.compression, stored, None if shard.entry is None else shard.entry.raw.num_bytes)

    def unpack_into(self, file: IO[bytes], shard: Shard, stored: memoryview) -> None:
        """The same bytes of a compressed shard, written to a file of the caller's. Raises as ``unpacked``."""
        assert shard.compression is not None, "nothing to unpack"
        _unpack.unpack_into(file, shard.name, shard.compression, stored, None if shard.entry is None else shard.entry.raw.num_bytes)

    def samples(self, shard: Shard) -> Iterator[StoredSample]:
        """Every sample of a shard, in order, strictly parsed. Raises what ``stored`` and ``unpacked`` do, and DamagedShardError.

        Of an uncompressed shard that lies elsewhere little more is read than the samples that are taken.
        """
        try:
            yield from self.named(shard, self._parsed(shard))
        except DamagedShardError as damage:
            raise DamagedShardError(f"the shard {shard.name} is damaged: {damage.message}; restore it", damage.offset) from None

    def _parsed(self, shard: Shard) -> Iterator[StoredSample]:
        if self.storage.is_local or shard.compression is not None:
            return shard.format.stored_samples(self.unpacked(shard, self.stored_file(shard.name)))
        return samples_ahead(self.storage, shard.name, shard.format)

    def salvaged(self, shard: Shard, raw: memoryview) -> Iterator[StoredSample]:
        """Every sample that can be read of an uncompressed shard, in order; faults are passed over."""
        return self.named(shard, shard.format.audit(raw, Audit(_ignore)))

    def named(self, shard: Shard, samples: Iterator[StoredSample]) -> Iterator[StoredSample]:
        """The same samples, with the keys they have in the dataset."""
        if not shard.is_keyless:
            return samples
        return (sample._replace(key=f"{shard.index:05d}/{sample.key}") for sample in samples)

    def all_samples(self) -> Iterator[tuple[Shard, StoredSample]]:
        """Every sample of the dataset, in order."""
        for shard in self.shards:
            for sample in self.samples(shard):
                yield shard, sample

    def sample_at(self, position: int) -> tuple[Shard, StoredSample]:
        """The sample at ``position`` in dataset order. Shards of known count before it are not opened; UsageError outside."""
        rest = position
        for shard in self.shards if position >= 0 else ():
            if shard.num_samples is not None and shard.num_samples <= rest:
                rest -= shard.num_samples
                continue
            for sample in self.samples(shard):
                if rest == 0:
                    return shard, sample
                rest -= 1
        raise UsageError(f"expected a position from 0 to one below the number of samples, got {position}")

    def find(self, key: str) -> tuple[Shard, StoredSample] | None:
        """The first sample with that key, None if there is none. Scans the dataset."""
        return next((found for found in self.all_samples() if found[1].key == key), None)

    def field(self, shard: Shard, name: str) -> Field:
        """A field with its encoding: by the shard's own index entry, the schema, or for foreign WDS its extension."""
        if shard.entry is not None and name in shard.entry.columns:
            return Field(name, shard.entry.columns[name])
        for known in self.fields:
            if known.name == name:
                return known
        return Field(name, MEMBER_ENCODINGS.get(name.rpartition(".")[2].lower(), "bytes"))

    def decode(self, shard: Shard, name: str, value: memoryview) -> Any:
        """The Python value of a stored value; pickles and other opaque encodings stay bytes. Raises ValueError if it is damaged."""
        return shard.format.decode(self.field(shard, name), bytes(value))


def _ignore(fault: Fault) -> None:
    """For those who want what can be read, and know of the faults or need not."""
