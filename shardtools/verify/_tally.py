"""What is counted of the samples of one shard: their number, offsets, fields, and the digests of their keys and contents."""

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from shardtools.datasets import Dataset, Shard
from shardtools.duplicates import DIGEST_BYTES, key_digest
from shardtools.formats import Columns, Fault, StoredSample, joined_names, split_names
from shardtools.verify._deep import Check, all_sound, check_by_content, check_of, is_decoded_before
from shardtools.verify._splits import split_rule
from shardtools.verify._token_rules import token_rules
from shardtools.verify.options import VerifyOptions
from shardtools.verify.stored import RECORD_BYTES

if TYPE_CHECKING:
    from shardtools.verify._token_rows import TokenTally

_digest = xxhash.xxh3_128_digest
_JOINED_BYTES = 1 << 16


class Tally:
    """Grows by whole columns after a quick look, sample by sample after a slow one; both come to the same."""

    def __init__(self, dataset: Dataset, shard: Shard, options: VerifyOptions) -> None:
        self.num_samples = 0
        self.offsets = array("Q")
        self.field_sets: Counter[str] = Counter()
        self.faults: list[Fault] = []
        """Of values, where ``deep``."""
        self.unchecked: set[str] = set()
        self._dataset = dataset
        self._shard = shard
        self._wants_contents = options.no_dup
        self._deep = options.deep
        self._max_faults = options.max_findings
        self._key_digests: list[bytes] = []
        self._content_digests: list[bytes] = []
        self._checks: dict[str, Check | None] = {}
        self.tokens = _token_tally(dataset, shard)
        """Where samples are rows of tokens."""
        self._splits = split_rule(dataset.manifest)

    def add(self, columns: Columns, raw: memoryview) -> None:
        """Count the samples of columns whose values lie in ``raw``."""
        keys = columns.keys
        if self._shard.is_keyless:
            keys = [b"%05d/%b" % (self._shard.index, key) for key in keys]
        self.num_samples += len(keys)
        self.offsets.extend(columns.offsets)
        self.field_sets.update(columns.field_sets)
        self._key_digests += map(key_digest, keys)
        self._check_splits(keys, columns.offsets)
        if self._wants_contents:
            self._content_digests += _content_digests(columns, raw)
        if self._deep or self.tokens is not None or (self._splits is not None and self._splits.field is not None):
            for i, (key, names) in enumerate(zip(keys, columns.field_sets, strict=True)):
                spans = range(columns.firsts[i], columns.firsts[i + 1])
                values = [raw[int(columns.begins[j]) : int(columns.ends[j])] for j in spans]
                named = dict(zip(split_names(names), values, strict=True))
                self._look_into(key.decode("utf-8", "surrogateescape"), columns.offsets[i], named)

    def add_sample(self, sample: StoredSample) -> None:
        """Count one sample."""
        key, names = sample.key, joined_names(list(sample.values))
        if self._shard.is_keyless:
            key = f"{self._shard.index:05d}/{key}"
        self.num_samples += 1
        self.offsets.append(sample.offset)
        self.field_sets[names] += 1
        self._key_digests.append(key_digest(key.encode("utf-8", "surrogateescape")))
        self._check_splits([key.encode("utf-8", "surrogateescape")], [sample.offset])
        if self._wants_contents:
            self._content_digests.append(_content_digest(sample, self._shard.format.key_name, self._dataset.format_name == "mds"))
        self._look_into(key, sample.offset, sample.values)

    def key_records(self, shard: int) -> bytes:
        """``stored.RECORD_BYTES`` for each sample."""
        return _records(self._key_digests, shard)

    def content_records(self, shard: int) -> bytes:
        """The same of contents; empty where they were not asked for."""
        return _records(self._content_digests, shard)

    def _check_splits(self, keys: Sequence[bytes], offsets: Sequence[int]) -> None:
        if self._splits is None or self._splits.field is not None:
            return
        for i, problem in self._splits.of_keys(keys, self._shard.split):
            self._add_fault(Fault("wrong-split", offsets[i], keys[i].decode("utf-8", "surrogateescape"), problem))

    def _look_into(self, key: str, offset: int, values: Mapping[str, memoryview]) -> None:
        if self._splits is not None and self._splits.field is not None:
            problem = self._splits.of_values(self._dataset, self._shard, key, values)
            if problem is not None:
                self._add_fault(Fault("wrong-split", offset, key, problem))
        if self.tokens is not None and (problem := self.tokens.add(values)) is not None:
            self._add_fault(Fault("broken-row", offset, key, problem))
        for name, value in values.items() if self._deep else ():
            problem = self._problem_of(name, value)
            if problem is not None:
                self._add_fault(Fault("undecodable-value", offset, key, f"field {name!r}: {problem}"))

    def _problem_of(self, name: str, value: memoryview) -> str | None:
        """Why a value does not decode; what nobody here decodes is noted as unchecked."""
        if name not in self._checks:
            is_done = is_decoded_before(self._dataset, self._shard, name)
            self._checks[name] = all_sound if is_done else check_of(self._dataset, self._shard, name)
        check = self._checks[name] or check_by_content(value)
        if check is None:
            self.unchecked.add(name)
        return None if check is None else check(value)

    def _add_fault(self, fault: Fault) -> None:
        # Beyond the limit faults are only counted, so they need no text of their own.
        self.faults.append(fault if len(self.faults) < self._max_faults else Fault(fault.kind, 0, None, ""))


def _token_tally(dataset: Dataset, shard: Shard) -> "TokenTally | None":
    rules = token_rules(dataset.manifest)
    if rules is None:
        return None
    from shardtools.verify._token_rows import TokenTally

    return TokenTally(rules, dataset, shard)


def _content_digest(sample: StoredSample, key_name: str | None, is_dense: bool) -> bytes:
    """16 bytes that depend on the names and bytes of the sample's values, not on its key; the same as of columns."""
    values = [value for name, value in sample.values.items() if name != key_name]
    names = joined_names(list(sample.values)).encode("utf-8", "surrogateescape")
    if not is_dense:
        return _digest(names + b"".join(map(_digest, values)))
    return _joined_digest(names + np.array([len(value) for value in values], "<u8").tobytes(), values)


def _content_digests(columns: Columns, raw: memoryview) -> list[bytes]:
    """The content of every sample: of digests of its values, or where these lie side by side, of all their bytes at once."""
    names = {joined: joined.encode("utf-8", "surrogateescape") for joined in set(columns.field_sets)}
    if columns.is_dense:
        return [*map(_joined_digest, _dense_heads(columns, *names.values()), _dense_values(columns, raw))] if columns.keys else []
    values = [_digest(raw[begin:end]) for begin, end in zip(columns.begins.tolist(), columns.ends.tolist(), strict=True)]
    width = columns.firsts[1] if columns.keys else 0
    if len(names) == 1 and columns.firsts == list(range(0, len(values) + 1, width)):
        (prefix,) = names.values()
        return [_digest(prefix + b"".join(parts)) for parts in zip(*(values[i::width] for i in range(width)), strict=True)]
    rows = zip(columns.field_sets, columns.firsts, columns.firsts[1:], strict=False)
    return [_digest(names[joined] + b"".join(values[first:end])) for joined, first, end in rows]


def _dense_heads(columns: Columns, names: bytes) -> list[bytes]:
    """The names, and the lengths of each sample's values but its key."""
    width = columns.firsts[1]
    lengths = (columns.ends - columns.begins).astype("<u8").reshape(-1, width)
    if columns.key_value is not None:
        lengths = np.delete(lengths, columns.key_value, axis=1)
    data, step = lengths.tobytes(), 8 * lengths.shape[1]
    return [names + data[begin : begin + step] for begin in range(0, len(data), step)] if step else [names] * len(columns.keys)


def _dense_values(columns: Columns, raw: memoryview) -> Iterator[tuple[memoryview, memoryview]]:
    """The bytes of each sample's values: those before its key, and those after it."""
    begins, ends = columns.begins.reshape(-1, columns.firsts[1]), columns.ends.reshape(-1, columns.firsts[1])
    key = columns.key_value
    spans = (
        [begins[:, 0], begins[:, 0], begins[:, 0], ends[:, -1]]
        if key is None
        else [begins[:, 0], begins[:, key], ends[:, key], ends[:, -1]]
    )
    return ((raw[a:b], raw[c:d]) for a, b, c, d in zip(*(span.tolist() for span in spans), strict=True))


def _joined_digest(head: bytes, values: Sequence[memoryview]) -> bytes:
    if sum(map(len, values)) < _JOINED_BYTES:
        return _digest(b"".join((head, *values)))
    state = xxhash.xxh3_128(head)  # copying would take longer than the digest
    for value in values:
        state.update(value)
    return state.digest()


def _records(digests: Sequence[bytes], shard: int) -> bytes:
    records = np.empty((len(digests), RECORD_BYTES), np.uint8)
    records[:, :DIGEST_BYTES] = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, DIGEST_BYTES)
    places = np.empty((len(digests), 2), "<u4")
    places[:, 0] = shard
    places[:, 1] = np.arange(len(digests))
    records[:, DIGEST_BYTES:] = places.view(np.uint8)
    return records.tobytes()
