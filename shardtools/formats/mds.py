"""Mosaic data shards: byte-equal to what MDSWriter makes of the same rows.

Source: github.com/mosaicml/streaming, streaming/base/format/mds/writer.py and reader.py (0.13.0).

A shard is u32 n; u32 [n + 1] absolute offsets; a JSON text that repeats the index's description; then n samples. A
sample is one u32 length for each column of variable size, in column order, then every column's bytes. All little-endian.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shardtools.errors import UsageError
from shardtools.formats import Audit, Chunk, ShardFacts, StoredSample, _mds_audit, _values
from shardtools.formats._mds_shard import MAX_SHARD_BYTES, MdsShardFile, ShardHeader, parse_header, split_row
from shardtools.formats._mds_values import MisfitError, Rows, ValueCodec, codec
from shardtools.sample import Batch, Field, Reject, RejectSink
from shardtools.storage import ObjectWriter

_HASHES = ("sha1", "xxh64")
_OFFSET_BYTES = 4


@dataclass(frozen=True)
class Mds:
    """MDS with its options in the words of MDSWriter."""

    compression: str | None = None
    """``zstd`` or ``zstd:LEVEL``; the uncompressed shard is then not kept."""
    hashes: tuple[str, ...] = ()
    """Hash algorithms recorded in index.json, of ``sha1`` and ``xxh64``."""
    key_column: str | None = "key"
    """The ``str`` column that names each sample; None leaves the keys out."""

    suffix: ClassVar[str] = ".mds"
    default_shard_bytes: ClassVar[int] = 64 << 20
    max_value_bytes: ClassVar[int] = MAX_SHARD_BYTES
    index_name: ClassVar[str | None] = "index.json"

    def __post_init__(self) -> None:
        if self.compression is not None:
            name, _, level = self.compression.partition(":")
            if name != "zstd" or not ((not level and self.compression == "zstd") or (level.isdigit() and 1 <= int(level) <= 22)):
                raise UsageError(f"expected --compression zstd or zstd:1 to zstd:22, got {self.compression!r}")
        for name in self.hashes:
            if name not in _HASHES:
                raise UsageError(f"expected --hashes of {', '.join(_HASHES)}, got {name!r}")
        object.__setattr__(self, "hashes", tuple(sorted(set(self.hashes))))

    @property
    def key_name(self) -> str | None:
        return self.key_column

    def shard_name(self, number: int, width: int) -> str:
        return f"shard.{number:0{max(width, 5)}d}.mds" + (".zstd" if self.compression else "")

    def encoder(self, fields: Sequence[Field], shard_bytes: int | None) -> "MdsEncoder":
        columns = self._columns(fields)
        header = self._header(fields, shard_bytes)
        return MdsEncoder(columns, self.key_column, self._budget(header, shard_bytes), MAX_SHARD_BYTES - header.base_bytes)

    def shard_file(self, fields: Sequence[Field], shard_bytes: int | None, output: ObjectWriter) -> MdsShardFile:
        return MdsShardFile(self._header(fields, shard_bytes), output)

    def index(self, fields: Sequence[Field], shard_bytes: int | None, shards: Sequence[tuple[str, ShardFacts]]) -> bytes:
        config = self._header(fields, shard_bytes).config
        entries = [{**config, "samples": facts.num_samples, **_named(name, facts)} for name, facts in shards]
        return json.dumps({"shards": entries, "version": 2}, sort_keys=True).encode()

    def stored_samples(self, shard: memoryview) -> Iterator[StoredSample]:
        header, offsets = parse_header(shard)
        names, sizes = header.config["column_names"], header.config["column_sizes"]
        key_column = self.key_column if self.key_column in names else None
        for i in range(len(offsets) - 1):
            values = split_row(shard, int(offsets[i]), int(offsets[i + 1]), names, sizes)
            key = bytes(values[key_column]).decode("utf-8", "surrogateescape") if key_column else f"{i:08d}"
            yield StoredSample(key, int(offsets[i]), values)

    def audit(self, shard: memoryview, audit: Audit) -> Iterator[StoredSample]:
        return _mds_audit.samples(shard, audit, self.key_column)

    def decode(self, field: Field, data: bytes) -> Any:
        return _values.decode(field.encoding, data)

    def _columns(self, fields: Sequence[Field]) -> list[Field]:
        for field in fields:
            if field.optional and field.encoding not in ("json", "bytes", "str"):
                raise UsageError(
                    f"expected every sample to have the field {field.name}, since an MDS column of {field.encoding} cannot be "
                    f"empty; make the absent ones empty bytes with --columns {field.name}=bytes"
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
                "column_sizes": [codec(field.encoding).fixed_bytes for field in columns],
            }
        )

    def _budget(self, header: ShardHeader, shard_bytes: int | None) -> int:
        limit = MAX_SHARD_BYTES if shard_bytes is None else min(shard_bytes, MAX_SHARD_BYTES)
        if self.compression:
            # Data that does not compress grows by up to one byte in 256.
            limit -= (limit >> 8) + 64
        if limit <= header.base_bytes:
            raise UsageError(f"expected a shard size above the {header.base_bytes} bytes an empty MDS shard takes, got {shard_bytes}")
        return limit - header.base_bytes


class MdsEncoder:
    """Lays rows out column by column, a batch at a time."""

    def __init__(self, columns: Sequence[Field], key_column: str | None, budget_bytes: int, max_budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.max_budget_bytes = max_budget_bytes
        self._columns = [(field, codec(field.encoding)) for field in columns]
        self._key_column = key_column
        self._num_variable = sum(value_codec.fixed_bytes is None for _, value_codec in self._columns)

    def planned_cost(self, key_bytes: int, field_bytes: Mapping[str, int]) -> int:
        cost = _OFFSET_BYTES + 4 * self._num_variable
        for field, value_codec in self._columns:
            if value_codec.fixed_bytes is not None:
                cost += value_codec.fixed_bytes
            elif field.name == self._key_column:
                cost += key_bytes
            else:
                cost += field_bytes.get(field.name, len(_absent(field)))
        return cost

    def encode(self, batch: Batch, reject: RejectSink) -> Chunk:
        try:
            columns, lengths, costs = self._encode_columns(batch)
        except Exception:  # any misfit at all: look at each value to say which and why
            batch = self._without_misfits(batch, reject)
            columns, lengths, costs = self._encode_columns(batch)
        runs = _merge_fixed([lengths.astype("<u4").view(np.uint8).reshape(len(batch), 4 * self._num_variable), *columns])
        pieces: list[bytes] = [b""] * (len(batch) * len(runs))
        for j, run in enumerate(runs):
            pieces[j :: len(runs)] = run if isinstance(run, list) else _rows(run)
        ends = range(len(runs), len(pieces) + 1, len(runs))
        return Chunk(batch.keys, pieces, ends, costs.tolist(), [self._field_set] * len(batch))

    @property
    def _field_set(self) -> str:
        return ",".join(field.name for field, _ in self._columns)

    def _values(self, batch: Batch, field: Field) -> Sequence[Any]:
        if field.name == self._key_column:
            return batch.keys
        values = batch.columns[field.name]
        if field.optional or field.encoding == "json":
            return [_absent(field) if value is None else value for value in values] if None in values else values
        return values

    def _encode_columns(self, batch: Batch) -> tuple[list[list[bytes] | Rows], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Encoded columns, int64 [rows, variable columns] lengths, int64 [rows] costs. Raises anything for a misfit."""
        columns = [value_codec.encode_all(self._values(batch, field)) for field, value_codec in self._columns]
        variable = [column for column in columns if isinstance(column, list)]
        lengths = np.empty((len(batch), len(variable)), np.int64)
        for j, column in enumerate(variable):
            lengths[:, j] = np.fromiter(map(len, column), np.int64, len(column))
        fixed_bytes = sum(column.shape[1] for column in columns if not isinstance(column, list))
        costs = lengths.sum(axis=1) + (4 * len(variable) + fixed_bytes + _OFFSET_BYTES)
        if costs.max(initial=0) > self.max_budget_bytes:
            raise MisfitError("a sample is too large for any shard")
        return columns, lengths, costs

    def _without_misfits(self, batch: Batch, reject: RejectSink) -> Batch:
        columns = [(field, value_codec, self._values(batch, field)) for field, value_codec in self._columns]
        kept = []
        for i in range(len(batch)):
            found = self._misfit(i, columns, batch.where(i))
            if found is None:
                kept.append(i)
            else:
                reject(found)
        return batch.take(kept)

    def _misfit(self, i: int, columns: Sequence[tuple[Field, ValueCodec, Sequence[Any]]], where: str) -> Reject | None:
        row_bytes = 0
        for field, value_codec, values in columns:
            if values[i] is None and field.encoding != "json":
                flag = f"--columns {field.name}=json allows null"
                return Reject("missing-field", where, f"expected {field.encoding} in the field {field.name!r}, got none; {flag}")
            try:
                row_bytes += len(value_codec.encode_one(values[i]))
            except MisfitError as misfit:
                hint = f"--columns {field.name}={'bytes' if type(values[i]) is bytes else 'json'} takes any value"
                head = values[i] if type(values[i]) is bytes else repr(values[i]).encode(errors="backslashreplace")
                return Reject("wrong-type", where, f"field {field.name!r}: {misfit}; {hint}", head[:64])
        if row_bytes + 4 * self._num_variable + _OFFSET_BYTES > self.max_budget_bytes:
            return Reject("too-large", where, f"expected a sample below 4 GiB, the most an MDS shard can hold, got {row_bytes} bytes")
        return None


def _absent(field: Field) -> bytes:
    """What stands for an absent value: MDS columns are in every row."""
    return b"null" if field.encoding == "json" else b""


def _merge_fixed(columns: Sequence[list[bytes] | Rows]) -> list[list[bytes] | Rows]:
    """Neighbouring columns of fixed size as one, so that a row is as few pieces as possible."""
    runs: list[list[bytes] | Rows] = []
    for column in columns:
        if runs and not isinstance(column, list) and not isinstance(runs[-1], list):
            runs[-1] = np.concatenate([runs[-1], column], axis=1)
        else:
            runs.append(column)
    return runs


def _rows(column: Rows) -> list[bytes]:
    num_rows, width = column.shape
    data = column.tobytes()
    return [data[i : i + width] for i in range(0, num_rows * width, width)] if width else [b""] * num_rows


def _named(name: str, facts: ShardFacts) -> dict[str, Any]:
    """The index entry's ``raw_data`` and ``zip_data``, whose names only publication knows."""
    raw, compressed = facts.details["raw_data"], facts.details["zip_data"]
    if compressed is None:
        return {"raw_data": {**raw, "basename": name}, "zip_data": None}
    return {
        "raw_data": {**raw, "basename": name.removesuffix(".zstd")},
        "zip_data": {**compressed, "basename": name},
    }
