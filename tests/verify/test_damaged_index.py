"""Indexes that lie, and compressed shards that do not unpack to what they say; stops a verify that believes ``index.json``."""

import json

import pytest
import zstandard

NAME = "shard.00001.mds"


@pytest.fixture
def edit_index(forge, findings):
    def call(folder, change):
        content = json.loads((folder / "index.json").read_text())
        change(content)
        forge(folder, "index.json", json.dumps(content, sort_keys=True).encode())
        return findings(folder)

    return call


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("index-contradiction", lambda content: content["shards"][1].update(samples=3)),
        ("index-contradiction", lambda content: content["shards"].reverse()),
        ("index-contradiction", lambda content: content["shards"].pop()),
        ("index-contradiction", lambda content: content.update(note="x")),
        ("index-contradiction", lambda content: content["shards"][1]["raw_data"].update(bytes=7)),
        ("index-contradiction", lambda content: content["shards"][1]["raw_data"].update(hashes={"sha1": "0"})),
        ("wrong-config", lambda content: content["shards"][1].update(size_limit=7)),
        ("index-damaged", lambda content: content["shards"][1].update(size="x")),
        ("index-damaged", lambda content: content["shards"][1].pop("hashes")),
        ("index-damaged", lambda content: content["shards"][1]["raw_data"].update(basename="../shard.00001.mds")),
        ("index-damaged", lambda content: content["shards"][1]["raw_data"].update(basename="/etc/passwd")),
        ("index-damaged", lambda content: content["shards"][1]["raw_data"].update(size=1)),
        ("index-damaged", lambda content: content["shards"][1]["raw_data"].update(bytes=-1)),
        ("index-damaged", lambda content: content["shards"][1].update(raw_data=content["shards"][0]["raw_data"])),
        ("index-damaged", lambda content: content.update(version=3)),
        ("index-damaged", lambda content: content.update(shards={})),
    ],
)
def test_an_index_that_is_wrong(mds, edit_index, kind, change):
    assert kind in {finding.kind for finding in edit_index(mds, change)}


def test_an_index_that_is_no_json_does_not_hide_what_else_is_wrong(mds, forge, kinds):
    forge(mds, "index.json", b'{"shards": [')
    (mds / NAME).unlink()
    found = kinds(mds)
    assert (found["index-damaged"], found["missing-file"]) == (1, 1)


# Compressed shards.

ZIPPED = "shard.00001.mds.zstd"


STREAM_DAMAGES = {
    "cut": lambda data: data[:-3],
    "cut to nothing": lambda _: b"",
    "frame twice": lambda data: data + data,
    "garbage after": lambda data: data + b"garbage",
    "no zstd": lambda _: b"x" * 99,
}


@pytest.mark.parametrize("change", STREAM_DAMAGES.values(), ids=STREAM_DAMAGES)
def test_a_damaged_stream(zipped, forge, findings, change):
    forge(zipped, ZIPPED, change((zipped / ZIPPED).read_bytes()))
    assert "damaged-shard" in {found.kind for found in findings(zipped) if found.shard == ZIPPED}


def test_a_stream_that_grows_without_end_is_stopped_where_the_index_says(zipped, forge, findings, monkeypatch):
    from shardtools.datasets import _unpack

    written = []
    write = _unpack.write_temporary
    monkeypatch.setattr(_unpack, "write_temporary", lambda file, block: (written.append(len(block)), write(file, block)))
    bomb = zstandard.ZstdCompressor().compressobj()
    block = bytes(1 << 20)
    data = b"".join(bomb.compress(block) for _ in range(300)) + bomb.flush()
    assert len(data) < 100_000
    forge(zipped, ZIPPED, data)
    found = [found for found in findings(zipped) if found.shard == ZIPPED]
    assert "damaged-shard" in {finding.kind for finding in found}
    assert max(written) < 4096
    assert sum(written) < 100_000


def test_hashes_of_both_forms_are_checked(zipped, edit_index):
    def change(content):
        content["shards"][0]["raw_data"]["hashes"]["sha1"] = "0" * 40
        content["shards"][1]["zip_data"]["hashes"]["xxh64"] = "0" * 16

    found = [finding for finding in edit_index(zipped, change) if finding.kind == "wrong-hash"]
    assert [(finding.shard, finding.detail.split()[2]) for finding in found] == [("shard.00000.mds.zstd", "sha1"), (ZIPPED, "xxh64")]
