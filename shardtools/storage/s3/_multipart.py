"""Objects sent in parts: begun, completed, aborted."""

import base64
import hashlib
import threading
import zlib
from dataclasses import dataclass
from typing import Any

from shardtools.storage.s3._attempts import RefusedError, attempt
from shardtools.storage.s3._failures import checked


@dataclass(frozen=True)
class Upload:
    """One that was begun; nobody sees its object before it is completed."""

    bucket: str
    key: str
    id: str
    takes_whole_checksum: bool
    """The store keeps a checksum of the whole object, not of its parts' checksums."""

    @property
    def place(self) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": self.key, "UploadId": self.id}


def checksum(data: "bytes | memoryview") -> str:
    """CRC32 as S3 writes it; the store compares it with what came."""
    return written_checksum(zlib.crc32(data))


def written_checksum(crc: int) -> str:
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


def begin_upload(bucket: str, key: str, is_copy: bool = False) -> Upload:
    """Raises RefusedError."""
    # Of what the store copies it knows the checksum better.
    asked = {} if is_copy else {"ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"}
    begun = attempt(lambda s3: checked(s3.create_multipart_upload(Bucket=bucket, Key=key, **asked), "UploadId"))
    return Upload(bucket, key, begun["UploadId"], begun.get("ChecksumType") == "FULL_OBJECT")


def complete_upload(upload: Upload, parts: list[dict[str, Any]], crc: int | None = None) -> str:
    """Make the object of its parts, in their order. ``crc``: CRC32 of them all, where it is known. Its ETag. Raises RefusedError."""
    asked: dict[str, Any] = {**upload.place, "MultipartUpload": {"Parts": parts}}
    if crc is not None and upload.takes_whole_checksum:
        asked |= {"ChecksumCRC32": written_checksum(crc), "ChecksumType": "FULL_OBJECT"}
    try:
        return str(attempt(lambda s3: checked(s3.complete_multipart_upload(**asked), "ETag"))["ETag"])
    except RefusedError as refused:
        # An attempt whose answer was lost may have done it: then the upload is gone and the object is there.
        etag = _stored_etag(upload, parts) if refused.failure.code == "NoSuchUpload" else ""
        if not etag:
            raise
        return etag


def abort_upload(bucket: str, key: str, upload_id: str, stop: threading.Event | None = None) -> None:
    """No error if it is gone already. Raises RefusedError."""
    try:
        attempt(lambda s3: s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id), stop)
    except RefusedError as refused:
        if refused.failure.code not in ("NoSuchUpload", "404"):
            raise


def _stored_etag(upload: Upload, parts: list[dict[str, Any]]) -> str:
    """Of the object, where it is the one of these parts by what stores make of theirs; else empty."""
    digests = "".join(str(part["ETag"]).strip('"') for part in parts)
    try:
        expected = hashlib.md5(bytes.fromhex(digests), usedforsecurity=False).hexdigest() + f"-{len(parts)}"
        etag = str(attempt(lambda s3: checked(s3.head_object(Bucket=upload.bucket, Key=upload.key), "ETag"))["ETag"])
    except (ValueError, RefusedError):
        return ""
    return etag if etag.strip('"') == expected else ""
