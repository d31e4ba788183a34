"""How a bucket answers: whether it can be read at all, and how long a small read takes."""

import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from shardtools.bench.doctor.finding import Finding
from shardtools.bench.places import objects_of
from shardtools.errors import StorageError
from shardtools.storage import open_storage

_NUM_READS = 7
_READ_BYTES = 4096
_SECONDS = 30.0
_FAR_SECONDS = 0.05
"""Within one region a store answers sooner."""


@dataclass(frozen=True)
class Bucket:
    """Of one URI that is no path of this machine."""

    uri: str
    list_seconds: float | None = None
    """Until the first object of the listing is there, with the first connection. None: nothing is there, or it failed."""
    read_seconds: tuple[float, ...] = ()
    """Of small reads, one after another, on a connection that stands. Empty where the first object is."""
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def ask(uri: str, seconds: float = _SECONDS) -> Bucket:
    """Lists, and reads a few KiB of the first object; gives up after so long, as storage repeats what fails for minutes.

    Raises UsageError for a URI that no storage knows.
    """
    open_storage(uri)
    found: list[Bucket] = []
    thread = threading.Thread(target=lambda: found.append(_ask(uri)), daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else Bucket(uri, error=f"it did not answer within {seconds:.0f} s; check the endpoint and the network")


def _ask(uri: str) -> Bucket:
    try:
        began = time.monotonic()
        first = next(objects_of(uri), None)
        if first is None:
            return Bucket(uri)
        list_seconds = time.monotonic() - began
        root, entry = first
        return Bucket(uri, list_seconds, tuple(_reads(root, entry.name, min(entry.num_bytes, _READ_BYTES))))
    except StorageError as error:
        return Bucket(uri, error=str(error))


def _reads(root: str, name: str, num_bytes: int) -> Iterator[float]:
    storage, buffer = open_storage(root), memoryview(bytearray(num_bytes))
    for _ in range(_NUM_READS if num_bytes else 0):
        began = time.monotonic()
        storage.read_into(name, buffer)
        yield time.monotonic() - began


def bucket_findings(bucket: Bucket) -> Iterator[Finding]:
    """One sentence."""
    uri, reads = bucket.uri, bucket.read_seconds
    if bucket.error is not None:
        yield Finding("fault", "storage", f"{uri} cannot be read: {bucket.error.rstrip('.')}.")
    elif bucket.list_seconds is None:
        yield Finding("fault", "storage", f"{uri} can be reached and holds nothing: correct the prefix.")
    elif not reads:
        yield Finding("note", "storage", f"{uri} can be reached: its listing began after {1000 * bucket.list_seconds:.0f} ms.")
    else:
        typical = statistics.median(reads)
        is_far = typical > _FAR_SECONDS
        remedy = "use a bucket of this region, and shards" if is_far else "read shards"
        yield Finding(
            "warning" if is_far else "note",
            "storage",
            f"{uri} answers a small read in {_ms(typical)} ms ({_ms(min(reads))} to {_ms(max(reads))}), so a worker that reads object "
            f"after object gets {1 / typical:,.0f} of them a second at most: {remedy}, or copy the data to a local disk.",
        )


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}" if seconds < 0.01 else f"{1000 * seconds:.0f}"
