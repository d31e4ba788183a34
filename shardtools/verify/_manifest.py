"""That the manifest agrees with itself: ledger, counts, fields and limits."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from shardtools.datasets import Dataset
from shardtools.formats import index_place, split_names
from shardtools.manifest import MANIFEST_NAME, OFFSETS_NAME, REJECTS_NAME, Manifest, ShardEntry
from shardtools.storage import Storage


def contradictions(dataset: Dataset, manifest: Manifest) -> Iterator[str]:
    """Every way in which it does not, as a sentence."""
    ledger = _stored_ledger(dataset.storage)
    if ledger != manifest.ledger.as_json():
        yield f"expected a ledger where read = written + rejected + filtered, got {ledger}"
    filters, num_filtered = manifest.ledger.filters, manifest.ledger.num_filtered
    # Only transforms leave out samples besides.
    if filters.total() > num_filtered or (filters.total() < num_filtered and not manifest.ledger.transforms):
        yield f"expected options that left out the {num_filtered:,} samples filtered, got {dict(filters)}"
    num_samples = sum(shard.num_samples for shard in manifest.shards)
    if num_samples != manifest.ledger.num_stored:
        yield f"expected the shards to hold the {manifest.ledger.num_stored:,} samples written, got {num_samples:,}"
    for name, count in Counter(manifest.names()).items():
        if count > 1:
            yield f"expected every file once, got {name} {count} times"
    for name in sorted(_required(dataset, manifest) - set(manifest.names())):
        yield f"expected the manifest to name {name}, got no such entry"
    fields = {field.name: field.optional for field in dataset.fields}
    for shard in manifest.shards:
        yield from _shard_contradictions(shard, manifest.recipe, fields)
        if manifest.splits and not shard.name.startswith((f"{shard.split}/", f"{shard.split}-")):
            yield f"expected the shards of the split {shard.split or '(none)'} in a folder or under names of its own, got {shard.name}"
        if shard.split not in manifest.selection.splits and manifest.selection.splits:
            yield f"expected splits of {', '.join(manifest.selection.splits)} as in the recipe, got {shard.split!r} for {shard.name}"
    seen = {name for shard in manifest.shards for joined in shard.field_sets for name in split_names(joined)}
    for name, optional in fields.items():
        if name not in seen and not optional and manifest.shards:
            yield f"expected the field {name!r} of the recipe in every sample, got none that has it"


def _shard_contradictions(shard: ShardEntry, recipe: dict[str, Any], fields: dict[str, bool]) -> Iterator[str]:
    if sum(shard.field_sets.values()) != shard.num_samples:
        yield f"expected the field sets of {shard.name} to count its {shard.num_samples:,} samples, got {shard.field_sets}"
    for joined in shard.field_sets:
        names = set(split_names(joined))
        if not names <= fields.keys() or any(not optional and name not in names for name, optional in fields.items()):
            yield f"expected samples with the fields of the recipe, {', '.join(fields)}, got {', '.join(sorted(names))} in {shard.name}"
    most_bytes, most_samples = recipe.get("shard_bytes"), recipe.get("shard_samples")
    # A sample that is above the limit by itself has a shard of its own.
    if type(most_bytes) is int and shard.num_bytes > most_bytes and shard.num_samples > 1:
        yield f"expected shards of at most {most_bytes:,} bytes, got {shard.num_bytes:,} in {shard.name}"
    if type(most_samples) is int and shard.num_samples > most_samples:
        yield f"expected shards of at most {most_samples:,} samples, got {shard.num_samples:,} in {shard.name}"


def _stored_ledger(storage: Storage) -> Any:
    return json.loads(storage.get(MANIFEST_NAME) or b"{}").get("ledger")


def _required(dataset: Dataset, manifest: Manifest) -> set[str]:
    names = {OFFSETS_NAME} | ({REJECTS_NAME} if manifest.ledger.num_rejected else set())
    return names | ({index_place(shard.split) for shard in manifest.shards} if dataset.format_name == "mds" else set())
