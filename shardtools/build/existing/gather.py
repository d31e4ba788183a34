"""Which datasets a folder holds, at any depth, and in which order: what is missing or unclear is refused, never passed over."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from shardtools.build.existing.examine import Candidate
from shardtools.build.receipts import PLAN_NAME
from shardtools.datasets import (
    TAR_SUFFIXES,
    Dataset,
    Shard,
    is_mds_name,
    is_safe_name,
    is_shard_name,
    mds_compression,
    names_shards,
    number_gaps,
    survey_dataset,
    tar_shard,
)
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.formats import MDS_INDEX_NAME
from shardtools.formats.mds import Mds
from shardtools.manifest import MANIFEST_NAME
from shardtools.places import Listing, is_folder, is_here, is_there, join, place_of
from shardtools.storage import open_storage, sentence_of

_DIGITS = re.compile(r"([0-9]+)")

_Entries = Callable[[str], tuple[list[str], list[str]]]
"""Names of a folder's files and of its folders, in natural order, hidden ones left out."""
NaturalOrder = tuple[tuple[str | int, ...], ...]


def natural_order(name: str) -> tuple[NaturalOrder, str]:
    """A sort key: folder by folder, runs of digits as numbers (``2`` before ``10``), other text by its characters."""
    parts = (_DIGITS.split(part) for part in name.split("/"))
    # Text and digits alternate, beginning with text: like is compared with like.
    return tuple(tuple(int(piece) if i % 2 else piece for i, piece in enumerate(part)) for part in parts), name


@dataclass(frozen=True)
class Part:
    """One dataset among those that a folder holds."""

    folder: str
    """Its place."""
    dataset: Dataset
    candidates: tuple[Candidate, ...]
    """Its shards, in dataset order."""
    notes: tuple[str, ...] = ()
    """What is odd about it, and no reason to stop."""


def find_parts(uri: str) -> list[Part]:
    """The datasets in a folder: itself where a manifest or ``index.json`` describes it, else its own tars, then its folders'.

    Folders come in natural order, hidden ones are left out. Raises UsageError where there is none, ShardtoolsError for shards that
    nothing describes and for a build that is not finished.
    """
    root = place_of(uri)
    if not is_folder(root):
        raise UsageError(f"expected the folder of a dataset at {root}, got {'a file' if is_there(root) else 'nothing of that name'}")
    found = list(_walk(root, (), _entries if is_here(root) else _listed_entries(root)))
    if not found:
        raise UsageError(f"expected a dataset in {root} or in its folders, got none; give the folder that holds the shards")
    return found


def stored_form(shard: Shard) -> Shard:
    """The shard in the form its dataset keeps: compressed where its index says so, since the other is then a reader's copy."""
    entry = shard.entry
    if entry is None or entry.compressed is None:
        return shard
    return replace(shard, name=entry.compressed.name, num_bytes=entry.compressed.num_bytes, compression=entry.config["compression"])


def mds_shard(index: int, name: str) -> Shard:
    """An MDS shard that no index describes."""
    return Shard(index, name, Mds(key_column=None), None, None, mds_compression(name))


def visible_names(uri: str) -> list[str]:
    """Every file below the folder that is not hidden, in natural order."""
    names = (name for name in open_storage(uri).names() if not name.startswith(".") and "/." not in name)
    return sorted(names, key=natural_order)


def real_place(place: str) -> str:
    """The same for all names of a folder: links are followed where there are any."""
    return os.path.realpath(place) if is_here(place) else place


def _walk(folder: str, above: Sequence[str], entries: _Entries) -> Iterator[Part]:
    real = real_place(folder)
    if real in above:
        raise UsageError(f"expected folders that end, got {folder}, a link to a folder above it; remove the link")
    described = _described(folder)
    if described is not None:
        yield described
        return
    files, folders = entries(folder)
    if (unknown := next(filter(is_mds_name, files), None)) is not None:
        raise ShardtoolsError(
            f"expected an {MDS_INDEX_NAME} beside the shards in {folder}, got {unknown} without one, as a killed writer leaves it; "
            f"run shardtools index {folder} if all its shards are there"
        )
    tars = [name for name in files if name.endswith(TAR_SUFFIXES)]
    if tars:
        shards = tuple(tar_shard(i, name) for i, name in enumerate(tars))
        dataset = Dataset(folder, "wds", (), shards, None)
        # Others may number their shards as they like, so a gap alone proves nothing.
        notes = tuple(f"{gap} in {folder}" for _, gap in number_gaps(tars))
        yield Part(folder, dataset, tuple(Candidate(folder, shard) for shard in shards), notes)
    for name in folders:
        yield from _walk(join(folder, name), (*above, real), entries)


def _entries(folder: str) -> tuple[list[str], list[str]]:
    """Names of files and of folders, hidden ones left out, links followed."""
    files: list[str] = []
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    (folders if entry.is_dir() else files).append(entry.name)
    except OSError as error:
        raise ShardtoolsError(sentence_of("list", folder, error)) from error
    return sorted(files, key=natural_order), sorted(folders, key=natural_order)


def _listed_entries(root: str) -> _Entries:
    """The same of every folder in a bucket, by one look at all that lies below the root."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for name in visible_names(root):
        folder = root
        *parts, file = name.split("/")
        for part in parts:
            found.setdefault(folder, (set(), set()))[1].add(part)
            folder = join(folder, part)
        found.setdefault(folder, (set(), set()))[0].add(file)

    def entries(folder: str) -> tuple[list[str], list[str]]:
        files, folders = found.get(folder, ((), ()))
        return sorted(files, key=natural_order), sorted(folders, key=natural_order)

    return entries


def _described(folder: str) -> Part | None:
    """The dataset that a manifest or index in the folder describes."""
    storage = open_storage(folder)
    index = storage.get(MDS_INDEX_NAME)
    if storage.num_bytes(MANIFEST_NAME) is None:
        if storage.num_bytes(PLAN_NAME) is not None:
            raise ShardtoolsError(f"expected a dataset in {folder}, got a build that is not finished; run the command that began it again")
        if index is None or not names_shards(index):
            return None
    dataset = survey_dataset(folder)
    for problem in dataset.problems:
        raise ShardtoolsError(
            f"expected a sound dataset in {folder}, got {problem.name} with this fault: {problem.detail}; "
            f"shardtools verify {folder} shows all, shardtools index {folder} rebuilds what describes sound shards"
        )
    part = Part(folder, dataset, described_candidates(dataset))
    _refuse_unnamed(part)
    _refuse_missing_files(part)
    return part


def described_candidates(dataset: Dataset) -> tuple[Candidate, ...]:
    """The shards of a dataset with a manifest or index, each with what that says of it."""
    manifest = dataset.manifest
    if manifest is None:
        return tuple(Candidate(dataset.uri, stored_form(shard)) for shard in dataset.shards)
    return tuple(Candidate(dataset.uri, shard, manifest.shards[shard.index], manifest.is_canonical) for shard in dataset.shards)


def _refuse_unnamed(part: Part) -> None:
    known = {candidate.shard.name for candidate in part.candidates}
    known |= {file.name for shard in part.dataset.shards if shard.entry is not None for file in shard.entry.files}
    for name in visible_names(part.folder):
        if is_shard_name(name) and name not in known:
            describes = MANIFEST_NAME if part.dataset.manifest is not None else MDS_INDEX_NAME
            raise ShardtoolsError(f"expected {describes} in {part.folder} to name every shard there, got {name} beside them; move it away")


def _refuse_missing_files(part: Part) -> None:
    """What is no shard but belongs to the dataset; shards are looked at one by one."""
    files = part.dataset.manifest.files if part.dataset.manifest is not None else ()
    listing = Listing(part.dataset.storage, only=[file.name for file in files])
    for file in files:
        if is_safe_name(file.name) and listing.num_bytes(file.name) != file.num_bytes:
            raise ShardtoolsError(
                f"expected {file.name} of {file.num_bytes:,} bytes in {part.folder}, got {'another size or none'}; "
                f"restore it, or run shardtools index {part.folder}"
            )
