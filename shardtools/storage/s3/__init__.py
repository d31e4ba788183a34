"""Datasets in a bucket of Amazon S3, or of any store that speaks its protocol."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import tee
from typing import BinaryIO, ClassVar

from shardtools.errors import StorageError, UsageError
from shardtools.storage import Stored, Whole, is_safe_name, require_safe
from shardtools.storage import one_sentence as one_sentence_of_system
from shardtools.storage.s3._attempts import RefusedError, one_sentence
from shardtools.storage.s3._client import forget_client
from shardtools.storage.s3._copy import copy
from shardtools.storage.s3._deleting import delete_all, delete_object
from shardtools.storage.s3._failures import printable
from shardtools.storage.s3._listing import abort_uploads, objects
from shardtools.storage.s3._object_file import ObjectFile
from shardtools.storage.s3._reading import Object, etag_of, find, get_object, pieces, version_of
from shardtools.storage.s3._whole import wholes
from shardtools.storage.s3._writer import PART_BYTES, S3Writer, put_object

__all__ = ["S3", "forget_client"]


@dataclass(frozen=True)
class S3:
    """Objects below ``uri``, ``s3://bucket/prefix``. Credentials, region and endpoint are those of the AWS environment and config files.

    A request is repeated, with growing waits, while its fault may pass. Source: Amazon S3 API reference; reads after writes are
    consistent, PUT, copy and the end of a multipart upload make an object appear whole.
    """

    uri: str

    is_local: ClassVar[bool] = False
    finishes_at_once: ClassVar[bool] = True
    num_at_once: ClassVar[int] = 16

    def __post_init__(self) -> None:
        scheme, _, rest = self.uri.partition("://")
        bucket, _, prefix = rest.partition("/")
        prefix = prefix.rstrip("/")
        if "@" in bucket:  # not shown: a key may stand before it
            raise UsageError(
                "expected s3://bucket/prefix without a user in it, got one; credentials are those of the AWS environment or profile"
            )
        if scheme != "s3" or not bucket or (prefix and not is_safe_name(prefix)):
            raise UsageError(f"expected s3://bucket/prefix, without empty parts, . and .. in it, got {self.uri}")
        object.__setattr__(self, "uri", f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}")

    @property
    def bucket(self) -> str:
        return self.uri.removeprefix("s3://").partition("/")[0]

    def create(self, name: str, data: bytes) -> bool:
        key = self._key(name)
        with one_sentence("create", self._shown(name)):
            try:
                put_object(self.bucket, key, data, only_new=True)
            except RefusedError as refused:
                if refused.failure.code in ("NotImplemented", "501"):  # a store without conditions: two at once may both succeed
                    return self._create_where_missing(name, data)
                if refused.failure.code not in ("PreconditionFailed", "412"):
                    raise
                # It may be an earlier attempt of this very call that took the name, its answer lost.
                return refused.attempts > 1 and self.get(name) == data
        return True

    def put(self, name: str, data: bytes) -> None:
        with one_sentence("write", self._shown(name)):
            if len(data) < PART_BYTES:
                put_object(self.bucket, self._key(name), data)
                return
        writer = self.writer(name)
        try:
            writer.write(data)
            writer.finish()
        except BaseException:
            writer.abort()
            raise

    def get(self, name: str) -> bytes | None:
        try:
            return get_object(self.bucket, self._key(name))
        except RefusedError as refused:
            if refused.failure.is_missing:
                return None
            raise refused.sentence("read", self._shown(name)) from refused

    def num_bytes(self, name: str) -> int | None:
        found = self.entry(name)
        return None if found is None else found.num_bytes

    def entry(self, name: str) -> Stored | None:
        try:
            found, modified_ns = find(self.bucket, self._key(name))
        except RefusedError as refused:
            if refused.failure.is_missing:
                return None
            raise refused.sentence("look at", self._shown(name)) from refused
        return Stored(name, found.num_bytes, modified_ns, version_of(found.etag))

    def sha256(self, name: str) -> str:
        digest = hashlib.sha256()
        with one_sentence("read", self._shown(name)):
            found, _ = find(self.bucket, self._key(name))
            for piece in pieces(found):
                digest.update(piece)
        return digest.hexdigest()

    def entries(self, prefix: str = "") -> Iterator[Stored]:
        root = self._prefix(prefix)
        skipped = len(self._prefix(""))
        with one_sentence("list", self._shown(prefix)):
            for found in objects(self.bucket, root):
                name = found["Key"][skipped:]
                # What consoles make to show a folder ends in a slash and holds nothing.
                if name and not (name.endswith("/") and not found["Size"]):
                    modified_ns = int(found["LastModified"].timestamp() * 1e9)
                    yield Stored(name, int(found["Size"]), modified_ns, version_of(found.get("ETag", "")))

    def names(self, prefix: str = "") -> Iterator[str]:
        return (found.name for found in self.entries(prefix))

    def writer(self, name: str, *, durable: bool = True) -> S3Writer:
        return S3Writer(self.bucket, self._key(name))

    def move(self, source: str, target: str) -> bool:
        is_placed = self.place(source, target)
        if is_placed:
            with one_sentence("delete", self._shown(source)):
                delete_object(self.bucket, self._key(source))
        return is_placed

    def place(self, source: str, target: str) -> bool:
        old, new = self._key(source), self._key(target)
        with one_sentence("copy", f"{self._shown(source)} to {self._shown(target)}"):
            try:
                found, _ = find(self.bucket, old)
                copy(found, new)
            except RefusedError as refused:
                # Another run of the same plan was faster.
                if refused.failure.is_missing and self.entry(target) is not None:
                    return False
                raise
        return True

    def adopt(self, uri: str, found: Stored, target: str) -> bool:
        if not uri.startswith("s3://") or (other := S3(uri)).bucket != self.bucket:
            return False
        with one_sentence("copy", f"{other._shown(found.name)} to {self._shown(target)}"):
            copy(Object(self.bucket, other._key(found.name), found.num_bytes, etag_of(found.version)), self._key(target))
            try:
                other._found(found.name, found.version)
            except BaseException:  # a store without conditions has copied whatever was there
                delete_object(self.bucket, self._key(target))
                raise
        return True

    def sync(self, names: Iterable[str] = ()) -> None:
        pass  # what was answered is durable

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        yield  # buckets have no locks; every step of a publication can be repeated by two at once

    def delete(self, name: str) -> None:
        key = self._key(name)
        with one_sentence("delete", self._shown(name)):
            delete_object(self.bucket, key)
            delete_all(self.bucket, key + "/")

    def discard_unfinished(self, prefix: str = "") -> None:
        with one_sentence("abort unfinished uploads below", self._shown(prefix)):
            abort_uploads(self.bucket, self._prefix(prefix))

    def fetch(self, name: str, path: str, version: str = "") -> None:
        with one_sentence("read", self._shown(name)):
            found = self._found(name, version)
            with one_sentence_of_system("write", path), open(path, "xb", buffering=0) as file:
                for piece in pieces(found):
                    view = memoryview(piece)
                    while view:
                        view = view[file.write(view) :]

    def read_into(self, name: str, view: memoryview, begin: int = 0) -> None:
        with one_sentence("read", self._shown(name)):
            found, _ = find(self.bucket, self._key(name))
            if begin + len(view) > found.num_bytes:
                raise StorageError(
                    f"expected {begin + len(view)} bytes of {self._shown(name)}, got an object of {found.num_bytes}; restore it"
                )
            at = 0
            for piece in pieces(found, begin, begin + len(view)):
                view[at : at + len(piece)] = piece
                at += len(piece)

    def wholes(self, wanted: Iterable[tuple[str, int]]) -> Iterator[Whole | None]:
        names, keys = tee(wanted)
        coming = wholes(self.bucket, ((self._key(name), num_bytes) for name, num_bytes in keys))
        try:
            for (name, _), future in zip(names, coming, strict=True):
                with one_sentence("read", self._shown(name)):
                    yield future.result()
        finally:
            coming.close()

    def open(self, name: str, until: int | None = None, version: str = "") -> BinaryIO:
        with one_sentence("read", self._shown(name)):
            return ObjectFile(self._found(name, version), until)  # type: ignore[return-value]

    def local_path(self, name: str) -> str:
        raise StorageError(f"expected a file of this machine, got {self._shown(name)}; copy it here first")

    def _found(self, name: str, version: str) -> Object:
        """Raises RefusedError, and StorageError where it has another version than is given."""
        found, _ = find(self.bucket, self._key(name))
        if version and version_of(found.etag) != version:
            raise StorageError(
                f"expected {self._shown(name)} to be the object that was listed, got another; run again when nothing writes to it"
            )
        return found

    def _create_where_missing(self, name: str, data: bytes) -> bool:
        if self.entry(name) is not None:
            return False
        self.put(name, data)
        return True

    def _prefix(self, name: str) -> str:
        """Of all keys below a name; the dataset's own for none."""
        root = self.uri.removeprefix("s3://").partition("/")[2]
        below = self._key(name) if name else root
        return below + "/" if below else ""

    def _key(self, name: str) -> str:
        require_safe(name, self.uri)
        root = self.uri.removeprefix("s3://").partition("/")[2]
        return f"{root}/{name}" if root else name

    def _shown(self, name: str) -> str:
        return printable(f"{self.uri}/{name}" if name else self.uri)
