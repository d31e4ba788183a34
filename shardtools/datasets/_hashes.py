"""Digests of whole files in memory."""

import hashlib
from collections.abc import Callable

import xxhash

from shardtools.datasets._unpack import let_go

_REPORTED_BYTES = 8 << 20
_XXHASHES = ("xxh32", "xxh64", "xxh128", "xxh3_64", "xxh3_128")


def sha256_of(data: memoryview, on_bytes: Callable[[int], None]) -> str:
    """The lower-case hex digest; ``on_bytes`` is told how far it came since it was last told."""
    digest = hashlib.sha256()
    for begin in range(0, len(data), _REPORTED_BYTES):
        block = data[begin : begin + _REPORTED_BYTES]
        digest.update(block)
        on_bytes(len(block))
        let_go(data)
    return digest.hexdigest()


def named_hash(name: str, data: memoryview) -> str | None:
    """The hex digest by one of the algorithms MDSWriter knows; None for another. Source: streaming/base/hashing.py (0.13.0)."""
    if name in _XXHASHES:
        return str(getattr(xxhash, name)(data).hexdigest())
    if name not in hashlib.algorithms_available or name.startswith("shake"):
        return None
    return hashlib.new(name, data).hexdigest()
