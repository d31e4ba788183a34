"""Objects copied by the store itself."""

import threading
from contextlib import suppress
from typing import Any

from shardtools.storage.s3._attempts import RefusedError, attempt
from shardtools.storage.s3._failures import checked
from shardtools.storage.s3._multipart import abort_upload, begin_upload, complete_upload
from shardtools.storage.s3._reading import Object
from shardtools.threads import in_order

_AT_ONCE_BYTES = 1 << 30
"""What one request copies at most. Stores take 5 GiB; some copy byte by byte, and then the answer would not come in time."""
_PART_BYTES = 256 << 20
_MOST_PARTS = 10_000
_PARTS_AT_ONCE = 8


def part_bytes(num_bytes: int) -> int:
    """The length of each part but the last, of an object of so many bytes."""
    return max(_PART_BYTES, -(-num_bytes // _MOST_PARTS))


def copy(found: Object, target: str) -> None:
    """To another key of the same bucket; nobody sees it before it is whole. Raises RefusedError."""
    source = {"CopySource": {"Bucket": found.bucket, "Key": found.key}, "CopySourceIfMatch": found.etag}
    if found.num_bytes <= _AT_ONCE_BYTES:
        attempt(lambda s3: checked(s3.copy_object(Bucket=found.bucket, Key=target, **source), "CopyObjectResult", "ETag"))
        return
    upload = begin_upload(found.bucket, target, is_copy=True)
    num_bytes = part_bytes(found.num_bytes)

    def copy_part(begin: int, stop: threading.Event) -> dict[str, Any]:
        number = begin // num_bytes + 1
        part = f"bytes={begin}-{min(begin + num_bytes, found.num_bytes) - 1}"
        asked = {**upload.place, **source, "PartNumber": number, "CopySourceRange": part}
        answer = attempt(lambda s3: checked(s3.upload_part_copy(**asked), "CopyPartResult", "ETag"), stop)
        return {"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]}

    try:
        complete_upload(upload, list(in_order(copy_part, range(0, found.num_bytes, num_bytes), _PARTS_AT_ONCE)))
    except BaseException:
        # What cannot be removed now goes with ``discard_unfinished``.
        with suppress(RefusedError):
            abort_upload(found.bucket, target, upload.id)
        raise
