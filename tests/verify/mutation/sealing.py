"""Manifest and index made to agree with damaged files, so that only what a check finds by itself remains to be found."""

import hashlib
import json
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import xxhash
import zstandard

from mutation import INDEX, MANIFEST, OFFSETS, Files

Change = Callable[[Any], object]


def with_manifest(files: Files, change: Change) -> Files:
    """The manifest changed and sealed anew, as its format says: JSON text that ends in the SHA-256 of the rest."""
    content = json.loads(files[MANIFEST])
    change(content)
    content.pop("sha256", None)
    text = json.dumps(content, indent=1).removesuffix("\n}")
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {**files, MANIFEST: f'{text},\n "sha256": "{digest}"\n}}\n'.encode()}


def with_index(files: Files, change: Change) -> Files:
    """The index changed, in the spelling MDSWriter has."""
    content = json.loads(files[INDEX])
    change(content)
    return {**files, INDEX: json.dumps(content, sort_keys=True).encode()}


def sealed(files: Files) -> Files:
    """Every size and digest in manifest and index made right; counts, field sets and offsets stay."""
    if INDEX in files:
        files = with_index(files, lambda content: [_seal_entry(files, entry) for entry in content["shards"]])

    def change(content: Any) -> None:
        for entry in content["shards"] + content["files"]:
            data = files[entry["name"]]
            entry["bytes"], entry["sha256"] = len(data), hashlib.sha256(data).hexdigest()

    return with_manifest(files, change) if MANIFEST in files else files


def _seal_entry(files: Files, entry: Any) -> None:
    """The sizes and hashes of both forms of a shard, of those forms that are there or can be made."""
    compressed = entry["zip_data"]
    stored = files.get(entry["raw_data"]["basename"] if compressed is None else compressed["basename"])
    if stored is None:
        return
    raw = stored if compressed is None else unzipped(stored)
    for form, data in ((entry["raw_data"], raw), (compressed, stored)):
        if form is not None and data is not None:
            form["bytes"] = len(data)
            form["hashes"] = {name: digest(name, data) for name in form["hashes"]}


def digest(name: str, data: bytes) -> str:
    return str(getattr(xxhash, name)(data).hexdigest() if name.startswith("xxh") else hashlib.new(name, data).hexdigest())


def unzipped(data: bytes) -> bytes | None:
    """None for a stream that is none."""
    try:
        return bytes(zstandard.ZstdDecompressor().decompressobj(read_across_frames=True).decompress(data))
    except zstandard.ZstdError:
        return None


class Content(NamedTuple):
    """What a shard holds, as manifest, index and offsets count it."""

    field_sets: list[str]
    """Of each sample, its field names joined by commas."""
    offsets: list[int]
    """n + 1."""


def consistent(files: Files, content_of: Callable[[bytes], Content]) -> Files:
    """Everything that is recorded beside the shards made right: a forger's work, or that of a program that lost something."""
    offsets: list[int] = []

    def change(content: Any) -> None:
        for entry in content["shards"]:
            shard = content_of(files[entry["name"]])
            entry["samples"] = len(shard.field_sets)
            entry["field_sets"] = {names: shard.field_sets.count(names) for names in sorted(set(shard.field_sets))}
            offsets.extend(shard.offsets)
        ledger = content["ledger"]
        ledger["written"] = sum(entry["samples"] for entry in content["shards"])
        ledger["read"] = ledger["written"] + ledger["rejected"] + ledger["filtered"]

    files = with_manifest(files, change)
    files[OFFSETS] = struct.pack(f"<{len(offsets)}Q", *offsets)
    counts = [entry["samples"] for entry in json.loads(files[MANIFEST])["shards"]]
    if INDEX in files:
        files = with_index(files, lambda content: [e.update(samples=n) for e, n in zip(content["shards"], counts, strict=True)])
    return sealed(files)
