"""Stops a manifest that was cut or edited from being believed, and a ledger that does not close."""

import hashlib
import json
import random
from collections import Counter

import pytest

from shardtools.manifest import FileEntry, Ledger, Manifest, ManifestError, ShardEntry


@pytest.fixture
def manifest() -> Manifest:
    return Manifest(
        plan_digest="ab" * 32,
        recipe={"format": {"name": "wds"}, "labels": ["c\udcff", "é"]},
        ledger=Ledger(10, 2, Counter({"z": 1, "a": 3})),
        shards=(ShardEntry("train-000000.tar", 10240, "cd" * 32, 10, {"txt": 7, "json,txt": 3}),),
        files=(FileEntry.of("shardtools.offsets", b"12345678"),),
    )


def test_the_text_is_json_that_ends_in_the_digest_of_the_rest(manifest):
    data = manifest.serialize()
    content = json.loads(data)
    seal = content.pop("sha256")
    text = data[: data.rindex(b',\n "sha256"')]
    assert seal == hashlib.sha256(text).hexdigest()
    assert json.loads(text + b"}") == content
    assert list(content) == ["format", "plan", "recipe", "ledger", "shards", "files"]
    assert content["format"] == "shardtools.manifest/1"
    assert content["ledger"] == {"read": 16, "written": 10, "rejected": 4, "filtered": 2, "rejects": {"a": 3, "z": 1}}
    assert content["shards"] == [
        {"name": "train-000000.tar", "bytes": 10240, "sha256": "cd" * 32, "samples": 10, "field_sets": {"json,txt": 3, "txt": 7}}
    ]
    assert content["files"] == [{"name": "shardtools.offsets", "bytes": 8, "sha256": hashlib.sha256(b"12345678").hexdigest()}]
    assert data.isascii()


def test_the_order_in_which_things_were_counted_does_not_show(manifest):
    other = Manifest(
        manifest.plan_digest,
        manifest.recipe,
        Ledger(10, 2, Counter({"a": 3, "z": 1})),
        (ShardEntry("train-000000.tar", 10240, "cd" * 32, 10, {"json,txt": 3, "txt": 7}),),
        manifest.files,
    )
    assert other.serialize() == manifest.serialize()


def test_it_comes_back_whole(manifest):
    assert Manifest.parse(manifest.serialize()) == manifest
    assert manifest.names() == ["train-000000.tar", "shardtools.offsets"]
    assert manifest.format_name == "wds"


def test_every_cut_is_found(manifest):
    data = manifest.serialize()
    for cut in range(len(data)):
        with pytest.raises(ManifestError):
            Manifest.parse(data[:cut])


def test_every_changed_byte_is_found(manifest):
    data = manifest.serialize()
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    numbers = random.Random(seed)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= numbers.randrange(1, 256)
        with pytest.raises(ManifestError):
            Manifest.parse(bytes(changed))


def test_something_after_the_end_is_found(manifest):
    with pytest.raises(ManifestError):
        Manifest.parse(manifest.serialize() + b"\n")


def test_another_kind_of_manifest_is_refused_by_name(manifest, one_sentence):
    text = manifest.serialize().decode().rpartition(',\n "sha256"')[0].replace("manifest/1", "manifest/2")
    data = f'{text},\n "sha256": "{hashlib.sha256(text.encode()).hexdigest()}"\n}}\n'.encode()
    with pytest.raises(ManifestError) as caught:
        Manifest.parse(data)
    assert "manifest/2" in one_sentence(caught.value)


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff\xfe", b'{"sha256": ""}', b"null"])
def test_what_is_no_manifest_is_one_sentence(data, one_sentence):
    with pytest.raises(ManifestError) as caught:
        Manifest.parse(data)
    one_sentence(caught.value)


def test_ledgers_add_up_and_close():
    total = Ledger(5, 1, Counter(a=2)) + Ledger(7, 0, Counter(a=1, b=4))
    assert (total.num_read, total.num_written, total.num_rejected, total.num_filtered) == (20, 12, 7, 1)
    assert total.rejects == {"a": 3, "b": 4}
    assert sum([Ledger(1), Ledger(2)], Ledger()).num_read == 3
