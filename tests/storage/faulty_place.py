"""A place in a real store, and what lies there by a client that goes around the proxy and the code under test."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from fault_proxy import Fault, Proxy, Schedule
from s3_stores import BUCKET

from shardtools.storage.s3 import S3


@dataclass
class FaultyPlace:
    """An empty place in the store, reached through the proxy by ``storage`` and directly by ``client``."""

    storage: S3
    proxy: Proxy
    client: Any
    secrets: list[str]
    _read: dict[str, bytes] = field(default_factory=dict)

    def meets(self, *faults: Fault | None, of: str = "") -> Schedule:
        """From now on, in this order; then none."""
        schedule = Schedule(faults, frozenset(of.split()))
        self.proxy.tamper = schedule
        return schedule

    def clear(self) -> None:
        self.proxy.tamper = None

    @property
    def prefix(self) -> str:
        return self.storage.uri.removeprefix(f"s3://{BUCKET}/") + "/"

    def lay(self, objects: dict[str, bytes]) -> None:
        """Exactly these objects, and no unfinished uploads."""
        there = self.etags()
        for name in there.keys() - objects.keys():
            self.client.delete_object(Bucket=BUCKET, Key=self.prefix + name)
        for name, data in objects.items():
            if there.get(name) != hashlib.md5(data).hexdigest():
                self.client.put_object(Bucket=BUCKET, Key=self.prefix + name, Body=data, ChecksumAlgorithm="CRC32")

    def etags(self, below: str = "") -> dict[str, str]:
        listed = self.client.list_objects_v2(Bucket=BUCKET, Prefix=self.prefix + below).get("Contents", ())
        return {found["Key"].removeprefix(self.prefix): found["ETag"].strip('"') for found in listed}

    def objects(self, below: str = "") -> dict[str, bytes]:
        return {name: self._data(name, etag) for name, etag in self.etags(below).items()}

    def _data(self, name: str, etag: str) -> bytes:
        """Read once: the same ETag is of the same bytes."""
        if etag not in self._read:
            self._read[etag] = self.client.get_object(Bucket=BUCKET, Key=self.prefix + name)["Body"].read()
        return self._read[etag]

    def uploads(self) -> list[str]:
        listed = self.client.list_multipart_uploads(Bucket=BUCKET, Prefix=self.prefix).get("Uploads", ())
        return [upload["Key"] for upload in listed if upload["Key"].startswith(self.prefix)]
