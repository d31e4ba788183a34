"""What the files of a cache are called."""

import hashlib
import re
from functools import cache

SHARD, PART, LOCK = ".shard", ".part", ".lock"
OURS = re.compile(r"([0-9a-f]{64})(\.shard|\.[0-9a-f]{16}\.part|\.lock)")
"""Digest and kind. Nothing of another name in the folder is the cache's."""
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def file_name(key: str) -> str:
    """Another one after a restart of the machine: to write every file to the disk before it is used takes longer than to fetch it.

    A loss of power may leave names without their bytes; those of an earlier start are asked for by nobody, and go as the longest unused.
    """
    return hashlib.sha256(f"{this_start()}\0{key}".encode("utf-8", "surrogatepass")).hexdigest() + SHARD


@cache
def this_start() -> str:
    """What the system calls the time since the machine was started; empty where it has no name for it."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
