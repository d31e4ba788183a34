"""Stops small objects from being read without a check, under a wrong signature, or by the slow way while nobody notices."""

from datetime import UTC, datetime
from types import SimpleNamespace
from unittest import mock

import pytest
from botocore.credentials import Credentials
from s3_stores import BUCKET, client_of

from shardtools.storage import Whole
from shardtools.storage.s3._attempts import RefusedError
from shardtools.storage.s3._client import client
from shardtools.storage.s3._quick_get import QuickGet, quick_get

ODD_KEYS = ["plain.txt", "a b", "a+b", "a%20b", "é/画像", "x=y&z", "q?#[]{}", "~!@$^()',;*", "tab\there", "with\nnewline", 'quote"s<>']
NOON = datetime(2026, 2, 28, 12, 0, 59, tzinfo=UTC)


@pytest.fixture
def put(s3_store, s3_uri):
    """Stores an object by plain boto3; returns its key and its ETag without quotes."""
    prefix = s3_uri.removeprefix(f"s3://{BUCKET}/")
    known = client_of(s3_store["environment"])

    def call(name, data):
        return f"{prefix}/{name}", known.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=data)["ETag"].strip('"')

    return call


@pytest.mark.parametrize("name", ODD_KEYS)
def test_an_object_comes_at_once_whatever_its_key(put, name):
    key, version = put(name, name.encode())
    assert quick_get(client(), BUCKET)(key, len(name.encode())) == Whole(name.encode(), len(name.encode()), version)


def test_an_empty_object(put):
    key, version = put("a", b"")
    assert quick_get(client(), BUCKET)(key, 0) == Whole(b"", 0, version)


def test_of_another_length_than_was_thought_is_left_to_the_client(put):
    """Which asks whether the object or the announcement is another."""
    key, _ = put("a", b"12345")
    for num_bytes in (0, 4, 6):
        assert quick_get(client(), BUCKET)(key, num_bytes) is None


def test_what_is_missing(put):
    key, _ = put("a", b"1")
    with pytest.raises(RefusedError) as refused:
        quick_get(client(), BUCKET)(key + "b", 1)
    assert refused.value.failure.is_missing


def test_connections_are_kept(put):
    key, _ = put("a", b"1")
    get = quick_get(client(), BUCKET)
    assert get(key, 1) is not None
    with mock.patch("urllib3.util.connection.create_connection", side_effect=OSError):
        assert all(get(key, 1) is not None for _ in range(10))


def refused(status):
    return SimpleNamespace(status_code=status, headers={}, content=b"", raw=SimpleNamespace(close=lambda: None))


@pytest.mark.parametrize(("status", "num_asked"), [(403, 1), (301, 1), (400, 1), (503, 3), (404, 3)])
def test_a_store_that_wants_to_be_asked_otherwise_is_not_asked_again(put, monkeypatch, status, num_asked):
    key, _ = put("a", b"1")
    get = QuickGet(client(), BUCKET, Credentials("AKID", "secret"))
    asked = []
    monkeypatch.setattr(get._session, "send", lambda request: asked.append(request) or refused(status))
    assert [get(key, 1) for _ in range(3)] == [None] * 3
    assert len(asked) == num_asked


@pytest.mark.parametrize("change", [{"etag": None}, {"content-length": "-"}, {"x-amz-checksum-crc32": "AAAAAA=="}])
def test_what_cannot_be_checked_is_left_to_the_client(put, monkeypatch, change):
    key, _ = put("a", b"1")
    headers = {"etag": '"e"', "content-length": "1", "x-amz-checksum-crc32": "g9zvtw=="} | change
    headers = {name: value for name, value in headers.items() if value is not None}
    get = QuickGet(client(), BUCKET, Credentials("AKID", "secret"))
    answer = SimpleNamespace(status_code=200, headers=headers, content=b"1", raw=SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(get._session, "send", lambda _: answer)
    assert get(key, 1) is None
    answer.headers = {"etag": '"e"', "content-length": "1", "x-amz-checksum-crc32": "g9zvtw=="}
    assert get(key, 1) == Whole(b"1", 1, "e")


@pytest.mark.parametrize("bucket", ["arn:aws:s3:us-east-1:1:accesspoint/a", "a--use1-az4--x-s3"])
@pytest.mark.usefixtures("s3_uri")
def test_buckets_of_other_kinds_are_left_to_the_client(bucket):
    assert quick_get(client(), bucket) is None


@pytest.mark.usefixtures("s3_uri")
def test_without_credentials_the_client_is_left_to_it(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert quick_get(client(), "other-bucket") is None
