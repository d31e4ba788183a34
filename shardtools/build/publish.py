"""From staged shards and receipts to a dataset: names first, then the index files, then the manifest, then cleaning up.

Every step can be repeated, by this run or by any other of the same plan.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

from shardtools.build.attempts import refuse_nothing, refuse_over_budget
from shardtools.build.indices import IndexedShard, index_files
from shardtools.build.numbering import TAKEN_OVER
from shardtools.build.placing import place_shards
from shardtools.build.progress import BuildProgress, Numbered, listed, listing, read_publishing
from shardtools.build.reading import Reading
from shardtools.build.receipts import FINAL_NAMES_NAME, KEPT_PLAN_NAME, PLAN_NAME, PUBLISHING_NAME, REPLACED_NAME, Receipt
from shardtools.build.sidecars import KINDS, StoredTar, names_of, sidecar_files
from shardtools.duplicates import key_digest, num_twins, repeats
from shardtools.errors import DuplicateKeyError, StorageError, UsageError
from shardtools.formats import index_place
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
from shardtools.places import at_once
from shardtools.plan import Plan
from shardtools.sample import Reject
from shardtools.storage import Storage, is_safe_name
from shardtools.units import Budget, plural


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

    def publish(self, progress: BuildProgress | None = None, reads: Sequence[Receipt] = ()) -> tuple[Manifest, list[str]]:
        """Make the dataset appear. Returns its manifest and warnings.

        ``progress`` is of what shards were built from; None: of the plan's partitions. ``reads`` are the receipts of a pass before,
        where that one read the input.

        Raises DuplicateKeyError, BadSampleError over the budget, UsageError where another dataset was published meanwhile,
        StorageError where a shard is not what its receipt says, ShardtoolsError for a dataset without samples.
        """
        with self._storage.exclusive():
            if not self.holds_plan():
                done = self.published()
                if done is None:
                    raise StorageError(TAKEN_OVER.format(self._storage.uri))
                return done, self.clean_up()
            return self._publish(progress or self._progress, reads)

    def holds_plan(self) -> bool:
        """Whether the destination still holds this plan; another run with --overwrite removes it."""
        stored = self._storage.get(PLAN_NAME)
        return stored is not None and Plan.digest_of(stored) == self._plan.digest

    def _publish(self, progress: BuildProgress, reads: Sequence[Receipt]) -> tuple[Manifest, list[str]]:
        built = progress.receipts()
        receipts = [*reads, *built]
        refuse_over_budget(self._budget, receipts)
        self.refuse_repeats(receipts)
        refuse_nothing(receipts)
        old = self.read_manifest()
        if old is not None and not self._overwrite and old.plan_digest == self._plan.digest:
            return old, self.clean_up()
        self._make_room(old)
        shards = progress.numbered(built)
        self._storage.put(PUBLISHING_NAME, listed({staged: final for staged, final, _ in shards}))
        place_shards(self._storage, progress, shards)
        manifest = Manifest(
            plan_digest=self._plan.digest,
            recipe=self._plan.recipe.as_json(),
            ledger=sum((receipt.ledger for receipt in receipts), Ledger()),
            shards=tuple(map(_entry, shards)),
            files=tuple(self._put_files(receipts, shards)),
        )
        self._check_sizes(manifest)
        self._storage.put(MANIFEST_NAME, manifest.serialize())
        return manifest, [*_warnings(receipts), *_empty_splits(manifest), *self.clean_up()]

    def clean_up(self) -> list[str]:
        """Remove what is left of this plan's build once it is published; another plan's is left alone. Returns warnings."""
        stored = self._storage.get(PLAN_NAME)
        if stored is not None and Plan.digest_of(stored) != self._plan.digest:
            return []
        if stored is not None:
            self._storage.move(PLAN_NAME, KEPT_PLAN_NAME)
        warnings = []
        try:
            # Uploads of runs that were killed, too: whoever still builds this plan finds that it is done.
            self._storage.discard_unfinished()
        except StorageError as error:  # the dataset is there; to list uploads takes a permission of its own
            warnings.append(f"the dataset is complete, but what killed runs left unfinished may still take space: {error}")
        self._storage.delete(BUILD_FOLDER)
        return warnings

    def remove_replaced(self) -> None:
        """Delete the dataset that is being overwritten, first what makes it one.

        Until all its files are gone its manifest is kept aside, and no new file has its final name yet, so a run that
        is killed in between can go on.
        """
        data = self._storage.get(REPLACED_NAME)
        if data is None:
            return
        self._delete_files(Manifest.parse(data).names())
        self._storage.delete(REPLACED_NAME)

    def remove_unfinished(self) -> None:
        """Delete what a publication of any plan, that never came to its manifest, had given final names."""
        lines = read_publishing(self._storage)
        if lines and self.read_manifest() is None:
            shard_names = [line.split("\t")[1] for line in lines]
            # The list does not say whether there were splits: of MDS one is a folder, of WDS what stands before the number.
            folders, stems = ({"", *(name.rpartition(mark)[0] for name in shard_names)} for mark in "/-")
            others = set(map(index_place, folders)) | names_of(KINDS, shard_names, stems)
            # Workers of a run that still lives give no more of them.
            self._storage.delete(FINAL_NAMES_NAME)
            self._storage.discard_unfinished()
            self._delete_files([*shard_names, OFFSETS_NAME, REJECTS_NAME, *sorted(others)])

    def _make_room(self, old: Manifest | None) -> None:
        if old is not None and not self._overwrite:
            raise UsageError(
                f"expected {self._storage.uri} to stay without a dataset during the run, got one from another run; "
                "choose another destination, or --overwrite to replace it"
            )
        # Buckets have no locks: without --overwrite, what is there now is another run's of the same plan.
        if self._overwrite and self._storage.num_bytes(MANIFEST_NAME) is not None:
            if old is None:
                self._storage.delete(MANIFEST_NAME)
            else:
                self._storage.move(MANIFEST_NAME, REPLACED_NAME)
            # Were the loss of a shard to reach the disk before this, a loss of power would leave a dataset with holes.
            self._storage.sync()
        self.remove_replaced()

    def _check_sizes(self, manifest: Manifest) -> None:
        """Another run with --overwrite may have taken something away meanwhile."""
        there = listing(self._storage)
        for name, num_bytes in manifest.sizes().items():
            if name not in there or there[name].num_bytes != num_bytes:
                raise StorageError(
                    f"expected {name} in {self._storage.uri} with {num_bytes} bytes just before publication, "
                    "got another size or none; another run may be writing here: let it finish, then run again"
                )

    def _delete_files(self, names: Iterable[str]) -> None:
        """Manifests may come from anywhere: only files below the destination are ever deleted in their name."""
        there = listing(self._storage)
        doomed = [name for name in dict.fromkeys(names) if is_safe_name(name) and name in there]
        # First what makes them a dataset.
        for is_index in (True, False):
            list(at_once(self._storage, self._storage.delete, [name for name in doomed if name.endswith(".json") == is_index]))

    def _put_files(self, receipts: Sequence[Receipt], shards: Sequence[Numbered]) -> Iterator[FileEntry]:
        for name, data in self._files(receipts, shards):
            self._storage.put(name, data)
            yield FileEntry.of(name, data)

    def _files(self, receipts: Sequence[Receipt], shards: Sequence[Numbered]) -> Iterator[tuple[str, bytes]]:
        recipe = self._plan.recipe
        indexed = [IndexedShard(shard.split, final, shard.facts) for _, final, shard in shards]
        yield OFFSETS_NAME, b"".join(one.facts.offsets.tobytes() for one in indexed)
        rejects = [reject for receipt in receipts for reject in receipt.rejects]
        if rejects:
            yield REJECTS_NAME, b"".join(map(_reject_line, rejects))
        tars = [StoredTar(one.name, one.facts.num_bytes, one.facts.offsets, one.split) for one in indexed]
        yield from sidecar_files(recipe.sidecars, self._storage.uri, tars)
        yield from index_files(recipe.format, recipe.fields, recipe.limit.num_bytes, indexed)

    def refuse_repeats(self, receipts: Sequence[Receipt]) -> None:
        """Raises DuplicateKeyError that names two places, for receipts of partitions in which a key repeats."""
        for digest in repeats([receipt.keys for receipt in receipts]):
            holders = [receipt for receipt in receipts if receipt.keys.between(digest, None)[:1] == [digest]]
            places = [place for receipt in holders for place in self._places(receipt, digest)]
            all_keys = [key for key, _ in places]
            if len(places) > 1 and len(set(all_keys)) == len(places):
                continue  # different keys that share a digest
            where = [place for key, place in places if all_keys.count(key) > 1] or [place for _, place in places]
            shown = f"{all_keys[0].decode()!r} from {' and from '.join(where[:2])}" if places else "one twice"
            remedy = "take another --key field, keep the first alone with --dedup key, or remove one of the samples"
            raise DuplicateKeyError(f"expected every key once, got {shown}; {remedy}")

    def _places(self, receipt: Receipt, digest: bytes) -> Iterator[tuple[bytes, str]]:
        """Where the samples with this key digest come from, by reading the partition's input again, but for those that steps leave out."""
        partition = self._plan.partitions[receipt.partition]
        for batch in Reading(self._plan.recipe, self._roots, partition, lambda _: None).samples():
            for i, key in enumerate(batch.keys):
                if key_digest(key) == digest:
                    yield key, batch.where(i)


def _entry(numbered: Numbered) -> ShardEntry:
    _, final, shard = numbered
    facts = shard.facts
    return ShardEntry(final, facts.num_bytes, facts.sha256, facts.num_samples, shard.field_sets, shard.split)


def _reject_line(reject: Reject) -> bytes:
    content = {"where": reject.where, "reason": reject.reason, "sentence": reject.sentence, "head": reject.head.decode("latin-1")}
    return json.dumps(content).encode() + b"\n"


def _empty_splits(manifest: Manifest) -> list[str]:
    there = {shard.split for shard in manifest.shards}
    return [f"the split {split} has no sample, and no shard" for split in manifest.splits if split not in there]


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
