"""The files that describe shards, each made from what a strict look at the shards found."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardtools.build.existing.examine import Examined
from shardtools.build.indices import IndexedShard, index_files, index_names
from shardtools.build.sidecars import KINDS, SidecarFile, StoredTar, names_of, sidecar_files
from shardtools.formats import ShardFormat
from shardtools.manifest import OFFSETS_NAME, ShardEntry
from shardtools.sample import Field


@dataclass(frozen=True)
class Descriptions:
    """What can be made again for one dataset, without reading its shards again but for sidecars."""

    uri: str
    format: ShardFormat
    fields: tuple[Field, ...]
    """Without the key column."""
    limit_bytes: int | None
    examined: Sequence[Examined]

    @property
    def shard_names(self) -> list[str]:
        return [one.candidate.shard.name for one in self.examined]

    def shards(self) -> tuple[ShardEntry, ...]:
        """The shards as a manifest names them."""
        return tuple(
            ShardEntry(shard.name, one.facts.num_bytes, one.facts.sha256, one.facts.num_samples, one.field_sets, shard.split)
            for one in self.examined
            for shard in [one.candidate.shard]
        )

    def offsets(self) -> bytes:
        """The content of ``shardtools.offsets``."""
        return b"".join(one.facts.offsets.tobytes() for one in self.examined)

    @property
    def splits(self) -> list[str]:
        """Of its shards, in order; without splits the empty one."""
        return list(dict.fromkeys(one.candidate.shard.split for one in self.examined))

    @property
    def index_names(self) -> set[str]:
        return index_names(self.format, self.splits)

    def indices(self) -> Iterator[SidecarFile]:
        """The indices that the format's readers need."""
        shards = [IndexedShard(one.candidate.shard.split, one.candidate.shard.name, one.facts) for one in self.examined]
        return index_files(self.format, self.fields, self.limit_bytes, shards)

    def sidecars(self, kinds: Sequence[str]) -> Iterator[SidecarFile]:
        shards = [
            StoredTar(shard.name, one.facts.num_bytes, one.facts.offsets, shard.split)
            for one in self.examined
            for shard in [one.candidate.shard]
        ]
        return sidecar_files(kinds, self.uri, shards)

    def sidecar_names(self, kinds: Sequence[str]) -> set[str]:
        """The names of those files."""
        return names_of(kinds, self.shard_names, self.splits)

    def files_named(self, names: set[str]) -> Iterator[SidecarFile]:
        """Those of the named files that can be made: first what may be refused, last the index."""
        kinds = [kind for kind in KINDS if names & self.sidecar_names([kind])]
        yield from (file for file in self.sidecars(kinds) if file[0] in names)
        if OFFSETS_NAME in names:
            yield OFFSETS_NAME, self.offsets()
        yield from (index for index in self.indices() if index[0] in names)

    def ordered(self, names: set[str]) -> list[str]:
        """The order in which a manifest lists such files: offsets, sidecars, indices."""
        return sorted(names, key=lambda name: (name != OFFSETS_NAME, name in self.index_names, name))
