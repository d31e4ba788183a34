"""Rows of MDS columns as the pieces of a shard."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardtools.formats import Chunk, joined_names
from shardtools.formats._mds_arrays import MisfitError, Rows
from shardtools.formats._mds_values import ValueCodec, codec_of
from shardtools.sample import HEAD_BYTES, Batch, Field, Reject, RejectSink, brief

_OFFSET_BYTES = 4


class MdsEncoder:
    """Lays rows out column by column, a batch at a time."""

    def __init__(self, columns: Sequence[Field], key_column: str | None, budget_bytes: int, max_budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.max_budget_bytes = max_budget_bytes
        self._columns = [(field, codec_of(field)) for field in columns]
        self._key_column = key_column
        self._num_variable = sum(value_codec.fixed_bytes is None for _, value_codec in self._columns)

    def planned_cost(self, key_bytes: int, names: Sequence[str], num_bytes: Sequence[int]) -> int:
        lengths = dict(zip(names, num_bytes, strict=True))
        if self._key_column is not None:
            lengths[self._key_column] = key_bytes
        cost = _OFFSET_BYTES + 4 * self._num_variable
        for field, value_codec in self._columns:
            fixed = value_codec.fixed_bytes
            cost += lengths.get(field.name, len(_absent(field))) if fixed is None else fixed
        return cost

    def encode(self, batch: Batch, reject: RejectSink) -> Chunk:
        kept = None
        try:
            columns, lengths, costs = self._encode_columns(batch)
        except Exception:  # any misfit at all: look at each value to say which and why
            kept = self._without_misfits(batch, reject)
            batch = batch.take(kept)
            columns, lengths, costs = self._encode_columns(batch)
        runs = _merge_fixed([lengths.astype("<u4").view(np.uint8).reshape(len(batch), 4 * self._num_variable), *columns])
        pieces: list[bytes] = [b""] * (len(batch) * len(runs))
        for j, run in enumerate(runs):
            pieces[j :: len(runs)] = run if isinstance(run, list) else _rows(run)
        ends = range(len(runs), len(pieces) + 1, len(runs))
        return Chunk(batch.keys, pieces, ends, costs.tolist(), [self._field_set] * len(batch), kept)

    @property
    def _field_set(self) -> str:
        return joined_names([field.name for field, _ in self._columns])

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

    def _without_misfits(self, batch: Batch, reject: RejectSink) -> list[int]:
        """The indices of the rows that can be stored; the others are rejected."""
        columns = [(field, value_codec, self._values(batch, field)) for field, value_codec in self._columns]
        kept = []
        for i in range(len(batch)):
            found = self._misfit(i, columns)
            if found is None:
                kept.append(i)
            else:
                # Only here, since finding a place takes time.
                reject(found._replace(where=batch.where(i)))
        return kept

    def _misfit(self, i: int, columns: Sequence[tuple[Field, ValueCodec, Sequence[Any]]]) -> Reject | None:
        """Why row ``i`` is bad, without its place."""
        row_bytes = 0
        for field, value_codec, values in columns:
            if values[i] is None and field.encoding != "json":
                flag = f"--columns {field.name}=json allows null"
                return Reject("missing-field", "", f"expected {field.encoding} in the field {field.name!r}, got none; {flag}")
            try:
                row_bytes += len(value_codec.encode_one(values[i]))
            except MisfitError as misfit:
                hint = f"--columns {field.name}={'bytes' if type(values[i]) is bytes else 'json'} takes any value"
                head = values[i][:HEAD_BYTES] if type(values[i]) is bytes else brief(values[i]).encode(errors="backslashreplace")
                return Reject("wrong-type", "", f"field {field.name!r}: {misfit}; {hint}", head)
        if row_bytes + 4 * self._num_variable + _OFFSET_BYTES > self.max_budget_bytes:
            return Reject("too-large", "", f"expected a sample below 4 GiB, the most an MDS shard can hold, got {row_bytes} bytes")
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
