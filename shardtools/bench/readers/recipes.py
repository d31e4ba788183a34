"""What a dataset's recipe says of how its source was read."""

from functools import lru_cache
from typing import Any

from shardtools.bench.spec import Workload
from shardtools.datasets import Dataset, open_dataset
from shardtools.errors import StorageError
from shardtools.manifest import MANIFEST_NAME, Manifest, ManifestError
from shardtools.places import join, split
from shardtools.storage import open_storage


def recipe_like(workload: Workload) -> dict[str, Any] | None:
    """The recipe of ``workload.like`` as plain data; None where no dataset is named, or one that others made."""
    return None if workload.like is None else recipe_of(workload.like)


@lru_cache(maxsize=4)
def recipe_of(uri: str) -> dict[str, Any] | None:
    """The recipe in the dataset's manifest, or in that of the dataset it is a split of; None where there is none."""
    dataset = open_dataset(uri)
    manifest = dataset.manifest or _whole(dataset)
    return None if manifest is None else manifest.recipe


def _whole(dataset: Dataset) -> Manifest | None:
    """Of ``DST/train`` and ``DST/train-*.tar`` the manifest in ``DST``, if that names every shard."""
    folder = split(dataset.uri)[0] if dataset.format_name == "mds" and not dataset.is_selection else dataset.uri
    try:
        data = open_storage(folder).get(MANIFEST_NAME)
        manifest = None if data is None else Manifest.parse(data)
    except (ManifestError, StorageError):  # what lies above a dataset need not be readable
        return None
    known = set() if manifest is None else {join(folder, shard.name) for shard in manifest.shards if shard.split}
    return manifest if dataset.shards and all(join(dataset.uri, shard.name) in known for shard in dataset.shards) else None


def packing_of(recipe: dict[str, Any] | None) -> dict[str, Any] | None:
    """How a recipe packs rows of tokens, None where it makes none."""
    transforms = [] if recipe is None else recipe.get("transforms", [])
    return next((transform for transform in transforms if transform["name"] == "packing"), None)


def encoding_of(recipe: dict[str, Any] | None) -> dict[str, Any] | None:
    """How a recipe makes tokens of text, None where it does not."""
    transforms = [] if recipe is None else recipe.get("transforms", [])
    return next((transform for transform in transforms if transform["name"] in ("tokenize", "chat")), None)
