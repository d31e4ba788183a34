"""What kind of dataset a folder holds, and which shards it is made of."""

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import replace

from shardtools import plugins
from shardtools.datasets._dataset import Dataset, Problem, Shard
from shardtools.datasets._mds_index import Index, IndexEntry, names_shards, parse_index
from shardtools.errors import UsageError
from shardtools.formats import MDS_INDEX_NAME, ShardFormat
from shardtools.manifest import MANIFEST_NAME, PRIVATE_FOLDER, FileEntry, Manifest, ManifestError, ShardEntry
from shardtools.sample import Field
from shardtools.storage import Storage, is_safe_name, open_storage

_KEY_COLUMN = "key"
_PLAN_NAME = f"{PRIVATE_FOLDER}/build/plan"
_WDS_SUFFIXES = (".tar", ".tar.gz", ".tgz")


def survey_dataset(uri: str) -> Dataset:
    """The dataset at ``uri``, however damaged what describes it is; its ``problems`` say how. Raises UsageError where there is none."""
    storage = open_storage(uri)
    _refuse_no_folder(storage)
    text = storage.get(MANIFEST_NAME)
    problems: list[Problem] = []
    if text is not None:
        try:
            return _published(storage, Manifest.parse(text))
        except ManifestError as error:
            problems.append(Problem("manifest-damaged", MANIFEST_NAME, str(error), True))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            detail = f"expected the parts of a manifest, got others ({type(error).__name__}: {error}); restore the file"
            problems.append(Problem("manifest-damaged", MANIFEST_NAME, detail, True))
    foreign = _foreign(storage)
    if foreign is None and problems:
        foreign = Dataset(storage.uri, "unknown", (), (), None)
    if foreign is None:
        raise _no_dataset(storage)
    return replace(foreign, problems=(*problems, *foreign.problems))


def _refuse_no_folder(storage: Storage) -> None:
    if not os.path.isdir(storage.uri):
        got = "a file" if os.path.exists(storage.uri) else "nothing of that name"
        raise UsageError(f"expected the folder of a dataset at {storage.uri}, got {got}")


def _no_dataset(storage: Storage) -> UsageError:
    if storage.num_bytes(_PLAN_NAME) is not None:
        return UsageError(
            f"expected a dataset in {storage.uri}, got an unfinished build of one; run the same pack command again, "
            "it goes on where it stopped"
        )
    return UsageError(
        f"expected a dataset in {storage.uri}, got a folder without {MANIFEST_NAME}, without an MDS {MDS_INDEX_NAME} "
        "and without .tar, .tar.gz or .tgz files; give the folder that holds the shards"
    )


def _refuse_wrong_types(manifest: Manifest) -> None:
    """Raises TypeError for a manifest that is sealed but was not written by this package."""
    files: list[ShardEntry | FileEntry] = [*manifest.shards, *manifest.files]
    texts = [manifest.plan_digest, *manifest.names(), *(file.sha256 for file in files)]
    counts = [file.num_bytes for file in files]
    for shard in manifest.shards:
        texts += shard.field_sets
        counts += [shard.num_samples, *shard.field_sets.values()]
    if not all(type(text) is str for text in texts) or not all(type(count) is int and count >= 0 for count in counts):
        raise TypeError("a name, digest, size or count is of another type")


def _published(storage: Storage, manifest: Manifest) -> Dataset:
    _refuse_wrong_types(manifest)
    make_format = plugins.load("formats", manifest.format_name)
    settled = {option.name for option in dataclasses.fields(make_format) if not option.init}
    options = {name: value for name, value in manifest.recipe["format"].items() if name != "name" and name not in settled}
    shard_format: ShardFormat = make_format(**options)
    fields = [Field(field["name"], field["encoding"], field["optional"]) for field in manifest.recipe["fields"]]
    key_column = shard_format.key_name
    if key_column is not None:
        fields = sorted([*fields, Field(key_column, "str")], key=lambda field: field.name)
    index = _read_index(storage) if shard_format.index_name == MDS_INDEX_NAME else None
    entries = index.entries if index is not None else ()
    shards = tuple(
        Shard(
            index=i,
            name=shard.name,
            format=shard_format,
            num_bytes=shard.num_bytes,
            num_samples=shard.num_samples,
            compression=shard_format.stored_compression,
            entry=entries[i] if i < len(entries) else None,
            is_keyless=shard_format.index_name is not None and key_column is None,
        )
        for i, shard in enumerate(manifest.shards)
        if is_safe_name(shard.name)
    )
    problems = _manifest_problems(manifest) + (_index_problems(index) if index is not None else [])
    return Dataset(storage.uri, manifest.format_name, tuple(fields), shards, manifest, tuple(problems))


def _manifest_problems(manifest: Manifest) -> list[Problem]:
    detail = "expected the name of a file below the dataset's folder"
    return [Problem("unsafe-name", MANIFEST_NAME, f"{detail}, got {name!r}", True) for name in manifest.names() if not is_safe_name(name)]


def _foreign(storage: Storage) -> Dataset | None:
    text = storage.get(MDS_INDEX_NAME)
    if text is not None and names_shards(text):
        return _foreign_mds(storage, parse_index(text))
    shards = tuple(_tar_shards(storage))
    if text is not None and not shards:
        return _foreign_mds(storage, parse_index(text))
    return Dataset(storage.uri, "wds", (), shards, None) if shards else None


def _read_index(storage: Storage) -> Index | None:
    text = storage.get(MDS_INDEX_NAME)
    return None if text is None else parse_index(text)


def _index_problems(index: Index) -> list[Problem]:
    return [Problem("index-damaged", MDS_INDEX_NAME, problem.sentence, problem.is_fatal) for problem in index.problems]


def _foreign_mds(storage: Storage, index: Index) -> Dataset:
    columns: dict[str, str] = {}
    shards = []
    for i, entry in enumerate(index.entries):
        if entry is not None:
            columns |= entry.columns
            shards.append(_mds_shard(storage, i, entry))
    fields = tuple(Field(name, columns[name]) for name in sorted(columns))
    return Dataset(storage.uri, "mds", fields, tuple(shards), None, tuple(_index_problems(index)))


def _mds_shard(storage: Storage, index: int, entry: IndexEntry) -> Shard:
    """The raw file where it is there, else the compressed one: the choice StreamingDataset makes."""
    has_key = entry.columns.get(_KEY_COLUMN) == "str"
    file, compression = entry.raw, None
    if entry.compressed is not None and storage.num_bytes(entry.raw.name) is None:
        file, compression = entry.compressed, entry.config["compression"]
    return Shard(
        index=index,
        name=file.name,
        format=plugins.load("formats", "mds")(key_column=_KEY_COLUMN if has_key else None),
        num_bytes=file.num_bytes,
        num_samples=entry.num_samples,
        compression=compression,
        entry=entry,
        is_keyless=not has_key,
    )


def _tar_shards(storage: Storage) -> Iterator[Shard]:
    shard_format = plugins.load("formats", "wds")()
    names = [name for name in storage.names() if name.endswith(_WDS_SUFFIXES) and not name.startswith(".") and "/." not in name]
    for i, name in enumerate(sorted(names, key=lambda name: name.encode("utf-8", "surrogateescape"))):
        yield Shard(i, name, shard_format, storage.num_bytes(name), None, None if name.endswith(".tar") else "gzip")
