"""A quick and strict look at an MDS shard: the lengths of many rows are added up at once, as rows of a matrix."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardtools import keys
from shardtools.errors import DamagedShardError
from shardtools.formats import Audit, Columns, Fault, UnprovenError, _mds_audit, _values, joined_names
from shardtools.formats._mds_shard import parse_header

_CHUNK_ROWS = 1 << 14


def columns(shard: memoryview, audit: Audit, key_column: str | None) -> Iterator[Columns]:
    """See ``ShardFormat.columns``."""
    try:
        header, offsets = parse_header(shard)
    except DamagedShardError:
        raise UnprovenError from None
    strict = Audit(_refuse, audit.own, audit.config)
    _mds_audit.check_config(shard, header, int(offsets[0]), strict)
    checks = _mds_audit.checks(header, audit)
    audit.data_end = len(shard)
    layout = _Layout.of(header.config, key_column)
    for begin in range(0, len(offsets) - 1, _CHUNK_ROWS):
        rows = offsets[begin : begin + _CHUNK_ROWS + 1].astype(np.int64)
        starts = layout.starts(shard, rows)
        taken = layout.columns(shard, rows, starts, audit.first_row + begin)
        if audit.own and layout.key_value is not None:
            _check_keys(taken.keys)
        for name, _, check in checks:
            _check_values(shard, starts, layout.names.index(name), check)
        yield taken


class _Layout(NamedTuple):
    """How the columns of one shard lie in its rows."""

    names: list[str]
    sizes: list[int | None]
    field_set: str
    key_value: int | None

    @classmethod
    def of(cls, config: dict[str, Any], key_column: str | None) -> "_Layout":
        names: list[str] = config["column_names"]
        return cls(names, config["column_sizes"], joined_names(names), names.index(key_column) if key_column in names else None)

    def starts(self, shard: memoryview, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """[n, columns + 1]: where each value begins, and where the last one ends. ``rows`` are [n + 1] offsets."""
        num_variable = self.sizes.count(None)
        head_bytes = 4 * num_variable
        begins, ends = rows[:-1], rows[1:]
        if (ends - begins < head_bytes).any():
            raise UnprovenError
        data = np.frombuffer(shard, np.uint8)
        heads = data[begins[:, None] + np.arange(head_bytes)].view("<u4").astype(np.int64)
        variable = iter(range(num_variable))
        lengths = [np.full(len(begins), size) if size is not None else heads[:, next(variable)] for size in self.sizes]
        starts: npt.NDArray[np.int64] = np.cumsum([begins + head_bytes, *lengths], axis=0).T
        if (starts[:, -1] != ends).any():
            raise UnprovenError
        return starts

    def columns(self, shard: memoryview, rows: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], first_row: int) -> Columns:
        num_rows, num_values = len(rows) - 1, len(self.names)
        begins, ends = starts[:, :-1], starts[:, 1:]
        if self.key_value is None:
            row_keys = [b"%08d" % i for i in range(first_row, first_row + num_rows)]
        else:
            spans = zip(begins[:, self.key_value].tolist(), ends[:, self.key_value].tolist(), strict=True)
            row_keys = [bytes(shard[a:b]) for a, b in spans]
        return Columns(
            keys=row_keys,
            offsets=rows[:-1].tolist(),
            field_sets=[self.field_set] * num_rows,
            firsts=list(range(0, num_rows * num_values + 1, num_values)),
            begins=begins.ravel(),
            ends=ends.ravel(),
            key_value=self.key_value,
            is_dense=True,
        )


def _check_keys(row_keys: list[bytes]) -> None:
    for key in row_keys:
        if len(key) > keys.MAX_KEY_BYTES or not keys.KEY.fullmatch(key):
            raise UnprovenError


def _check_values(shard: memoryview, starts: npt.NDArray[np.int64], column: int, check: _values.Check) -> None:
    for begin, end in zip(starts[:, column].tolist(), starts[:, column + 1].tolist(), strict=True):
        if check(shard[begin:end]) is not None:
            raise UnprovenError


def _refuse(_: Fault) -> None:
    raise UnprovenError
