"""What a merge reads: the datasets in its sources, each once, in order."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardtools.build.existing.examine import Candidate
from shardtools.build.existing.gather import Part, find_parts, real_place
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.manifest import REJECTS_NAME, FileEntry, Ledger
from shardtools.places import Listing, below, is_below, place_of
from shardtools.sample import Field, Reject
from shardtools.storage import Storage


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

    def listing(self) -> Listing:
        """What lies there now."""
        return self.part.dataset.listing()

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
        root = place_of(source)
        for part in find_parts(source):
            real = real_place(part.folder)
            if real in known:
                raise UsageError(f"expected every dataset once, got {part.folder} twice (as {known[real]} too); leave one of the two out")
            known[real] = part.folder
            inputs.append(MergeInput(part, f"{number}/{below(root, part.folder)}".rstrip("/")))
    return inputs


def sidecar_notes(inputs: Sequence[MergeInput], uri: str) -> list[str]:
    """What to do where the inputs have files that describe shards to other readers: they name shards that are called otherwise now."""
    manifests = [one.part.dataset.manifest for one in inputs]
    kinds = sorted({kind for manifest in manifests if manifest is not None for kind in manifest.recipe.get("sidecars", ())})
    return [f"the sidecars of the inputs are not merged; shardtools index {uri} --sidecars {','.join(kinds)} makes them"] if kinds else []


def refuse_nested(sources: Sequence[str], storage: Storage) -> None:
    """Raises UsageError where the destination lies in a source, whose next merge would find it, or a source in the destination."""
    target = real_place(storage.uri)
    for source in sources:
        root = real_place(place_of(source))
        if is_below(root, target) or is_below(target, root):
            raise UsageError(f"expected a destination apart from every source, got {storage.uri} and {source}; choose another")


def _reject(line: bytes) -> Reject:
    content = json.loads(line)
    return Reject(content["reason"], content["where"], content["sentence"], content["head"].encode("latin-1"))
