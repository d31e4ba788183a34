"""Stops storage that needs what some stores do not have: conditions, checksums, removal of many at once, lists of uploads."""

import re
from dataclasses import replace

import pytest
from fault_proxy import answered, refusal

from shardtools.errors import StorageError

NOT_IMPLEMENTED = refusal(501, "NotImplemented", "A header you provided implies functionality that is not implemented")


def without(*names):
    """Answers that lack these headers."""

    def answer(connection, request):
        said = answered(connection, request)
        connection.send(replace(said, headers={name: value for name, value in said.headers.items() if not name.startswith(names)}))

    return answer


def test_where_there_are_no_conditions_a_name_that_is_taken_is_still_left(place):
    place.meets(NOT_IMPLEMENTED)
    assert place.storage.create("new", b"1") is True
    place.meets(NOT_IMPLEMENTED)
    assert place.storage.create("new", b"2") is False
    assert place.objects() == {"new": b"1"}


def test_where_many_cannot_be_removed_at_once_they_are_one_by_one(place):
    place.lay({f"folder/{i}": b"" for i in range(5)} | {"other": b"1"})
    schedule = place.meets(NOT_IMPLEMENTED, of="DeleteObjects")
    place.storage.delete("folder")
    assert place.objects() == {"other": b"1"} and schedule.seen.count("DeleteObject") == 6


def test_what_is_refused_of_many_is_removed_alone(place):
    place.lay({"folder/a": b"1", "folder/b": b"2"})

    def refuse_one(connection, request):
        deleted = f"<Deleted><Key>{place.prefix}folder/b</Key></Deleted>"
        error = f"<Error><Key>{place.prefix}folder/a</Key><Code>InternalError</Code></Error>"
        body = f"<DeleteResult>{deleted}{error}</DeleteResult>"
        said = answered(connection, request)
        connection.send(replace(said, headers={**said.headers, "content-length": str(len(body))}, body=body.encode()))

    schedule = place.meets(refuse_one, of="DeleteObjects")
    place.storage.delete("folder")
    assert schedule.seen[-1] == "DeleteObject" and place.objects() == {}


def test_where_there_are_no_checksums_objects_are_read_and_written(place, tmp_path):
    data = bytes(range(256)) * 25_000
    place.meets(*[without("x-amz-checksum")] * 100)
    writer = place.storage.writer("x")
    writer.write(data)
    writer.finish()
    assert place.storage.get("x") == data
    place.storage.fetch("x", str(tmp_path / "x"))
    assert (tmp_path / "x").read_bytes() == data


def test_a_store_that_ignores_conditions_gives_no_mix(place, one_sentence):
    """What comes has another ETag than was asked for."""
    place.lay({"x": b"1" * 6_000_000})

    def other(connection, request):
        said = answered(connection, request)
        connection.send(replace(said, headers={**said.headers, "etag": '"another"'}))

    place.meets(None, None, other)
    with pytest.raises(StorageError) as caught:
        place.storage.sha256("x")
    assert "replaced while it was read" in one_sentence(caught.value)


def test_where_uploads_cannot_be_listed_none_are_removed_and_a_missing_permission_is_told(place, one_sentence):
    place.meets(NOT_IMPLEMENTED)
    place.storage.discard_unfinished()
    place.meets(refusal(403, "AccessDenied", "Access Denied"))
    with pytest.raises(StorageError) as caught:
        place.storage.discard_unfinished()
    assert "AccessDenied" in one_sentence(caught.value)


def test_where_listings_write_etags_without_quotes_versions_are_the_same(place):
    place.lay({"x": b"1"})

    def bare(connection, request):
        said = answered(connection, request)
        body = re.sub(rb"&quot;|&#34;", b"", said.body)
        connection.send(replace(said, headers={**said.headers, "content-length": str(len(body))}, body=body))

    place.meets(bare, of="ListObjectsV2")
    (listed,) = place.storage.entries()
    assert '"' not in listed.version and listed.version == place.storage.entry("x").version
    with place.storage.open("x", version=listed.version) as file:
        assert file.read() == b"1"
    assert place.storage.adopt(place.storage.uri, listed, "y") is True and place.storage.get("y") == b"1"
