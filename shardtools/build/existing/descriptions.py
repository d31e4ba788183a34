"""The files that describe shards, each made from what a strict look at the shards found."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardtools.build.existing.examine import Examined
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
            ShardEntry(one.candidate.shard.name, one.facts.num_bytes, one.facts.sha256, one.facts.num_samples, one.field_sets)
            for one in self.examined
        )

    def offsets(self) -> bytes:
        """The content of ``shardtools.offsets``."""
        return b"".join(one.facts.offsets.tobytes() for one in self.examined)

    def index(self) -> SidecarFile | None:
        """The index that the format's readers need, None where they need none."""
        name = self.format.index_name
        if name is None:
            return None
        facts = [(one.candidate.shard.name, one.facts) for one in self.examined]
        return name, self.format.index(self.fields, self.limit_bytes, facts)

    def sidecars(self, kinds: Sequence[str]) -> Iterator[SidecarFile]:
        shards = [StoredTar(one.candidate.shard.name, one.facts.num_bytes, one.facts.offsets) for one in self.examined]
        return sidecar_files(kinds, self.uri, shards)

    def files_named(self, names: set[str]) -> Iterator[SidecarFile]:
        """Those of the named files that can be made: first what may be refused, last the index."""
        kinds = [kind for kind in KINDS if names & names_of([kind], self.shard_names)]
        yield from (file for file in self.sidecars(kinds) if file[0] in names)
        if OFFSETS_NAME in names:
            yield OFFSETS_NAME, self.offsets()
        index = self.index()
        if index is not None and index[0] in names:
            yield index

    def ordered(self, names: set[str]) -> list[str]:
        """The order in which a manifest lists such files: offsets, sidecars, index."""
        return sorted(names, key=lambda name: (name != OFFSETS_NAME, name == self.format.index_name, name))
