"""Ways to damage a dataset, made by struct, json and hashlib alone.

A dataset is the mapping of its file names to their bytes. A damage is a function of that mapping, so a mutant can be
compared with what it was made of, and nothing has to be repaired after it.
"""

import random
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

Files = dict[str, bytes]

MANIFEST = "shardtools.manifest"
OFFSETS = "shardtools.offsets"
INDEX = "index.json"
PLAN = ".shardtools/plan"


class Needs(Enum):
    """What it takes to tell a damaged shard from a sound one."""

    SHARD = "the shard alone"
    RULES = "to know that this package wrote the shard: others may write it so"
    COUNTS = "the counts and columns recorded beside the shard: the shard alone is one that could be"
    OFFSETS = "the offsets recorded beside the shard: nothing else differs but the place of samples"
    DIGEST = "the digest: another value, or another spelling of the same, in a shard that could be"


class Damage(NamedTuple):
    """Other bytes in place of one shard."""

    name: str
    needs: Needs
    data: bytes


class Mutant(NamedTuple):
    """A damaged dataset."""

    name: str
    files: Files


def flipped(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def flipped_within(data: bytes, begin: int, end: int, numbers: random.Random) -> tuple[str, bytes]:
    """One bit at random between two bytes, and where it is."""
    at, bit = numbers.randrange(begin, end), numbers.randrange(8)
    return f"bit {bit} of byte {at}", flipped(data, at, bit)


HTML = b"<!DOCTYPE html>\n<html><head><title>503 Service Unavailable</title></head></html>\n"


def whole_file_damages(data: bytes) -> Iterator[Damage]:
    """What networks, disks and people make of any file; no format is both sound before and after."""
    yield Damage("empty", Needs.SHARD, b"")
    yield Damage("an HTML page", Needs.SHARD, HTML)
    yield Damage("an HTML page of the right length", Needs.SHARD, (HTML * (len(data) // len(HTML) + 1))[: len(data)])
    yield Damage("one byte", Needs.SHARD, data[:1])
    yield Damage("one byte longer", Needs.SHARD, data + b"\n")
    yield Damage("garbage after it", Needs.SHARD, data + random.Random(3).randbytes(700))
    yield Damage("the first block twice", Needs.SHARD, data[:512] + data)
    yield Damage("the first block missing", Needs.SHARD, data[512:])
    yield Damage("random bytes", Needs.SHARD, random.Random(4).randbytes(len(data)))
    yield Damage("every byte inverted", Needs.SHARD, bytes(255 - byte for byte in data))
