"""WebDataset: samples as runs of tar members that share a key. Source: github.com/webdataset/webdataset, README."""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

from shardtools import keys
from shardtools.errors import UsageError
from shardtools.formats import (
    Audit,
    Chunk,
    Columns,
    ShardFacts,
    StoredSample,
    UnprovenError,
    _pieces,
    _tar,
    _tar_header,
    _text_values,
    _wds_audit,
    joined_names,
)
from shardtools.formats._wds_rows import WdsRows
from shardtools.formats._wds_values import to_bytes
from shardtools.sample import Batch, Field, Reject, RejectSink, brief
from shardtools.storage import ObjectWriter

if TYPE_CHECKING:
    from mmap import mmap

_NO_FIELDS = "expected at least one field, got a sample without any; leave it out, or give it a value"


@dataclass(frozen=True)
class Wds:
    """Pure ustar archives: no extension headers, all owners and times zero, members sorted within a sample."""

    suffix: ClassVar[str] = ".tar"
    default_shard_bytes: ClassVar[int] = 256 << 20
    max_value_bytes: ClassVar[int] = _tar.MAX_MEMBER_BYTES
    index_name: ClassVar[str | None] = None

    @property
    def key_name(self) -> str | None:
        return None

    @property
    def stored_compression(self) -> str | None:
        return None

    def shard_name(self, number: int, width: int, split: str = "") -> str:
        return f"{split or 'train'}-{number:0{max(width, 6)}d}.tar"

    def encoder(self, fields: Sequence[Field], shard_bytes: int | None) -> "WdsEncoder":
        return WdsEncoder(fields, shard_bytes)

    def shard_file(self, fields: Sequence[Field], shard_bytes: int | None, output: ObjectWriter) -> "WdsShardFile":
        return WdsShardFile(output)

    def index(self, fields: Sequence[Field], shard_bytes: int | None, shards: Sequence[tuple[str, ShardFacts]]) -> bytes:
        raise UsageError("WDS has no index file")

    def stored_samples(self, shard: memoryview) -> Iterator[StoredSample]:
        """Groups neighbouring members by the part of their name up to the first dot of the file name."""
        key, offset = "", 0
        values: dict[str, memoryview] = {}
        for member in _tar.members(shard):
            member_key, field = _tar.split_name(member.name.decode("utf-8", "surrogateescape"))
            if values and (member_key != key or field in values):
                yield StoredSample(key, offset, values)
                values = {}
            if not values:
                key, offset = member_key, member.offset
            values[field] = shard[member.data_offset : member.data_offset + member.num_bytes]
        if values:
            yield StoredSample(key, offset, values)

    def rows(self, shard: "mmap | bytes", offsets: Sequence[int] | None, views: bool) -> WdsRows:
        found = self._offsets(memoryview(shard)) if offsets is None else offsets
        return WdsRows(shard, found, memoryview(shard) if views else shard)

    def _offsets(self, shard: memoryview) -> "array[int]":
        """Of an archive nobody has looked at yet."""
        offsets, audit = array("Q"), Audit(lambda _: None)
        try:
            for columns in self.columns(shard, audit):
                offsets.extend(columns.offsets)
        except UnprovenError:
            offsets = array("Q", (sample.offset for sample in self.stored_samples(shard)))
            audit.data_end = len(shard)  # nothing begins behind the last sample
        offsets.append(audit.data_end)
        return offsets

    def audit(self, shard: memoryview, audit: Audit) -> Iterator[StoredSample]:
        return _wds_audit.samples(shard, audit)

    def columns(self, shard: memoryview, audit: Audit) -> Iterator[Columns]:
        # Only here: packing does without numpy.
        from shardtools.formats import _wds_columns

        return _wds_columns.columns(shard, audit)

    def decode(self, field: Field, data: bytes) -> Any:
        return _text_values.decode(field.encoding, data)


Member = _tar.Member


def members(archive: memoryview) -> Iterator[Member]:
    """Every entry of an archive in order, folders and links too. Raises DamagedShardError."""
    return _tar.entries(archive)


class WdsEncoder:
    """Lays the fields of each sample out as tar members, sorted by field."""

    max_budget_bytes = 1 << 62

    def __init__(self, fields: Sequence[Field], shard_bytes: int | None) -> None:
        for field in fields:
            if not keys.is_legal_field(field.name):
                raise UsageError(
                    f"expected a tar field of lower-case letters, digits, _ and inner dots, got {field.name!r}; "
                    "rename it with --map or --fields"
                )
        self._columns = [(f, b"." + f.name.encode(), to_bytes(f)) for f in sorted(fields, key=lambda f: f.name)]
        self._all_fields = joined_names([field.name for field, _, _ in self._columns])
        limit = self.max_budget_bytes if shard_bytes is None else shard_bytes
        self.budget_bytes = limit - limit % _tar.RECORD - 2 * _tar_header.BLOCK
        if self.budget_bytes < _tar_header.BLOCK:
            raise UsageError(f"expected a shard size of at least {_tar.RECORD} bytes for WDS, got {shard_bytes}")

    def planned_cost(self, key_bytes: int, names: Sequence[str], num_bytes: Sequence[int]) -> int:
        cost = 0
        for length in num_bytes:
            cost += _tar_header.BLOCK + length + -length % _tar_header.BLOCK
        return cost

    def encode(self, batch: Batch, reject: RejectSink) -> Chunk:
        pieces: list[bytes] = []
        kept, ends, costs, field_sets = [], [], [], []
        header, padding = _tar_header.header, _tar.padding
        columns = [(field, suffix, convert, batch.columns[field.name]) for field, suffix, convert in self._columns]
        for i, key in enumerate(batch.keys):
            begin, cost, names = len(pieces), 0, []
            for field, suffix, convert, values in columns:
                value = values[i]
                if value is None and field.optional:
                    continue
                data = value if type(value) is bytes else convert(value)
                name = key + suffix
                if data is None or len(name) > keys.MAX_MEMBER_BYTES or len(data) > _tar.MAX_MEMBER_BYTES:
                    del pieces[begin:]
                    reject(_reason(batch.where(i), name, field, value, data))
                    break
                length = len(data)
                pieces += (header(name, length), data, padding(length))
                cost += _tar_header.BLOCK + length + -length % _tar_header.BLOCK
                names.append(field.name)
            else:
                if names:
                    kept.append(i)
                    ends.append(len(pieces))
                    costs.append(cost)
                    field_sets.append(self._all_fields if len(names) == len(columns) else joined_names(names))
                else:
                    reject(Reject("no-fields", batch.where(i), _NO_FIELDS))
        if len(kept) == len(batch):
            return Chunk(batch.keys, pieces, ends, costs, field_sets)
        return Chunk([batch.keys[i] for i in kept], pieces, ends, costs, field_sets, kept)


class WdsShardFile:
    """One archive, streamed: nothing but the block being filled is held in memory."""

    def __init__(self, output: ObjectWriter) -> None:
        self._output = output
        self._sha256 = hashlib.sha256()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._costs = array("Q")

    def append(self, pieces: Sequence[bytes], costs: Sequence[int]) -> None:
        self._costs.extend(costs)
        self._pending += pieces
        self._pending_bytes += sum(costs)
        if self._pending_bytes >= _pieces.WRITE_BYTES:
            self._flush()

    def finish(self) -> ShardFacts:
        offsets = array("Q", accumulate(self._costs, initial=0))
        self._pending.append(_tar.end_of_archive(offsets[-1]))
        self._flush()
        self._output.finish()
        num_bytes = offsets[-1] + len(_tar.end_of_archive(offsets[-1]))
        return ShardFacts(num_bytes, self._sha256.hexdigest(), len(self._costs), offsets)

    def abort(self) -> None:
        self._output.abort()

    def _flush(self) -> None:
        for block in _pieces.joined(self._pending):
            self._sha256.update(block)
            self._output.write(block)
        self._pending = []
        self._pending_bytes = 0


def _reason(where: str, name: bytes, field: Field, value: Any, data: bytes | None) -> Reject:
    member = name.decode()
    if value is None:
        sentence = f"expected a field {field.name}, got none; mark it optional with ? where it may be absent"
        return Reject("missing-field", where, sentence)
    if data is None:
        sentence = (
            f"expected a value that readers take from .{field.name}, got {type(value).__name__} {brief(value)}; correct it, "
            "or choose a member of another name with --map"
        )
        return Reject("wrong-type", where, sentence, brief(value).encode(errors="backslashreplace"))
    if len(name) > keys.MAX_MEMBER_BYTES:
        sentence = (
            f"expected a member name of at most {keys.MAX_MEMBER_BYTES} bytes, got {len(name)}: {member}; give the field a shorter name"
        )
        return Reject("name-too-long", where, sentence)
    return Reject("too-large", where, f"expected a member below 8 GiB, the most a tar can hold, got {len(data)} bytes: {member}")
