"""What a dataset's recipe says of how its source was read."""

from functools import lru_cache
from typing import Any

from shardtools.bench.spec import Workload
from shardtools.datasets import open_dataset


def recipe_like(workload: Workload) -> dict[str, Any] | None:
    """The recipe of ``workload.like`` as plain data; None where no dataset is named, or one that others made."""
    return None if workload.like is None else recipe_of(workload.like)


@lru_cache(maxsize=4)
def recipe_of(uri: str) -> dict[str, Any] | None:
    """The recipe in the dataset's manifest; None where it has none."""
    manifest = open_dataset(uri).manifest
    return None if manifest is None else manifest.recipe


def packing_of(recipe: dict[str, Any] | None) -> dict[str, Any] | None:
    """How a recipe packs rows of tokens, None where it makes none."""
    transforms = [] if recipe is None else recipe.get("transforms", [])
    return next((transform for transform in transforms if transform["name"] == "packing"), None)


def encoding_of(recipe: dict[str, Any] | None) -> dict[str, Any] | None:
    """How a recipe makes tokens of text, None where it does not."""
    transforms = [] if recipe is None else recipe.get("transforms", [])
    return next((transform for transform in transforms if transform["name"] in ("tokenize", "chat")), None)
