"""``shardtools verify`` beside programs that only hash the same bytes, and beside a reader that only iterates."""

import sys
from pathlib import Path

from _claims import faster
from _inputs import SCRIPTS, SHARDTOOLS, large_shards, many_keys, scaled, tiny_shards
from _measure import DESTINATION, Case, Claim, Round, Side

NUM_LARGE = 24_000
"""At 200 KB each, 4.8 GB."""
NUM_TINY = 1_000_000
NUM_KEYS = 10_000_000


def verify_case(work: Path, scale: float) -> Case:
    """Levels 1 to 3 of large samples on one core beside ``sha256sum``, and on all cores; what ``--no-dup`` adds."""
    count = scaled(NUM_LARGE, scale)
    folder = large_shards(work, count)
    shards = [str(path) for path in sorted(folder.glob("*.tar"))]
    verify = (*SHARDTOOLS, "verify", str(folder))
    one = Side("verify --workers 1", (*verify, "--workers", "1"), count)
    no_dup = Side("verify --no-dup --workers 1", (*verify, "--no-dup", "--workers", "1"), count)
    every = Side("verify", verify, count)
    plain = Side("sha256sum", ("sha256sum", *shards), count)
    openssl = Side("openssl dgst", ("openssl", "dgst", "-sha256", *shards), count)
    claims = [
        faster("MB/s of one core, times sha256sum", one, plain, 0.8),
        faster("MB/s of one core, times openssl dgst -sha256", one, openssl, 0.8),
        faster("MB/s, all cores times one", every, one, 1.6),
        added("time that --no-dup adds, large samples", no_dup, one, 0.3),
    ]
    return Case("verify", [one, no_dup, every, plain, openssl], claims)


def verify_tiny_case(work: Path, scale: float) -> Case:
    """Samples of two members of a few bytes, where every look costs as much as the bytes."""
    count = scaled(NUM_TINY, scale)
    folder = tiny_shards(work, count)
    verify = (*SHARDTOOLS, "verify", str(folder))
    one = Side("verify --workers 1", (*verify, "--workers", "1"), count)
    no_dup = Side("verify --no-dup", (*verify, "--no-dup"), count)
    every = Side("verify", verify, count)
    reader = Side("webdataset", (sys.executable, str(SCRIPTS / "_peers.py"), "iterate-wds", str(folder), DESTINATION), count)
    claims = [
        faster("samples/s, times iterating webdataset.WebDataset, its imports not counted", every, reader, 20.0, loop_only=True),
        faster("the same on one core", one, reader, 10.0, loop_only=True),
        added("time that --no-dup adds, tiny samples", no_dup, every, 0.3),
    ]
    return Case("verify-tiny", [one, no_dup, every, reader], claims)


def verify_memory_case(work: Path, scale: float) -> Case:
    """Ten million keys and contents, looked at for repeats."""
    count = scaled(NUM_KEYS, scale)
    folder = many_keys(work, count)
    side = Side("verify --no-dup", (*SHARDTOOLS, "verify", str(folder), "--no-dup"), count)
    bound = Claim("peak MB of a process, --no-dup", lambda round_: round_[side.name].peak_rss_bytes / 1e6, (1 << 30) / 1e6, at_most=True)
    return Case("verify-memory", [side], [bound])


def added(text: str, longer: Side, shorter: Side, bound: float) -> Claim:
    """By which part of itself the one takes longer than the other."""

    def value(round_: Round) -> float:
        return round_[longer.name].wall_seconds / round_[shorter.name].wall_seconds - 1

    return Claim(text, value, bound, at_most=True)
