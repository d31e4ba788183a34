"""What MDS's index needs to know of a stored shard, found from its bytes."""

from collections.abc import Iterator, Mapping
from typing import Any

from shardtools.datasets import Shard, named_hash
from shardtools.formats import MDS_INDEX_NAME


class UnsoundError(Exception):
    """The first fault found in a shard: what was expected and what came."""


def mds_details(shard: Shard, config: dict[str, Any], raw: memoryview, stored: memoryview) -> Mapping[str, Any]:
    """``ShardFacts.details``: the shard's own header, and the lengths and hashes of both its forms, computed anew. Raises UnsoundError."""
    is_packed = shard.compression is not None
    if is_packed != (config["compression"] is not None):
        raise UnsoundError(
            f"expected a file that is stored as its header says (compression {config['compression']!r}), got another: "
            "StreamingDataset deletes an unpacked shard without its compressed one"
        )
    if type(config["hashes"]) is not list or not all(type(name) is str for name in config["hashes"]):
        raise UnsoundError(f"expected the names of hashes in the header, got {config['hashes']!r}")
    raw_hashes = {name: _hash(name, raw) for name in config["hashes"]}
    zip_hashes = {name: _hash(name, stored) for name in config["hashes"]} if is_packed else {}
    for file, hashes in _recorded_hashes(shard, raw_hashes, zip_hashes):
        for name, expected in file.items():
            if hashes.get(name) != expected:
                raise UnsoundError(f"expected the {name} {expected} as in {MDS_INDEX_NAME}, got {hashes.get(name)}")
    return {
        "config": config,
        "raw_data": {"bytes": len(raw), "hashes": raw_hashes},
        "zip_data": {"bytes": len(stored), "hashes": zip_hashes} if is_packed else None,
        "name_suffix": ".zstd" if is_packed else "",
    }


def _recorded_hashes(
    shard: Shard, raw: dict[str, str], compressed: dict[str, str]
) -> Iterator[tuple[Mapping[str, str], Mapping[str, str]]]:
    if shard.entry is not None:
        yield shard.entry.raw.hashes, raw
        if shard.entry.compressed is not None:
            yield shard.entry.compressed.hashes, compressed


def _hash(name: str, data: memoryview) -> str:
    digest = named_hash(name, data)
    if digest is None:
        raise UnsoundError(f"expected hashes that MDSWriter knows, got {name!r}")
    return digest
