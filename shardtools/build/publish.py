"""From staged shards and receipts to a dataset: names first, then the index files, then the manifest, then cleaning up.

Every step can be repeated, by this run or by any other of the same plan.
"""

import json
from collections.abc import Iterator, Sequence

from shardtools.build.progress import BuildProgress, Numbered, read_publishing
from shardtools.build.receipts import KEPT_PLAN_NAME, PLAN_NAME, PUBLISHING_NAME, REPLACED_NAME, Receipt
from shardtools.build.sidecars import KINDS, StoredTar, names_of, sidecar_files
from shardtools.build.write import over_budget
from shardtools.duplicates import key_digest, num_twins, repeats
from shardtools.errors import DuplicateKeyError, ShardtoolsError, StorageError, UsageError
from shardtools.manifest import (
    BUILD_FOLDER,
    MANIFEST_NAME,
    OFFSETS_NAME,
    REJECTS_NAME,
    FileEntry,
    Ledger,
    Manifest,
    ManifestError,
    ShardEntry,
)
from shardtools.plan import Plan
from shardtools.sample import Reject
from shardtools.storage import Storage, is_safe_name
from shardtools.units import Budget, plural

TAKEN_OVER = (
    "expected {} to keep this run's plan, got it removed by another run that overwrites or has finished there; "
    "let that run finish, then look at what is there before you run this command again"
)


class Publisher:
    """Publishes one plan's build; ``overwrite`` allows it to take another dataset's place."""

    def __init__(self, storage: Storage, plan: Plan, roots: Sequence[str], budget: Budget, overwrite: bool) -> None:
        self._storage = storage
        self._plan = plan
        self._roots = roots
        self._budget = budget
        self._overwrite = overwrite
        self._progress = BuildProgress(storage, plan)

    def read_manifest(self) -> Manifest | None:
        """The dataset at the destination, None if there is none, or one that is damaged and may be overwritten."""
        data = self._storage.get(MANIFEST_NAME)
        try:
            return None if data is None else Manifest.parse(data)
        except ManifestError:
            if self._overwrite:
                return None
            raise

    def published(self) -> Manifest | None:
        """The manifest of this very plan, if that is what the destination holds."""
        manifest = self.read_manifest()
        return manifest if manifest is not None and manifest.plan_digest == self._plan.digest else None

    def publish(self) -> tuple[Manifest, list[str]]:
        """Make the dataset appear. Returns its manifest and warnings.

        Raises DuplicateKeyError, BadSampleError over the budget, UsageError where another dataset was published meanwhile,
        StorageError where a shard is not what its receipt says, ShardtoolsError for a dataset without samples.
        """
        with self._storage.exclusive():
            if not self.holds_plan():
                done = self.published()
                if done is None:
                    raise StorageError(TAKEN_OVER.format(self._storage.uri))
                return done, []
            return self._publish()

    def holds_plan(self) -> bool:
        """Whether the destination still holds this plan; another run with --overwrite removes it."""
        stored = self._storage.get(PLAN_NAME)
        return stored is not None and Plan.digest_of(stored) == self._plan.digest

    def _publish(self) -> tuple[Manifest, list[str]]:
        done = None if self._overwrite else self.published()
        if done is not None:
            self.clean_up()
            return done, []
        receipts = self._progress.receipts()
        self._check_budget(receipts)
        self._refuse_repeats(receipts)
        if not any(receipt.shards for receipt in receipts):
            raise ShardtoolsError("expected at least one sample to write, got none; nothing was published")
        self._make_room()
        shards = list(self._progress.numbered(receipts))
        self._storage.put(PUBLISHING_NAME, "".join(f"{staged}\t{final}\n" for staged, final, _ in shards).encode())
        for shard in shards:
            self._move(shard)
        manifest = Manifest(
            plan_digest=self._plan.digest,
            recipe=self._plan.recipe.as_json(),
            ledger=sum((receipt.ledger for receipt in receipts), Ledger()),
            shards=tuple(map(_entry, shards)),
            files=tuple(self._put_files(receipts, shards)),
        )
        self._check_sizes(manifest)
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
            self._delete_file(name)
        self._storage.delete(REPLACED_NAME)

    def remove_unfinished(self) -> None:
        """Delete what a publication of any plan, that never came to its manifest, had given final names."""
        lines = read_publishing(self._storage)
        if lines and self.read_manifest() is None:
            index_names = {name for name in [self._plan.recipe.format.index_name, "index.json"] if name is not None}
            shard_names = [line.split("\t")[1] for line in lines]
            for name in [*shard_names, OFFSETS_NAME, REJECTS_NAME, *sorted(index_names | names_of(KINDS, shard_names))]:
                self._delete_file(name)

    def _make_room(self) -> None:
        old = self.read_manifest()
        if old is not None and not self._overwrite:
            raise UsageError(
                f"expected {self._storage.uri} to stay without a dataset during the run, got one from another run; "
                "choose another destination, or --overwrite to replace it"
            )
        if self._storage.num_bytes(MANIFEST_NAME) is not None:
            if old is None:
                self._storage.delete(MANIFEST_NAME)
            else:
                self._storage.move(MANIFEST_NAME, REPLACED_NAME)
            # Were the loss of a shard to reach the disk before this, a loss of power would leave a dataset with holes.
            self._storage.sync_names()
        self.remove_replaced()

    def _move(self, shard: Numbered) -> None:
        staged, final, what = shard
        # A target that is there without a move is another run's work, or this run's before it was killed.
        if not self._storage.move(staged, final) and not self._progress.is_right(final, what):
            raise StorageError(
                f"expected {final} in {self._storage.uri} to be the shard its receipt describes, got other bytes; "
                "run the same command again with --overwrite"
            )

    def _check_sizes(self, manifest: Manifest) -> None:
        """Another run with --overwrite may have taken something away meanwhile."""
        for name, num_bytes in manifest.sizes().items():
            if self._storage.num_bytes(name) != num_bytes:
                raise StorageError(
                    f"expected {name} in {self._storage.uri} with {num_bytes} bytes just before publication, "
                    "got another size or none; another run may be writing here: let it finish, then run again"
                )

    def _delete_file(self, name: str) -> None:
        """Manifests may come from anywhere: only files below the destination are ever deleted in their name."""
        if is_safe_name(name) and self._storage.num_bytes(name) is not None:
            self._storage.delete(name)

    def _put_files(self, receipts: Sequence[Receipt], shards: Sequence[Numbered]) -> Iterator[FileEntry]:
        for name, data in self._files(receipts, shards):
            self._storage.put(name, data)
            yield FileEntry.of(name, data)

    def _files(self, receipts: Sequence[Receipt], shards: Sequence[Numbered]) -> Iterator[tuple[str, bytes]]:
        recipe = self._plan.recipe
        facts = [(final, shard.facts) for _, final, shard in shards]
        yield OFFSETS_NAME, b"".join(shard.offsets.tobytes() for _, shard in facts)
        rejects = [reject for receipt in receipts for reject in receipt.rejects]
        if rejects:
            yield REJECTS_NAME, b"".join(map(_reject_line, rejects))
        tars = [StoredTar(final, shard.num_bytes, shard.offsets) for final, shard in facts]
        yield from sidecar_files(recipe.sidecars, self._storage.uri, tars)
        if recipe.format.index_name is not None:
            yield recipe.format.index_name, recipe.format.index(recipe.fields, recipe.limit.num_bytes, facts)

    def _check_budget(self, receipts: Sequence[Receipt]) -> None:
        ledger = sum((receipt.ledger for receipt in receipts), Ledger())
        if not self._budget.allows(ledger.num_rejected, ledger.num_read):
            raise over_budget(self._budget, next(reject for receipt in receipts for reject in receipt.rejects))

    def _refuse_repeats(self, receipts: Sequence[Receipt]) -> None:
        for digest in repeats([receipt.keys for receipt in receipts]):
            holders = [receipt for receipt in receipts if receipt.keys.between(digest, None)[:1] == [digest]]
            places = [place for receipt in holders for place in self._places(receipt, digest)]
            all_keys = [key for key, _ in places]
            if len(places) > 1 and len(set(all_keys)) == len(places):
                continue  # different keys that share a digest
            where = [place for key, place in places if all_keys.count(key) > 1] or [place for _, place in places]
            shown = f"{all_keys[0].decode()!r} from {' and from '.join(where[:2])}" if places else "one twice"
            raise DuplicateKeyError(f"expected every key once, got {shown}; take another --key field, or remove one of the samples")

    def _places(self, receipt: Receipt, digest: bytes) -> Iterator[tuple[bytes, str]]:
        """Where the samples with this key digest come from, by reading the partition's input again."""
        partition = self._plan.partitions[receipt.partition]
        for batch in self._plan.recipe.source.read(self._roots, partition.extents, lambda _: None):
            for i, key in enumerate(batch.keys):
                if key_digest(key) == digest:
                    yield key, batch.where(i)


def _entry(numbered: Numbered) -> ShardEntry:
    _, final, shard = numbered
    facts = shard.facts
    return ShardEntry(final, facts.num_bytes, facts.sha256, facts.num_samples, shard.field_sets)


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
        verb = "differs" if twins == 1 else "differ"
        warnings.append(
            f"{plural(twins, 'key')} {verb} from another only by case or Unicode form: extracting on macOS or Windows would merge them"
        )
    return warnings
