"""The pass that looks at all samples before any is taken: how many a partition has, and the digest of each."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from shardtools.build.attempts import Terms
from shardtools.build.progress import listing, missing_receipt
from shardtools.build.reading import Reading
from shardtools.build.receipts import BuildNames, sealed, unsealed
from shardtools.build.stages.content import ContentDigests, digests_of_keys
from shardtools.engines import Progress, Report
from shardtools.errors import StorageError
from shardtools.places import at_once
from shardtools.plan import Partition
from shardtools.sample import ignore_reject
from shardtools.storage import Storage, open_storage


@dataclass(frozen=True)
class Looked:
    """What a look at one partition found. It says nothing of bad samples: the next pass comes by them again."""

    plan_digest: str
    inputs_digest: str
    num_samples: int
    """That the steps leave; no more than are taken at all, where none is left out."""
    digests_name: str
    """Where 16 bytes for each of them lie, in their order; empty where samples are only counted."""
    digests_sha256: str

    def serialize(self) -> bytes:
        return sealed(asdict(self), b"")

    @classmethod
    def parse(cls, data: bytes) -> "Looked | None":
        """None for anything that is not whole."""
        opened = unsealed(data)
        return None if opened is None else cls(**opened[0])

    def digests(self, storage: Storage) -> bytes:
        """Raises StorageError where they are gone or damaged."""
        data = storage.get(self.digests_name) or b""
        if hashlib.sha256(data).hexdigest() != self.digests_sha256:
            raise StorageError(
                f"expected {storage.uri}/{self.digests_name} as it was written, got none or a damaged file; "
                "run the same command again with --overwrite"
            )
        return data


@dataclass(frozen=True)
class LookTask:
    """Looks at partitions of one plan."""

    terms: Terms
    stored_ratio: float
    """Stored bytes for each byte of input, to report by."""

    def __call__(self, item: Partition, report: Report) -> None:
        terms, recipe = self.terms, self.terms.recipe
        dedup, limit = recipe.selection.dedup, recipe.selection.limit
        content = ContentDigests(recipe)
        parts, num_samples = [], 0
        for batch in Reading(recipe, terms.roots, item, ignore_reject).samples():
            num_samples += len(batch)
            if dedup is not None:
                parts.append(digests_of_keys(batch.keys) if dedup == "key" else content.of(batch))
            elif limit is not None and num_samples >= limit:
                num_samples = limit
                break
        storage, names, digests = open_storage(terms.destination), terms.names, b"".join(parts)
        # Each attempt has digests of its own, and what was found names them: no other attempt can get between the two.
        name = names.digests(item.index, os.urandom(8).hex()) if digests else ""
        if name:
            storage.put(name, digests)
        looked = Looked(terms.plan_digest, item.inputs_digest(), num_samples, name, hashlib.sha256(digests).hexdigest())
        terms.leave(storage, names.looked(item.index), looked.serialize())
        report(Progress(0, int(item.input_bytes * self.stored_ratio), 0))


class LookProgress:
    """Which of some partitions were looked at."""

    def __init__(self, storage: Storage, plan_digest: str, partitions: Sequence[Partition]) -> None:
        self._storage = storage
        self._plan_digest = plan_digest
        self._names = BuildNames(plan_digest)
        self._partitions = partitions
        self._known: dict[int, Looked] = {}

    def missing(self) -> list[Partition]:
        """Those that must be looked at: never yet, or with changed inputs."""
        there = listing(self._storage)

        def look(partition: Partition) -> Looked | None:
            name = self._names.looked(partition.index)
            known = self._known.get(partition.index)
            data = self._storage.get(name) if known is None and name in there else None
            found = known if data is None else Looked.parse(data)
            if found is None or (found.plan_digest, found.inputs_digest) != (self._plan_digest, partition.inputs_digest()):
                return None
            return found if not found.digests_name or found.digests_name in there else None

        found = list(at_once(self._storage, look, self._partitions))
        self._known = {partition.index: one for partition, one in zip(self._partitions, found, strict=True) if one is not None}
        return [partition for partition in self._partitions if partition.index not in self._known]

    def looked(self) -> list[Looked]:
        """All of them, in dataset order. Raises StorageError where one is missing."""
        if missing := self.missing():
            raise missing_receipt(self._storage, self._names.looked(missing[0].index))
        return [self._known[partition.index] for partition in self._partitions]
