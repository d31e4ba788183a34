"""Places of this machine and of buckets are joined and split alike; stops a path of one being made where the other is meant."""

import pytest

from shardtools.errors import UsageError
from shardtools.places import below, common_folder, is_below, is_here, is_there, join, place_of, split


def test_words_become_places(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert place_of("a/../b/") == f"{tmp_path}/b"
    assert place_of(f"file://{tmp_path}/x") == f"{tmp_path}/x"
    assert place_of("s3://bucket/a/b/") == "s3://bucket/a/b"
    assert place_of("s3://bucket/") == "s3://bucket"
    assert [is_here("/a"), is_here("s3://bucket/a")] == [True, False]


PARTS = [
    ("/a/b.tar", "/a", "b.tar"),
    ("/b.tar", "/", "b.tar"),
    ("s3://bucket/a/b.tar", "s3://bucket/a", "b.tar"),
    ("s3://bucket/b.tar", "s3://bucket", "b.tar"),
]


@pytest.mark.parametrize(("place", "folder", "name"), PARTS)
def test_a_place_is_its_folder_and_its_name(place, folder, name):
    assert split(place) == (folder, name)
    assert join(folder, name) == place
    assert below(folder, place) == name
    assert below(place, place) == ""


def test_the_root_of_a_bucket_has_no_name():
    assert split("s3://bucket") == ("s3://bucket", "")
    assert join("s3://bucket", "") == "s3://bucket"


def test_what_lies_below_what():
    assert is_below("s3://bucket/a/b", "s3://bucket/a")
    assert is_below("s3://bucket/a", "s3://bucket/a")
    assert is_below("s3://bucket/a", "s3://bucket")
    assert not is_below("s3://bucket/ab", "s3://bucket/a")
    assert not is_below("s3://bucket2/a", "s3://bucket")
    assert is_below("/a/b", "/")
    assert not is_below("/ab", "/a")


def test_the_common_folder():
    assert common_folder(["/a/b/c", "/a/b", "/a/bc"]) == "/a"
    assert common_folder(["/a", "/b"]) == "/"
    assert common_folder(["s3://b/x/1", "s3://b/x/2"]) == "s3://b/x"
    assert common_folder(["s3://b/x", "s3://b/xy"]) == "s3://b"
    assert common_folder(["s3://b/x"]) == "s3://b/x"


@pytest.mark.parametrize("folders", [["s3://a/x", "s3://b/x"], ["/a", "s3://a/x"]])
def test_no_folder_holds_two_storages(folders, one_sentence):
    with pytest.raises(UsageError) as caught:
        common_folder(folders)
    assert "shards of one bucket" in one_sentence(caught.value)


def test_a_pattern_with_addresses_in_it_is_the_name_of_nothing():
    assert not is_there("s3://bucket/x.tar::s3://bucket/y.tar")
