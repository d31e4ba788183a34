"""Neighbouring samples of a shard by columns, read quickly where the shard is sound, and with every fault told where it is not."""

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardtools.datasets import let_go
from shardtools.errors import DamagedShardError
from shardtools.formats import Audit, Columns, Fault, ShardFormat, StoredSample, UnprovenError, split_names
from shardtools.sample import Reject

BLOCK_SAMPLES = 256
_SLOW_BLOCK_BYTES = 8 << 20
_SEEN_BYTES = 32 << 20
_OF_VALUES = ("undecodable-value", "wrong-config")
"""Faults that are told when a value is decoded, and only if it is wanted."""
_CUT = "expected a whole sample, got one beside damage, of which a part may be missing"

Values = list[bytes | None]
_Taken = tuple[bytes, int, dict[str, bytes]]
"""Key, offset and values."""


@dataclass
class Block:
    """Some samples, in order. Values are the stored bytes."""

    keys: list[bytes]
    offsets: list[int]
    """Where each begins in the (uncompressed) bytes that were read."""
    names: tuple[str, ...]
    """Of the fields that any of them has."""
    read: Callable[[str], Values]
    is_dense: bool = False
    """Every sample has all of them."""
    _read: dict[str, Values] = field(default_factory=dict)

    def column(self, name: str) -> Values:
        """The values of one of ``names``, None where a sample has none."""
        if name not in self._read:
            self._read[name] = self.read(name)
        return self._read[name]

    def part(self, begin: int, end: int) -> "Block":
        """The samples from ``begin`` to before ``end``."""
        return Block(self.keys[begin:end], self.offsets[begin:end], self.names, lambda name: self.column(name)[begin:end], self.is_dense)


def block_of(columns: Columns, raw: memoryview) -> Block:
    """The samples of a quick look. Their values are copied out when they are asked for."""
    # Slices of a map are bytes at once, those of a view are not.
    data: Any = raw.obj if isinstance(raw.obj, mmap.mmap) and len(raw.obj) == len(raw) else raw
    begins, ends, firsts = columns.begins, columns.ends, columns.firsts
    if len(set(columns.field_sets)) == 1:
        names = split_names(columns.field_sets[0])
        width = len(names)
        begins, ends = begins.reshape(-1, width), ends.reshape(-1, width)

        def read(name: str) -> Values:
            j = names.index(name)
            return _slices(data, begins[:, j].tolist(), ends[:, j].tolist())

        return Block(columns.keys, columns.offsets, tuple(names), read, is_dense=True)
    sets = {joined: split_names(joined) for joined in set(columns.field_sets)}

    def read_some(name: str) -> Values:
        places = {joined: names.index(name) for joined, names in sets.items() if name in names}
        values: Values = [None] * len(columns.keys)
        for i, joined in enumerate(columns.field_sets):
            if joined in places:
                j = firsts[i] + places[joined]
                values[i] = bytes(data[begins[j] : ends[j]])
        return values

    return Block(columns.keys, columns.offsets, tuple(sorted({name for names in sets.values() for name in names})), read_some)


def _slices(data: Any, begins: list[int], ends: list[int]) -> Values:
    spans = zip(begins, ends, strict=True)
    return [bytes(data[a:b]) for a, b in spans] if type(data) is memoryview else [data[a:b] for a, b in spans]


def blocks_of_samples(samples: Iterator[StoredSample]) -> Iterator[Block]:
    """The samples of a slow look, a few at a time; their values are copied. What the look raises comes behind all it has shown."""
    taken: list[_Taken] = []
    num_bytes = 0
    try:
        for sample in samples:
            values = {name: bytes(value) for name, value in sample.values.items()}
            taken.append((sample.key.encode("utf-8", "surrogateescape"), sample.offset, values))
            num_bytes += sum(map(len, values.values()))
            if len(taken) == BLOCK_SAMPLES or num_bytes >= _SLOW_BLOCK_BYTES:
                yield _taken_block(taken)
                taken, num_bytes = [], 0
    except DamagedShardError:
        if taken:
            yield _taken_block(taken)
        raise
    if taken:
        yield _taken_block(taken)


def _taken_block(taken: Sequence[_Taken]) -> Block:
    names = sorted({name for _, _, values in taken for name in values})
    return Block(
        [key for key, _, _ in taken],
        [offset for _, offset, _ in taken],
        tuple(names),
        lambda name: [values.get(name) for _, _, values in taken],
    )


@dataclass
class ShardLook:
    """One reading of a (part of a) shard: its samples in blocks, and what is bad of it to ``reject``.

    A sample is bad where a fault is told of it; so is whatever damage may have cut.
    """

    shard_format: ShardFormat
    raw: memoryview
    reject: Callable[[Reject], None]
    where: Callable[[int, str | None], str]
    """Names the place of a byte, and of the sample of that key where it is known."""
    first_row: int = 0
    """The number of its first sample in the shard."""
    num_samples: int = 0
    """How many were read or rejected so far."""
    _seen: int = 0
    _damage_at: int | None = None
    _bad_keys: dict[str, Fault] = field(default_factory=dict)

    def blocks(self) -> Iterator[Block]:
        try:
            for columns in self.shard_format.columns(self.raw, self._audit()):
                if columns.keys:
                    self.num_samples += len(columns.keys)
                    yield block_of(columns, self.raw)
                    self._let_go(columns.offsets[-1])
        except UnprovenError:
            yield from blocks_of_samples(self._sound(self.num_samples))

    def _audit(self) -> Audit:
        return Audit(self._on_fault, looks_at_values=False, first_row=self.first_row)

    def _sound(self, num_known: int) -> Iterator[StoredSample]:
        """What the slow look finds behind the samples that the quick one has shown."""
        found = self.shard_format.audit(self.raw, self._audit())
        for i, sample in enumerate(found):
            fault = self._bad_keys.pop(sample.key, None)
            self._let_go(sample.offset)
            if i < num_known:
                continue
            self.num_samples += 1
            if self._damage_at is not None:
                # The one that was being read, then the first that was read again.
                self._damage_at = self._damage_at if sample.offset < self._damage_at else None
                self.reject(Reject("damaged-shard", self.where(sample.offset, sample.key), f"{_CUT}; restore the shard"))
            elif fault is not None:
                self.reject(Reject(fault.kind, self.where(fault.offset, sample.key), fault.detail))
            else:
                yield sample

    def _let_go(self, offset: int) -> None:
        """Of a mapped shard only what is being read stays in memory."""
        if not 0 <= offset - self._seen < _SEEN_BYTES:
            let_go(self.raw)
            self._seen = offset

    def _on_fault(self, fault: Fault) -> None:
        if fault.kind in _OF_VALUES:
            return
        if fault.key is not None:
            self._bad_keys.setdefault(fault.key, fault)
            return
        if fault.kind == "damaged-shard" and self.shard_format.index_name is None:
            self._damage_at = fault.offset  # rows of MDS do not depend on their neighbours
        self.num_samples += 1
        self.reject(Reject(fault.kind, self.where(fault.offset, None), f"{fault.detail}; restore the shard"))
