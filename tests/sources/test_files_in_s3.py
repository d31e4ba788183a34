"""Stops objects that are packed as other bytes, in another order or under other keys than the same files, or lost without a word."""

import random
import subprocess
import sys
import tracemalloc

import pytest
from s3_stores import BUCKET

from shardtools.build.run import Listener
from shardtools.engines.processes import Processes
from shardtools.errors import BadSampleError, DuplicateKeyError, StorageError, UsageError
from shardtools.sources import Input, _bucket_scan, first_files, resolve_inputs
from shardtools.sources._bucket_scan import scan_bucket
from shardtools.storage import Stored

ODD_NAMES = ["a b", "a+b", "a%20b", "é", "画像/大", "x=y&z", "q?#[]{}", "~!@$^()',;", "e\u0301", "tab\there", "with\nnewline", 'quote"s']


# Same bytes.


@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_pairs_of_files(image_pairs, same_as_local, format_):
    same_as_local(image_pairs(20, ("jpg", "png")), format_, label_from_dir=True, keep_path=True, shard_bytes=20_480)


@pytest.mark.parametrize("options", [{"seed": 7}, {"group": "file"}, {"shard_samples": 7}, {"engine": Processes(2)}], ids=str)
def test_ways_to_pack(image_pairs, same_as_local, options):
    same_as_local(image_pairs(20), **options)


def test_names_with_two_readings_are_settled_alike(tree, same_as_local):
    same_as_local(tree({f"{i}.v{i}.txt": b"%d" % i for i in range(20)}))


def test_odd_names(tree, same_as_local):
    same_as_local(tree({f"{name}.txt": name.encode() for name in ODD_NAMES}), keep_path=True)


def test_empty_objects_and_one_above_a_range(tree, same_as_local):
    large = random.Random(3).randbytes((8 << 20) + 1)
    same_as_local(tree({"a.bin": b"", "b.bin": large, "c.bin": large[:-1], "d.bin": b"", "e.bin": b"1"}))


@pytest.mark.slow
def test_thousands_of_objects(tree, same_as_local):
    same_as_local(tree({f"{i % 13}/{i:05d}.txt": b"%d" % i * (i % 50) for i in range(5000)}), engine=Processes(2))


def test_more_bytes_than_are_read_ahead(tree, same_as_local):
    data = random.Random(5).randbytes(5 << 20)
    same_as_local(tree({f"{i:02d}.bin": data[i:] for i in range(8)}))


# What is left out, and what an address stands for.


def test_litter_is_skipped_and_counted_as_it_is_locally(tree, plan, bucket):
    names = ["a.txt", ".hidden.txt", ".git/config", ".git/x/y", "._a.txt", "d/._b.txt", "d/b.txt", "__pycache__/x.pyc", "__pycache__/y.pyc"]
    names += ["d/Thumbs.db", "d/.cache/1", "Thumbs.db.txt", "x__pycache__/z.txt", "a.b/c.txt"]
    folder = tree(dict.fromkeys(names, b"x"))
    local, remote = plan(folder), plan(bucket.copy_of(folder))
    assert remote.survey.skipped == local.survey.skipped == {"hidden": 3, "AppleDouble": 2, "__pycache__": 1, "Thumbs.db": 1}
    assert remote.plan.digest == local.plan.digest


class Listing:
    """A store that lists what not every store can hold."""

    uri = "s3://b"

    def __init__(self, names):
        self._names = names

    def entries(self):
        return (Stored(name, 1, 5, '"e,1"') for name in self._names)


def test_keys_that_are_no_file_names_are_skipped_and_counted(monkeypatch):
    names = ["a.txt", "d//e.txt", "/f.txt", "g/", "h\\i.txt", "j/../k.txt", "./l.txt", "z/m.txt", "z/a.b.txt"]
    monkeypatch.setattr(_bucket_scan, "open_storage", lambda _: Listing(names))
    found = scan_bucket(Input("s3://b"))
    assert found.folders == {b"": [b'a.txt\x001\x00"e,1"'], b"z": [b'a.b.txt\x001\x00"e,1"', b'm.txt\x001\x00"e,1"']}
    assert found.skipped == {"not a file name": 4, "hidden": 2}
    assert (found.newest_ns, found.has_dotted_stems) == (5, True)


@pytest.mark.parametrize("num_keys", [10_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_key_takes_one_short_object(monkeypatch, num_keys):
    monkeypatch.setattr(_bucket_scan, "open_storage", lambda _: Listing(f"{i % 100:02d}/{i:07d}.jpg" for i in range(num_keys)))
    tracemalloc.start()
    try:
        found = scan_bucket(Input("s3://b"))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(map(len, found.folders.values())) == num_keys
    assert peak_bytes < 90 * num_keys


def test_an_object_is_one_file(build, read_tars, bucket, tmp_path):
    source = bucket.put({"a.txt": b"1", "b.txt": b"2"})
    build(f"{source}/b.txt", tmp_path / "out")
    assert read_tars(tmp_path / "out") == {"b.txt": b"2"}


def test_objects_one_by_one_are_the_folder(plan, bucket, tree):
    folder = tree({f"{i}.txt": b"x" for i in range(5)})
    source = bucket.copy_of(folder)
    assert plan([f"{source}/{i}.txt" for i in range(5)]).plan.digest == plan(source).plan.digest == plan(folder).plan.digest


@pytest.mark.parametrize("ending", ["", "/", "//"])
def test_a_folder_with_or_without_a_slash(plan, bucket, ending):
    source = bucket.put({"x/a.txt": b"1", "xy/b.txt": b"2"})
    assert plan(f"{source}/x{ending}").survey.preview == ["a"]


def test_nothing_of_that_name(bucket):
    with pytest.raises(UsageError, match=r"expected an object or a folder to read, got s3://tests/.*/nothing, which does not exist"):
        resolve_inputs([f"{bucket.uri}/nothing"])


def test_an_object_and_a_folder_of_one_name(plan, bucket):
    source = bucket.put({"x.txt": b"1"})
    bucket.put({"a.txt": b"2"}, "src/x.txt")
    if bucket.client.list_objects_v2(Bucket=BUCKET, Prefix=f"{bucket.prefix}/src/x.txt")["KeyCount"] != 2:
        pytest.skip("this store keeps one of the two only")
    with pytest.raises(UsageError, match="got both at"):
        resolve_inputs([f"{source}/x.txt"])
    assert plan(f"{source}/x.txt/").survey.preview == ["a"]


@pytest.mark.usefixtures("bucket")
def test_no_bucket():
    with pytest.raises(StorageError, match=r"NoSuchBucket.*create the bucket or mend its name"):
        resolve_inputs(["s3://no-such-bucket/x"])


def test_an_empty_folder_marker_is_no_data(bucket):
    bucket.put({"folder/": b""})
    with pytest.raises(UsageError, match="which does not exist"):
        resolve_inputs([f"{bucket.uri}/src/folder"])


# Several inputs and lists.


def test_inputs_here_and_there(tree, build, read_tars, bucket, tmp_path):
    here, there = tree({"a.txt": b"1", "c.txt": b"3"}), tree({"b.txt": b"2", "d.txt": b"4"}, "other")
    source = bucket.copy_of(there)
    build([here, source], tmp_path / "out", seed=3)
    build([here, there], tmp_path / "local", seed=3)
    assert read_tars(tmp_path / "out") == read_tars(tmp_path / "local")
    assert sorted(read_tars(tmp_path / "out")) == ["a.txt", "b.txt", "c.txt", "d.txt"]


def test_the_same_key_here_and_there(tree, build, bucket, tmp_path):
    here = tree({"a.txt": b"1"})
    source = bucket.put({"a.txt": b"2"})
    with pytest.raises(DuplicateKeyError, match=rf"{here}/a.txt and from {source}/a.txt"):
        build([here, source], tmp_path / "out")


def test_a_list_of_addresses(build, read_tars, bucket, tmp_path):
    source = bucket.put({"x/a.txt": b"1", "x/y/b.txt": b"2", "x/c.txt": b"3", "d.txt": b"4"})
    listed = tmp_path / "list"
    listed.write_text(f"{source}/x/y/b.txt\n{source}/x/a.txt\n")
    build(f"@{listed}", tmp_path / "out")
    assert read_tars(tmp_path / "out") == {"a.txt": b"1", "y/b.txt": b"2"}


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["s3://b/a.txt", "a.txt"], "got both; make two lists"),
        (["s3://b/x//a.txt"], "without empty parts"),
        (["s3://b/"], "without empty parts"),
        (["s3://tests/none/a.txt", "s3://tests/none/a.txt"], "expected every path once"),
        (["s3://tests/none/a.txt"], "expected a readable object in the list of paths, got a.txt: none in s3://tests/none"),
    ],
)
def test_lists_that_are_wrong(plan, tmp_path, lines, sentence):
    (tmp_path / "list").write_text("\n".join(lines))
    with pytest.raises(UsageError, match=sentence):
        plan(f"@{tmp_path / 'list'}")


def test_overlaps_are_refused(bucket):
    source = bucket.put({"x/a.txt": b"1"})
    for one, other in [(source, f"{source}/x"), (source, f"{source}/x/a.txt"), (f"{source}/x", f"{source}/x/"), (f"{source}/x/a.txt",) * 2]:
        with pytest.raises(UsageError, match="expected every input once"):
            resolve_inputs([one, other])


def test_the_first_files_are_those_of_the_same_folder_here(tree, bucket):
    names = ["z.jsonl", "a/b.txt", "a/c/d.txt", "a/e.txt", "B.txt", ".h/x.txt", "0/1/2/3.txt", "0/k.txt"]
    folder = tree(dict.fromkeys(names, b"x"))
    [here], [there] = resolve_inputs([str(folder)]), resolve_inputs([bucket.copy_of(folder)])
    for count in range(1, 9):
        assert first_files(there, count) == first_files(here, count)


# Objects that are not what they were.


def changed_after_planning(build, source, destination, change, **options):
    """Packs while something changes the input between planning and reading."""
    return build(source, destination, listener=Listener(on_plan=lambda _: change()), **options)


CHANGES = {
    "removed": (lambda bucket: bucket.delete("b.txt"), "unreadable", r"b\.txt.*expected a readable object, got none"),
    "longer": (
        lambda bucket: bucket.put({"b.txt": b"22"}),
        "changed",
        r"b\.txt.*expected the 1 bytes it had when the run was planned, got 2",
    ),
    "empty": (lambda bucket: bucket.put({"b.txt": b""}), "changed", r"b\.txt.*expected the 1 bytes it had .* got 0"),
    "of the same length": (
        lambda bucket: bucket.put({"b.txt": b"3"}),
        "changed",
        r"b\.txt.*expected the 1 bytes it had .* got as many others",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_object_is_a_bad_sample(build, read_tars, bucket, tmp_path, change):
    source = bucket.put({"a.txt": b"1", "b.txt": b"2", "c.txt": b"3"})
    make, reason, sentence = CHANGES[change]
    with pytest.raises(BadSampleError, match=sentence):
        changed_after_planning(build, source, tmp_path / "strict", lambda: make(bucket))
    bucket.put({"b.txt": b"2"})
    result = changed_after_planning(build, source, tmp_path / "out", lambda: make(bucket), max_bad="1")
    assert result.manifest.ledger.rejects == {reason: 1}
    assert read_tars(tmp_path / "out") == {"a.txt": b"1", "c.txt": b"3"}


def test_a_bad_sample_of_several_files_shifts_no_other(build, read_tars, bucket, tmp_path):
    names = [f"{key}.{kind}" for key in "abcd" for kind in ("txt", "json", "cls")]
    source = bucket.put({name: b"%d" % i for i, name in enumerate(names)})
    changed_after_planning(build, source, tmp_path / "out", lambda: bucket.delete("b.cls"), max_bad="1")
    assert read_tars(tmp_path / "out") == {name: b"%d" % names.index(name) for name in sorted(names) if not name.startswith("b")}


def test_samples_that_are_bad_by_their_names_shift_no_other(build, read_tars, bucket, tmp_path):
    source = bucket.put(
        {"x/a.txt": b"1", "x/b.TXT": b"8", "x/b.txt": b"7", "b.txt": b"3", "x/c.txt": b"4", "y/d.txt": b"5", "x/e.txt": b"6"}
    )
    result = build(source, tmp_path / "out", label_from_dir=True, max_bad="2")
    assert result.manifest.ledger.rejects == {"two-files-one-field": 1, "no-label": 1}
    found = {name: data for name, data in read_tars(tmp_path / "out").items() if name.endswith("txt")}
    assert found == {"x/a.txt": b"1", "x/c.txt": b"4", "x/e.txt": b"6", "y/d.txt": b"5"}


def test_trouble_with_the_store_is_no_bad_sample(build, bucket, tmp_path, monkeypatch):
    from shardtools.storage.s3 import forget_client

    def lose_the_keys():
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        forget_client()

    source = bucket.put({"a.txt": b"1"})
    with pytest.raises(StorageError, match=r"could not read s3://.*/a.txt: the server answered SignatureDoesNotMatch"):
        changed_after_planning(build, source, tmp_path / "out", lose_the_keys, max_bad="100%")
    assert not list((tmp_path / "out").glob("*.tar"))


# Runs.


def test_an_interrupted_run_goes_on_from_the_bucket(tree, build, digests, bucket, tmp_path):
    folder = tree({f"{i:02d}.bin": bytes([i]) * (4 << 20) for i in range(10)})
    source = bucket.copy_of(folder)
    seen = []

    def stop(progress):
        seen.append(progress)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(source, tmp_path / "out", shard_bytes=8 << 20, listener=Listener(on_progress=stop))
    build(source, tmp_path / "out", shard_bytes=8 << 20)
    build(folder, tmp_path / "local", shard_bytes=8 << 20)
    assert digests(tmp_path / "out") == digests(tmp_path / "local")


MEASURED = """
import re, sys
from shardtools.build.order import Order
from shardtools.build.run import build
from shardtools.formats.wds import Wds
from shardtools.sources.files import Files
build([sys.argv[1]], sys.argv[2], Order(Files(), Wds()))
# getrusage would tell of the process that started this one.
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) >> 10)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_input(bucket, tmp_path):
    data = random.Random(9).randbytes(1 << 20)
    source = bucket.put({f"{i:04d}.bin": data[i:] for i in range(600)})
    run = subprocess.run([sys.executable, "-c", MEASURED, source, str(tmp_path / "out")], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 250, f"{run.stdout} MiB for {600 << 20 >> 20} MiB of input"
