"""Stops a listing that loses keys, never ends, grows with the number of keys, or shows what is no object."""

import itertools
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from s3_stores import BUCKET, client_of

from shardtools.errors import StorageError
from shardtools.storage import open_storage
from shardtools.storage.s3 import S3, _attempts

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Pages:
    """A client that has so many keys and gives a thousand at a time; after ``repeats_at`` it forgets where it was."""

    def __init__(self, num_keys: int, repeats_at: int | None = None) -> None:
        self._num_keys, self._repeats_at = num_keys, repeats_at
        self.num_requests = 0
        self.meta = SimpleNamespace(endpoint_url="http://pages")

    def list_objects_v2(self, Bucket: str, Prefix: str, ContinuationToken: str = "0") -> dict[str, Any]:  # noqa: N803
        self.num_requests += 1
        begin = int(ContinuationToken)
        end = min(begin + 1000, self._num_keys)
        keys = [{"Key": f"{Prefix}{i:09d}", "Size": i, "LastModified": NOON, "ETag": f'"{i}"'} for i in range(begin, end)]
        token = begin if begin == self._repeats_at else end
        return {"Contents": keys, "IsTruncated": end < self._num_keys, "NextContinuationToken": str(token)}


@pytest.mark.slow
def test_a_million_keys_are_listed_in_little_memory(monkeypatch):
    pages = Pages(1_000_000)
    monkeypatch.setattr(_attempts, "client", lambda: pages)
    names = S3("s3://bucket/data").names()
    assert list(itertools.islice(names, 3)) == ["000000000", "000000001", "000000002"]
    assert pages.num_requests == 1
    tracemalloc.start()
    try:
        assert sum(1 for _ in itertools.islice(names, 100_000)) == 100_000
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert sum(1 for _ in names) == 899_997
    assert pages.num_requests == 1000


def test_a_listing_that_does_not_go_on_is_an_error_and_not_for_ever(monkeypatch, one_sentence):
    monkeypatch.setattr(_attempts, "client", lambda: Pages(5000, repeats_at=2000))
    with pytest.raises(StorageError) as caught:
        list(S3("s3://bucket/data").names())
    assert "does not go on" in one_sentence(caught.value)


@pytest.mark.slow
def test_more_keys_than_a_page_holds_are_listed_and_deleted(s3_uri, s3_store):
    storage = open_storage(s3_uri)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: storage.put(f"many/{i:05d}", b"x"), range(2100)))
    storage.put("many-more", b"x")
    assert sorted(storage.names("many")) == [f"many/{i:05d}" for i in range(2100)]
    storage.delete("many")
    prefix = s3_uri.removeprefix(f"s3://{BUCKET}/")
    left = client_of(s3_store["environment"]).list_objects_v2(Bucket=BUCKET, Prefix=prefix)["Contents"]
    assert [found["Key"] for found in left] == [f"{prefix}/many-more"]


def test_what_consoles_make_to_show_folders_is_no_object(moto_uri, moto_store):
    client, prefix = client_of(moto_store["environment"]), moto_uri.removeprefix(f"s3://{BUCKET}/")
    for key in ("", "folder/", "folder/x", "folder/y/"):
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/{key}", Body=b"1" if key.endswith("x") else b"")
    storage = open_storage(moto_uri)
    assert list(storage.names()) == ["folder/x"]
    storage.delete("folder")
    assert [found["Key"] for found in client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["Contents"]] == [f"{prefix}/"]


def test_keys_that_are_no_safe_names_are_listed_and_refused(moto_uri, moto_store, one_sentence):
    client, prefix = client_of(moto_store["environment"]), moto_uri.removeprefix(f"s3://{BUCKET}/")
    odd = ["a//b", "full/", "../up", "./x"]
    for name in odd:
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=b"1")
    storage = open_storage(moto_uri)
    found = list(storage.names())
    assert {"a//b", "full/"} <= set(found)
    for name in found:
        with pytest.raises(StorageError) as caught:
            storage.get(name)
        assert repr(name) in one_sentence(caught.value)


def test_an_object_beside_a_folder_of_its_name_is_another(moto_uri):
    """Not on SeaweedFS, where a name is a file or a folder."""
    storage = open_storage(moto_uri)
    storage.put("a", b"1")
    storage.put("a/b", b"2")
    storage.put("ab", b"3")
    assert sorted(storage.names()) == ["a", "a/b", "ab"] and list(storage.names("a")) == ["a/b"]
    storage.delete("a")
    assert list(storage.names()) == ["ab"]
