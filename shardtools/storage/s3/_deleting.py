"""Objects removed."""

import threading
from collections.abc import Iterator
from typing import Any

from shardtools.storage.s3._attempts import RefusedError, attempt
from shardtools.storage.s3._failures import BrokenAnswerError
from shardtools.storage.s3._listing import objects
from shardtools.threads import in_order

_DELETED_AT_ONCE = 1000
_REQUESTS_AT_ONCE = 8


def delete_object(bucket: str, key: str, stop: threading.Event | None = None) -> None:
    """No error if it is gone already. Raises RefusedError."""

    def request(s3: Any) -> None:
        metadata = s3.delete_object(Bucket=bucket, Key=key)["ResponseMetadata"]
        # There is nothing to say; a gateway that answers everything with a page of its own has removed nothing.
        if metadata["HTTPStatusCode"] != 204 and metadata["HTTPHeaders"].get("content-length", "0") != "0":
            raise BrokenAnswerError("the answer is not one of an object store")

    attempt(request, stop)


def delete_all(bucket: str, prefix: str) -> None:
    """Every object below the prefix. Raises RefusedError."""

    def delete(keys: list[str], stop: threading.Event) -> None:
        for key in _refused(bucket, keys, stop):
            # One by one there is an answer that says why, and repeats.
            delete_object(bucket, key, stop)

    keys = (found["Key"] for found in objects(bucket, prefix))
    for _ in in_order(delete, _chunks(keys), _REQUESTS_AT_ONCE):
        pass


def _refused(bucket: str, keys: list[str], stop: threading.Event) -> list[str]:
    """Asks for the removal of all; those of which that could not be had."""

    def request(s3: Any) -> dict[str, Any]:
        answer: dict[str, Any] = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys]})
        if len(answer.get("Deleted", ())) + len(answer.get("Errors", ())) < len(keys):
            raise BrokenAnswerError(f"expected {len(keys)} removed objects in the answer, got fewer")
        return answer

    try:
        answer = attempt(request, stop)
    except RefusedError as refused:
        if refused.failure.code not in ("NotImplemented", "501"):
            raise
        return keys
    return [error["Key"] for error in answer.get("Errors", ()) if error.get("Code") != "NoSuchKey"]


def _chunks(keys: Iterator[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    for key in keys:
        chunk.append(key)
        if len(chunk) == _DELETED_AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
