"""Objects read by ranges, several at a time; every range is proved to be of one and the same object."""

import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shardtools.storage.s3._attempts import RefusedError, attempt
from shardtools.storage.s3._failures import BrokenAnswerError, Failure, checked
from shardtools.storage.s3._multipart import written_checksum
from shardtools.threads import in_order

RANGE_BYTES = 8 << 20
_RANGES_AT_ONCE = 8
_FIRST_BYTES = 256 << 10
_AHEAD = 4
_WITHOUT_WORDS = ("400", "403", "301", "307")
_OTHER_BYTES = "other bytes came than were stored, by their checksum"
_AGAIN = "run the same command again; if it happens again, restore the object"
_REPLACED = "it was replaced while it was read: run again when nothing writes to it"


@dataclass(frozen=True)
class Object:
    """One object as it was found; what is read of it later must still be the same."""

    bucket: str
    key: str
    num_bytes: int
    etag: str
    """In its quotes."""
    checksum: str = ""
    """CRC32 of the whole, where the store keeps it."""


def version_of(etag: str) -> str:
    """Without its quotes, which not every store writes in listings."""
    return etag.strip('"')


def etag_of(version: str) -> str:
    """The other way round."""
    return f'"{version}"'


def find(bucket: str, key: str) -> tuple[Object, int]:
    """The object, and when it was stored in nanoseconds since 1970. Raises RefusedError, whose failure may say that it is missing."""

    def request(s3: Any) -> dict[str, Any]:
        answer = checked(s3.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED"), "ETag")
        return checked(checked(answer, "ContentLength"), "LastModified")

    try:
        found = attempt(request)
    except RefusedError as refused:
        if refused.failure.code not in _WITHOUT_WORDS:
            raise
        # What refuses HEAD has no body that says why.
        attempt(lambda s3: s3.get_object(Bucket=bucket, Key=key, Range="bytes=0-0"))
        found = attempt(request)
    crc = str(found.get("ChecksumCRC32", ""))
    # With a dash it is one of checksums, of parts that nobody knows any more.
    whole = "" if "-" in crc else crc
    modified_ns = int(found["LastModified"].timestamp() * 1e9)
    return Object(bucket, key, int(found["ContentLength"]), found["ETag"], whole), modified_ns


def get_object(bucket: str, key: str) -> bytes:
    """A whole object in one request. Raises RefusedError."""

    def request(s3: Any) -> bytes:
        answer = checked(checked(s3.get_object(Bucket=bucket, Key=key), "ContentLength"), "ETag")
        data: bytes = answer["Body"].read()
        if len(data) != answer["ContentLength"]:
            raise BrokenAnswerError(f"expected {answer['ContentLength']} bytes, {len(data)} came")
        return data

    return attempt(request)


def get_range(found: Object, begin: int, end: int, stop: threading.Event | None = None) -> bytes:
    """Bytes ``begin`` to ``end`` of an object that is still the one that was found. Raises RefusedError."""

    def request(s3: Any) -> bytes:
        whole = begin == 0 and end == found.num_bytes  # then the store sends a checksum too
        part = {} if whole else {"Range": f"bytes={begin}-{end - 1}"}
        answer = s3.get_object(Bucket=found.bucket, Key=found.key, IfMatch=found.etag, **part)
        data: bytes = answer["Body"].read()
        if checked(answer, "ETag")["ETag"] != found.etag:  # a store without conditions
            raise RefusedError(Failure("another object came", _REPLACED, "PreconditionFailed"), 1)
        if len(data) != end - begin:
            raise BrokenAnswerError(f"the answer lacks bytes: expected {begin} to {end}, {len(data)} bytes came")
        return data

    return b"" if begin == end else attempt(request, stop)


def pieces(found: Object, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
    """A part of the object in order, as fast as it comes. Memory: about ten ranges. Raises RefusedError."""
    last = found.num_bytes if end is None else end
    parts = ((start, min(start + RANGE_BYTES, last)) for start in range(begin, last, RANGE_BYTES))
    return _in_order(found, parts, 1 if last - begin <= RANGE_BYTES else _RANGES_AT_ONCE)


def pieces_ahead(found: Object, begin: int, end: int) -> Iterator[bytes]:
    """A part of the object in order, in pieces that grow: whoever looks at the beginning alone has little to wait for."""
    return _in_order(found, _growing(begin, end), _AHEAD)


def pieces_asked(found: Object, begin: int) -> Iterator[bytes]:
    """The rest of the object in order, in pieces that grow; none is read before it is asked for."""
    return _in_order(found, _growing(begin, found.num_bytes), 1)


def _in_order(found: Object, parts: Iterator[tuple[int, int]], num_at_once: int) -> Iterator[bytes]:
    """What was read of a whole object is compared with its checksum before the last piece is given, where the store keeps one."""

    def get(part: tuple[int, int], stop: threading.Event) -> bytes:
        return get_range(found, *part, stop)

    crc = num_bytes = 0
    for piece in in_order(get, parts, num_at_once):
        crc, num_bytes = zlib.crc32(piece, crc), num_bytes + len(piece)
        if num_bytes == found.num_bytes and found.checksum and written_checksum(crc) != found.checksum:
            raise RefusedError(Failure(_OTHER_BYTES, _AGAIN), 1)
        yield piece


def _growing(begin: int, end: int) -> Iterator[tuple[int, int]]:
    num_bytes = _FIRST_BYTES
    while begin < end:
        last = min(begin + num_bytes, end)
        yield begin, last
        begin, num_bytes = last, min(2 * num_bytes, RANGE_BYTES)
