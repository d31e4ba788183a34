"""Stops a hash that is wrong for large files, and an index naming an odd algorithm from ending the run that reads it."""

import hashlib

import pytest

from shardtools.datasets import named_hash, sha256_of

ABC = {
    "sha1": "a9993e364706816aba3e25717850c26c9cd0d89d",
    "md5": "900150983cd24fb0d6963f7d28e17f72",
    "xxh64": "44bc2cf5ad770999",
    "xxh3_128": "06b05ab6733a618578af5f94892f3950",
}
"""Of ``abc``; the first two as RFC 3174 and RFC 1321 have them."""


@pytest.mark.parametrize("name", ABC)
def test_known_hashes(name):
    assert named_hash(name, memoryview(b"abc")) == ABC[name]


@pytest.mark.parametrize("name", ["shake_128", "no-such", "", "XXH64", "xxhash"])
def test_what_mdswriter_does_not_know_is_none(name):
    assert named_hash(name, memoryview(b"abc")) is None


@pytest.mark.parametrize("num_bytes", [0, 1, 8 << 20, (8 << 20) + 1])
def test_sha256_in_pieces(num_bytes):
    data = memoryview(bytes(num_bytes))
    told = []
    assert sha256_of(data, told.append) == hashlib.sha256(data).hexdigest()
    assert sum(told) == num_bytes
