"""Values that mean the same taken for different, or the reverse; and counts of a comparison that are not exact."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from shardtools.digests import DigestTable
from shardtools.verify.against._canonical import canonical_array, canonical_json, canonical_number, json_value
from shardtools.verify.against._compare import RECORD_BYTES, Differences, compare
from shardtools.verify.against._report import report
from shardtools.verify.against._samples import Found, Value
from shardtools.verify.findings import Findings

BIG = 12345678901234567890123


@pytest.mark.parametrize(
    "values", [[1, 1.0, True, b"1", b"1.0", "1e0", np.float32(1).item()], [0, -0.0, False, b"false"], [1e300, int(1e300)]]
)
def test_equal_numbers(values: list[Any]) -> None:
    assert len({canonical_number(value, None) for value in values}) == 1


@pytest.mark.parametrize(
    "pair", [(1, 1.5), (2**53, 2**53 + 1), (2**63, 2**63 + 1), (0.1, 0.1000001), (BIG, BIG + 1), (float("inf"), 1e308)]
)
def test_different_numbers(pair: tuple[Any, Any]) -> None:
    assert canonical_number(pair[0], None) != canonical_number(pair[1], None)


def test_numbers_as_narrow_as_one_side_keeps_them() -> None:
    assert canonical_number(0.1, "float32") == canonical_number(float(np.float32(0.1)), "float32")
    assert canonical_number(0.1, "float16") == canonical_number(float(np.float16(0.1)), "float16")
    assert canonical_number(0.1, "float32") != canonical_number(0.1001, "float32")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (b'{"a":1,"b":[1.50,2]}', b' {"b": [1.5, 2], "a": 1}\n'),
        (b'"\\u00e4"', '"ä"'.encode()),
        (b"1e2", b"100.0"),
        (b'["\\u0031234567890123456789"]', b'["1234567890123456789"]'),
        (b'{"n": 12345678901234567890123}', b'{"n":12345678901234567890123}'),
        (b'"\\ud800"', b'"\\uD800"'),
        (b"[NaN]", b"[NaN ]"),
    ],
)
def test_equal_json(a: bytes, b: bytes) -> None:
    assert canonical_json(json_value(a)) == canonical_json(json_value(b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (b"1", b"1.0"),
        (b"1", b"true"),
        (b"null", b"NaN"),
        (b"[1,2]", b"[2,1]"),
        (b'"1"', b"1"),
        (b"12345678901234567890123", b"12345678901234567890124"),
        (b"{}", b"[]"),
    ],
)
def test_different_json(a: bytes, b: bytes) -> None:
    assert canonical_json(json_value(a)) != canonical_json(json_value(b))


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000])
def test_no_json(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        json_value(text)


def test_arrays() -> None:
    ours = np.arange(6, dtype="<i4").reshape(2, 3)
    assert canonical_array(ours, "int32") == canonical_array([[0, 1, 2], [3, 4, 5]], "int32") == canonical_array(ours.astype(">i4"), None)
    assert canonical_array(ours, None) != canonical_array(ours.reshape(3, 2), None)
    assert canonical_array(ours, None) != canonical_array(ours.astype("i8"), None)


def table(rows: list[tuple[int, int]], memory_bytes: int) -> DigestTable:
    made = DigestTable(RECORD_BYTES, memory_bytes)
    for key, content in rows:
        made.add(digest(key) + digest(content))
    return made


def digest(number: int) -> bytes:
    """Spread over the space of digests as real ones are."""
    return random.Random(number).randbytes(16)


@pytest.mark.parametrize("memory_bytes", [1 << 20, 640], ids=["memory", "disk"])
@pytest.mark.parametrize("seed", range(8))
def test_counts_are_those_of_multisets(seed: int, memory_bytes: int) -> None:
    numbers = random.Random(seed)
    same = [(numbers.randrange(300), numbers.randrange(4)) for _ in range(400)]
    ours = same + [(numbers.randrange(400), numbers.randrange(4)) for _ in range(numbers.randrange(60))]
    theirs = numbers.sample(same, len(same)) + [(numbers.randrange(400), numbers.randrange(4)) for _ in range(numbers.randrange(60))]
    left, right = Counter(ours), Counter(theirs)
    changed = missing = foreign = 0
    for key in {key for key, _ in [*ours, *theirs]}:
        only_left = sum(count for row, count in (left - right).items() if row[0] == key)
        only_right = sum(count for row, count in (right - left).items() if row[0] == key)
        changed += min(only_left, only_right)
        missing += max(only_left - only_right, 0)
        foreign += max(only_right - only_left, 0)
    tables = table(ours, memory_bytes), table(theirs, memory_bytes)
    found = compare(*tables, limit=3)
    assert (found.num_changed, found.num_missing, found.num_foreign) == (changed, missing, foreign), f"seed {seed}"
    assert all(len(keys) <= 3 for keys in (found.changed, found.missing, found.foreign))
    assert not compare(tables[0], tables[0], 3)
    for made in tables:
        made.close()


def test_one_key_in_every_way_at_once() -> None:
    """Source: a, b. Dataset: a, c, d. One is equal, one is changed, one is foreign."""
    key = digest(7)

    def found(name: str, shard: str | None) -> Found:
        return Found(key, name.encode(), "k", {"x": Value.of(name.encode(), name)}, None, shard, None if shard is None else 5)

    findings = Findings(10)
    differences = Differences(10)
    differences.add(key, 1, 2)
    report(differences, [found("a", None), found("b", None)], [found(name, f"{name}.tar") for name in "acd"], findings)
    assert [(finding.kind, finding.shard, finding.detail) for finding in findings.all()] == [
        ("changed-sample", "c.tar", "field 'x': expected 'b', got 'c'"),
        ("foreign-sample", "d.tar", "expected the sample 2 times, as the source has it, got it 3 times"),
    ]


def test_nothing_on_one_side() -> None:
    empty, full = table([], 1 << 20), table([(1, 1), (2, 2)], 1 << 20)
    assert compare(empty, full, 9).num_foreign == 2
    assert compare(full, empty, 9).num_missing == 2
    assert not compare(empty, empty, 9)
