"""What of a bucket is on this machine when a trial begins; stops a label that says more than is so, a copy that is none, and copies that
outlive the bench that made them.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

import pytest
from s3_stores import client_of
from watching import wait_until

from shardtools.bench import copies as copies_of
from shardtools.bench.copies import Copies, fetches_anew, keeps_copies
from shardtools.bench.not_measured import Unknown
from shardtools.bench.page_cache import PageCache
from shardtools.bench.page_cache.bucket import KEPT_CAVEAT, STORE_CAVEAT, Bucket
from shardtools.bench.page_cache.state import Side, prepare
from shardtools.bench.spec import Layout

SHARDS = Layout("s3://b/shards", "mds", "streaming")
FILES = Layout("s3://b/images", "files", "torch")
PIPED = Layout("s3://b/shards", "wds", "webdataset")


def side(bucket: Bucket) -> Side:
    return Side(PageCache([]), "mds", bucket)


@pytest.fixture
def kept(tmp_path):
    (tmp_path / "copies").mkdir()
    (tmp_path / "copies" / "shard").write_bytes(bytes(1 << 20))
    return str(tmp_path / "copies")


@pytest.mark.parametrize("wanted", ["cold-data", "cold-full"])
def test_without_copies_the_data_is_cold_and_has_no_pages(wanted):
    proof = prepare(wanted, side(Bucket("torch", False)), (), True)
    assert (proof.label, proof.caveats) == ("cold-data", (STORE_CAVEAT,))
    assert bool(proof.why) == (wanted == "cold-full")
    found = proof.as_json()
    assert found["resident_before"] is None and found["resident_after"] is None
    assert {entry["reason"] for entry in found["not_measured"]} == {"the data is in a bucket, which has no pages in this machine's cache"}


def test_a_reader_that_keeps_nothing_is_never_warm():
    proof = prepare("warm", side(Bucket("torch", False)), (), False)
    assert (proof.label, proof.why) == ("cold-data", "the reader torch keeps no local copies, so every trial fetches everything")


@pytest.mark.parametrize(("is_filled", "label"), [(True, "warm"), (False, "mixed")])
def test_copies_are_warm_where_all_of_the_data_was_read(kept, is_filled, label):
    proof = prepare("warm", side(Bucket("streaming", True, kept, is_filled)), (), False)
    if proof.before.share is None:
        pytest.skip(f"what is in the page cache cannot be told here: {proof.before.reason}")
    assert (proof.label, proof.caveats, bool(proof.why)) == (label, (KEPT_CAVEAT,), not is_filled)
    assert proof.before.num_pages == 256


def test_local_sides_are_evicted_before_a_bucket_is_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    other = Side(PageCache([str(path)]), "files")
    before = other.pages.residency()
    prepare("cold-data", side(Bucket("torch", False)), [other], False)
    after = other.pages.residency()
    if before.num_resident is None or not before.num_resident:
        pytest.skip("what is in the page cache cannot be told here")
    assert not after.num_resident


@pytest.mark.parametrize(
    ("layout", "keeps", "anew"),
    [
        (SHARDS, True, False),
        (FILES, False, True),
        (PIPED, False, True),
        (Layout("s3://b/shards", "wds", "shardtools"), True, False),
        (Layout("/data/shards", "mds", "streaming"), False, False),
        (Layout("file:///data", "files", "torch"), False, False),
    ],
)
def test_who_keeps_copies(layout, keeps, anew):
    assert (keeps_copies(layout), fetches_anew(layout)) == (keeps, anew)


@pytest.fixture
def place(tmp_path_factory):
    """A short path: see ``private_folder``."""
    tmp_path_factory.getbasetemp()  # pytest's own is made before
    with tempfile.TemporaryDirectory(prefix="left-", dir="/tmp") as folder:
        yield folder


def test_folders_are_given_where_trials_begin_warm_and_go_with_the_bench(place, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", place)
    with Copies() as copies:
        assert copies.kept([FILES, SHARDS], "cold-data") == [FILES, SHARDS] and os.listdir(place) == []
        files, shards = copies.kept([FILES, SHARDS], "warm")
        assert files == FILES and shards.cache_folder is not None and os.path.isdir(shards.cache_folder)
        assert len(os.listdir(place)) == 1
    assert os.listdir(place) == []


def test_a_whole_copy_has_every_object_and_is_made_once(s3_store, s3_uri):
    client, prefix = client_of(s3_store["environment"]), s3_uri.removeprefix("s3://tests/")
    objects = {"a/0001.txt": b"one", "a/b/0002.txt": b"", "index.json": b"{}"}
    for name, body in {**objects, ".shardtools/build/plan": b"ours"}.items():
        client.put_object(Bucket="tests", Key=f"{prefix}/{name}", Body=body)
    said: list[str] = []
    with Copies() as copies:
        found = copies.whole(Layout(s3_uri, "files", "torch"), said.append)
        paths = [path for path in Path(found.uri).rglob("*") if path.is_file()]
        assert {str(path.relative_to(found.uri)): path.read_bytes() for path in paths} == objects
        assert copies.whole(Layout(s3_uri, "files", "torch"), said.append) == found and len(said) == 1
        one = copies.whole(Layout(f"{s3_uri}/index.json", "jsonl", "torch"), said.append)
        assert os.path.basename(one.uri) == "index.json" and Path(one.uri).read_bytes() == b"{}"
    assert not os.path.exists(found.uri)


def test_a_copy_that_has_no_room_is_not_made(s3_store, s3_uri, monkeypatch):
    client_of(s3_store["environment"]).put_object(Bucket="tests", Key=f"{s3_uri.removeprefix('s3://tests/')}/a", Body=bytes(5000))
    monkeypatch.setattr(copies_of.shutil, "disk_usage", lambda _: namedtuple("Usage", "free")(8000))
    with Copies() as copies:
        for _ in range(2):
            with pytest.raises(Unknown, match=r"holds 4.9 KiB, and a copy here, to measure without the store, may take 3.9 KiB at most$"):
                copies.whole(Layout(s3_uri, "files", "torch"), lambda _: None)


KEEPER = """
import os, sys, tempfile, time
from shardtools.bench.copies import Copies
from shardtools.bench.spec import Layout
tempfile.tempdir = sys.argv[1]
with Copies() as copies:
    (layout,) = copies.kept([Layout("s3://b/shards", "mds", "streaming")], "warm")
    open(os.path.join(layout.cache_folder, "shard"), "wb").write(bytes(1000))
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_copies_go_whatever_ends_the_bench(number, place):
    process = subprocess.Popen([sys.executable, "-c", KEEPER, place], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    assert len(os.listdir(place)) == 1
    process.send_signal(number)
    assert process.wait(timeout=120) == -number or number == signal.SIGINT
    process.stdout.close()
    wait_until(lambda: not os.listdir(place))
