"""Stops a repeated key from slipping through between partitions, and twins from going unnoticed."""

import random

import pytest
import xxhash

from shardtools import duplicates
from shardtools.duplicates import DigestRun, key_digest, num_twins, repeats


def digest(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_a_key_digest_is_xxh3_of_the_key():
    assert key_digest(b"abc").hex() == xxhash.xxh3_128_hexdigest(b"abc") == "06b05ab6733a618578af5f94892f3950"


def test_a_run_is_sorted_and_can_be_sliced_by_value():
    run = DigestRun.of([digest(n) for n in (5, 1, 9, 3)])
    assert list(run) == [digest(n) for n in (1, 3, 5, 9)]
    assert len(run) == 4 and run[-0] == digest(1) and run[1:3] == [digest(3), digest(5)]
    assert run.between(digest(3), digest(9)) == [digest(3), digest(5)]
    assert run.between(digest(2), None) == [digest(3), digest(5), digest(9)]
    assert run.between(digest(10), None) == []
    with pytest.raises(IndexError):
        run[4]


def test_repeats_within_and_between_runs_are_each_named_once():
    runs = [DigestRun.of([digest(n) for n in some]) for some in ([1, 2, 2], [3, 4], [4, 1, 1], [])]
    assert list(repeats(runs)) == [digest(1), digest(2), digest(4)]
    assert list(repeats([])) == []
    assert list(repeats([DigestRun(b""), DigestRun(b"")])) == []


def edge_digests(numbers: random.Random) -> list[bytes]:
    """Random ones, and ones that lie at the borders of the first two bytes."""
    borders = [digest((n << 112) + delta) for n in (0, 1, 2**15, 2**16 - 1) for delta in (0, 1)] + [b"\xff" * 16]
    return [numbers.randbytes(16) for _ in range(5000)] + borders


@pytest.mark.parametrize("bucket", [1, 7, 100, 1 << 20])
def test_repeats_are_found_whatever_is_held_at_a_time(bucket, monkeypatch):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    numbers = random.Random(seed)
    monkeypatch.setattr(duplicates, "_BUCKET_DIGESTS", bucket)
    together = edge_digests(numbers)
    twice = set(numbers.sample(together, 50)) | {b"\xff" * 16, digest(0)}
    together = list(dict.fromkeys(together)) + list(twice)
    numbers.shuffle(together)
    cuts = sorted(numbers.sample(range(len(together)), 6))
    runs = [DigestRun.of(together[a:b]) for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
    assert list(repeats(runs)) == sorted(twice)


@pytest.mark.parametrize("bucket", [1, 100, 1 << 20])
def test_twins_are_counted_whatever_is_held_at_a_time(bucket, monkeypatch):
    monkeypatch.setattr(duplicates, "_BUCKET_DIGESTS", bucket)
    numbers = random.Random(2)
    plain = [numbers.randbytes(16) for _ in range(1000)]
    # Three fold to a key that is there, two of four others fold alike.
    folded = [*plain[:3], digest(7), digest(7), digest(8), digest(9)]
    assert num_twins([DigestRun.of(plain[:400]), DigestRun.of(plain[400:])], [DigestRun.of(folded[:4]), DigestRun.of(folded[4:])]) == 4


def test_without_folded_keys_there_are_no_twins():
    assert num_twins([DigestRun.of([digest(1)])], [DigestRun(b"")]) == 0
