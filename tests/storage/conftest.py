"""A place in a real store behind a proxy of faults; waits, parts and ranges are small."""

from collections.abc import Iterator
from typing import Any

import pytest
from fault_proxy import proxied
from faulty_place import FaultyPlace
from s3_stores import client_of, use

from shardtools.storage.s3 import S3, _attempts, _reading, _writer

PART_BYTES, RANGE_BYTES = 5 << 20, 2 << 20
"""The least a real store takes, and less than an object of two such parts."""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Waits of a hundredth of a second at most, and small parts and ranges."""
    monkeypatch.setattr(_attempts, "PATIENCE", _attempts.Patience(attempts=4, first_wait=0.001, longest_wait=0.01))
    monkeypatch.setattr(_writer, "PART_BYTES", PART_BYTES)
    monkeypatch.setattr(_reading, "RANGE_BYTES", RANGE_BYTES)
    monkeypatch.setattr(_reading, "_FIRST_BYTES", RANGE_BYTES)
    monkeypatch.setattr("shardtools.storage.s3.PART_BYTES", PART_BYTES)
    return monkeypatch


@pytest.fixture
def place(s3_store: dict[str, Any], s3_uri: str, hasty: pytest.MonkeyPatch) -> Iterator[FaultyPlace]:
    environment = s3_store["environment"]
    with proxied(environment["AWS_ENDPOINT_URL"]) as proxy:
        use({**environment, "AWS_ENDPOINT_URL": proxy.endpoint, "AWS_ENDPOINT_URL_S3": proxy.endpoint}, hasty)
        secret = [environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]]
        yield FaultyPlace(S3(s3_uri), proxy, client_of(environment), secret)
