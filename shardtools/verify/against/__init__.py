"""Level 6: that the dataset is its source, nothing lost, nothing doubled, nothing changed, nothing added.

What is given as source is either what the manifest's recipe was run on, or another dataset. A folder is a dataset where a
manifest or an MDS index says so; tars alone are one unless the recipe itself packed tar files. Where the recipe read shards,
a dataset of their format is its source, and one of the other format is another dataset.
"""

import json
import os
from collections.abc import Sequence

from shardtools import plugins
from shardtools.datasets import TAR_SUFFIXES, Dataset, is_mds_name, is_pattern, is_shard_name, open_dataset
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.formats import MDS_INDEX_NAME
from shardtools.manifest import MANIFEST_NAME, Manifest
from shardtools.places import is_file, is_folder, is_there, place_of
from shardtools.sources import first_files, resolve_inputs
from shardtools.storage import open_storage
from shardtools.verify.against._dataset import against_dataset
from shardtools.verify.against._source import against_source
from shardtools.verify.findings import Findings
from shardtools.verify.options import VerifyOptions
from shardtools.verify.stored import Proof, Stored

_PEEKED_FILES = 200


def check_against(stored: Stored, options: VerifyOptions, findings: Findings) -> Proof:
    """Compare the dataset with its source, or with one other dataset, and add a finding for every difference.

    ``options.against`` are words as ``pack`` takes them, or one dataset; of each kind of finding at most ``findings.limit`` samples
    are named, the others counted. Memory does not grow with the number of samples. Raises UsageError where the sources are
    neither a dataset nor of the kind that the recipe was run on.
    """
    manifest, sources = stored.dataset.manifest, options.against
    refuse_sources(stored.dataset, sources)
    if len(sources) == 1 and _names_dataset(sources[0], manifest):
        return against_dataset(stored, open_dataset(sources[0]), options.workers, findings)
    assert manifest is not None
    return against_source(stored, manifest, sources, options, findings)


def refuse_sources(dataset: Dataset, sources: tuple[str, ...]) -> None:
    """Raises UsageError for sources that are neither one dataset nor input for the recipe. Costs next to nothing."""
    manifest = dataset.manifest
    if manifest is None and not (len(sources) == 1 and _names_dataset(sources[0], manifest)):
        raise UsageError(
            f"expected one other dataset to compare {dataset.uri} with, since no manifest says how it was made, "
            f"got {', '.join(sources)}; give the folder of a WDS or MDS dataset"
        )
    datasets = [word for word in sources if _names_dataset(word, manifest)] if len(sources) > 1 else []
    if datasets:
        raise UsageError(
            f"expected one dataset or the source it was packed from, got the dataset {datasets[0]} among {len(sources)} sources; "
            "compare with one dataset at a time"
        )


def _names_dataset(word: str, manifest: Manifest | None) -> bool:
    """Whether a word names a dataset, and not input for the recipe."""
    converted = None if manifest is None else _converted_format(manifest)
    if converted is not None:
        return _format_name(word) not in (converted, None)
    packs_tars = manifest is not None and _packs_tars(manifest)
    if is_pattern(word) and not is_there(word):
        return True
    if not is_folder(place_of(word)):
        return (is_mds_name if packs_tars else is_shard_name)(word) and is_file(place_of(word))
    storage = open_storage(word)
    if storage.num_bytes(MANIFEST_NAME) is not None or _names_shards(storage.get(MDS_INDEX_NAME)):
        return True
    return not packs_tars and (manifest is None or _holds_shards_only(word))


def _names_shards(text: bytes | None) -> bool:
    try:
        content = json.loads(text or b"null")
    except ValueError:
        return False
    return isinstance(content, dict) and isinstance(content.get("shards"), list) and content.get("version") == 2


def _holds_shards_only(folder: str) -> bool:
    paths: Sequence[bytes] = [path for given in resolve_inputs([folder]) for path in first_files(given, _PEEKED_FILES)]
    return bool(paths) and all(is_shard_name(os.fsdecode(path).lower()) for path in paths)


def _converted_format(manifest: Manifest) -> str | None:
    """The format of the shards that the recipe read; None where it read no shards."""
    source = manifest.recipe.get("source")
    name = source.get("name") if isinstance(source, dict) else None
    return name if name in plugins.names("formats") else None


def _format_name(word: str) -> str | None:
    """Of the dataset that a word names; None where it names none."""
    try:
        return open_dataset(word).format_name
    except ShardtoolsError:
        return None


def _packs_tars(manifest: Manifest) -> bool:
    """Whether the recipe takes tar files as samples."""
    try:
        rules = manifest.recipe["source"]["layout"]["rules"]
        return any(f".{alias}".endswith(TAR_SUFFIXES) for rule in rules for alias in rule["aliases"])
    except (LookupError, TypeError):
        return False
