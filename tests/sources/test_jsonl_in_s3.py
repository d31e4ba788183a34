"""Stops lines of objects that are lost, doubled, or read of another object than was planned, and objects read over and over."""

import gzip
import json
import random

import pytest
import zstandard

from shardtools.build.run import Listener
from shardtools.engines.processes import Processes
from shardtools.errors import BadSampleError, StorageError, UsageError
from shardtools.sources import resolve_inputs
from shardtools.sources.jsonl import Jsonl, text_files
from shardtools.storage.s3 import _reading

MIB = 1 << 20


def lines(num_bytes: int, seed: int = 1) -> bytes:
    """Records of very different lengths, blank lines and carriage returns among them."""
    numbers = random.Random(seed)
    made, length = [], 0
    while length < num_bytes:
        text = "wort画 " * int(numbers.paretovariate(0.7) % 3000)
        made.append(json.dumps({"id": len(made), "text": text}, ensure_ascii=False).encode() + numbers.choice([b"\n", b"\r\n", b"\n\n"]))
        length += len(made[-1])
    return b"".join(made)


COMPRESSED = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}


@pytest.mark.parametrize(("kind", "format_"), [("", "mds"), (".gz", "wds"), (".zst", "mds")])
def test_the_same_bytes_as_of_files(tree, same_as_local, kind, format_):
    packed = {f"x/{i}.jsonl{kind}": COMPRESSED[kind](lines(200_000 * i, i)) for i in range(1, 4)}
    same_as_local(tree(packed), format_, source=Jsonl(keep_path=True), shard_bytes=100_000)


def test_many_windows_are_read_once(tree, same_as_local, monkeypatch):
    """Reading ahead beyond the end of each would take each byte several times over the link."""
    taken = []
    get_range = _reading.get_range

    def counted(found, begin, end, stop=None):
        taken.append(end - begin)
        return get_range(found, begin, end, stop)

    monkeypatch.setattr(_reading, "get_range", counted)
    block = lines(MIB)
    same_as_local(tree({"a.jsonl": (block * 35).rstrip(), "b.jsonl": block}), source=Jsonl())
    # Planning reads the first 4 MiB; the end of a window is 256 KiB further on at most.
    assert 35 * MIB <= sum(taken) < (36 + 4 + 2) * MIB


@pytest.mark.slow
def test_many_windows_by_several_workers(tree, same_as_local):
    same_as_local(tree({"a.jsonl": lines(60 * MIB), "b.jsonl": lines(3 * MIB, 2)}), source=Jsonl(), engine=Processes(3))


def test_planning_that_counts_lines(tree, same_as_local):
    same_as_local(tree({"a.jsonl": lines(MIB), "b.jsonl.gz": gzip.compress(lines(MIB, 3))}), source=Jsonl(), shard_samples=40)


def test_lines_longer_than_what_is_read_ahead(tree, same_as_local):
    long = json.dumps({"a": "x" * (20 * MIB)}).encode()
    same_as_local(tree({"a.jsonl": b"\n".join([b'{"a":"1"}', long, b'{"a":"2"}', long, b'{"a":"3"}'])}), source=Jsonl())


def test_bad_lines_are_named_as_they_are_in_files(tree, build, bucket, tmp_path):
    folder = tree({"a.jsonl": b'{"a":1}\n{"a":2}\nno\n', "b.jsonl.gz": gzip.compress(lines(50_000))[:-900]})
    for name, source in (("here", folder), ("there", bucket.copy_of(folder))):
        build(source, tmp_path / name, source=Jsonl(), max_bad="50%")
    here, there = ((tmp_path / name / ".shardtools" / "rejects").read_bytes() for name in ("here", "there"))
    assert here == there
    assert b"a.jsonl, line 3 (byte 16)" in here
    assert b"damaged-stream" in here


def test_the_first_bad_line_stops_the_run(build, bucket, tmp_path):
    with pytest.raises(BadSampleError, match=r"bad sample: a.jsonl, line 2 \(byte 8\)"):
        build(bucket.put({"a.jsonl": b'{"a":1}\nno\n'}), tmp_path / "out", source=Jsonl())


def test_only_json_lines_of_a_folder_are_read(bucket, build, tmp_path):
    source = bucket.put({"a.jsonl": b'{"a":1}\n', "readme.md": b"#", ".h.jsonl": b"{}"})
    found = build(source, tmp_path / "out", source=Jsonl()).survey
    assert found.skipped == {"hidden": 1, "not JSON lines": 1}
    with pytest.raises(UsageError, match=r"expected .jsonl or .ndjson files.*got none in s3://"):
        build(bucket.put({"a.md": b"#"}, "none"), tmp_path / "none", source=Jsonl())


CHANGES = {
    "removed": (lambda bucket: bucket.delete("a.jsonl"), r"could not read s3://.*a\.jsonl: the server answered (404|NoSuchKey)"),
    "longer": (
        lambda bucket: bucket.put({"a.jsonl": b'{"a":1}\n{}'}),
        r"a\.jsonl to be the object that was listed",
    ),
    "of the same length": (lambda bucket: bucket.put({"a.jsonl": b'{"a":2}\n'}), r"a\.jsonl to be the object that was listed"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_object_ends_the_run(build, bucket, tmp_path, change):
    source = bucket.put({"a.jsonl": b'{"a":1}\n'})
    make, sentence = CHANGES[change]
    with pytest.raises(StorageError, match=sentence):
        build(source, tmp_path / "out", source=Jsonl(), max_bad="100%", listener=Listener(on_plan=lambda _: make(bucket)))


def test_an_object_replaced_while_it_is_read(build, bucket, tmp_path):
    """Of the same length, between two windows and between two ranges of one: never a mixture."""
    one, other = (json.dumps({"a": letter * 1000}).encode() + b"\n" for letter in "ab")
    source = bucket.put({"a.jsonl": one * 40_000})
    seen = []

    def replace(progress):
        if not seen:
            bucket.put({"a.jsonl": other * 40_000})
        seen.append(progress)

    with pytest.raises(StorageError, match=r"replaced while it was read|to be the object that was listed"):
        build(source, tmp_path / "out", source=Jsonl(), shard_bytes=MIB, listener=Listener(on_progress=replace))


def test_text_files_are_read_from_the_bucket(bucket):
    text = lines(30_000)
    source = bucket.put({"x/a.jsonl.gz": gzip.compress(text), "x/b.jsonl": text})
    packed, plain = text_files(resolve_inputs([source]))
    assert (packed.path, packed.prefix, packed.is_compressed) == (f"{source}/x/a.jsonl.gz", b"x/a", True)
    assert (plain.path, plain.num_bytes, plain.is_compressed) == (f"{source}/x/b.jsonl", len(text), False)
    assert b"".join(packed.text()) == text
