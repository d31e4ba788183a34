"""What lies under the data, and what that means for reading it."""

from collections.abc import Iterator, Mapping
from typing import Any

from shardtools.bench.counters.device import MEMORY, NETWORK
from shardtools.bench.doctor.finding import Finding

_LITTLE_READ_AHEAD_KB, _MUCH_READ_AHEAD_KB = 128, 4096


def storage_findings(storage: Mapping[str, Any], reasons: Mapping[str, str]) -> Iterator[Finding]:
    """Of one ``storage`` entry of the environment's ledger."""
    uri, fs, device = storage["uri"], storage["fs"], storage["device"]
    kind = fs["type"] if fs else None
    if kind is None:
        why = reasons.get(f"storage.fs of {uri}", "it is not known where it lies")
        yield Finding("note", "storage", f"{uri}: {why}, so doctor can tell nothing of it; bench a copy on this machine beside it.")
        return
    if kind in MEMORY:
        yield Finding(
            "note", "storage", f"{uri} lies in memory ({kind}): fast, but it takes memory from workers; put it on a disk to measure one."
        )
    elif kind in NETWORK or kind.startswith("fuse"):
        yield Finding(
            "warning",
            "storage",
            f"{uri} is on {kind}, where opening each small file is a round trip: read shards, or copy the data to a local disk.",
        )
    elif device is None:
        why = reasons.get(f"storage.device of {uri}", "no device is known")
        yield Finding("note", "storage", f"{uri} is on {kind}, and its disk cannot be watched: {why}.")
    else:
        yield from _device(uri, device)


def _device(uri: str, device: Mapping[str, Any]) -> Iterator[Finding]:
    name, virtual = device["name"], device["virtual"]
    if device["rotational"] and not virtual:
        yield Finding(
            "warning", "storage", f"{uri} is on a rotating disk ({name}), which seeks for every small file: read shards in order."
        )
    if virtual:
        yield Finding(
            "note",
            "storage",
            f"{uri} is on a virtual disk ({device['virtual_reason']}) with caches below that nobody here can empty: take cold "
            "figures as guest-cold.",
        )
    read_ahead = device["read_ahead_kb"]
    disk = device["disks"][0] if device["disks"] else name
    if read_ahead is not None and read_ahead < _LITTLE_READ_AHEAD_KB:
        yield Finding(
            "note",
            "storage",
            f"{name} reads {read_ahead} kB ahead, little for shards: `sudo blockdev --setra 512 /dev/{disk}` makes it 256 kB.",
        )
    elif read_ahead is not None and read_ahead > _MUCH_READ_AHEAD_KB:
        yield Finding(
            "note",
            "storage",
            f"{name} reads {read_ahead:,} kB ahead, so random reads fetch much that nobody wants: "
            f"`sudo blockdev --setra 512 /dev/{disk}` makes it 256 kB.",
        )
