"""Folders of shards made by others: what format they are of, and which shards they hold."""

import os
from collections.abc import Iterator, Sequence
from functools import cache

from shardtools import plugins
from shardtools.datasets._dataset import Dataset, Problem, Shard
from shardtools.datasets._mds_index import Index, IndexEntry, names_shards, parse_index
from shardtools.datasets._names import TAR_SUFFIXES, tar_compression
from shardtools.datasets._numbering import number_gaps
from shardtools.errors import UsageError
from shardtools.formats import MDS_INDEX_NAME, ShardFormat
from shardtools.manifest import MANIFEST_NAME
from shardtools.places import Listing, at_once, join, split
from shardtools.sample import Field
from shardtools.storage import Storage
from shardtools.units import plural

KEY_COLUMN = "key"
"""The ``str`` column that is taken for the keys of MDS that others made."""


def foreign_dataset(storage: Storage, folder: str = "") -> Dataset | None:
    """What lies in the storage, or in one folder of it; names are those of the storage. None where there are no shards.

    MDS by the ``index.json`` of the folder or, where it has none, by those of the folders in it; WDS by the names of files.
    Raises UsageError where both are there.
    """
    prefix = folder + "/" if folder else ""
    text = storage.get(prefix + MDS_INDEX_NAME)
    listing = Listing(storage, folder)
    if text is not None and names_shards(text):
        return indexed(storage, listing, {prefix: parse_index(text)})
    names = sorted((name for name in listing.names() if _is_visible(name.removeprefix(prefix))), key=os.fsencode)
    _refuse_several(storage, folder, names)
    tars = [name for name in names if name.endswith(TAR_SUFFIXES)]
    indices = _nested_indices(storage, names) if text is None else {}
    if tars and indices:
        raise UsageError(
            f"expected shards of one format in {join(storage.uri, folder)}, got WDS such as {tars[0]} "
            f"and MDS such as {next(iter(indices))}; name the folder of one of them"
        )
    if indices:
        return indexed(storage, listing, indices)
    if tars:
        return tar_dataset(storage, listing, tars)
    return None if text is None else indexed(storage, listing, {prefix: parse_index(text)})


def _refuse_several(storage: Storage, folder: str, names: Sequence[str]) -> None:
    """Datasets of this package below a folder are told by their own manifests, which reading all shards as one would pass over."""
    manifests = [name for name in names if name.endswith("/" + MANIFEST_NAME)]
    if manifests:
        raise UsageError(
            f"expected one dataset in {join(storage.uri, folder)}, got {plural(len(manifests), 'dataset')} in folders below it, "
            f"such as {split(manifests[0])[0]}; name one of them, or make one of all with shardtools merge"
        )


def tar_dataset(storage: Storage, listing: Listing, names: Sequence[str]) -> Dataset:
    """Tars in the order of ``names``."""
    shards = tuple(tar_shard(i, name, listing.num_bytes(name)) for i, name in enumerate(names))
    problems = tuple(Problem("number-gap", name, detail, False) for name, detail in number_gaps(names))
    return Dataset(storage.uri, "wds", (), shards, None, problems)


def tar_shard(index: int, name: str, num_bytes: int | None = None) -> Shard:
    """A tar that nothing describes."""
    return Shard(index, name, _wds_format(), num_bytes, None, tar_compression(name))


def indexed(storage: Storage, listing: Listing, indices: dict[str, Index]) -> Dataset:
    """MDS by indices, each under the folder (ending in ``/``, empty for the storage itself) that its names begin below."""
    columns: dict[str, str] = {}
    shards: list[Shard] = []
    problems: list[Problem] = []
    position = 0
    for prefix, index in indices.items():
        for entry in index.entries:
            if entry is not None:
                columns |= entry.columns
                shards.append(_stored_form(listing, position, entry.below(prefix)))
            position += 1
        problems += index_problems(index, prefix)
    fields = tuple(Field(name, columns[name]) for name in sorted(columns))
    return Dataset(storage.uri, "mds", fields, tuple(shards), None, tuple(problems))


def index_problems(index: Index, prefix: str = "") -> list[Problem]:
    return [Problem("index-damaged", prefix + MDS_INDEX_NAME, problem.sentence, problem.is_fatal) for problem in index.problems]


def mds_shard(index: int, name: str, columns: dict[str, str], entry: IndexEntry | None) -> Shard:
    """A shard as ``entry`` has it; without one ``num_bytes`` and ``compression`` are for the caller to fill in."""
    has_key = columns.get(KEY_COLUMN) == "str"
    is_zipped = entry is not None and entry.compressed is not None and name == entry.compressed.name
    file = None if entry is None else (entry.compressed if is_zipped else entry.raw)
    return Shard(
        index=index,
        name=name,
        format=_mds_format(KEY_COLUMN if has_key else None),
        num_bytes=None if file is None else file.num_bytes,
        num_samples=None if entry is None else entry.num_samples,
        compression=entry.config["compression"] if entry is not None and is_zipped else None,
        entry=entry,
        is_keyless=not has_key,
    )


def _stored_form(listing: Listing, index: int, entry: IndexEntry) -> Shard:
    """The raw file where it is there, else the compressed one: the choice StreamingDataset makes."""
    is_raw = entry.compressed is None or listing.num_bytes(entry.raw.name) is not None
    file = entry.raw if is_raw or entry.compressed is None else entry.compressed
    return mds_shard(index, file.name, entry.columns, entry)


def _nested_indices(storage: Storage, names: Sequence[str]) -> dict[str, Index]:
    """By folder, in the order of ``names``. An index below another one was merged into it, and is left out."""
    found: dict[str, Index] = {}
    by_depth: dict[int, list[str]] = {}
    for name in names:
        if name.endswith("/" + MDS_INDEX_NAME):
            by_depth.setdefault(name.count("/"), []).append(name.removesuffix(MDS_INDEX_NAME))
    for _, folders in sorted(by_depth.items()):
        outermost = [folder for folder in folders if not any(outer in found for outer in _outer_folders(folder))]
        texts = at_once(storage, storage.get, [folder + MDS_INDEX_NAME for folder in outermost])
        found |= {folder: parse_index(text) for folder, text in zip(outermost, texts, strict=True) if names_shards(text or b"") and text}
    return dict(sorted(found.items(), key=lambda item: os.fsencode(item[0])))


def _outer_folders(folder: str) -> Iterator[str]:
    parts = folder.split("/")[:-2]
    for i in range(len(parts)):
        yield "/".join(parts[: i + 1]) + "/"


def _is_visible(name: str) -> bool:
    return not name.startswith(".") and "/." not in name


@cache
def _wds_format() -> ShardFormat:
    shard_format: ShardFormat = plugins.load("formats", "wds")()
    return shard_format


@cache
def _mds_format(key_column: str | None) -> ShardFormat:
    shard_format: ShardFormat = plugins.load("formats", "mds")(key_column=key_column)
    return shard_format
