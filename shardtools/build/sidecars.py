"""Index files that other readers of WDS want beside the shards. Each is a function of the shards' names and bytes alone.

Sources: NVIDIA DALI, tools/wds2idx.py (v1.2); webdataset/wids, wids_index.py and wids_specs.py (shard index, version 1);
NVIDIA Megatron-Energon, flavors/webdataset (``.tar.idx``; in ``.nv-meta`` ``WebdatasetInfo``, ``.info.json``, and
``WebdatasetSplits``, ``split.yaml``).
"""

import hashlib
import json
from array import array
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from shardtools.datasets import Dataset
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.formats import ShardFormat
from shardtools.formats.wds import Member, Wds, members

KINDS = ("dali", "wids", "energon")
"""The readers that have sidecars."""
_WIDS_NAME = "shardindex.json"
_ENERGON_NAME = ".nv-meta/.info.json"
_ENERGON_SPLITS_NAME = ".nv-meta/split.yaml"

SidecarFile = tuple[str, bytes]
"""A name below the dataset's folder, and the whole file."""


@dataclass(frozen=True)
class StoredTar:
    """One published shard."""

    name: str
    num_bytes: int
    offsets: "array[int]"
    """u64 [num_samples + 1]: where each sample begins; the last is the end of the data."""
    split: str = ""
    """Which split it belongs to; empty where the dataset has none."""

    @property
    def num_samples(self) -> int:
        return len(self.offsets) - 1


def parse_kinds(text: str | None) -> tuple[str, ...]:
    """``dali,wids`` as a sorted tuple; None is none. Raises UsageError for anything else."""
    kinds = () if text is None else tuple(sorted({word.strip() for word in text.split(",")}))
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"expected --sidecars of {', '.join(KINDS)}, got {kind!r}")
    return kinds


def refuse_unfit(kinds: Sequence[str], shard_format: ShardFormat) -> None:
    """Raises UsageError for sidecars of a dataset whose readers have none."""
    if kinds and not isinstance(shard_format, Wds):
        raise UsageError(f"expected --sidecars with WDS alone, got {', '.join(kinds)} with another format; leave --sidecars out")


def sidecar_files(kinds: Sequence[str], uri: str, shards: Sequence[StoredTar]) -> Iterator[SidecarFile]:
    """The sidecars of the shards in the folder ``uri``, one at a time, so that no more than one shard's are held.

    Raises ShardtoolsError where a shard cannot be described to a reader.
    """
    for shard in shards if kinds else ():
        if not shard.name.endswith(".tar"):
            raise ShardtoolsError(
                f"expected plain tars, got {shard.name}, into which no reader can jump; unpack it, or leave --sidecars out"
            )
    opened = Dataset(uri, "", (), (), None)
    for kind in kinds:
        if kind == "dali":
            for shard in shards:
                _refuse_unfit_names(shard.name, opened.stored_file(shard.name))
            yield from ((shard.name.removesuffix(".tar") + ".idx", _dali(opened.stored_file(shard.name))) for shard in shards)
        elif kind == "wids":
            for split in _splits(shards):  # whoever opens an index reads all that it lists
                yield _wids_name(split), _wids([shard for shard in shards if shard.split == split], opened)
        else:
            yield from ((f"{shard.name}.idx", shard.offsets.tobytes()) for shard in shards)
            counts = {shard.name: shard.num_samples for shard in shards}
            yield _ENERGON_NAME, (json.dumps({"shard_counts": counts}, indent=2) + "\n").encode()
            if any(_splits(shards)):
                yield _ENERGON_SPLITS_NAME, _energon_splits(shards)


def names_of(kinds: Sequence[str], shard_names: Sequence[str], splits: Collection[str]) -> set[str]:
    """The names of the files that ``sidecar_files`` makes of shards of these splits; a dataset without has the empty one."""
    names = {"dali": {name.removesuffix(".tar") + ".idx" for name in shard_names}, "wids": set(map(_wids_name, splits))}
    names["energon"] = {f"{name}.idx" for name in shard_names} | {_ENERGON_NAME} | ({_ENERGON_SPLITS_NAME} if any(splits) else set())
    return {name for kind in kinds for name in names[kind]}


def _splits(shards: Sequence[StoredTar]) -> list[str]:
    return list(dict.fromkeys(shard.split for shard in shards))


def _wids_name(split: str) -> str:
    return f"{split}-{_WIDS_NAME}" if split else _WIDS_NAME


def _energon_splits(shards: Sequence[StoredTar]) -> bytes:
    """What ``energon prepare`` asks for: the shards of each split. Splits are quoted: to YAML ``2024``, ``no`` and ``null`` are no text."""
    lines = ["exclude: []", "split_parts:"]
    for split in _splits(shards):
        lines += [f"  {json.dumps(split)}:", *(f"  - {shard.name}" for shard in shards if shard.split == split)]
    return ("\n".join(lines) + "\n").encode()


def _dali(data: memoryview) -> bytes:
    """``v1.2 SAMPLES``, then a line a sample: ``field offset size member`` for each of its members."""
    lines: list[list[str]] = []
    last_key = None
    for key, field, member in _files(data):
        if key != last_key:
            lines.append([])
            last_key = key
        lines[-1] += [field, str(member.data_offset), str(member.num_bytes), member.name.decode("utf-8", "surrogateescape")]
    text = "".join(" ".join(line) + "\n" for line in lines)
    return f"v1.2 {len(lines)}\n{text}".encode("utf-8", "surrogateescape")


def _files(data: memoryview) -> Iterator[tuple[str, str, Member]]:
    """The regular files of a shard, each after its key and its field: the part from the first dot of the file's name on."""
    for member in filter(lambda member: member.is_file, members(data)):
        folder, slash, base = member.name.decode("utf-8", "surrogateescape").rpartition("/")
        stem, _, field = base.partition(".")
        yield folder + slash + stem, field, member


def _refuse_unfit_names(shard_name: str, data: memoryview) -> None:
    """Before anything is written: white space separates the words of DALI's index, and a member is ``key.field``."""
    for _, field, member in _files(data):
        name = member.name.decode("utf-8", "surrogateescape")
        if not field or any(character.isspace() for character in name):
            raise ShardtoolsError(
                f"expected members named key.field without white space for DALI, got {name!r} in {shard_name}; leave dali out of --sidecars"
            )


def _wids(shards: Sequence[StoredTar], opened: Dataset) -> bytes:
    """URLs are relative to the file itself, as wids resolves them."""
    entries = [
        {"url": shard.name, "md5sum": _md5(opened, shard.name), "nsamples": shard.num_samples, "filesize": shard.num_bytes}
        for shard in shards
    ]
    content = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": entries}
    return (json.dumps(content, indent=2) + "\n").encode()


def _md5(opened: Dataset, name: str) -> str:
    return hashlib.md5(opened.stored_file(name), usedforsecurity=False).hexdigest()
