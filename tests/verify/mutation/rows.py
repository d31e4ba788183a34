"""MDS shards taken apart row by row, and every way of the damage tables to spoil them."""

import json
import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mutation import Damage, Needs, flipped_within
from mutation.sealing import Content

Row = dict[str, bytes]
FIXED = {"int": 8, "uint8": 1, "int64": 8, "float32": 4, "float64": 8}


class Shard:
    """Config and rows; what is written again unchanged is the same file."""

    def __init__(self, data: bytes) -> None:
        (count,) = struct.unpack_from("<I", data)
        self.offsets = struct.unpack_from(f"<{count + 1}I", data, 4)
        self.config: Any = json.loads(data[8 + 4 * count : self.offsets[0]])
        self.rows = [self._split(data[begin:end]) for begin, end in pairwise(self.offsets)]

    def _split(self, data: bytes) -> Row:
        sizes = self.config["column_sizes"]
        lengths = iter(struct.unpack_from(f"<{sizes.count(None)}I", data))
        at, row = 4 * sizes.count(None), {}
        for name, size in zip(self.config["column_names"], sizes, strict=True):
            length = next(lengths) if size is None else size
            row[name] = data[at : at + length]
            at += length
        return row

    def joined(self, row: Row) -> bytes:
        columns = zip(self.config["column_names"], self.config["column_sizes"], strict=True)
        return struct.pack(f"<{self.num_variable}I", *(len(row[name]) for name, size in columns if size is None)) + b"".join(row.values())

    @property
    def num_variable(self) -> int:
        return int(self.config["column_sizes"].count(None))

    @property
    def key(self) -> str:
        return "key" if "key" in self.config["column_names"] else ""


def shard_of(config: Mapping[str, Any], rows: Sequence[bytes], text: bytes | None = None) -> bytes:
    """A shard of these rows; ``text`` stands for the config in another spelling."""
    text = json.dumps(config, sort_keys=True).encode() if text is None else text
    offsets = [8 + 4 * len(rows) + len(text)]
    for row in rows:
        offsets.append(offsets[-1] + len(row))
    return struct.pack(f"<{len(offsets) + 1}I", len(rows), *offsets) + text + b"".join(rows)


def content_of(data: bytes) -> Content:
    shard = Shard(data)
    names = ",".join(name for name in shard.config["column_names"])
    return Content([names] * len(shard.rows), list(shard.offsets))


def put(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + struct.pack("<I", value) + data[at + 4 :]


def flips(data: bytes, numbers: random.Random) -> Iterator[Damage]:
    """A bit in the count, every offset, the config, the lengths and the values."""
    shard = Shard(data)
    count = len(shard.rows)
    for part, begin, end, times in (
        ("count", 0, 4, 4),
        ("first offset", 4, 8, 3),
        ("inner offset", 8, 4 + 4 * count, 6 if count > 1 else 0),
        ("last offset", 4 + 4 * count, 8 + 4 * count, 3),
        ("config", 8 + 4 * count, shard.offsets[0], 12),
    ):
        for _ in range(times):
            where, damaged = flipped_within(data, begin, end, numbers)
            yield Damage(f"{part}, {where}", Needs.SHARD if part != "config" else Needs.COUNTS, damaged)
    for i in sorted({0, count // 2, count - 1}):
        begin = shard.offsets[i]
        values = begin + 4 * shard.num_variable
        if shard.num_variable:
            where, damaged = flipped_within(data, begin, values, numbers)
            yield Damage(f"row {i}, lengths, {where}", Needs.SHARD, damaged)
        for name, value in shard.rows[i].items():
            # No bit of a value is more than content but where an encoding says how it begins.
            if value:
                where, damaged = flipped_within(data, values, values + len(value), numbers)
                yield Damage(f"row {i}, column {name}, {where}", Needs.DIGEST, damaged)
            values += len(value)


def cuts(data: bytes) -> Iterator[Damage]:
    """The file ends too early, at every kind of place."""
    shard = Shard(data)
    count, (first, *_) = len(shard.rows), shard.offsets
    middle = shard.offsets[count // 2]
    for spot, to in {
        "in the count": 3,
        "after the count": 4,
        "after the first offset": 8,
        "in the offsets": 4 + 2 * count,
        "before the last offset": 4 + 4 * count,
        "after the offsets": 8 + 4 * count,
        "in the config": (8 + 4 * count + first) // 2,
        "before the last byte of the config": first - 1,
        "after the config": first,
        "in a row's lengths": middle + 2,
        "in the last row": shard.offsets[-2] + 4 * shard.num_variable + 1,
        "before the last row": shard.offsets[-2],
        "by four bytes": len(data) - 4,
        "by the last byte": len(data) - 1,
    }.items():
        yield Damage(f"cut {spot}", Needs.SHARD, data[:to])


def frames(data: bytes) -> Iterator[Damage]:
    """Count and offsets: what the header says of the rows."""
    shard = Shard(data)
    count, table = len(shard.rows), 4
    first, last = shard.offsets[0], shard.offsets[-1]
    yield Damage("shard twice in one file", Needs.SHARD, data + data)
    yield Damage("four bytes after it", Needs.SHARD, data + bytes(4))
    yield Damage("a row after the last", Needs.SHARD, data + data[shard.offsets[-2] :])
    yield Damage("count of zero", Needs.SHARD, put(data, 0, 0))
    yield Damage("count of one less", Needs.SHARD, put(data, 0, count - 1))
    yield Damage("count of one more", Needs.SHARD, put(data, 0, count + 1))
    yield Damage("count of 2^31", Needs.SHARD, put(data, 0, 2**31))
    yield Damage("count of 2^32 - 1", Needs.SHARD, put(data, 0, 2**32 - 1))
    yield Damage("count in the other byte order", Needs.SHARD, data[3::-1] + data[4:])
    yield Damage("first offset of zero", Needs.SHARD, put(data, table, 0))
    yield Damage("first offset in the offsets", Needs.SHARD, put(data, table, 8))
    yield Damage("first offset a byte early", Needs.SHARD, put(data, table, first - 1))
    yield Damage("first offset a byte late", Needs.SHARD, put(data, table, first + 1))
    yield Damage("first offset at the end", Needs.SHARD, put(data, table, last))
    yield Damage("last offset a byte early", Needs.SHARD, put(data, table + 4 * count, last - 1))
    yield Damage("last offset a byte late", Needs.SHARD, put(data, table + 4 * count, last + 1))
    yield Damage("last offset of 2^32 - 1", Needs.SHARD, put(data, table + 4 * count, 2**32 - 1))
    relative = struct.pack(f"<{count + 1}I", *(offset - first for offset in shard.offsets))
    yield Damage("offsets relative to the first", Needs.SHARD, data[:4] + relative + data[8 + 4 * count :])
    yield Damage("offsets all zero", Needs.SHARD, data[:4] + bytes(4 * (count + 1)) + data[8 + 4 * count :])
    if count > 1:
        yield Damage("two rows as one and an empty one", Needs.SHARD, put(data, table + 4, shard.offsets[2]))
        yield Damage("an offset before the one before", Needs.SHARD, put(data, table + 4, first - 1))
        yield Damage("an offset a byte late", Needs.SHARD, put(data, table + 4, shard.offsets[1] + 1))
        falling = struct.pack("<2I", shard.offsets[2], shard.offsets[1])
        yield Damage("two offsets in the other order", Needs.SHARD, data[: table + 4] + falling + data[table + 12 :])


def configs(data: bytes) -> Iterator[Damage]:
    """The description in the shard, which no reader compares with the index."""
    shard = Shard(data)
    rows = [shard.joined(row) for row in shard.rows]
    text = json.dumps(shard.config, sort_keys=True).encode()

    def edited(name: str, needs: Needs, **changes: Any) -> Damage:
        return Damage(f"config with {name}", needs, shard_of({**shard.config, **changes}, rows))

    def spelled(name: str, needs: Needs, spelling: bytes) -> Damage:
        return Damage(f"config {name}", needs, shard_of({}, rows, spelling))

    names, encodings, sizes = (shard.config[f"column_{word}"] for word in ("names", "encodings", "sizes"))
    yield edited("version 1", Needs.SHARD, version=1)
    yield edited("another format", Needs.SHARD, format="csv")
    yield edited("another compression", Needs.COUNTS, compression="zstd:19")
    yield edited("other hashes", Needs.COUNTS, hashes=["md5"])
    yield edited("another size limit", Needs.COUNTS, size_limit=7)
    yield edited("no size limit", Needs.COUNTS, size_limit=None)
    yield edited("no columns", Needs.SHARD, column_names=[], column_encodings=[], column_sizes=[])
    yield edited("a name for two columns", Needs.SHARD, column_names=[names[-1]] * len(names))
    yield edited("a column renamed", Needs.COUNTS, column_names=[*names[:-1], names[-1] + "z"])
    yield edited("names in no order", Needs.SHARD, column_names=names[::-1])
    yield edited("names that are no text", Needs.SHARD, column_names=[0] * len(names))
    yield edited("a name less", Needs.SHARD, column_names=names[:-1])
    yield edited("an unknown encoding", Needs.SHARD, column_encodings=[*encodings[:-1], "gibberish"])
    yield edited("a pickle", Needs.COUNTS, column_encodings=[*encodings[:-1], "pkl"])
    yield edited("encodings in the other order", Needs.SHARD, column_encodings=encodings[::-1])
    yield edited("no sizes", Needs.SHARD, column_sizes=[None] * len(sizes))
    yield edited("sizes of one", Needs.SHARD, column_sizes=[1] * len(sizes))
    yield edited("a negative size", Needs.SHARD, column_sizes=[-1] * len(sizes))
    yield edited("one key more", Needs.SHARD, note="x")
    yield spelled("without a key", Needs.SHARD, text.replace(b', "version": 2', b""))
    yield spelled("with other blanks", Needs.RULES, text.replace(b": ", b":"))
    yield spelled("with keys in another order", Needs.RULES, json.dumps(dict(reversed(shard.config.items()))).encode())
    yield spelled("with a blank at the end", Needs.RULES, text + b" ")
    yield spelled("that is no JSON", Needs.SHARD, text[:-1])
    yield spelled("that is a list", Needs.SHARD, b"[]")
    yield spelled("that is none", Needs.SHARD, b"")
    yield spelled("that is nested too deep", Needs.SHARD, b"[" * 50_000 + b"]" * 50_000)
    yield spelled("that is no UTF-8", Needs.SHARD, text.replace(b"mds", b"\xff\xfe\xfd"))


def lengths(data: bytes) -> Iterator[Damage]:
    """Lengths of values in a row, with the offsets made to agree or not."""
    shard = Shard(data)
    rows = [shard.joined(row) for row in shard.rows]
    i = len(rows) // 2
    damaged = {"a byte longer": rows[i] + b"\0", "a byte shorter": rows[i][:-1], "empty": b""}
    if shard.num_variable:
        (length,) = struct.unpack_from("<I", rows[i])
        damaged["too short for its lengths"] = rows[i][: 4 * shard.num_variable - 1]
        damaged["with a length of a byte more"] = put(rows[i], 0, length + 1)
        damaged["with a length of 2^32 - 1"] = put(rows[i], 0, 2**32 - 1)
        damaged["with lengths that are right modulo 2^32"] = overflowing(rows[i], shard.num_variable)
    for name, row in damaged.items():
        yield Damage(f"a row {name}", Needs.SHARD, shard_of(shard.config, [*rows[:i], row, *rows[i + 1 :]]))


def overflowing(row: bytes, num_variable: int) -> bytes:
    """The first two lengths plus 2^31 each: right modulo 2^32."""
    if num_variable < 2:
        return put(row, 0, 2**32 - 2)
    first, second = struct.unpack_from("<2I", row)
    return put(put(row, 0, first + 2**31), 4, second + 2**31)


BAD_VALUES: dict[str, Sequence[bytes]] = {
    "str": (b"\xff", b"\xed\xa0\x80", b"caf\xe9"),
    "json": (b"", b"{", b"{}x", b"[" * 50_000, b"'x'", b"\xff", '{"x": 1}'.encode("utf-16")),
    "jpeg": (b"", b"\xff\xd8", b"GIF89a", b"\x89PNG\r\n\x1a\n"),
    "png": (b"", b"\x89PNG", b"\xff\xd8\xff\xe0"),
    "ndarray:int32": (b"", b"\x04", b"\x04\x02" + bytes(4), b"\x0b" + b"\xff" * 16 + bytes(8), b"\x04\x01\x01\x02\x03", b"\x00" + bytes(3)),
    "ndarray": (b"", b"\x07\x04\x01" + bytes(8), b"\x20\x04\x02" + bytes(4)),
}


def values(data: bytes) -> Iterator[Damage]:
    """Values that do not decode, in a row whose lengths and offsets are right."""
    shard = Shard(data)
    i = len(shard.rows) // 2
    rows = [shard.joined(row) for row in shard.rows]

    def replaced(column: str, value: bytes) -> bytes:
        return shard_of(shard.config, [*rows[:i], shard.joined({**shard.rows[i], column: value}), *rows[i + 1 :]])

    for name, encoding in zip(shard.config["column_names"], shard.config["column_encodings"], strict=True):
        for value in BAD_VALUES.get(encoding, ()):
            yield Damage(f"column {name} ({encoding}) of {value[:12]!r} and {len(value)} bytes", Needs.SHARD, replaced(name, value))
        old = shard.rows[i][name]
        if encoding == "int":
            yield Damage(f"column {name} ({encoding}) of another number", Needs.DIGEST, replaced(name, np.int64(-77).tobytes()))
        if encoding == "bytes":
            yield Damage(f"column {name} ({encoding}) of other bytes", Needs.DIGEST, replaced(name, old[::-1] + b"!"[: not old]))
    for key in (b"", b"a b", b"../x", b"/x", b"a.b", b"_x", b"x" * 81, b"a//b", b"a\nb", b"a\x1b[2Jb"):
        if shard.key:
            yield Damage(f"a key {key[:12]!r} of {len(key)} bytes", Needs.RULES, replaced(shard.key, key))


def contents(data: bytes) -> Iterator[Damage]:
    """Rows lost, doubled, moved, added."""
    shard = Shard(data)
    rows = [shard.joined(row) for row in shard.rows]
    i = len(rows) // 2

    def of(name: str, needs: Needs, chosen: Sequence[bytes]) -> Damage:
        return Damage(name, needs, shard_of(shard.config, chosen))

    twice = Needs.SHARD if shard.key else Needs.COUNTS
    yield of("no rows", Needs.COUNTS, [])
    yield of("the first row lost", Needs.COUNTS, rows[1:])
    yield of("a middle row lost", Needs.COUNTS, [*rows[:i], *rows[i + 1 :]])
    yield of("the last row lost", Needs.COUNTS, rows[:-1])
    yield of("a row twice", twice, [*rows, rows[0]])
    yield of("a row twice, side by side", twice, [rows[0], *rows])
    yield of("every row twice", twice, [*rows, *rows])
    if len(rows) > 1:
        needs = Needs.DIGEST if len(rows[0]) == len(rows[1]) else Needs.OFFSETS
        yield of("a row in place of another", twice if shard.key else needs, [rows[1], *rows[1:]])
        yield of("the first two rows in the other order", needs, [rows[1], rows[0], *rows[2:]])
    if shard.key:
        new = {**shard.rows[0], "key": b"brand-new"}
        yield of("a new row", Needs.COUNTS, [*rows, shard.joined(new)])


def damages(data: bytes, numbers: random.Random) -> Iterator[Damage]:
    """Every damage to one uncompressed MDS shard."""
    yield from flips(data, numbers)
    families: tuple[Callable[[bytes], Iterator[Damage]], ...] = (cuts, frames, configs, lengths, values, contents)
    for family in families:
        yield from family(data)
