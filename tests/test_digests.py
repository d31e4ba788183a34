"""Stops a digest that is overlooked, or found in the wrong slice, when tables are larger than the memory they may use."""

import random
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from shardtools import digests
from shardtools.digests import DigestTable, as_digests, grouped, thinned, together
from shardtools.errors import StorageError


def some_digests(count: int, seed: int) -> list[bytes]:
    source = random.Random(seed)
    return [source.randbytes(16) for _ in range(count)]


def repeated(table: DigestTable) -> list[bytes]:
    """What neighbours in one slice share: a digest that is not sorted in, or in two slices, is missed."""
    slices = [[row.tobytes() for row in as_digests(records)] for (records,) in together([table])]
    return list(dict.fromkeys(one for rows in slices for one, other in pairwise(rows) if one == other))


@pytest.fixture(params=["memory", "disk", "both"])
def memory_bytes(request: pytest.FixtureRequest) -> int:
    return {"memory": 1 << 30, "disk": 0, "both": 16 * 700}[request.param]


@pytest.fixture
def table_of(memory_bytes):
    tables = []

    def make(records, record_bytes=16):
        table = DigestTable(record_bytes, memory_bytes)
        for begin in range(0, len(records), 100):
            table.add(b"".join(records[begin : begin + 100]))
        tables.append(table)
        return table

    yield make
    for table in tables:
        table.close()


def test_repeats_are_found_wherever_they_lie(table_of):
    known = some_digests(2000, 1)
    doubled = sorted(known[::97])
    table = table_of([*known, *doubled, doubled[0]])
    assert len(table) == 2000 + len(doubled) + 1
    assert repeated(table) == doubled


def test_no_repeats_among_distinct_digests(table_of):
    assert repeated(table_of(some_digests(2000, 2))) == []


@pytest.mark.parametrize("edge", [bytes(16), b"\xff" * 16, b"\0" * 15 + b"\1"])
def test_digests_at_the_edges_of_the_space(table_of, edge):
    assert repeated(table_of([*some_digests(1000, 3), edge, edge])) == [edge]


def test_digests_that_agree_in_their_first_half_are_told_apart(table_of):
    half = b"h" * 8
    distinct = [half + i.to_bytes(8, "big") for i in range(1000)]
    random.Random(4).shuffle(distinct)
    assert repeated(table_of(distinct)) == []
    assert repeated(table_of([*distinct, distinct[5]])) == [distinct[5]]


def test_an_empty_table_has_no_repeats(table_of):
    assert repeated(table_of([])) == []


def test_what_follows_the_digest_stays_with_it(table_of):
    records = [digest + bytes([i % 256] * 8) for i, digest in enumerate(some_digests(1500, 5))]
    found = [row.tobytes() for (part,) in together([table_of(records, 24)]) for row in part]
    assert found == sorted(records)


def test_tables_come_together_slice_by_slice(table_of, monkeypatch):
    monkeypatch.setattr(digests, "_BUCKET_RECORDS", 300)
    shared, only_left, only_right = some_digests(800, 6), some_digests(100, 7), some_digests(90, 8)
    left, right = table_of([*shared, *only_left]), table_of([*only_right, *shared])
    num_slices, common = 0, Counter()
    for a, b in together([left, right]):
        num_slices += 1
        common.update({digest.tobytes() for digest in as_digests(a)} & {digest.tobytes() for digest in as_digests(b)})
    assert num_slices > 3
    assert sorted(common) == sorted(shared)


def test_slices_are_sorted(table_of):
    (part,) = next(together([table_of(some_digests(3000, 9))]))
    rows = [row.tobytes() for row in part]
    assert rows == sorted(rows)


def test_a_full_disk_is_one_sentence(monkeypatch, one_sentence):
    class Full:
        def seek(self, *_):
            return 0

        def write(self, _):
            raise OSError(28, "No space left on device")

        def close(self):
            pass

    monkeypatch.setattr(digests.tempfile, "TemporaryFile", lambda **_: Full())
    with pytest.raises(StorageError) as caught:
        DigestTable(16, 0).add(bytes(32))
    assert "No space left" in one_sentence(caught.value)


@pytest.mark.slow
def test_ten_million_digests_need_less_than_a_gibibyte():
    """Measured in a process of its own: 268 MB on a quiet machine."""
    script = """
import os, re
from shardtools.digests import DigestTable, as_digests, together
table = DigestTable()
twice = os.urandom(16)
table.add(twice)
for _ in range(100):
    table.add(os.urandom(16 * 100_000))
table.add(twice)
found = []
for (records,) in together([table]):
    digests = as_digests(records)
    found += digests[1:][digests[1:] == digests[:-1]].tolist()
assert found == [twice]
# Not ru_maxrss, which begins with that of the process it was started from.
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 1 << 30


def test_records_are_numpy_rows(table_of):
    (part,) = next(together([table_of(some_digests(10, 10))]))
    assert (part.shape, part.dtype) == ((10, 16), np.dtype(np.uint8))


def test_equal_records_are_grouped_whatever_bytes_they_hold():
    """Also where they differ in the last byte alone, or in a sign bit."""
    texts = [b"b" * 16, b"a" * 16, b"\xff" * 16, b"b" * 16, b"a" * 15 + b"b", b"\x7f" + b"\xff" * 15, b"a" * 16, b"b" * 16]
    order, begins = grouped(np.frombuffer(b"".join(texts), np.uint8).reshape(-1, 16))
    assert [texts[i] for i in order] == sorted(texts)
    assert begins.tolist() == [0, 2, 3, 6, 7]
    assert [part.tolist() for part in grouped(np.empty((0, 16), np.uint8))] == [[], []]


def test_of_a_digest_that_most_records_share_only_the_first_are_kept(monkeypatch, table_of):
    """Wherever they lie; all are counted."""
    monkeypatch.setattr(digests, "_BUCKET_RECORDS", 300)
    many, few = b"m" * 16, b"f" * 16
    others = some_digests(500, 11)
    texts = [*[many] * 1000, few, *others, *[many] * 1000, few, few]
    table = table_of([text + i.to_bytes(4, "big") for i, text in enumerate(texts)], 20)
    kept, total = [], 0
    for records, num_records in thinned(table, 3):
        kept += [row.tobytes() for row in records]
        total += num_records
    assert total == len(texts)
    assert [text[:16] for text in kept] == sorted([*[many] * 3, *[few] * 3, *others])
    held = {text for text in kept if text[:16] == few}
    assert held == {few + i.to_bytes(4, "big") for i in (1000, 2501, 2502)}


@pytest.mark.slow
def test_ten_million_records_of_one_digest_need_less_than_a_gibibyte():
    script = """
import os, re
from shardtools.digests import DigestTable, thinned
table = DigestTable(24)
for _ in range(100):
    table.add((bytes(16) + os.urandom(8)) * 100_000)
(first, *rest) = thinned(table, 100)
assert (len(first[0]), first[1]) == (100, 10_000_000)
# Not ru_maxrss, which begins with that of the process it was started from.
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 1 << 30
