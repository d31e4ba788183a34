"""What lies below a prefix, page by page."""

from collections.abc import Iterator
from typing import Any

from shardtools.storage.s3._attempts import RefusedError, attempt
from shardtools.storage.s3._failures import Failure, checked
from shardtools.storage.s3._multipart import abort_upload


def objects(bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
    """``Key``, ``Size``, ``LastModified``, ``ETag`` of every object, as the store orders them. Raises RefusedError."""
    for page in _pages("list_objects_v2", {"Bucket": bucket, "Prefix": prefix}, {"ContinuationToken": "NextContinuationToken"}):
        yield from page.get("Contents", ())


def abort_uploads(bucket: str, prefix: str) -> None:
    """Every unfinished multipart upload below the prefix that the store tells of. Raises RefusedError."""
    places = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
    try:
        for page in _pages("list_multipart_uploads", {"Bucket": bucket, "Prefix": prefix}, places):
            for upload in page.get("Uploads", ()):
                # Some stores take a prefix for a folder.
                if upload["Key"].startswith(prefix):
                    abort_upload(bucket, upload["Key"], upload["UploadId"])
    except RefusedError as refused:
        # A store that cannot list them: nobody could remove them by hand either.
        if refused.failure.code not in ("NotImplemented", "501"):
            raise


def _pages(operation: str, asked: dict[str, str], places: dict[str, str]) -> Iterator[dict[str, Any]]:
    """``places``: what the request calls the place to go on from, and what the answer calls it."""
    place: dict[str, str] = {}
    while True:
        page = attempt(lambda s3, place=place: checked(getattr(s3, operation)(**asked, **place), "IsTruncated"))  # type: ignore[misc]
        yield page
        if not page["IsTruncated"]:
            return
        after = {name: page[said] for name, said in places.items() if page.get(said)}
        if not after or after == place:
            raise RefusedError(Failure("its listing does not go on where a page ended", "check the endpoint"), 1)
        place = after
