"""Datasets named by their shards: one file, a brace list, wildcards, several of them joined by ``::`` as WebDataset has it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from shardtools.datasets import _wildcards
from shardtools.datasets._braces import count_braces, expand_braces
from shardtools.datasets._dataset import Dataset, Problem
from shardtools.datasets._foreign import foreign_dataset, mds_shard, tar_dataset
from shardtools.datasets._mds_header import header_columns
from shardtools.datasets._mds_index import IndexEntry, parse_index
from shardtools.datasets._names import TAR_SUFFIXES, is_shard_name, mds_compression
from shardtools.errors import UsageError
from shardtools.formats import MDS_INDEX_NAME
from shardtools.places import Listing, at_once, below, common_folder, is_folder, is_here, is_there, place_of, split
from shardtools.sample import Field
from shardtools.storage import Storage, open_storage
from shardtools.units import plural

_MAX_SHARDS = 10_000_000
_SCHEME = "file://"


class _Named(NamedTuple):
    place: str
    is_folder: bool
    is_literal: bool
    """Written out, if need be by braces; then it must be there."""


def file_dataset(place: str) -> Dataset:
    """The dataset of one shard file."""
    return _dataset_of(place, [place])


def selected_dataset(pattern: str) -> Dataset:
    """The shards a pattern names, in its order; what wildcards match is sorted.

    Shards that are named and are not there are problems of the dataset. Folders are read like datasets of their own. Raises
    UsageError where wildcards match nothing, nothing named is there, or something else than a shard is named.
    """
    named = list(_limited(pattern))
    for one in named:
        if one.is_literal and not one.is_folder and not is_shard_name(one.place):
            got = "a file of another kind" if is_there(one.place) else "nothing of that name"
            raise UsageError(f"expected shards or folders of them by {pattern}, got {one.place}, which is {got}; mend the pattern")
    shards = [one.place for one in named if is_shard_name(one.place) and not one.is_folder]
    folders = [one.place for one in named if (one.is_literal or not shards) and one.is_folder]
    if not shards and not folders:
        kinds = ".tar, .tar.gz, .tgz, .mds"
        raise UsageError(f"expected shards ({kinds}) by {pattern}, got other files only; mend it, or name other files without a pattern")
    if folders:
        return _with_folders(pattern, shards, folders)
    dataset = _dataset_of(pattern, shards)
    if not _is_any_there(dataset, shards):
        raise UsageError(f"expected the {plural(len(shards), 'shard')} that {pattern} names, got none of them; mend the pattern")
    return dataset


def named_dataset(places: Sequence[str]) -> Dataset:
    """The shards at these places, in this order; what is not there is a problem of the dataset. Raises UsageError for two formats."""
    return _dataset_of(", ".join(places[:2]) + (", ..." if len(places) > 2 else ""), places)


def _is_any_there(dataset: Dataset, places: Sequence[str]) -> bool:
    if any(shard.entry is None and shard.num_bytes is not None for shard in dataset.shards):
        return True
    if is_here(dataset.uri):
        return any(map(is_there, places))  # a link to nothing is something
    listing = dataset.listing()
    return any(listing.num_bytes(shard.name) is not None for shard in dataset.shards)


def _limited(pattern: str) -> Iterator[_Named]:
    pieces = pattern.split("::")
    # Reckoned first: the names of a mistyped range would fill the memory before the limit is met. Wildcards only add to them.
    if sum(_num_named(pattern, piece) for piece in pieces) > _MAX_SHARDS:
        raise _too_many(pattern)
    texts = (text for piece in pieces for text in expand_braces(piece.removeprefix(_SCHEME)))
    named = (one for text in texts for one in _places(pattern, text))
    for i, one in enumerate(named):
        if i == _MAX_SHARDS:
            raise _too_many(pattern)
        yield one


def _num_named(pattern: str, piece: str) -> int:
    """How many names the braces of a piece list; raises UsageError where it is none that can be opened."""
    if not piece:
        raise UsageError(f"expected a path on both sides of ::, got none in {pattern}; write a path there")
    if "://" in piece and not piece.startswith(_SCHEME):
        open_storage(piece)  # which tells what can be opened
    try:
        return count_braces(piece.removeprefix(_SCHEME))
    except ValueError as error:
        raise UsageError(f"expected braces in pairs, got {pattern}: {error}; add what is missing") from None


def _too_many(pattern: str) -> UsageError:
    return UsageError(f"expected at most {_MAX_SHARDS:,} shards, got more by {pattern}; correct its ranges")


def _places(pattern: str, text: str) -> Iterator[_Named]:
    place = place_of(text)
    if not _wildcards.has_wildcards(text) or is_there(place):
        # An object has a name of its own whatever begins with it, and to look for more would be a request for each shard.
        yield _Named(place, is_folder(place) if is_here(place) or not is_shard_name(place) else False, True)
        return
    found = _wildcards.matches(place)
    if not found:
        raise UsageError(f"expected shards by {text}, got no file of such a name; mend the pattern {pattern}")
    for match in found:
        yield _Named(match.place, match.is_folder, False)


def _dataset_of(pattern: str, places: Sequence[str]) -> Dataset:
    root = common_folder(split(place)[0] for place in places)
    storage = open_storage(root)
    names = [below(root, place) for place in places]
    are_tars = {name.endswith(TAR_SUFFIXES) for name in names}
    if len(are_tars) > 1:
        raise UsageError(f"expected shards of one format by {pattern}, got .tar and .mds files; name those of one format")
    listing = Listing(storage, only=names)
    dataset = tar_dataset(storage, listing, names) if are_tars == {True} else _mds_files(storage, listing, names)
    missing = [shard.name for shard in dataset.shards if shard.entry is None and shard.num_bytes is None]
    detail = f"expected the shard, which {pattern} names, got no file"
    gaps = dataset.problems if not missing else ()  # a list that names what is missing needs no guess
    return replace(dataset, problems=(*gaps, *(Problem("missing-file", name, detail, False) for name in missing)), is_selection=True)


def _mds_files(storage: Storage, listing: Listing, names: Sequence[str]) -> Dataset:
    """Each by the index in its folder, where one names it, else by its own header."""
    entries: dict[str, IndexEntry] = {}
    for folder in dict.fromkeys(name[: name.rfind("/") + 1] for name in names):
        entries |= _entries_by_name(storage, folder)
    columns = {name: entries[name].columns for name in names if name in entries}
    unknown = [name for name in names if name not in entries and listing.num_bytes(name) is not None]
    columns |= zip(unknown, at_once(storage, lambda name: header_columns(storage, name, mds_compression(name)), unknown), strict=True)
    shards = []
    for i, name in enumerate(names):
        shard = mds_shard(i, name, columns.get(name, {}), entries.get(name))
        if shard.entry is None:
            shard = replace(shard, num_bytes=listing.num_bytes(name), compression=mds_compression(name))
        shards.append(shard)
    every = {column: encoding for name in names for column, encoding in columns.get(name, {}).items()}
    fields = tuple(Field(column, every[column]) for column in sorted(every))
    return Dataset(storage.uri, "mds", fields, tuple(shards), None)


def _entries_by_name(storage: Storage, folder: str) -> dict[str, IndexEntry]:
    text = storage.get(folder + MDS_INDEX_NAME)
    found: dict[str, IndexEntry] = {}
    for entry in () if text is None else parse_index(text).entries:
        if entry is not None:
            below = entry.below(folder)
            found |= {file.name: below for file in below.files}
    return found


def _with_folders(pattern: str, shards: Sequence[str], folders: Sequence[str]) -> Dataset:
    """Folders, each read as what it is, one after the other; shards named beside them come first."""
    root = common_folder([*folders, *(split(shard)[0] for shard in shards)])
    storage = open_storage(root)
    parts = [_moved(_dataset_of(pattern, shards), root)] if shards else []
    for folder in folders:
        part = foreign_dataset(storage, below(root, folder))
        if part is None:
            raise UsageError(f"expected shards in every folder that {pattern} names, got none in {folder}; mend the pattern")
        parts.append(part)
    if len({part.format_name for part in parts}) > 1:
        raise UsageError(f"expected shards of one format by {pattern}, got WDS and MDS; name those of one format")
    numbered = [shard for part in parts for shard in part.shards]
    columns = {field.name: field for part in parts for field in part.fields}
    return Dataset(
        uri=storage.uri,
        format_name=parts[0].format_name,
        fields=tuple(columns[name] for name in sorted(columns)),
        shards=tuple(replace(shard, index=i) for i, shard in enumerate(numbered)),
        manifest=None,
        problems=tuple(problem for part in parts for problem in part.problems),
        is_selection=True,
    )


def _moved(dataset: Dataset, root: str) -> Dataset:
    """The same dataset with names that begin at ``root``, a folder above its own."""
    if dataset.uri == root:
        return dataset
    prefix = below(root, dataset.uri) + "/"
    shards = [
        replace(shard, name=prefix + shard.name, entry=None if shard.entry is None else shard.entry.below(prefix))
        for shard in dataset.shards
    ]
    problems = [replace(problem, name=prefix + problem.name) for problem in dataset.problems]
    return replace(dataset, uri=root, shards=tuple(shards), problems=tuple(problems))
