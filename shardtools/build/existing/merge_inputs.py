"""What a merge reads: the datasets in its sources, each once, in order."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardtools.build.existing.examine import Candidate
from shardtools.build.existing.gather import Part, find_parts
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.manifest import REJECTS_NAME, FileEntry, Ledger
from shardtools.sample import Field, Reject
from shardtools.storage import Storage, open_storage


@dataclass(frozen=True)
class MergeInput:
    """One dataset found in a source."""

    part: Part
    name: str
    """``{number of the source}/{folder below it}``: where it lies, without any absolute path."""

    @property
    def ledger(self) -> Ledger | None:
        """What its manifest counts; None without one."""
        return None if self.part.dataset.manifest is None else self.part.dataset.manifest.ledger

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields its manifest names, without the key column; none without one."""
        manifest = self.part.dataset.manifest
        return () if manifest is None else tuple(Field(one["name"], one["encoding"], one["optional"]) for one in manifest.recipe["fields"])

    @property
    def transforms(self) -> tuple[dict[str, Any], ...]:
        """The recipes of what made its samples; none without a manifest, and where they are what was read."""
        return () if self.part.dataset.manifest is None else self.part.dataset.manifest.transforms

    def shard_bytes(self) -> list[int]:
        """The stored length of each of its shards; 0 for one that is not there."""
        storage = self.part.dataset.storage
        return [storage.num_bytes(candidate.shard.name) or 0 for candidate in self.part.candidates]

    def name_of(self, candidate: Candidate) -> bytes:
        """Which shard of which source this is."""
        return os.fsencode(f"{self.name}/{candidate.shard.name}")

    def rejects(self) -> tuple[Reject, ...]:
        """The bad samples that its run set aside, as its rejects file lists them. Raises ShardtoolsError for another file."""
        manifest = self.part.dataset.manifest
        if manifest is None or not manifest.ledger.num_rejected:
            return ()
        data = self.part.dataset.storage.get(REJECTS_NAME) or b""
        if FileEntry.of(REJECTS_NAME, data) not in manifest.files:
            raise ShardtoolsError(f"expected {REJECTS_NAME} in {self.part.folder} as its manifest has it, got another file; restore it")
        return tuple(_reject(line) for line in data.splitlines())


def merge_inputs(sources: Sequence[str]) -> list[MergeInput]:
    """The datasets of all sources. Raises UsageError for one that is given twice, or in another, and what ``find_parts`` raises."""
    inputs: list[MergeInput] = []
    known: dict[str, str] = {}
    for number, source in enumerate(sources):
        root = open_storage(source).uri
        for part in find_parts(source):
            real = os.path.realpath(part.folder)
            if real in known:
                raise UsageError(f"expected every dataset once, got {part.folder} twice (as {known[real]} too); leave one of the two out")
            known[real] = part.folder
            below = os.path.relpath(part.folder, root)
            inputs.append(MergeInput(part, str(number) if below == "." else f"{number}/{below}"))
    return inputs


def refuse_nested(sources: Sequence[str], storage: Storage) -> None:
    """Raises UsageError where the destination lies in a source, whose next merge would find it, or a source in the destination."""
    target = os.path.realpath(storage.uri)
    for source in sources:
        root = os.path.realpath(open_storage(source).uri)
        if os.path.commonpath([root, target]) in (root, target):
            raise UsageError(f"expected a destination apart from every source, got {storage.uri} and {source}; choose another")


def _reject(line: bytes) -> Reject:
    content = json.loads(line)
    return Reject(content["reason"], content["where"], content["sentence"], content["head"].encode("latin-1"))
