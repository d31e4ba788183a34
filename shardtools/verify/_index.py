"""That MDS's ``index.json`` says the same as the manifest, the recipe, and itself."""

import json
from collections.abc import Iterator, Sequence

from shardtools.datasets import Dataset, IndexEntry, Shard
from shardtools.formats import index_place
from shardtools.manifest import Manifest
from shardtools.verify.findings import Findings


def check_index(dataset: Dataset, findings: Findings) -> None:
    """Compare the index with whatever else is known. What it says of a shard's bytes is compared when the shard is parsed."""
    if dataset.format_name != "mds" or any(problem.kind == "index-damaged" for problem in dataset.problems):
        return
    for split in dict.fromkeys(shard.split for shard in dataset.shards):
        shards = [shard for shard in dataset.shards if shard.split == split]
        if dataset.manifest is None:
            details = list(_column_contradictions(dataset))
        elif (text := dataset.storage.get(index_place(split))) is not None:
            details = list(_own_contradictions(dataset, shards, text))
        else:
            continue  # that it is not there is a finding already
        for shard in shards:
            details += _hash_contradictions(shard)
        for detail in details:
            findings.add("index-contradiction", detail, index_place(split))


def _own_contradictions(dataset: Dataset, shards: Sequence[Shard], text: bytes) -> Iterator[str]:
    content = json.loads(text)
    # The index of shards that came from elsewhere may have been there before, in other words.
    is_own = dataset.manifest is not None and dataset.manifest.is_canonical
    # What was merged or indexed keeps what its shards say of themselves.
    was_packed = dataset.manifest is not None and dataset.manifest.recipe["source"].get("name") not in ("index", "merge")
    if is_own and (json.dumps(content, sort_keys=True).encode() != text or content.keys() != {"shards", "version"}):
        yield "expected the text this package writes, with shards and version alone, got another of the same meaning"
    if len(content["shards"]) != len(shards):
        yield f"expected {len(shards)} shards as in the manifest, got {len(content['shards'])}"
    columns = {field.name: field.encoding for field in dataset.fields}
    for i, shard in enumerate(shards):
        if shard.entry is None:
            continue
        file = shard.entry.compressed or shard.entry.raw
        if file.name != shard.name:
            yield f"expected {shard.name} as shard {i}, got {file.name}"
        if file.num_bytes != shard.num_bytes:
            yield f"expected {shard.num_bytes} bytes for {shard.name} as in the manifest, got {file.num_bytes}"
        if shard.entry.num_samples != shard.num_samples:
            yield f"expected {shard.num_samples} samples in {shard.name} as in the manifest, got {shard.entry.num_samples}"
        if shard.entry.columns != columns:
            yield f"expected the columns {columns} in {shard.name} as in the manifest, got {shard.entry.columns}"
        if shard.entry.config["compression"] != shard.compression:
            yield f"expected the compression {shard.compression} for {shard.name}, got {shard.entry.config['compression']}"
        if is_own and was_packed:
            yield from _recipe_contradictions(dataset.manifest, shard.name, shard.entry)


def _recipe_contradictions(manifest: Manifest | None, name: str, entry: IndexEntry) -> Iterator[str]:
    recipe = {} if manifest is None else manifest.recipe
    for key, expected in (("size_limit", recipe.get("shard_bytes")), ("hashes", list(recipe.get("format", {}).get("hashes", [])))):
        if entry.config[key] != expected:
            yield f"expected {key} {expected} for {name} as in the recipe, got {entry.config[key]}"


def _column_contradictions(dataset: Dataset) -> Iterator[str]:
    first = next((shard for shard in dataset.shards if shard.entry is not None), None)
    for shard in dataset.shards:
        if first is not None and shard.entry is not None and first.entry is not None and shard.entry.columns != first.entry.columns:
            yield f"expected the columns of {first.name} in every shard, got {shard.entry.columns} in {shard.name}: rows of two shapes"


def _hash_contradictions(shard: Shard) -> Iterator[str]:
    if shard.entry is None:
        return
    for file in shard.entry.files:
        if sorted(file.hashes) != shard.entry.config["hashes"]:
            yield f"expected the hashes {shard.entry.config['hashes']} for {file.name}, got {sorted(file.hashes)}"
