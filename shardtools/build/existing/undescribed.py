"""Shards that no manifest names: which there are, and the manifest that is made for them."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import zstandard

from shardtools.build.existing.descriptions import Descriptions
from shardtools.build.existing.examine import Candidate
from shardtools.build.existing.gather import mds_shard, natural_order, stored_form, visible_names
from shardtools.build.receipts import KEPT_PLAN_NAME
from shardtools.datasets import TAR_SUFFIXES, Shard, is_mds_name, names_shards, number_gaps, survey_dataset, tar_shard
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.formats import MDS_INDEX_NAME
from shardtools.manifest import MANIFEST_NAME, OFFSETS_NAME, FileEntry, Ledger, Manifest
from shardtools.plan import Plan, Recipe, ShardLimit
from shardtools.selection import Selection
from shardtools.storage import Storage


@dataclass(frozen=True)
class Index:
    """What stands in a recipe in place of a source where a manifest was made of shards that were there already."""

    canonical: bool
    """Every shard is laid out byte for byte as this package writes it."""


@dataclass(frozen=True)
class Undescribed:
    """The shards of a dataset without a sound manifest."""

    candidates: tuple[Candidate, ...]
    has_index: bool
    """A sound ``index.json`` names them; it stays."""
    rule: Selection = field(default_factory=Selection)
    """By what rule they came to their splits, where the plan that is kept says so."""

    def in_splits(self, storage: Storage) -> "Undescribed":
        """The same split by split, where each has the name of one of the splits that the kept plan knows."""
        stored = storage.get(KEPT_PLAN_NAME)
        rule = Selection() if stored is None else _splits_of(stored)
        order = {name: i for i, name in enumerate(rule.splits)}
        known = [replace(one, shard=replace(one.shard, split=_named_split(one.shard.name))) for one in self.candidates]
        if not all(one.shard.split in order for one in known):
            return self
        known.sort(key=lambda one: order[one.shard.split])
        return replace(self, candidates=tuple(replace(one, shard=replace(one.shard, index=i)) for i, one in enumerate(known)), rule=rule)


def undescribed_shards(storage: Storage) -> Undescribed:
    """The shards in a folder, in the order of its index, else of their names.

    Raises UsageError where there are none, or of two formats, ShardtoolsError where something is missing or has two meanings.
    """
    names = visible_names(storage.uri)
    tars = [name for name in names if name.endswith(TAR_SUFFIXES)]
    mds = [name for name in names if is_mds_name(name)]
    if tars and mds:
        raise UsageError(f"expected shards of one format in {storage.uri}, got {tars[0]} and {mds[0]}; move one kind away")
    if not tars and not mds and not _is_indexed(storage):
        raise UsageError(f"expected shards (.tar, .tar.gz, .tgz, .mds) in {storage.uri}, got none; give the folder that holds them")
    if tars:
        found = Undescribed(tuple(Candidate(storage.uri, tar_shard(i, name)) for i, name in enumerate(tars)), False).in_splits(storage)
        _refuse_gaps(storage, tars, _was_packed_here(storage), found.rule.splits)
        return found
    return _undescribed_mds(storage, mds)


def undescribed_manifest(found: Descriptions, splits: Selection, files: Sequence[FileEntry]) -> Manifest:
    """A manifest that says where it comes from: all that is known of the samples is that they are there."""
    num_samples = sum(one.facts.num_samples for one in found.examined)
    is_own_index = all(FileEntry.of(*index) in files for index in found.indices())
    source = Index(is_own_index and all(one.is_canonical for one in found.examined))
    recipe = Recipe(source, found.format, found.fields, ShardLimit(found.limit_bytes), selection=splits).as_json()
    recipe["source"] = {**recipe["source"], "name": "index"}
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode())
    for one in found.examined:
        digest.update(one.facts.sha256.encode())
    return Manifest(digest.hexdigest(), recipe, Ledger(num_samples), found.shards(), tuple(files))


def _undescribed_mds(storage: Storage, names: Sequence[str]) -> Undescribed:
    _refuse_two_forms(storage, names)
    described, has_index = _indexed(storage)
    if has_index:
        for name in names:
            if name not in described:
                raise ShardtoolsError(
                    f"expected {MDS_INDEX_NAME} in {storage.uri} to name every shard there, got {name} beside them; "
                    f"move that away, or {MDS_INDEX_NAME} to have it made anew of all shards"
                )
        return Undescribed(tuple(Candidate(storage.uri, shard) for shard in described.values()), True)
    _refuse_gaps(storage, names, True)
    every = sorted({*names, *described}, key=natural_order)
    shards = [described.get(name) or mds_shard(i, name) for i, name in enumerate(every)]
    return Undescribed(tuple(Candidate(storage.uri, shard) for shard in shards), False).in_splits(storage)


def _indexed(storage: Storage) -> tuple[dict[str, Shard], bool]:
    """The shards that indices describe, in their order, and whether the folder's own index does."""
    try:
        dataset = survey_dataset(storage.uri)
    except UsageError:
        return {}, False
    faults = [problem for problem in dataset.problems if problem.kind == "index-damaged"]
    own = [problem for problem in faults if problem.name == MDS_INDEX_NAME]
    if any(problem.is_fatal for problem in own):
        return {}, False
    for problem in faults:
        raise ShardtoolsError(
            f"expected a sound index, or none, got {problem.name} in {storage.uri} with this fault: {problem.detail}; "
            "move it away to have the shards indexed without it"
        )
    described = [stored_form(shard) for shard in dataset.shards if shard.entry is not None]
    return {shard.name: shard for shard in described}, _is_indexed(storage)


def _is_indexed(storage: Storage) -> bool:
    return names_shards(storage.get(MDS_INDEX_NAME) or b"")


def _refuse_two_forms(storage: Storage, names: Sequence[str]) -> None:
    known = set(names)
    for name in names:
        raw = name.removesuffix(".zstd")
        if raw != name and raw in known:
            raise ShardtoolsError(
                f"expected one form of every shard in {storage.uri}, got {raw} beside {name}, as StreamingDataset leaves it; "
                "delete the unpacked copies"
            )


def _splits_of(stored_plan: bytes) -> Selection:
    try:
        return Plan.split_rule_of(stored_plan)
    except (zstandard.ZstdError, LookupError, TypeError, ValueError):
        return Selection()  # it is no part of the dataset, and may be anything


def _named_split(name: str) -> str:
    folder, _, base = name.rpartition("/")
    return folder or base.rpartition("-")[0]


def _refuse_gaps(storage: Storage, names: Sequence[str], from_zero: bool, splits: Sequence[str] = ()) -> None:
    # The names this package, MDSWriter and most ShardWriters give.
    heads = "|".join([r"shard\.", *(f"{split}-" for split in splits or ["train"])])
    numbered = re.compile(rf"(?:.*/)?(?:{heads})[0-9]{{5,18}}\.(?:tar|mds)(?:\.[a-z0-9]+)?", re.DOTALL)
    for _, gap in number_gaps(filter(numbered.fullmatch, names), True, from_zero):
        raise ShardtoolsError(f"{gap}; restore it in {storage.uri}, or renumber the others if there never was one")


def _was_packed_here(storage: Storage) -> bool:
    """Whether something that only this package leaves lies there."""
    return any(storage.num_bytes(name) is not None for name in (MANIFEST_NAME, OFFSETS_NAME, KEPT_PLAN_NAME))
