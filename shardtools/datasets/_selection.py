"""Datasets named by their shards: one file, a brace list, wildcards, several of them joined by ``::`` as WebDataset has it."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from shardtools.datasets import _wildcards
from shardtools.datasets._braces import count_braces, expand_braces
from shardtools.datasets._dataset import Dataset, Problem, Shard
from shardtools.datasets._foreign import foreign_dataset, mds_shard, tar_dataset
from shardtools.datasets._mds_header import header_columns
from shardtools.datasets._mds_index import IndexEntry, parse_index
from shardtools.datasets._names import TAR_SUFFIXES, is_shard_name, mds_compression
from shardtools.errors import UsageError
from shardtools.formats import MDS_INDEX_NAME
from shardtools.sample import Field
from shardtools.storage import Storage, open_storage
from shardtools.units import plural

_MAX_SHARDS = 10_000_000
_SCHEME = "file://"


class _Named(NamedTuple):
    path: str
    """Absolute."""
    is_literal: bool
    """Written out, if need be by braces; then it must be there."""


def file_dataset(path: str) -> Dataset:
    """The dataset of one shard file."""
    return _dataset_of(path, [path])


def selected_dataset(pattern: str) -> Dataset:
    """The shards a pattern names, in its order; what wildcards match is sorted.

    Shards that are named and are not there are problems of the dataset. Folders are read like datasets of their own. Raises
    UsageError where wildcards match nothing, nothing named is there, or something else than a shard is named.
    """
    named = list(_limited(pattern))
    for one in named:
        if one.is_literal and not is_shard_name(one.path) and not os.path.isdir(one.path):
            got = "a file of another kind" if os.path.lexists(one.path) else "nothing of that name"
            raise UsageError(f"expected shards or folders of them by {pattern}, got {one.path}, which is {got}; mend the pattern")
    shards = [one.path for one in named if is_shard_name(one.path) and not os.path.isdir(one.path)]
    folders = [one.path for one in named if (one.is_literal or not shards) and os.path.isdir(one.path)]
    if not shards and not folders:
        raise UsageError(f"expected shards (.tar, .tar.gz, .tgz, .mds) by {pattern}, got other files only; mend the pattern")
    if not folders and not any(os.path.lexists(path) for path in shards):
        raise UsageError(f"expected the {plural(len(shards), 'shard')} that {pattern} names, got none of them; mend the pattern")
    return _with_folders(pattern, shards, folders) if folders else _dataset_of(pattern, shards)


def _limited(pattern: str) -> Iterator[_Named]:
    pieces = pattern.split("::")
    # Reckoned first: the names of a mistyped range would fill the memory before the limit is met. Wildcards only add to them.
    if sum(_num_named(pattern, piece) for piece in pieces) > _MAX_SHARDS:
        raise _too_many(pattern)
    texts = (text for piece in pieces for text in expand_braces(piece.removeprefix(_SCHEME)))
    named = (one for text in texts for one in _paths(pattern, text))
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


def _paths(pattern: str, text: str) -> Iterator[_Named]:
    path = os.path.abspath(text)
    if not _wildcards.has_wildcards(text) or os.path.lexists(path):
        yield _Named(path, True)
        return
    found = _wildcards.matches(path)
    if not found:
        raise UsageError(f"expected shards by {text}, got no file of such a name; mend the pattern {pattern}")
    for match in found:
        yield _Named(match, False)


def _dataset_of(pattern: str, paths: Sequence[str]) -> Dataset:
    root = os.path.commonpath({os.path.dirname(path) for path in paths})
    storage = open_storage(root)
    names = [_below(root, path) for path in paths]
    are_tars = {name.endswith(TAR_SUFFIXES) for name in names}
    if len(are_tars) > 1:
        raise UsageError(f"expected shards of one format by {pattern}, got .tar and .mds files; name those of one format")
    dataset = tar_dataset(storage, names) if are_tars == {True} else _mds_files(storage, names)
    missing = [shard.name for shard in dataset.shards if shard.entry is None and shard.num_bytes is None]
    detail = f"expected the shard, which {pattern} names, got no file"
    gaps = dataset.problems if not missing else ()  # a list that names what is missing needs no guess
    return replace(dataset, problems=(*gaps, *(Problem("missing-file", name, detail, False) for name in missing)), is_selection=True)


def _mds_files(storage: Storage, names: Sequence[str]) -> Dataset:
    """Each by the index in its folder, where one names it, else by its own header."""
    columns: dict[str, str] = {}
    shards = []
    known: dict[str, dict[str, IndexEntry]] = {}
    for i, name in enumerate(names):
        folder = name[: name.rfind("/") + 1]
        if folder not in known:
            known[folder] = _entries_by_name(storage, folder)
        entry = known[folder].get(name)
        shard = mds_shard(i, name, entry.columns, entry) if entry is not None else _self_described(storage, i, name, columns)
        shards.append(shard)
        columns |= entry.columns if entry is not None else {}
    fields = tuple(Field(name, columns[name]) for name in sorted(columns))
    return Dataset(storage.uri, "mds", fields, tuple(shards), None)


def _self_described(storage: Storage, index: int, name: str, columns: dict[str, str]) -> Shard:
    compression = mds_compression(name)
    own = header_columns(storage, name, compression)
    columns |= own
    return replace(mds_shard(index, name, own, None), num_bytes=storage.num_bytes(name), compression=compression)


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
    root = os.path.commonpath([*folders, *map(os.path.dirname, shards)])
    storage = open_storage(root)
    parts = [_moved(_dataset_of(pattern, shards), root)] if shards else []
    for folder in folders:
        part = foreign_dataset(storage, _below(root, folder))
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
    prefix = _below(root, dataset.uri) + "/"
    shards = [
        replace(shard, name=prefix + shard.name, entry=None if shard.entry is None else shard.entry.below(prefix))
        for shard in dataset.shards
    ]
    problems = [replace(problem, name=prefix + problem.name) for problem in dataset.problems]
    return replace(dataset, uri=root, shards=tuple(shards), problems=tuple(problems))


def _below(root: str, path: str) -> str:
    """The path as a name below the folder ``root``; empty for the folder itself."""
    return path[len(root) :].lstrip("/")
