"""Whole objects of known length, many at a time: one request for a small one, several for a large one."""

import io
import threading
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future
from typing import Any

from shardtools.storage import Whole
from shardtools.storage.s3._attempts import RefusedError, attempt
from shardtools.storage.s3._client import client
from shardtools.storage.s3._failures import BrokenAnswerError, checked
from shardtools.storage.s3._quick_get import quick_get
from shardtools.storage.s3._reading import RANGE_BYTES, find, pieces, version_of
from shardtools.threads import Threads

_REQUESTS_AT_ONCE = 64
_AHEAD_BYTES = 32 << 20
_AHEAD_OBJECTS = 2 * _REQUESTS_AT_ONCE


def wholes(bucket: str, wanted: Iterable[tuple[str, int]]) -> "Generator[Future[Whole | None]]":
    """The object of every key and length, in their order; None for one that is not there. What a future raises is a RefusedError.

    Memory: the objects that come next, as far as they hold 32 MiB, one at least.
    """
    stop = threading.Event()
    threads = Threads(_REQUESTS_AT_ONCE)
    ahead: deque[tuple[Future[Whole | None], int]] = deque()
    ahead_bytes = 0
    quick_get(client(), bucket)  # or the first threads would each make one
    try:
        for key, num_bytes in wanted:
            while ahead and (ahead_bytes + num_bytes > _AHEAD_BYTES or len(ahead) >= _AHEAD_OBJECTS):
                future, taken_bytes = ahead.popleft()
                ahead_bytes -= taken_bytes
                yield future
                del future
            ahead.append((threads.submit(_whole, bucket, key, num_bytes, stop), num_bytes))
            ahead_bytes += num_bytes
        while ahead:
            yield ahead.popleft()[0]
    finally:
        stop.set()
        threads.close()


def _whole(bucket: str, key: str, num_bytes: int, stop: threading.Event) -> Whole | None:
    try:
        if num_bytes > RANGE_BYTES:
            return _by_ranges(bucket, key, num_bytes)
        quick = quick_get(client(), bucket)
        return (quick and quick(key, num_bytes)) or attempt(lambda s3: _by_one_request(s3, bucket, key, num_bytes), stop)
    except RefusedError as refused:
        if refused.failure.is_missing:
            return None
        raise


def _by_one_request(s3: Any, bucket: str, key: str, num_bytes: int) -> Whole:
    answer = checked(checked(s3.get_object(Bucket=bucket, Key=key), "ContentLength"), "ETag")
    length = int(answer["ContentLength"])
    if length != num_bytes:
        answer["Body"].close()
        # Whoever takes it for a changed object drops a good sample where only the announcement was wrong.
        found, _ = find(bucket, key)
        if found.num_bytes == num_bytes:
            raise BrokenAnswerError(f"{num_bytes} bytes were announced as {length}")
        return Whole(b"", found.num_bytes, version_of(found.etag))
    data: bytes = answer["Body"].read()
    if len(data) != length:
        raise BrokenAnswerError(f"expected {length} bytes, {len(data)} came")
    return Whole(data, length, version_of(answer["ETag"]))


def _by_ranges(bucket: str, key: str, num_bytes: int) -> Whole:
    found, _ = find(bucket, key)
    if found.num_bytes != num_bytes:
        return Whole(b"", found.num_bytes, version_of(found.etag))
    # Its value is the buffer itself: pieces that are joined would be there twice.
    buffer = io.BytesIO()
    for piece in pieces(found):
        buffer.write(piece)
    return Whole(buffer.getvalue(), num_bytes, version_of(found.etag))
