"""Mosaic data shards: byte-equal to what MDSWriter makes of the same rows.

Source: github.com/mosaicml/streaming, streaming/base/format/mds/writer.py and reader.py (0.13.0).

A shard is u32 n; u32 [n + 1] absolute offsets; a JSON text that repeats the index's description; then n samples. A
sample is one u32 length for each column of variable size, in column order, then every column's bytes. All little-endian.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING, Any, ClassVar

import zstandard

from shardtools.errors import UsageError
from shardtools.formats import (
    IMAGE_MAGIC,
    MAX_MDS_BYTES,
    MDS_INDEX_NAME,
    Audit,
    Columns,
    ShardFacts,
    StoredSample,
    _mds_audit,
    _mds_columns,
    _mds_part,
    _values,
)
from shardtools.formats._mds_access import MdsAccess
from shardtools.formats._mds_rows import MdsEncoder
from shardtools.formats._mds_shard import MdsShardFile, ShardHeader, parse_header, split_row
from shardtools.formats._mds_values import codec_of
from shardtools.sample import Field
from shardtools.storage import ObjectWriter

if TYPE_CHECKING:
    from mmap import mmap

_COMPRESSION = re.compile("zstd(:0*([1-9]|1[0-9]|2[0-2]))?")
_HASHES = ("sha1", "xxh64")


@dataclass(frozen=True)
class Mds:
    """MDS with its options in the words of MDSWriter."""

    compression: str | None = None
    """``zstd`` or ``zstd:LEVEL``; the uncompressed shard is then not kept."""
    hashes: tuple[str, ...] = ()
    """Hash algorithms recorded in index.json, of ``sha1`` and ``xxh64``."""
    key_column: str | None = "key"
    """The ``str`` column that names each sample; None leaves the keys out."""
    zstd_version: str | None = dataclass_field(default=None, init=False)
    """The library that compresses, since it decides the bytes; None where nothing is compressed."""

    suffix: ClassVar[str] = ".mds"
    default_shard_bytes: ClassVar[int] = 64 << 20
    max_value_bytes: ClassVar[int] = MAX_MDS_BYTES
    index_name: ClassVar[str | None] = MDS_INDEX_NAME

    def __post_init__(self) -> None:
        if self.compression is not None:
            if not _COMPRESSION.fullmatch(self.compression):
                raise UsageError(f"expected --compression zstd or zstd:1 to zstd:22, got {self.compression!r}")
            object.__setattr__(self, "zstd_version", ".".join(map(str, zstandard.ZSTD_VERSION)))
        for name in self.hashes:
            if name not in _HASHES:
                raise UsageError(f"expected --hashes of {', '.join(_HASHES)}, got {name!r}")
        object.__setattr__(self, "hashes", tuple(sorted(set(self.hashes))))

    @property
    def key_name(self) -> str | None:
        return self.key_column

    @property
    def stored_compression(self) -> str | None:
        return self.compression

    def shard_name(self, number: int, width: int, split: str = "") -> str:
        name = f"shard.{number:0{max(width, 5)}d}.mds" + (".zstd" if self.compression else "")
        return f"{split}/{name}" if split else name

    def encoder(self, fields: Sequence[Field], shard_bytes: int | None) -> MdsEncoder:
        columns = self._columns(fields)
        header = self._header(fields, shard_bytes)
        return MdsEncoder(columns, self.key_column, self._budget(header, shard_bytes), MAX_MDS_BYTES - header.base_bytes)

    def shard_file(self, fields: Sequence[Field], shard_bytes: int | None, output: ObjectWriter) -> MdsShardFile:
        return MdsShardFile(self._header(fields, shard_bytes), output)

    def index(self, fields: Sequence[Field], shard_bytes: int | None, shards: Sequence[tuple[str, ShardFacts]]) -> bytes:
        # Shards that were packed elsewhere bring their own description along.
        own = {} if all("config" in facts.details for _, facts in shards) else self._header(fields, shard_bytes).config
        entries = [{**facts.details.get("config", own), "samples": facts.num_samples, **_named(name, facts)} for name, facts in shards]
        return json.dumps({"shards": entries, "version": 2}, sort_keys=True).encode()

    def stored_samples(self, shard: memoryview) -> Iterator[StoredSample]:
        header, offsets = parse_header(shard)
        names, sizes = header.config["column_names"], header.config["column_sizes"]
        key_column = self.key_column if self.key_column in names else None
        for i in range(len(offsets) - 1):
            values = split_row(shard, int(offsets[i]), int(offsets[i + 1]), names, sizes)
            key = bytes(values[key_column]).decode("utf-8", "surrogateescape") if key_column else f"{i:08d}"
            yield StoredSample(key, int(offsets[i]), values)

    def rows(self, shard: "mmap | bytes", offsets: Sequence[int] | None, views: bool) -> MdsAccess:
        return MdsAccess(memoryview(shard) if views else shard, self.key_column)

    def audit(self, shard: memoryview, audit: Audit) -> Iterator[StoredSample]:
        return _mds_audit.samples(shard, audit, self.key_column)

    def columns(self, shard: memoryview, audit: Audit) -> Iterator[Columns]:
        return _mds_columns.columns(shard, audit, self.key_column)

    def decode(self, field: Field, data: bytes) -> Any:
        return _values.decode(field.encoding, data)

    def _columns(self, fields: Sequence[Field]) -> list[Field]:
        for field in fields:
            if field.optional and field.encoding not in ("json", "bytes", "str"):
                other, absent = ("bytes", "empty") if field.encoding in IMAGE_MAGIC else ("json", "null")
                raise UsageError(
                    f"expected every sample to have the field {field.name}, since an MDS column of {field.encoding} cannot be "
                    f"empty; with --columns {field.name}={other} the absent ones are {absent}"
                )
            if field.name == self.key_column:
                raise UsageError(
                    f"expected no field named {field.name!r} beside the key column of that name; "
                    "choose another with --key-column NAME or take the field as the key with --key"
                )
        key = [] if self.key_column is None else [Field(self.key_column, "str")]
        columns = sorted([*fields, *key], key=lambda field: field.name)
        if not columns:
            raise UsageError("expected at least one column, got none")
        return columns

    def _header(self, fields: Sequence[Field], shard_bytes: int | None) -> ShardHeader:
        columns = self._columns(fields)
        return ShardHeader(
            {
                "version": 2,
                "format": "mds",
                "compression": self.compression,
                "hashes": list(self.hashes),
                "size_limit": shard_bytes,
                "column_names": [field.name for field in columns],
                "column_encodings": [field.encoding for field in columns],
                "column_sizes": [codec_of(field).fixed_bytes for field in columns],
            }
        )

    def _budget(self, header: ShardHeader, shard_bytes: int | None) -> int:
        limit = MAX_MDS_BYTES if shard_bytes is None else min(shard_bytes, MAX_MDS_BYTES)
        if self.compression:
            # Data that does not compress grows by up to one byte in 256.
            limit -= (limit >> 8) + 64
        if limit <= header.base_bytes:
            raise UsageError(f"expected a shard size above the {header.base_bytes} bytes an empty MDS shard takes, got {shard_bytes}")
        return limit - header.base_bytes


rows_as_shard = _mds_part.rows_as_shard


def shard_config(shard: memoryview) -> dict[str, Any]:
    """What an (uncompressed) shard's header says of it, by MDS_CONFIG_KEYS. Raises DamagedShardError."""
    return parse_header(shard)[0].config


def is_known_encoding(encoding: str) -> bool:
    """Whether values of it can be checked, and stored as such."""
    try:
        _values.fixed_bytes(encoding)
    except ValueError:
        return False
    return True


def _named(name: str, facts: ShardFacts) -> dict[str, Any]:
    """The index entry's ``raw_data`` and ``zip_data``, whose names only publication knows."""
    raw, compressed = facts.details["raw_data"], facts.details["zip_data"]
    if compressed is None:
        return {"raw_data": {**raw, "basename": name}, "zip_data": None}
    return {
        "raw_data": {**raw, "basename": name.removesuffix(".zstd")},
        "zip_data": {**compressed, "basename": name},
    }
