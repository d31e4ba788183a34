"""What processes that share a cache do, in a file a spawned one can import."""

import hashlib
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from watching import wait_until

from shardtools.loaders._cache import ShardCache


def text(key: str) -> bytes:
    """What the file of a key holds: from 1 to 40,000 bytes that fit no other key and no other length."""
    digest = hashlib.sha256(b"text of " + key.encode()).digest()
    return (b"<" + digest * 1250)[: 1 + int.from_bytes(digest[:2], "big") % 39_999] + b">"


def making(key: str, log: Path, seconds: float = 0.0) -> Callable[[str], None]:
    """Writes one half, waits, writes the other; the log has a line for each beginning and each end."""

    def make(path: str) -> None:
        data = text(key)
        note(log, f"begin {key}")
        with open(path, "xb", buffering=0) as file:
            file.write(data[: len(data) // 2])
            time.sleep(seconds)
            file.write(data[len(data) // 2 :])
        note(log, f"end {key}")

    return make


def note(log: Path, line: str) -> None:
    with open(log, "ab", buffering=0) as file:
        file.write(line.encode() + b"\n")


def noted(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def wait_for(log: Path, line: str, count: int = 1) -> None:
    wait_until(lambda: noted(log).count(line) >= count)


def use(cache: ShardCache, key: str, log: Path, seconds: float = 0.0) -> None:
    """One use; it notes what it found, and what it left open or locked."""
    before = len(os.listdir("/proc/self/fd"))
    with cache.open(key, making(key, log, seconds)) as file:
        whole = file.read() == text(key)
    left = len(os.listdir("/proc/self/fd")) - before
    locked = f" {os.getpid()} " in Path("/proc/locks").read_text()
    note(log, f"used {key} whole={whole} left={left} locked={locked}")


def use_when_told(cache: ShardCache, key: str, log: Path, told: Path) -> None:
    note(log, "ready")
    wait_until(told.exists)
    use(cache, key, log, 0.2)


def make_until_told(cache: ShardCache, key: str, log: Path, told: Path) -> None:
    """Writes one half, and the other when it is told to."""

    def make(path: str) -> None:
        data = text(key)
        half = len(data) // 2
        Path(path).write_bytes(data[:half])
        note(log, f"begin {key}")
        wait_until(told.exists)
        with open(path, "ab") as file:
            file.write(data[half:])

    cache.open(key, make).close()


def use_many(cache: ShardCache, seed: int, log: Path) -> None:
    """Uses keys at random until it is killed."""
    numbers = random.Random(seed)
    while True:
        key = f"k{numbers.randrange(12)}"
        with cache.open(key, making(key, log, numbers.choice([0.0, 0.002, 0.01]))) as file:
            if file.read() != text(key):
                note(log, f"half of {key}")


def fork_while_making(cache: ShardCache, key: str, log: Path) -> None:
    """A thread makes; meanwhile a child is forked, with a copy of all that is open, and lives on."""
    thread = threading.Thread(target=use, args=(cache, key, log, 0.3))
    thread.start()
    wait_for(log, f"begin {key}")
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    thread.join()
    note(log, f"child {child}")
