"""MDS's ``index.json``, read leniently: whatever is wrong is listed, and what is right can still be used.

Source: github.com/mosaicml/streaming, streaming/base/format/mds/writer.py and reader.py (0.13.0).
"""

import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from shardtools.formats import MDS_CONFIG_KEYS
from shardtools.storage import is_safe_name
from shardtools.units import plural

_ENTRY_KEYS = frozenset([*MDS_CONFIG_KEYS, "samples", "raw_data", "zip_data"])
_FILE_KEYS = frozenset(["basename", "bytes", "hashes"])


@dataclass(frozen=True)
class IndexedFile:
    """One form of a shard, raw or compressed."""

    name: str
    num_bytes: int
    hashes: dict[str, str]


@dataclass(frozen=True)
class IndexEntry:
    """One shard as ``index.json`` describes it."""

    config: dict[str, Any]
    """What the shard's own header repeats."""
    num_samples: int
    raw: IndexedFile
    compressed: IndexedFile | None

    @property
    def files(self) -> tuple[IndexedFile, ...]:
        """The raw form, and the compressed one where there is one."""
        return (self.raw,) if self.compressed is None else (self.raw, self.compressed)

    @property
    def columns(self) -> dict[str, str]:
        """Encodings by column name, in column order."""
        return dict(zip(self.config["column_names"], self.config["column_encodings"], strict=True))

    def below(self, prefix: str) -> "IndexEntry":
        """The same shard under names that begin outside the index's own folder; ``prefix`` is that folder, with its ``/``."""
        if not prefix:
            return self
        compressed = None if self.compressed is None else replace(self.compressed, name=prefix + self.compressed.name)
        return replace(self, raw=replace(self.raw, name=prefix + self.raw.name), compressed=compressed)


@dataclass(frozen=True)
class IndexProblem:
    """A rule of the index that is broken."""

    shard: int | None
    detail: str
    is_fatal: bool

    @property
    def sentence(self) -> str:
        return self.detail if self.shard is None else f"shard {self.shard}: {self.detail}"


@dataclass(frozen=True)
class Index:
    """A parsed index; ``entries[i]`` is None where entry i cannot be used at all."""

    entries: tuple[IndexEntry | None, ...]
    problems: tuple[IndexProblem, ...]


def names_shards(data: bytes) -> bool:
    """Whether this text may be an index of shards, and not some other program's ``index.json``."""
    return b'"shards"' in data


def parse_index(data: bytes) -> Index:
    """Never raises: an index of any content gives its problems."""
    try:
        content = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        return Index((), (IndexProblem(None, f"expected JSON text, got {plural(len(data), 'byte')} that are none: {error}", True),))
    shards = content.get("shards") if isinstance(content, dict) else None
    if not isinstance(shards, list):
        return Index((), (IndexProblem(None, "expected an object with a list of shards, got none", True),))
    problems = []
    if content.get("version") != 2 or type(content["version"]) is not int:
        problems.append(IndexProblem(None, f"expected version 2, got {content.get('version')!r}", True))
    entries: list[IndexEntry | None] = []
    for i, entry in enumerate(shards):
        faults = _faults(entry)
        problems += [IndexProblem(i, detail, is_fatal) for detail, is_fatal in faults]
        entries.append(None if any(is_fatal for _, is_fatal in faults) else _entry(entry))
    names = Counter(entry.raw.name for entry in entries if entry is not None)
    problems += [IndexProblem(None, f"expected every shard once, got {name} {n} times", False) for name, n in names.items() if n > 1]
    return Index(tuple(entries), tuple(problems))


def _faults(entry: Any) -> list[tuple[str, bool]]:
    """What is wrong with an entry, and whether it then cannot be used."""
    if not isinstance(entry, dict):
        return [("expected an object for a shard, got something else", True)]
    missing, extra = sorted(_ENTRY_KEYS - entry.keys()), sorted(entry.keys() - _ENTRY_KEYS)
    if "format" in entry and entry["format"] != "mds":
        return [(f"expected the format mds, got {entry['format']!r}, which is not supported", True)]
    if missing:
        return [(f"expected the keys of an MDS shard, got none named {', '.join(missing)}", True)]
    found = [(f"expected no keys but those of an MDS shard, got {name}, which StreamingDataset refuses", False) for name in extra]
    if entry["version"] != 2 or type(entry["version"]) is not int:
        found.append((f"expected version 2, got {entry['version']!r}", True))
    if not _is_count(entry["samples"]):
        found.append((f"expected a number of samples, got {entry['samples']!r}", True))
    if entry["compression"] is not None and not isinstance(entry["compression"], str):
        found.append((f"expected a compression or null, got {entry['compression']!r}", True))
    found += _column_faults(entry) + _file_faults(entry["raw_data"], "raw_data")
    if entry["zip_data"] is not None:
        found += _file_faults(entry["zip_data"], "zip_data")
    if (entry["zip_data"] is None) != (entry["compression"] is None):
        found.append(("expected zip_data where there is a compression and nowhere else, got one without the other", True))
    return found or _name_faults(entry)


def _name_faults(entry: dict[str, Any]) -> list[tuple[str, bool]]:
    """The reader makes the one name from the other only when it is there, so that a wrong one shows late."""
    if entry["zip_data"] is None:
        return []
    expected = f"{entry['raw_data']['basename']}.{entry['compression'].partition(':')[0]}"
    got = entry["zip_data"]["basename"]
    return [] if got == expected else [(f"expected the compressed file to be named {expected}, got {got!r}", False)]


def _column_faults(entry: dict[str, Any]) -> list[tuple[str, bool]]:
    names, encodings, sizes = (entry[key] for key in ("column_names", "column_encodings", "column_sizes"))
    if not all(isinstance(column, list) and len(column) == len(names) for column in (names, encodings, sizes)):
        return [("expected column names, encodings and sizes as lists of one length, got others", True)]
    if not all(isinstance(text, str) for text in [*names, *encodings]) or len(set(names)) < len(names):
        return [("expected each column name once, as text, with its encoding, got others", True)]
    if not all(size is None or _is_count(size) for size in sizes):
        return [("expected column sizes as numbers or null, got others", True)]
    return [] if isinstance(entry["hashes"], list) else [("expected hashes as a list, got something else", True)]


def _file_faults(data: Any, key: str) -> list[tuple[str, bool]]:
    if not isinstance(data, dict) or not data.keys() >= _FILE_KEYS:
        return [(f"expected {key} with basename, bytes and hashes, got something else", True)]
    found = []
    if data.keys() != _FILE_KEYS:
        extra = ", ".join(sorted(data.keys() - _FILE_KEYS))
        found.append((f"expected only basename, bytes and hashes in {key}, got also {extra}, which StreamingDataset refuses", False))
    if not isinstance(data["basename"], str) or not is_safe_name(data["basename"]):
        found.append((f"expected a basename below the dataset's folder, got {data['basename']!r}", True))
    if not _is_count(data["bytes"]):
        found.append((f"expected a number of bytes in {key}, got {data['bytes']!r}", True))
    hashes = data["hashes"]
    if not isinstance(hashes, dict) or not all(isinstance(value, str) for value in hashes.values()):
        found.append((f"expected hashes as text by name in {key}, got something else", True))
    return found


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _entry(entry: dict[str, Any]) -> IndexEntry:
    compressed = None if entry["zip_data"] is None else _file(entry["zip_data"])
    return IndexEntry({key: entry[key] for key in MDS_CONFIG_KEYS}, entry["samples"], _file(entry["raw_data"]), compressed)


def _file(data: dict[str, Any]) -> IndexedFile:
    return IndexedFile(data["basename"], data["bytes"], data["hashes"])
