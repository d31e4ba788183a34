"""The recipe of a dataset taken from its manifest, and the input planned with it once more."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import zstandard

from shardtools import plugins
from shardtools.build.first_look import FirstLook
from shardtools.build.order import detect_source
from shardtools.build.planning import PlannedBuild, spread_on
from shardtools.build.receipts import KEPT_PLAN_NAME
from shardtools.build.shrinking import surveyed
from shardtools.build.step_order import restored_steps
from shardtools.build.token_order import request_for, restored_transforms
from shardtools.datasets import Dataset
from shardtools.engines import Engine
from shardtools.errors import UsageError
from shardtools.manifest import Manifest
from shardtools.plan import Plan, Recipe, ShardLimit, plan_digest
from shardtools.sample import Field
from shardtools.selection import Selection
from shardtools.sources import Input, SurveyRequest, resolve_inputs
from shardtools.units import printable
from shardtools.verify.options import VerifyOptions

# Decided by the library at hand, no wish of the recipe: shards are compared uncompressed.
_NO_CHANGE = ("format.zstd_version ",)
_MAX_DIFFERENCES = 5
_READ_ENCODINGS = {"text": "str", "messages": "json"}
"""Of the column that becomes tokens; that of files is bytes."""


def restored_recipe(manifest: Manifest, tokenizer: str | None = None, media_root: str | None = None) -> Recipe:
    """The recipe with its settled source. Raises UsageError where the manifest holds none that this version can replay.

    ``tokenizer`` is where the tokenizer of a dataset of tokens lies, which the recipe names by its digest alone, ``media_root``
    where media that records point at lie, if not in the source.
    """
    plain = manifest.recipe
    _refuse_made_of_datasets(plain.get("source"))
    transforms = restored_transforms(plain.get("transforms", ()), tokenizer)
    steps = restored_steps(plain.get("steps", ()), media_root)
    try:
        return Recipe(
            source=plugins.restored("sources", plain["source"]),
            format=plugins.restored("formats", plain["format"]),
            fields=tuple(Field(field["name"], field["encoding"], field["optional"]) for field in plain["fields"]),
            limit=ShardLimit(plain["shard_bytes"], plain["shard_samples"]),
            shuffle_seed=plain["shuffle_seed"],
            sidecars=tuple(plain.get("sidecars", ())),
            transforms=transforms,
            steps=steps,
            selection=Selection.from_json(plain.get("selection", {})),
        )
    except (UsageError, LookupError, TypeError) as error:
        raise UsageError(
            f"expected a manifest whose recipe can be run again on the source, got one that cannot be ({error}); "
            "give another dataset to compare with"
        ) from None


def _refuse_made_of_datasets(source: Any) -> None:
    name = source.get("name") if isinstance(source, dict) else None
    if isinstance(name, str) and name not in plugins.names("sources"):
        raise UsageError(
            f"expected a dataset that was packed from a source, got one that {printable(name)} made of shards that were there; "
            "verify each of its parts against its source, or give another dataset to compare with"
        )


def rescan(manifest: Manifest, sources: Sequence[str], options: VerifyOptions, engine: Engine) -> PlannedBuild:
    """Plan the sources again as the manifest's recipe says, every automatic choice as it was.

    Raises UsageError for sources of another kind than the recipe's, DuplicateKeyError where two samples have one key by now.
    """
    recipe = restored_recipe(manifest, options.tokenizer, options.media_root)
    inputs = resolve_inputs(sources)
    look = FirstLook(recipe.steps, tuple(given.root for given in inputs))
    request = SurveyRequest(inputs, recipe.format, recipe.limit, recipe.shuffle_seed, spread_on(engine), settled=look.given(recipe.fields))
    request = look.of(request, recipe.selection.extras)
    if recipe.transforms:
        encode = recipe.transforms[0]
        read = Field(encode.column, _READ_ENCODINGS.get(encode.column, "bytes"))
        request = request_for(encode, replace(request, settled=(read,)))
    survey = surveyed(recipe.source, request, look)
    # Its digest is comparable with the manifest's, whatever library compresses today.
    plan = Plan(recipe, survey.partitions, plan_digest(manifest.recipe, survey.partitions))
    if plan.digest != manifest.plan_digest:
        _refuse_other_kind(recipe.source, inputs)
    return PlannedBuild(plan, survey, look.roots)


def _refuse_other_kind(source: Any, inputs: Sequence[Input]) -> None:
    try:
        detected = detect_source(inputs)
    except UsageError:
        return  # a mixture can be packed as any kind
    if detected != (expected := plugins.name_of(source)):
        roots = ", ".join(given.root for given in inputs)
        raise UsageError(
            f"expected a source of the kind {expected!r}, which the dataset was packed from, got {roots}, which is of the kind "
            f"{detected!r}; give the source it was packed from"
        )


def changes(dataset: Dataset, manifest: Manifest, scanned: PlannedBuild) -> str | None:
    """How the source differs from the one that was packed, as far as names and sizes tell; None where it does not."""
    plan = scanned.plan
    if plan.digest == manifest.plan_digest:
        return None
    order = " (sources in another order than they were packed in count as changed)" if len(scanned.roots) > 1 else ""
    # The kept plan is no part of the dataset, and may be damaged: without it the names cannot be told.
    with suppress(zstandard.ZstdError, ValueError, LookupError):
        kept = dataset.storage.get(KEPT_PLAN_NAME)
        if kept is not None and Plan.digest_of(kept) == manifest.plan_digest:
            found = [text for text in plan.differences(kept) if not text.startswith(_NO_CHANGE)]
            return "; ".join(found[:_MAX_DIFFERENCES]) + order
    missing = f"{KEPT_PLAN_NAME} is not there to name the files"
    return f"one with the plan {plan.digest} in place of {manifest.plan_digest}{order}, and {missing}"
