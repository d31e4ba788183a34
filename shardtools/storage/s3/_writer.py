"""Objects uploaded while they are still being written."""

import tempfile
import threading
import zlib
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from shardtools.errors import StorageError
from shardtools.storage.s3._attempts import RefusedError, attempt
from shardtools.storage.s3._deleting import delete_object
from shardtools.storage.s3._failures import checked
from shardtools.storage.s3._multipart import Upload, abort_upload, begin_upload, checksum, complete_upload
from shardtools.storage.s3._reading import version_of
from shardtools.threads import Threads

PART_BYTES = 8 << 20
"""Stores ask for 5 MiB at least."""
PARTS_OF_A_SIZE = 1000
"""After so many parts their size doubles, so that 10,000 of them, the most there may be, hold any object a store takes."""
_PARTS_AT_ONCE = 4
_ABORT_SECONDS = 2.0
"""How long an abort waits for parts that are on their way, and for its own request: whoever aborts may have been interrupted."""


def part_bytes(index: int) -> int:
    """The length of the part with this 0-based index, unless it is the last."""
    return PART_BYTES << (index // PARTS_OF_A_SIZE)


def put_object(bucket: str, key: str, data: bytes, only_new: bool = False) -> str:
    """One request for a whole object. Its ETag. Raises RefusedError."""
    condition = {"IfNoneMatch": "*"} if only_new else {}
    asked = {"Bucket": bucket, "Key": key, "Body": data, "ChecksumCRC32": checksum(data), **condition}
    return str(attempt(lambda s3: checked(s3.put_object(**asked), "ETag"))["ETag"])


class S3Writer:
    """An object nobody sees before it is finished. Memory: about six parts."""

    def __init__(self, bucket: str, key: str) -> None:
        self.spool_folder = tempfile.gettempdir()
        self.version = ""
        self._bucket, self._key = bucket, key
        self._buffer = bytearray()
        self._crc = 0
        self._upload: Upload | None = None
        self._parts: list[Future[dict[str, Any]]] = []
        self._threads = Threads(_PARTS_AT_ONCE)
        self._room = threading.BoundedSemaphore(_PARTS_AT_ONCE)
        self._stop = threading.Event()
        self._is_finished = self._is_aborted = False

    def write(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= (num_bytes := part_bytes(len(self._parts))):
            with memoryview(self._buffer) as view:
                part = bytes(view[:num_bytes])
            del self._buffer[:num_bytes]
            self._send(part)

    def finish(self) -> None:
        try:
            if self._upload is None:
                etag = put_object(self._bucket, self._key, bytes(self._buffer))
            else:
                if self._buffer:
                    self._send(bytes(self._buffer))
                etag = complete_upload(self._upload, [future.result() for future in self._parts], self._crc)
        except RefusedError as refused:
            raise self._sentence(refused) from refused
        self.version = version_of(etag)
        self._is_finished = True
        self._end()

    def abort(self) -> None:
        if self._is_aborted:
            return
        self._is_aborted = True
        self._stop.set()
        self._end()
        removing = Threads(1)
        # What cannot be removed now goes with ``discard_unfinished``.
        with suppress(RefusedError, TimeoutError):
            removing.submit(self._remove).result(_ABORT_SECONDS)
        removing.close()

    def _remove(self) -> None:
        if self._is_finished:
            delete_object(self._bucket, self._key, self._stop)
        elif self._upload is not None:
            abort_upload(self._bucket, self._key, self._upload.id, self._stop)

    def _send(self, part: bytes) -> None:
        """Raises StorageError where an earlier part could not be sent."""
        try:
            if self._upload is None:
                self._upload = begin_upload(self._bucket, self._key)
            with self._room:  # one of those before is done
                for future in self._parts[-2 * _PARTS_AT_ONCE :]:
                    if future.done():
                        future.result()
        except RefusedError as refused:
            raise self._sentence(refused) from refused
        self._room.acquire()
        self._crc = zlib.crc32(part, self._crc)
        self._parts.append(self._threads.submit(self._send_part, self._upload, len(self._parts) + 1, part))

    def _send_part(self, upload: Upload, number: int, part: bytes) -> dict[str, Any]:
        """What completing the upload needs to know of the part."""
        try:
            crc = checksum(part)
            asked = {**upload.place, "PartNumber": number, "Body": part, "ChecksumCRC32": crc}
            answer = attempt(lambda s3: checked(s3.upload_part(**asked), "ETag"), self._stop)
            known = {"ChecksumCRC32": crc} if answer.get("ChecksumCRC32") else {}
            return {"PartNumber": number, "ETag": answer["ETag"], **known}
        finally:
            self._room.release()

    def _end(self) -> None:
        self._buffer = bytearray()
        self._threads.close(_ABORT_SECONDS)

    def _sentence(self, refused: RefusedError) -> StorageError:
        return refused.sentence("write", f"s3://{self._bucket}/{self._key}")
