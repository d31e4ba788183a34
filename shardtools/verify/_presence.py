"""Level 1: what describes the dataset is sound, and the folder holds what it names."""

import json
from collections import Counter
from typing import Any

from shardtools.datasets import Dataset, IndexedFile, is_safe_name
from shardtools.formats import MDS_INDEX_NAME
from shardtools.manifest import MANIFEST_NAME, OFFSETS_NAME, PRIVATE_FOLDER, REJECTS_NAME, FileEntry, Manifest, ShardEntry
from shardtools.storage import Storage
from shardtools.verify.findings import Findings


def check_presence(dataset: Dataset, findings: Findings) -> None:
    """Compare the folder with the manifest or index."""
    for problem in dataset.problems:
        findings.add(problem.kind, problem.detail, problem.name)
    if dataset.manifest is not None:
        _check_manifest(dataset, dataset.manifest, findings)
        _check_published_files(dataset.storage, dataset.manifest, findings)
    elif dataset.format_name == "mds":
        _check_indexed_files(dataset, findings)


def _check_manifest(dataset: Dataset, manifest: Manifest, findings: Findings) -> None:
    """That the manifest agrees with itself."""

    def contradiction(detail: str) -> None:
        findings.add("manifest-contradiction", detail, MANIFEST_NAME)

    ledger = _stored_ledger(dataset.storage)
    if ledger != manifest.ledger.as_json():
        contradiction(f"expected a ledger where read = written + rejected + filtered, got {ledger}")
    num_samples = sum(shard.num_samples for shard in manifest.shards)
    if num_samples != manifest.ledger.num_written:
        contradiction(f"expected the shards to hold the {manifest.ledger.num_written:,} samples written, got {num_samples:,}")
    for name, count in Counter(manifest.names()).items():
        if count > 1:
            contradiction(f"expected every file once, got {name} {count} times")
    for shard in manifest.shards:
        if sum(shard.field_sets.values()) != shard.num_samples:
            contradiction(f"expected the field sets of {shard.name} to count its {shard.num_samples:,} samples, got {shard.field_sets}")
    for name in _required(dataset, manifest) - set(manifest.names()):
        contradiction(f"expected the manifest to name {name}, got no such entry")


def _stored_ledger(storage: Storage) -> Any:
    return json.loads(storage.get(MANIFEST_NAME) or b"{}").get("ledger")


def _required(dataset: Dataset, manifest: Manifest) -> set[str]:
    names = {OFFSETS_NAME} | ({REJECTS_NAME} if manifest.ledger.num_rejected else set())
    return names | ({MDS_INDEX_NAME} if dataset.format_name == "mds" else set())


def _check_published_files(storage: Storage, manifest: Manifest, findings: Findings) -> None:
    files: list[ShardEntry | FileEntry] = [*manifest.shards, *manifest.files]
    for file in files:
        if is_safe_name(file.name):
            _check_size(storage, file.name, file.num_bytes, findings)
    rejects = storage.get(REJECTS_NAME) if manifest.ledger.num_rejected else None
    num_lines = 0 if rejects is None else rejects.count(b"\n")
    if rejects is not None and num_lines != manifest.ledger.num_rejected:
        detail = f"expected a line for each of the {manifest.ledger.num_rejected:,} rejected samples, got {num_lines:,}"
        findings.add("manifest-contradiction", detail, REJECTS_NAME)
    known = {*manifest.names(), MANIFEST_NAME}
    for name in sorted(storage.names()):
        if name not in known and not name.startswith(PRIVATE_FOLDER + "/"):
            findings.add("extra-file", "expected only files that the manifest names, got another", name)


def _check_indexed_files(dataset: Dataset, findings: Findings) -> None:
    """For foreign MDS: each shard in one of its forms, whichever forms are there with their sizes, and no other shards."""
    storage = dataset.storage
    known = set()
    for shard in dataset.shards:
        assert shard.entry is not None, "a foreign MDS shard comes from its index entry"
        forms: list[IndexedFile] = [shard.entry.raw] + ([shard.entry.compressed] if shard.entry.compressed else [])
        known |= {form.name for form in forms}
        there = [form for form in forms if storage.num_bytes(form.name) is not None]
        for form in there or forms[-1:]:
            _check_size(storage, form.name, form.num_bytes, findings)
    for name in sorted(storage.names()):
        if ".mds" in name and name not in known and not dataset.problems:
            findings.add("extra-file", "expected only shards that index.json names, got another", name)


def _check_size(storage: Storage, name: str, expected: int, findings: Findings) -> None:
    actual = storage.num_bytes(name)
    if actual is None:
        findings.add("missing-file", f"expected a file of {expected:,} bytes, got none", name)
    elif actual != expected:
        findings.add("wrong-size", f"expected {expected:,} bytes, got {actual:,}", name)
