"""One dataset of several: their shards as they are, under new numbers, published by the same protocol as a build."""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from shardtools.build.destination import Destination
from shardtools.build.existing.admit import refuse_repeats, sound_shards
from shardtools.build.existing.columns import MergedColumns, common_columns
from shardtools.build.existing.examine import Candidate, Examined
from shardtools.build.existing.merge_inputs import MergeInput, merge_inputs, refuse_nested, sidecar_notes
from shardtools.build.existing.schema import Group, one_schema
from shardtools.build.existing.split_rule import one_split_rule
from shardtools.build.existing.stage import StageItem, StageShard
from shardtools.build.existing.token_recipes import TokenRecipe, are_rows_numbered, one_token_recipe
from shardtools.build.progress import BuildProgress
from shardtools.build.publish import Publisher
from shardtools.build.workers import fitting_engine
from shardtools.engines import Engine, Progress
from shardtools.errors import ShardtoolsError, StorageError, UsageError
from shardtools.extents import extent
from shardtools.formats.mds import Mds
from shardtools.manifest import Ledger, Manifest
from shardtools.places import Listing, is_here, place_of
from shardtools.plan import Partition, Plan, Recipe, ShardLimit
from shardtools.selection import Selection
from shardtools.storage import Storage, Stored, open_storage
from shardtools.units import Budget

# What the inputs' own runs set aside was within their budgets.
_ANY_REJECTS = Budget.parse("100%")


@dataclass(frozen=True)
class Merge:
    """What a merged dataset is made of, in place of a source in its recipe."""

    inputs: tuple[dict[str, Any], ...]
    """For each, in order: the digest of its plan (None without a manifest), how many shards, and the SHA-256 over theirs."""
    canonical: bool
    """Every shard is laid out byte for byte as this package writes it."""

    def read(self, *_: object) -> Iterator[Any]:
        """Nothing: keys that occur twice are looked for in the shards, before anything is planned."""
        return iter(())


@dataclass(frozen=True)
class MergeOfColumns(Merge):
    """The same of samples made of the columns of a table."""

    layout: MergedColumns


@dataclass(frozen=True)
class MergeOfTokens(Merge):
    """The same of rows of tokens."""

    transforms: tuple[TokenRecipe, ...]
    """What made them has in common, None where it differs. It is no recipe to run again: each input had a source of its own."""


@dataclass(frozen=True)
class MergeOptions:
    """How the work is done. Nothing here changes a published byte."""

    workers: int | None = None
    """Worker processes; None: all cores where there is enough to read, else none."""
    overwrite: bool = False
    link: bool = False
    """Hard links in place of copies: no bytes are moved, and a shard that is changed in place changes in both datasets."""


@dataclass(frozen=True)
class MergeListener:
    """Callbacks into whoever shows what happens."""

    on_inputs: Callable[[int], None] = lambda _: None
    """The bytes that will be read, and those that will be copied."""
    on_progress: Callable[[Progress], None] = lambda _: None


@dataclass(frozen=True)
class Merged:
    """What a merge did."""

    manifest: Manifest
    already_complete: bool
    num_inputs: int
    """Datasets found in the sources."""
    warnings: list[str]
    seconds: float


def merge(
    sources: Sequence[str], destination: str, options: MergeOptions = MergeOptions(), listener: MergeListener = MergeListener()
) -> Merged:
    """Make one dataset at ``destination`` of all that the sources hold, in the order given, or finish what an earlier run began.

    The bytes depend on the inputs and their order alone. Every shard is read and checked before anything is written. Raises
    UsageError, UnsoundShardsError, DuplicateKeyError, StorageError, and ShardtoolsError for what cannot be one dataset.
    """
    began = time.monotonic()
    storage = open_storage(destination)
    refuse_nested(sources, storage)
    _refuse_links(options, [storage.uri, *map(place_of, sources)])
    inputs = merge_inputs(sources)
    transforms, splits = one_token_recipe(inputs), one_split_rule(inputs)
    found = [_Found.of(candidate, listing) for one in inputs for listing in [one.listing()] for candidate in one.part.candidates]
    shard_bytes = [one.num_bytes for one in found]
    listener.on_inputs(sum(shard_bytes) * (1 if options.link else 2))
    candidates = [candidate for one in inputs for candidate in one.part.candidates]
    notes = [*(note for one in inputs for note in one.part.notes), *sidecar_notes(inputs, storage.uri)]
    with fitting_engine(options.workers, shard_bytes) as engine:
        examined = sound_shards(candidates, engine, listener.on_progress)
        plan, items = _planned(inputs, examined, transforms, splits)
        items = [replace(item, listed=one.listed) for item, one in zip(items, found, strict=True)]
        # Columns that differ tell more of what went wrong than keys that clash.
        refuse_repeats(examined, *_remedies(plan))
        publisher = Publisher(storage, plan, (), _ANY_REJECTS, options.overwrite)
        place = Destination(storage, plan, publisher)
        if not options.overwrite and (finished := place.finished()) is not None:
            return Merged(finished, True, len(inputs), notes, time.monotonic() - began)
        manifest, warnings = _publish(place, publisher, _Work(storage, plan, items, engine, listener.on_progress), options)
    return Merged(manifest, False, len(inputs), [*notes, *warnings], time.monotonic() - began)


class _Found(NamedTuple):
    """One shard before it is looked at."""

    num_bytes: int
    """0 for one that is not there."""
    listed: Stored | None
    """As its storage lists it, where it does."""

    @classmethod
    def of(cls, candidate: Candidate, listing: Listing) -> "_Found":
        return cls(listing.num_bytes(candidate.shard.name) or 0, listing.entry(candidate.shard.name))


def _refuse_links(options: MergeOptions, places: Sequence[str]) -> None:
    elsewhere = [place for place in places if not is_here(place)]
    if options.link and elsewhere:
        raise UsageError(f"expected folders of this machine with --link, got {elsewhere[0]}; leave --link out")


@dataclass(frozen=True)
class _Work:
    storage: Storage
    plan: Plan
    items: list[StageItem]
    engine: Engine
    on_progress: Callable[[Progress], None]

    def stage(self, link: bool) -> None:
        """Stage the shards that are not there yet."""
        missing = {partition.index for partition in BuildProgress(self.storage, self.plan).missing()}
        task = StageShard(self.storage.uri, self.plan.digest, link)
        self.engine.run(task, [item for item in self.items if item.partition in missing], self.on_progress)
        # The receipts have it all; publication holds those.
        self.items.clear()


def _publish(place: Destination, publisher: Publisher, work: _Work, options: MergeOptions) -> tuple[Manifest, list[str]]:
    try:
        place.prepare(options.overwrite)
        work.stage(options.link)
        return publisher.publish()
    except ShardtoolsError as error:
        overtaking = place.taken_over(options.overwrite) if isinstance(error, StorageError) else None
        if overtaking is None:
            place.forget_if_empty()
            raise
        return overtaking, []


def _remedies(plan: Plan) -> tuple[str, ...]:
    """What to do about keys that occur twice, where it is not to remove a sample."""
    source = plan.recipe.source
    if not isinstance(source, MergeOfTokens) or not are_rows_numbered(source.transforms):
        return ()
    or_none = ", or each with --key-column none" if isinstance(plan.recipe.format, Mds) else ""
    return (f"rows of tokens are numbered alike in every dataset: pack all sources in one run{or_none}",)


def _planned(
    inputs: Sequence[MergeInput], examined: Sequence[Examined], transforms: tuple[TokenRecipe, ...], splits: Selection
) -> tuple[Plan, list[StageItem]]:
    groups = _groups(inputs, examined)
    plan = _plan(inputs, groups, transforms, splits)
    return plan, _items(inputs, groups, plan)


def _groups(inputs: Sequence[MergeInput], examined: Sequence[Examined]) -> list[Group]:
    """The examined shards of each input. Raises ShardtoolsError where an input's ledger does not count them."""
    groups, begin = [], 0
    for one in inputs:
        own = examined[begin : begin + len(one.part.candidates)]
        begin += len(own)
        num_samples = sum(shard.facts.num_samples for shard in own)
        if one.ledger is not None and one.ledger.num_stored != num_samples:
            raise ShardtoolsError(
                f"expected the {one.ledger.num_stored:,} samples that the manifest in {one.part.folder} counts, got {num_samples:,}; "
                f"shardtools verify {one.part.folder} shows what is wrong"
            )
        groups.append(Group(own, one.fields))
    return groups


def _plan(inputs: Sequence[MergeInput], groups: Sequence[Group], transforms: tuple[TokenRecipe, ...], splits: Selection) -> Plan:
    """A partition for each shard; what names it is where it lies in its source and what its bytes are."""
    schema = one_schema(groups)
    described = tuple(_description(one, group) for one, group in zip(inputs, groups, strict=True))
    canonical = all(one.is_canonical for group in groups for one in group.examined)
    columns = common_columns(inputs)
    plain = Merge(described, canonical) if columns is None else MergeOfColumns(described, canonical, columns)
    source = MergeOfTokens(described, canonical, transforms) if transforms else plain
    recipe = Recipe(source, schema.format, schema.fields, ShardLimit(), selection=splits)
    partitions: list[Partition] = []
    for one, group in zip(inputs, groups, strict=True):
        for shard in group.examined:
            facts = shard.facts
            packed = extent([one.name_of(shard.candidate), facts.sha256.encode()], b"")
            partitions.append(Partition(len(partitions), [packed], facts.num_bytes, facts.num_samples, 1))
    return Plan.make(recipe, partitions)


def _description(one: MergeInput, group: Group) -> dict[str, Any]:
    shards = hashlib.sha256("".join(shard.facts.sha256 for shard in group.examined).encode()).hexdigest()
    manifest = one.part.dataset.manifest
    return {"plan": None if manifest is None else manifest.plan_digest, "shards": len(group.examined), "sha256": shards}


def _items(inputs: Sequence[MergeInput], groups: Sequence[Group], plan: Plan) -> list[StageItem]:
    items: list[StageItem] = []
    for one, group in zip(inputs, groups, strict=True):
        for k, shard in enumerate(group.examined):
            partition = plan.partitions[len(items)]
            ledger = _ledger(one.ledger or Ledger(), shard.facts.num_samples, is_first=k == 0)
            items.append(StageItem(partition.index, partition.inputs_digest(), shard, ledger, one.rejects() if k == 0 else ()))
    return items


def _ledger(whole: Ledger, num_samples: int, is_first: bool) -> Ledger:
    """One shard's part of its dataset's ledger: what cannot be told by shards is counted with the first."""
    part = whole if is_first else Ledger()
    # Where transforms made the samples, the number that was read and written is of something else.
    return replace(part, num_written=num_samples) if whole.num_rows is None else replace(part, num_rows=num_samples)
