"""What kind of dataset a folder holds, and which shards it is made of."""

import dataclasses
import re
from dataclasses import replace

from shardtools import plugins
from shardtools.datasets._dataset import Dataset, Problem, Shard
from shardtools.datasets._foreign import foreign_dataset, index_problems
from shardtools.datasets._mds_index import Index, IndexEntry, parse_index
from shardtools.datasets._names import is_pattern, is_shard_name
from shardtools.datasets._selection import file_dataset, selected_dataset
from shardtools.errors import UsageError
from shardtools.formats import MDS_INDEX_NAME, ShardFormat, index_place
from shardtools.manifest import BUILD_FOLDER, MANIFEST_NAME, FileEntry, Manifest, ManifestError, ShardEntry
from shardtools.places import at_once, is_file, is_folder, is_there
from shardtools.sample import Field
from shardtools.storage import Storage, is_safe_name, open_storage

MDS_SUFFIX = ".mds"
_PLAN_NAME = f"{BUILD_FOLDER}/plan"
_SHARE = re.compile(r"[0-9]?\.?[0-9]{1,20}(?:E-[0-9]{1,2})?")


def survey_dataset(uri: str) -> Dataset:
    """The dataset at ``uri``, however damaged what describes it is; its ``problems`` say how. Raises UsageError where there is none.

    ``uri`` is a folder, one shard file, or a pattern of shards or folders: brace lists, wildcards, several joined by ``::``.
    What is there by that very name is no pattern.
    """
    if is_pattern(uri) and not is_there(uri):
        return selected_dataset(uri)
    storage = open_storage(uri)
    if is_shard_name(storage.uri) and is_file(storage.uri):
        return file_dataset(storage.uri)
    _refuse_no_folder(storage)
    text = storage.get(MANIFEST_NAME)
    problems: list[Problem] = []
    if text is not None:
        try:
            return _published(storage, Manifest.parse(text))
        except ManifestError as error:
            problems.append(Problem("manifest-damaged", MANIFEST_NAME, str(error), True))
        except (LookupError, TypeError, ValueError, AttributeError, UsageError) as error:
            detail = f"expected the parts of a manifest, got others ({type(error).__name__}: {error}); restore the file"
            problems.append(Problem("manifest-damaged", MANIFEST_NAME, detail, True))
    foreign = foreign_dataset(storage)
    if foreign is None and problems:
        foreign = Dataset(storage.uri, "unknown", (), (), None)
    if foreign is None:
        raise _no_dataset(storage)
    return replace(foreign, problems=(*problems, *foreign.problems))


def _refuse_no_folder(storage: Storage) -> None:
    if not is_folder(storage.uri):
        got = "a file that is neither" if is_there(storage.uri) else "nothing of that name"
        raise UsageError(f"expected the folder of a dataset, or a shard (.tar, .tar.gz, .tgz, .mds), at {storage.uri}, got {got}")


def _no_dataset(storage: Storage) -> UsageError:
    if storage.num_bytes(_PLAN_NAME) is not None:
        return UsageError(
            f"expected a dataset in {storage.uri}, got an unfinished build of one; run the same pack command again, "
            "it goes on where it stopped"
        )
    lonely = next((name for name in storage.names() if MDS_SUFFIX in name.rpartition("/")[2]), None)
    if lonely is not None:
        return UsageError(
            f"expected {MDS_INDEX_NAME} beside MDS shards such as {lonely} in {storage.uri}, got none; shardtools index makes it anew"
        )
    return UsageError(
        f"expected a dataset in {storage.uri}, got a folder without {MANIFEST_NAME}, without an MDS {MDS_INDEX_NAME} "
        "in it or in a folder of it, and without .tar, .tar.gz or .tgz files; give the folder that holds the shards, or pack first"
    )


def _refuse_wrong_types(manifest: Manifest) -> None:
    """Raises TypeError for a manifest that is sealed but was not written by this package."""
    files: list[ShardEntry | FileEntry] = [*manifest.shards, *manifest.files]
    texts = [manifest.plan_digest, *manifest.names(), *(file.sha256 for file in files)]
    counts = [file.num_bytes for file in files]
    for shard in manifest.shards:
        texts += [shard.split, *shard.field_sets]
        counts += [shard.num_samples, *shard.field_sets.values()]
    if not all(type(text) is str for text in texts) or not all(type(count) is int and count >= 0 for count in counts):
        raise TypeError("a name, digest, size or count is of another type")
    ledger = manifest.ledger
    numbers = [ledger.num_written, ledger.num_filtered, *ledger.rejects.values(), *ledger.filters.values()]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise TypeError("a number of the ledger is of another type, or negative")
    _refuse_wrong_recipe(manifest)


def _refuse_wrong_recipe(manifest: Manifest) -> None:
    """The same of what readers use of the recipe: which transforms there are, and the rule of the splits."""
    selection = manifest.selection
    if not all(type(name) is str and is_safe_name(name) for name in manifest.splits):
        raise TypeError("a split has no name that a folder could have")
    # Of a share with a large exponent, the number alone would take all memory.
    if not all(type(share) is str and _SHARE.fullmatch(share) for _, share in selection.split):
        raise TypeError("a split has no share that pack would write")
    if not all(type(text) is str for text in (selection.group_by or "", *(one["name"] for one in manifest.transforms))):
        raise TypeError("a field or a transform has no name")


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
    indices = _read_indices(storage, manifest) if shard_format.index_name is not None else {}
    entries = _entries(indices, manifest)
    shards = tuple(
        Shard(
            index=i,
            name=shard.name,
            format=shard_format,
            num_bytes=shard.num_bytes,
            num_samples=shard.num_samples,
            compression=_compression(shard.name, shard_format, entries[i]),
            entry=entries[i],
            is_keyless=shard_format.index_name is not None and key_column is None,
            split=shard.split,
        )
        for i, shard in enumerate(manifest.shards)
        if is_safe_name(shard.name)
    )
    problems = _manifest_problems(manifest)
    problems += [problem for split, index in indices.items() for problem in index_problems(index, _folder(split))]
    return Dataset(storage.uri, manifest.format_name, tuple(fields), shards, manifest, tuple(problems))


def _folder(split: str) -> str:
    return f"{split}/" if split else ""


def _read_indices(storage: Storage, manifest: Manifest) -> dict[str, Index]:
    """The index of each split that has one; without splits under the empty name."""
    splits = list(dict.fromkeys(shard.split for shard in manifest.shards))
    texts = at_once(storage, storage.get, map(index_place, splits))
    return {split: parse_index(text) for split, text in zip(splits, texts, strict=True) if text is not None}


def _entries(indices: dict[str, Index], manifest: Manifest) -> list[IndexEntry | None]:
    """What the indices say of each shard of the manifest: entries stand in the order of the split's shards."""
    left = {split: iter(index.entries) for split, index in indices.items()}
    found = [next(left[shard.split], None) if shard.split in left else None for shard in manifest.shards]
    return [None if entry is None else entry.below(_folder(shard.split)) for entry, shard in zip(found, manifest.shards, strict=True)]


def _compression(name: str, shard_format: ShardFormat, entry: IndexEntry | None) -> str | None:
    """How a published shard is compressed; those that were adopted or merged may differ in it, and their names tell."""
    if shard_format.stored_compression is not None:
        return shard_format.stored_compression
    if name.endswith((".gz", ".tgz")):
        return "gzip"
    if not name.endswith(".zstd"):
        return None
    return "zstd" if entry is None or entry.config["compression"] is None else str(entry.config["compression"])


def _manifest_problems(manifest: Manifest) -> list[Problem]:
    detail = "expected the name of a file below the dataset's folder"
    return [Problem("unsafe-name", MANIFEST_NAME, f"{detail}, got {name!r}", True) for name in manifest.names() if not is_safe_name(name)]
