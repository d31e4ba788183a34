"""From staged shards and receipts to a dataset: names first, then the index files, then the manifest, then cleaning up.

Every step can be repeated, by this run or by any other of the same plan.
"""

import json
from collections.abc import Iterator, Sequence

from shardtools.build.receipts import (
    KEPT_PLAN_NAME,
    PLAN_NAME,
    PUBLISHING_NAME,
    REPLACED_NAME,
    Receipt,
    StagedShard,
    receipt_name,
    staged_name,
)
from shardtools.build.write import over_budget
from shardtools.duplicates import key_digest, num_twins, repeats
from shardtools.errors import DuplicateKeyError, ShardtoolsError, StorageError
from shardtools.manifest import BUILD_FOLDER, MANIFEST_NAME, OFFSETS_NAME, REJECTS_NAME, FileEntry, Ledger, Manifest, ShardEntry
from shardtools.plan import Partition, Plan
from shardtools.sample import Reject
from shardtools.storage import Storage
from shardtools.units import Budget, plural


class Publisher:
    """Publishes one plan's build."""

    def __init__(self, storage: Storage, plan: Plan, roots: Sequence[str], budget: Budget) -> None:
        self._storage = storage
        self._plan = plan
        self._roots = roots
        self._budget = budget

    def read_manifest(self) -> Manifest | None:
        """The dataset at the destination, None if there is none."""
        data = self._storage.get(MANIFEST_NAME)
        return None if data is None else Manifest.parse(data)

    def published(self) -> Manifest:
        """The dataset at the destination. Raises ShardtoolsError if there is none."""
        manifest = self.read_manifest()
        if manifest is None:
            raise ShardtoolsError(f"expected a dataset in {self._storage.uri}, got no {MANIFEST_NAME}")
        return manifest

    def is_published(self) -> bool:
        """Whether the destination holds the dataset of this very plan."""
        manifest = self.read_manifest()
        return manifest is not None and manifest.plan_digest == self._plan.digest

    def missing(self) -> list[Partition]:
        """The partitions that must be built: no receipt, changed inputs, or a shard that is not there as received."""
        names = self._final_names()
        return [partition for partition in self._plan.partitions if not self._is_built(partition, names)]

    def publish(self, old: Manifest | None) -> tuple[Manifest, list[str]]:
        """Make the dataset appear, in place of ``old`` if given. Returns its manifest and warnings.

        Raises DuplicateKeyError, BadSampleError over the budget, ShardtoolsError for a dataset without samples.
        """
        receipts = [self._receipt(partition) for partition in self._plan.partitions]
        self._check_budget(receipts)
        self._refuse_repeats(receipts)
        if not any(receipt.shards for receipt in receipts):
            raise ShardtoolsError("expected at least one sample to write, got none; nothing was published")
        if old is not None:
            self._storage.move(MANIFEST_NAME, REPLACED_NAME)
            # Were the loss of a shard to reach the disk before this, a loss of power would leave a dataset with holes.
            self._storage.sync_names()
        self.remove_replaced()
        shards = list(self._numbered(receipts))
        names = [name for _, name, _ in shards] + [OFFSETS_NAME, REJECTS_NAME, self._plan.recipe.format.index_name or OFFSETS_NAME]
        self._storage.put(PUBLISHING_NAME, "\n".join(names).encode())
        for (partition, k), name, _ in shards:
            self._storage.move(staged_name(partition, k), name)
        manifest = Manifest(
            plan_digest=self._plan.digest,
            recipe=self._plan.recipe.as_json(),
            ledger=sum((receipt.ledger for receipt in receipts), Ledger()),
            shards=tuple(_entry(name, shard) for _, name, shard in shards),
            files=tuple(self._put_files(receipts, [(name, shard) for _, name, shard in shards])),
        )
        self._storage.put(MANIFEST_NAME, manifest.serialize())
        self.clean_up()
        return manifest, _warnings(receipts)

    def clean_up(self) -> None:
        """Remove what is left of this plan's build once it is published; another plan's is left alone."""
        stored = self._storage.get(PLAN_NAME)
        if stored is not None and Plan.digest_of(stored) != self._plan.digest:
            return
        if stored is not None:
            self._storage.move(PLAN_NAME, KEPT_PLAN_NAME)
        self._storage.delete(BUILD_FOLDER)

    def _receipt(self, partition: Partition) -> Receipt:
        receipt = self._read_receipt(partition.index)
        if receipt is None:
            raise StorageError(
                f"expected the receipt of partition {partition.index} in {self._storage.uri}/{receipt_name(partition.index)}, "
                "got none; another run may be overwriting this destination: let it finish, then run again"
            )
        return receipt

    def _read_receipt(self, index: int) -> Receipt | None:
        data = self._storage.get(receipt_name(index))
        receipt = None if data is None else Receipt.parse(data)
        return receipt if receipt is not None and receipt.plan_digest == self._plan.digest else None

    def _final_names(self) -> dict[tuple[int, int], str]:
        """The final names that are known: shards are numbered through, so one missing receipt ends them."""
        receipts = []
        for partition in self._plan.partitions:
            receipt = self._read_receipt(partition.index)
            if receipt is None:
                return {}
            receipts.append(receipt)
        return {place: name for place, name, _ in self._numbered(receipts)}

    def _is_built(self, partition: Partition, names: dict[tuple[int, int], str]) -> bool:
        receipt = self._read_receipt(partition.index)
        if receipt is None or receipt.inputs_digest != partition.inputs_digest():
            return False
        return all(
            any(
                self._storage.num_bytes(name) == shard.facts.num_bytes and self._storage.sha256(name) == shard.facts.sha256
                for name in (staged_name(partition.index, k), names.get((partition.index, k)))
                if name is not None
            )
            for k, shard in enumerate(receipt.shards)
        )

    def _numbered(self, receipts: Sequence[Receipt]) -> Iterator[tuple[tuple[int, int], str, StagedShard]]:
        """Every shard in dataset order: its (partition, k), its final name, what it is."""
        width = len(str(max(sum(len(receipt.shards) for receipt in receipts) - 1, 0)))
        number = 0
        for receipt in receipts:
            for k, shard in enumerate(receipt.shards):
                yield (receipt.partition, k), self._plan.recipe.format.shard_name(number, width), shard
                number += 1

    def _put_files(self, receipts: Sequence[Receipt], shards: Sequence[tuple[str, StagedShard]]) -> Iterator[FileEntry]:
        recipe = self._plan.recipe
        offsets = b"".join(shard.facts.offsets.tobytes() for _, shard in shards)
        files = {OFFSETS_NAME: offsets}
        rejects = [reject for receipt in receipts for reject in receipt.rejects]
        if rejects:
            files[REJECTS_NAME] = b"".join(map(_reject_line, rejects))
        if recipe.format.index_name is not None:
            facts = [(name, shard.facts) for name, shard in shards]
            files[recipe.format.index_name] = recipe.format.index(recipe.fields, recipe.limit.num_bytes, facts)
        for name, data in files.items():
            self._storage.put(name, data)
            yield FileEntry.of(name, data)

    def remove_replaced(self) -> None:
        """Delete the dataset that is being overwritten, first what makes it one.

        Until all its files are gone its manifest is kept aside, and no new file has its final name yet, so a run that
        is killed in between can go on.
        """
        data = self._storage.get(REPLACED_NAME)
        if data is None:
            return
        names = Manifest.parse(data).names()
        for name in sorted(names, key=lambda name: not name.endswith(".json")):
            self._storage.delete(name)
        self._storage.delete(REPLACED_NAME)

    def remove_unfinished(self) -> None:
        """Delete what a publication that never came to its manifest had given final names."""
        data = self._storage.get(PUBLISHING_NAME)
        if data is not None and self.read_manifest() is None:
            for name in data.decode().splitlines():
                self._storage.delete(name)

    def _check_budget(self, receipts: Sequence[Receipt]) -> None:
        ledger = sum((receipt.ledger for receipt in receipts), Ledger())
        if not self._budget.allows(ledger.num_rejected, ledger.num_read):
            raise over_budget(self._budget, next(reject for receipt in receipts for reject in receipt.rejects))

    def _refuse_repeats(self, receipts: Sequence[Receipt]) -> None:
        for digest in repeats([receipt.keys for receipt in receipts]):
            places = [
                place for receipt in receipts if digest in receipt.keys.between(digest, None)[:1] for place in self._places(receipt, digest)
            ]
            keys = {key for key, _ in places}
            if len(keys) == len(places):
                continue  # different keys that share a digest
            key = next(key for key in sorted(keys) if sum(key == other for other, _ in places) > 1)
            where = [place for other, place in places if other == key]
            raise DuplicateKeyError(
                f"expected every key once, got {key.decode()!r} from {where[0]} and from {where[1]}; "
                "take another --key field, or remove one of the samples"
            )

    def _places(self, receipt: Receipt, digest: bytes) -> Iterator[tuple[bytes, str]]:
        """Where the samples with this key digest come from, by reading the partition's input again."""
        partition = self._plan.partitions[receipt.partition]
        for batch in self._plan.recipe.source.read(self._roots, partition.extents, lambda _: None):
            for i, key in enumerate(batch.keys):
                if key_digest(key) == digest:
                    yield key, batch.where(i)


def _entry(name: str, shard: StagedShard) -> ShardEntry:
    facts = shard.facts
    return ShardEntry(name, facts.num_bytes, facts.sha256, facts.num_samples, shard.field_sets)


def _reject_line(reject: Reject) -> bytes:
    content = {"where": reject.where, "reason": reject.reason, "sentence": reject.sentence, "head": reject.head.decode("latin-1")}
    return json.dumps(content).encode() + b"\n"


def _warnings(receipts: Sequence[Receipt]) -> list[str]:
    warnings = []
    oversize = [key for receipt in receipts for key in receipt.oversize_keys]
    if oversize:
        warnings.append(f"{plural(len(oversize), 'sample')} above the shard size got a shard of its own, the first is {oversize[0]}")
    twins = num_twins([receipt.keys for receipt in receipts], [receipt.folded_keys for receipt in receipts])
    if twins:
        warnings.append(
            f"{plural(twins, 'key')} differ from another only by case or Unicode form: extracting on macOS or Windows would merge them"
        )
    return warnings
