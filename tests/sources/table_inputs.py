"""Tables for tests of sources: small, but with every kind of column."""

import datetime
import decimal
import io
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

JPEG = b"\xff\xd8\xff\xe0" + b"jpeg" * 5
PNG = b"\x89PNG\r\n\x1a\n" + b"png" * 5


def write_parquet(path: Path, table: Any, group_rows: int = 1 << 20) -> Path:
    """The table as a Parquet file; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table if isinstance(table, pa.Table) else pa.table(table), path, row_group_size=group_rows)
    return path


def parquet_bytes(table: Any) -> bytes:
    """The table as the bytes of a Parquet file."""
    buffer = io.BytesIO()
    parquet.write_table(pa.table(table), buffer)
    return buffer.getvalue()


def plain_table(count: int, seed: int = 1) -> Any:
    """Numbers, text and truth values."""
    numbers = random.Random(seed)
    return pa.table(
        {
            "id": [f"{seed}-{i}" for i in range(count)],
            "n": pa.array([numbers.randint(-9, 9) for _ in range(count)], pa.int32()),
            "score": [numbers.random() for _ in range(count)],
            "ok": [numbers.random() < 0.5 for _ in range(count)],
            "text": ["".join(numbers.choices("abcdé画\u2028 ", k=numbers.randint(0, 200))) for _ in range(count)],
        }
    )


def rich_table() -> Any:
    """Three rows of every type that a field can hold."""
    day = datetime.date(2024, 2, 29)
    moment = datetime.datetime(2024, 2, 29, 12, 30, 0, 7)
    return pa.table(
        {
            "i8": pa.array([-128, 0, 127], pa.int8()),
            "u16": pa.array([0, 1, 65535], pa.uint16()),
            "i64": pa.array([-(2**63), 0, 2**63 - 1], pa.int64()),
            "u64": pa.array([0, 1, 2**64 - 1], pa.uint64()),
            "f16": pa.array([0.5, -2.0, 1.0], pa.float16()),
            "f32": pa.array([0.1, -1.5, 3e38], pa.float32()),
            "f64": pa.array([0.1, float("inf"), -1e300], pa.float64()),
            "ok": [True, False, True],
            "text": ["", "画像", "a\u2028b"],
            "large": pa.array(["x", "y", "z"], pa.large_string()),
            "cat": pa.array(["u", "v", "u"]).dictionary_encode(),
            "raw": [b"", b"\x00\xff", b"c"],
            "fixed": pa.array([b"ab", b"cd", b"ef"], pa.binary(2)),
            "price": pa.array([decimal.Decimal("1.50"), decimal.Decimal("-0.01"), decimal.Decimal(0)], pa.decimal128(12, 2)),
            "day": pa.array([day] * 3),
            "at": pa.array([moment] * 3, pa.timestamp("us", "UTC")),
            "span": pa.array([5, 6, 7], pa.duration("ms")),
            "tags": pa.array([["a", None], [], ["b"]]),
            "info": pa.array([{"a": 1, "when": day}, {"a": None, "when": None}, {"a": 3, "when": day}]),
            "pairs": pa.array([[("k", 1)], [], [("l", None)]], pa.map_(pa.string(), pa.int64())),
            "vector": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32(), 2)),
            "grid": pa.array([[[1, 2], [3, 4], [5, 6]]] * 3, pa.list_(pa.list_(pa.int16(), 2), 3)),
        }
    )


def images(values: Sequence[tuple[bytes | None, str | None] | None]) -> Any:
    """A column of files as Hugging Face's datasets store them."""
    found = [None if value is None else {"bytes": value[0], "path": value[1]} for value in values]
    return pa.array(found, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
