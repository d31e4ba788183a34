"""Merging neither loses, doubles nor mixes up a sample: stops the silence of the reference merge, and half a dataset after a kill."""

import errno
import gzip
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shardtools.build.existing.admit import UnsoundShardsError
from shardtools.build.merge import Merged, MergeOptions, merge
from shardtools.errors import DuplicateKeyError, ShardtoolsError, StorageError, UsageError
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds
from shardtools.manifest import Ledger, Manifest
from shardtools.storage.local import Local
from shardtools.verify import verify

PER_PART = 6


@pytest.fixture
def part(tmp_path: Path, build: Callable[..., Any], rows: Callable[..., Any]) -> Callable[..., Path]:
    """A dataset of six samples in three shards: ``part("parts/3")`` has the keys ``parts-3-0`` to ``parts-3-5``."""

    def make(
        name: str, format_: Any = None, encodings: dict[str, str] | None = None, keys: list[bytes] | None = None, **options: Any
    ) -> Path:
        (tmp_path / "src").mkdir(exist_ok=True)
        keys = keys or [f"{name.replace('/', '-')}-{i}".encode() for i in range(PER_PART)]
        encodings = encodings or {"n": "int", "txt": "str"}
        values = {"int": list(range(len(keys))), "str": [f"{name} {i}" for i in range(len(keys))], "bytes": [key * 3 for key in keys]}
        source = rows(keys, {column: values[encoding] for column, encoding in encodings.items()}, encodings)
        build(tmp_path / "src", tmp_path / name, format_ or Mds(), source=source, shard_samples=2, **options)
        return tmp_path / name

    return make


def run(sources: list[Path], out: Path, **options: Any) -> Merged:
    return merge([str(source) for source in sources], str(out), MergeOptions(**options))


def manifest_of(folder: Path) -> Manifest:
    return Manifest.parse((folder / "shardtools.manifest").read_bytes())


def keys_of(*names: str) -> list[str]:
    return [f"{name.replace('/', '-')}-{i}" for name in names for i in range(PER_PART)]


# What comes out.


@pytest.mark.train
def test_streaming_reads_every_sample_of_every_part_once_in_the_order_of_numbers(tmp_path, part, read_streaming):
    """The reference merge takes folders as text, 0, 1, 10, 11, 2, and loses what lies deeper than one level."""
    names = [f"parts/{i}" for i in range(12)] + ["parts/deep/a/2", "parts/deep/a/10"]
    for name in names:
        part(name)
    merged = run([tmp_path / "parts"], tmp_path / "out")
    assert (merged.num_inputs, len(merged.manifest.shards), merged.manifest.ledger.num_written) == (14, 42, 84)
    assert [row["key"] for row in read_streaming(tmp_path / "out")] == keys_of(*names)
    assert verify(str(tmp_path / "out")).findings == ()


@pytest.mark.train
def test_webdataset_reads_every_sample_once(tmp_path, part, read_webdataset):
    for name in ("b", "a/10", "a/9"):
        part(name, Wds(), {"txt": "str", "bin": "bytes"})
    run([tmp_path / "b", tmp_path / "a"], tmp_path / "out")
    samples = read_webdataset(tmp_path / "out")
    assert [sample["__key__"] for sample in samples] == keys_of("b", "a/9", "a/10")
    assert samples[6]["bin"] == b"a-9-0" * 3
    assert sorted(path.name for path in (tmp_path / "out").glob("*.tar")) == [f"train-{i:06d}.tar" for i in range(9)]
    assert verify(str(tmp_path / "out")).findings == ()


def test_the_bytes_depend_on_the_inputs_and_their_order_alone(tmp_path, part, digests):
    a, b = part("a"), part("b")
    run([a, b], tmp_path / "one")
    run([a, b], tmp_path / "linked", link=True)
    run([a, b], tmp_path / "many", workers=3)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.move(a, moved / "x")
    shutil.move(b, moved / "y")
    run([moved / "x", moved / "y"], tmp_path / "moved")
    assert digests(tmp_path / "one") == digests(tmp_path / "linked") == digests(tmp_path / "many") == digests(tmp_path / "moved")
    assert os.stat(tmp_path / "linked" / "shard.00000.mds").st_ino == os.stat(moved / "x" / "shard.00000.mds").st_ino
    run([moved / "y", moved / "x"], tmp_path / "turned")
    assert digests(tmp_path / "turned") != digests(tmp_path / "one")


def test_the_recipe_says_what_was_merged_and_nothing_of_where(tmp_path, part):
    a, b = part("a"), part("b")
    run([a, b], tmp_path / "out")
    manifest = manifest_of(tmp_path / "out")
    source = manifest.recipe["source"]
    assert (source["name"], source["canonical"], manifest.is_canonical) == ("merge", True, True)
    assert [one["plan"] for one in source["inputs"]] == [manifest_of(a).plan_digest, manifest_of(b).plan_digest]
    assert [one["shards"] for one in source["inputs"]] == [3, 3]
    assert str(tmp_path) not in (tmp_path / "out" / "shardtools.manifest").read_text()
    assert [shard.sha256 for shard in manifest.shards] == [shard.sha256 for folder in (a, b) for shard in manifest_of(folder).shards]


def test_ledgers_of_samples_that_transforms_made_add_up(tmp_path, part):
    """Documents were read and written, rows are stored: neither number may be taken for the other."""
    for name, num_documents in (("a", 40), ("b", 50)):
        manifest = manifest_of(part(name))
        ledger = Ledger(num_documents, 3, num_rows=PER_PART, transforms={"packing": Counter(rows=PER_PART, documents=num_documents)})
        (tmp_path / name / "shardtools.manifest").write_bytes(replace(manifest, ledger=ledger).serialize())
    merged = run([tmp_path / "a", tmp_path / "b"], tmp_path / "out").manifest.ledger
    assert (merged.num_read, merged.num_written, merged.num_filtered, merged.num_stored) == (96, 90, 6, 12)
    assert merged.transforms == {"packing": Counter(rows=12, documents=90)}


def test_ledgers_add_up_and_every_reject_stays_listed(tmp_path, part):
    for name in ("a", "b"):
        part(name, keys=[f"{name}{i}".encode() for i in range(4)] + [f"bad{name}".encode(), f"bad{name}2".encode()], max_bad="2")
    merged = run([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    assert merged.manifest.ledger.as_json() == {"read": 12, "written": 8, "rejected": 4, "filtered": 0, "rejects": {"bad-row": 4}}
    lists = [(tmp_path / name / ".shardtools" / "rejects").read_bytes() for name in ("a", "b", "out")]
    assert lists[2] == lists[0] + lists[1]
    assert verify(str(tmp_path / "out")).findings == ()


def test_a_field_that_one_part_lacks_is_optional_in_the_whole(tmp_path, part):
    part("a", Wds(), {"txt": "str", "bin": "bytes"})
    part("b", Wds(), {"txt": "str"})
    run([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    fields = manifest_of(tmp_path / "out").recipe["fields"]
    assert [(field["name"], field["encoding"], field["optional"]) for field in fields] == [("bin", "bytes", True), ("txt", "str", False)]


def test_compressed_tars_keep_the_ending_that_says_so(tmp_path, ustar):
    for name, pack in (("0.tar.gz", lambda data: gzip.compress(data, mtime=0)), ("1.tar", bytes)):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / name).write_bytes(pack(ustar([(f"{name[0]}.txt", b"x")])))
    run([tmp_path / "a"], tmp_path / "out")
    assert [shard.name for shard in manifest_of(tmp_path / "out").shards] == ["train-000000.tar.gz", "train-000001.tar"]
    assert verify(str(tmp_path / "out")).findings == ()


@pytest.mark.train
def test_plain_and_compressed_shards_are_one_dataset(tmp_path, part, read_streaming):
    part("a")
    part("b", Mds(compression="zstd", hashes=("sha1",)))
    run([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    assert verify(str(tmp_path / "out")).findings == ()
    names = [shard.name for shard in manifest_of(tmp_path / "out").shards]
    assert names == [f"shard.0000{i}.mds" for i in range(3)] + [f"shard.0000{i}.mds.zstd" for i in range(3, 6)]
    assert [row["key"] for row in read_streaming(tmp_path / "out")] == keys_of("a", "b")


@pytest.mark.train
def test_datasets_of_the_reference_writer_are_merged(tmp_path, streaming, read_streaming):
    for name, compression in (("p/1", None), ("p/10", "zstd:7"), ("p/2", None)):
        write_mds(streaming, tmp_path / name, {"id": "str", "x": "float32"}, name, compression=compression, hashes=["sha1", "xxh3_64"])
    merged = run([tmp_path / "p"], tmp_path / "out")
    assert merged.manifest.is_canonical
    assert verify(str(tmp_path / "out")).findings == ()
    assert [row["id"] for row in read_streaming(tmp_path / "out")] == [f"p/{n} {i}" for n in (1, 2, 10) for i in range(5)]


def test_foreign_tars_in_folders_of_folders_are_merged(tmp_path, ustar, read_tars):
    expected = {}
    for folder in ("x/0", "x/2/b", "x/2/a", "x/11"):
        (tmp_path / folder).mkdir(parents=True)
        members = [(f"{folder}/{i}.txt", b"%d" % i) for i in range(3)]
        (tmp_path / folder / "any name.tar").write_bytes(ustar(members))
    for folder in ("x/0", "x/2/a", "x/2/b", "x/11"):
        expected |= {f"{folder}/{i}.txt": b"%d" % i for i in range(3)}
    run([tmp_path / "x"], tmp_path / "out")
    found = read_tars(tmp_path / "out")
    assert found == expected and list(found) == list(expected)
    assert verify(str(tmp_path / "out")).findings == ()


def test_a_gap_in_the_numbers_of_foreign_tars_is_a_warning(tmp_path, ustar):
    for name in ("a/train-000003", "a/train-000005", "b/train-000006", "b/train-000007"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.tar").write_bytes(ustar([(f"{name}.txt", b"x")]))
    merged = run([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    (warning,) = merged.warnings
    assert warning.endswith(f"without a gap, got none named train-000004.tar in {tmp_path / 'a'}")


# What the reference merge takes in silence, and everything else that is refused.


def write_mds(streaming: ModuleType, folder: Path, columns: dict[str, str], name: str, **options: Any) -> None:
    values = {"str": lambda i: f"{name} {i}", "int": lambda i: i, "float32": lambda i: i / 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with streaming.MDSWriter(out=str(folder), columns=columns, size_limit=400, **options) as writer:
            for i in range(5):
                writer.write({column: values[encoding](i) for column, encoding in columns.items()})


def double(root: Path) -> None:
    shutil.copytree(root / "0", root / "3")


def lose_a_shard(root: Path) -> None:
    (root / "1" / "shard.00000.mds").unlink()


def lose_an_index(root: Path) -> None:
    (root / "1" / "index.json").unlink()


SILENT = {
    "a partition twice": (double, r"every shard once, got .*/0/shard.00000.mds and .*/3/shard.00000.mds"),
    "a missing file": (lose_a_shard, r"expected the file shard.00000.mds in .*/1, got none"),
    "a partition that crashed": (lose_an_index, r"expected an index.json beside the shards in .*/1, got shard.00000.mds"),
}


@pytest.mark.train
@pytest.mark.parametrize("case", SILENT)
def test_what_the_reference_merge_accepts_in_silence_is_refused(tmp_path, streaming, case):
    harm, message = SILENT[case]
    for i in range(3):
        write_mds(streaming, tmp_path / "p" / str(i), {"id": "str"}, str(i))
    harm(tmp_path / "p")
    shutil.copytree(tmp_path / "p", tmp_path / "reference")
    reference_merge(tmp_path / "reference")
    with pytest.raises(ShardtoolsError, match=message):
        run([tmp_path / "p"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.train
def test_columns_that_differ_are_refused_though_the_reference_merges_them(tmp_path, streaming):
    write_mds(streaming, tmp_path / "p" / "0", {"id": "str"}, "0")
    write_mds(streaming, tmp_path / "p" / "1", {"id": "str", "x": "int"}, "1")
    shutil.copytree(tmp_path / "p", tmp_path / "reference")
    reference_merge(tmp_path / "reference")
    with pytest.raises(ShardtoolsError, match=r"same columns .* 'x' as no column at all and as int: .*/0/shard.* and .*/1/shard"):
        run([tmp_path / "p"], tmp_path / "out")


def reference_merge(folder: Path) -> None:
    """By mosaicml-streaming itself, which must take it for these tests to say anything."""
    from streaming.base.util import merge_index

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        merge_index(str(folder), keep_local=True)
    assert json.loads((folder / "index.json").read_text())["shards"]


def test_the_same_key_in_two_parts_is_refused_with_both_places(tmp_path, part):
    part("a", keys=[b"x1", b"x2", b"x3"])
    part("b", keys=[b"y1", b"y2", b"x3"])
    with pytest.raises(DuplicateKeyError, match=r"'x3' in .*/a/shard.00001.mds at byte \d+ and in .*/b/shard.00001.mds at byte \d+"):
        run([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("again", ["a", "link", "a/../a"])
def test_a_folder_that_is_given_twice_is_refused(tmp_path, part, again):
    part("a")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(UsageError, match="every dataset once"):
        run([tmp_path / "a", tmp_path / again], tmp_path / "out")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def test_every_damaged_shard_is_named(tmp_path, part):
    part("a")
    part("b")
    flip(tmp_path / "a" / "shard.00001.mds")
    cut = tmp_path / "b" / "shard.00002.mds"
    cut.write_bytes(cut.read_bytes()[:-3])
    with pytest.raises(UnsoundShardsError) as caught:
        run([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    assert [fault.split(": ")[0] for fault in caught.value.faults] == [str(tmp_path / "a" / "shard.00001.mds"), str(cut)]
    assert not (tmp_path / "out").exists()


def test_a_damaged_foreign_tar_is_refused(tmp_path, ustar):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.tar").write_bytes(ustar([(f"{name}{i}.txt", b"x") for i in range(3)]))
    tar = tmp_path / "b" / "0.tar"
    tar.write_bytes(tar.read_bytes()[:1536])
    with pytest.raises(UnsoundShardsError, match=r"/b/0.tar: "):
        run([tmp_path / "a", tmp_path / "b"], tmp_path / "out")


REFUSED: dict[str, tuple[Callable[[Callable[..., Path]], object], str]] = {
    "formats": (lambda part: (part("p/a"), part("p/b", Wds())), "one format, got MDS and WDS"),
    "MDS encodings": (lambda part: (part("p/a"), part("p/b", Mds(), {"n": "str", "txt": "str"})), "'n' as int and as str"),
    "WDS encodings": (
        lambda part: (part("p/a", Wds(), {"x": "str"}), part("p/b", Wds(), {"x": "bytes"})),
        "one encoding for the field 'x', got str in .*/p/a and bytes in .*/p/b",
    ),
    "no field in common": (
        lambda part: (part("p/a", Wds(), {"txt": "str"}), part("p/b", Wds(), {"bin": "bytes"})),
        "at least one field in common, got txt in .*/p/a and bin in .*/p/b",
    ),
    "key columns": (
        lambda part: (part("p/a", Mds(key_column="txt"), {"n": "int", "key": "str"}), part("p/b", Mds(), {"n": "int", "txt": "str"})),
        "one key column, got txt in .* and key in",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_one_schema_is_refused(tmp_path, part, case):
    make, message = REFUSED[case]
    make(part)
    with pytest.raises(ShardtoolsError, match=message):
        run([tmp_path / "p"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_shard_that_the_manifest_does_not_name_is_not_passed_over(tmp_path, part):
    part("a")
    shutil.copy(tmp_path / "a" / "shard.00000.mds", tmp_path / "a" / "shard.00003.mds")
    with pytest.raises(ShardtoolsError, match=r"to name every shard there, got shard.00003.mds beside them"):
        run([tmp_path / "a"], tmp_path / "out")


@pytest.mark.parametrize("name", ["index.json", "shardtools.offsets"])
def test_a_missing_file_of_a_part_is_refused(tmp_path, part, name):
    part("a")
    (tmp_path / "a" / name).unlink()
    with pytest.raises(ShardtoolsError, match=f"expected {name}"):
        run([tmp_path / "a"], tmp_path / "out")


def test_an_unfinished_build_is_not_passed_over(tmp_path, part):
    part("p/a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shardtools.build.publish.Publisher.publish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            part("p/b")
    with pytest.raises(ShardtoolsError, match=r"/p/b, got a build that is not finished"):
        run([tmp_path / "p"], tmp_path / "out")


@pytest.mark.parametrize("out", ["a", "a/out", "."])
def test_the_destination_lies_apart_from_the_sources(tmp_path, part, out):
    part("a")
    with pytest.raises(UsageError, match="apart from every source"):
        run([tmp_path / "a"], tmp_path / out)


def test_a_destination_with_other_files_is_refused(tmp_path, part):
    part("a")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"to be empty, got 1 file .* such as mine.txt"):
        run([tmp_path / "a"], tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_another_dataset_is_replaced_only_when_asked(tmp_path, part, digests):
    a, b, out = part("a"), part("b"), tmp_path / "out"
    run([a, b], out)
    assert run([a, b], out).already_complete
    with pytest.raises(UsageError, match=r"got a finished dataset of another"):
        run([a], out)
    run([a], out, overwrite=True)
    run([a], tmp_path / "clean")
    assert digests(out) == digests(tmp_path / "clean")


@pytest.mark.parametrize("source", ["nothing", "empty", "file"])
def test_a_source_without_a_dataset_is_refused(tmp_path, source):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match=f"{tmp_path / source}"):
        run([tmp_path / source], tmp_path / "out")


def test_links_that_cannot_be_made_are_one_sentence(tmp_path, part, monkeypatch, one_sentence):
    real = os.link

    def refuse(source: str, target: str) -> None:
        if source.endswith(".mds"):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        real(source, target)

    part("a")
    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageError) as caught:
        run([tmp_path / "a"], tmp_path / "out", link=True)
    assert re.search(r"could not link .*/a/shard.00000.mds to .*: Invalid cross-device link; .* without --link", one_sentence(caught.value))
    assert not (tmp_path / "out" / "shardtools.manifest").exists()


# Kills.


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


def stop_after(monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    """Lets so many changes of the destination happen, then stops everything."""
    count = [0]
    for name in ("move", "put", "create", "delete"):
        real = getattr(Local, name)

        def counted(self: Local, *arguments: Any, real: Any = real) -> Any:
            count[0] += 1
            if count[0] > last:
                raise Killed
            return real(self, *arguments)

        monkeypatch.setattr(Local, name, counted)


@pytest.mark.parametrize("link", [False, True], ids=["copy", "link"])
def test_a_merge_that_stops_at_any_step_leaves_no_dataset_and_goes_on(tmp_path, part, digests, link):
    a, b, out = part("a"), part("b", Mds(compression="zstd")), tmp_path / "out"
    run([a, b], tmp_path / "clean")
    clean, finished = digests(tmp_path / "clean"), False
    last = 0
    while not finished:
        shutil.rmtree(out, ignore_errors=True)
        with pytest.MonkeyPatch.context() as patch:
            stop_after(patch, last)
            try:
                run([a, b], out, link=link)
                finished = True
            except Killed:
                pass
        if not finished and not (out / "shardtools.manifest").exists():
            # The index comes last but for the manifest: where it is, all that it names is there.
            index = json.loads((out / "index.json").read_text()) if (out / "index.json").exists() else {"shards": []}
            assert all((out / (entry["zip_data"] or entry["raw_data"])["basename"]).exists() for entry in index["shards"])
        run([a, b], out, link=link)
        assert digests(out) == clean, f"after {last} steps"
        last += 1
    assert last > 25


@pytest.mark.slow
@pytest.mark.parametrize("extra", [[], ["--link"]], ids=["copy", "link"])
def test_a_merge_that_is_killed_at_random_goes_on_and_ends_in_the_same_bytes(tmp_path, digests, extra):
    numbers = random.Random(5)
    for i in range(8):
        folder = tmp_path / "p" / str(i)
        folder.mkdir(parents=True)
        (folder / "0.tar").write_bytes(tar_of_random(numbers, i))
    run([tmp_path / "p"], tmp_path / "clean")
    clean = digests(tmp_path / "clean")
    command = [sys.executable, "-m", "shardtools", "merge", str(tmp_path / "p"), str(tmp_path / "out"), *extra]
    began = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    whole_seconds = time.monotonic() - began
    num_killed = 0
    for _ in range(25):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        while True:
            started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            # The first part of the time is spent on starting Python.
            time.sleep(numbers.uniform(0.3, 1.0) * whole_seconds)
            started.send_signal(signal.SIGKILL)
            killed = started.wait() != 0
            num_killed += killed
            if not killed or numbers.random() < 0.3:
                break
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert digests(tmp_path / "out") == clean
    assert num_killed >= 10
    assert verify(str(tmp_path / "out")).findings == ()


def tar_of_random(numbers: random.Random, part: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for i in range(40):
            info = tarfile.TarInfo(f"{part}/{i}.bin")
            info.size = 100_000
            archive.addfile(info, io.BytesIO(numbers.randbytes(info.size)))
    return buffer.getvalue()


def test_inputs_that_changed_since_a_kill_are_refused_and_named(tmp_path, part):
    a, b, out = part("a"), part("b"), tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shardtools.build.publish.Publisher.publish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run([a, b], out)
    with pytest.raises(UsageError, match=r"got an unfinished build of another: .*3 inputs gone: 1/shard.00000.mds"):
        run([a], out)


def test_inputs_of_the_same_names_with_other_bytes_are_other_inputs(tmp_path, ustar, digests):
    def tar(data: bytes) -> None:
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / "0.tar").write_bytes(ustar([("a.txt", data)]))

    tar(b"1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shardtools.build.publish.Publisher.publish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run([tmp_path / "a"], tmp_path / "out")
    tar(b"2")
    with pytest.raises(UsageError, match=r"got an unfinished build of another: .*1 input changed: 0/0.tar"):
        run([tmp_path / "a"], tmp_path / "out")
    run([tmp_path / "a"], tmp_path / "out", overwrite=True)
    run([tmp_path / "a"], tmp_path / "clean")
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")


def test_a_full_disk_is_one_sentence_and_the_rest_is_kept(tmp_path, small_disk, ustar, digests, one_sentence):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.tar").write_bytes(ustar([(f"{name}.bin", os.urandom(100_000))]))
    disk = small_disk(180)
    with pytest.raises(StorageError) as caught:
        run([tmp_path / "a", tmp_path / "b"], disk / "out")
    assert "No space left on device" in one_sentence(caught.value)
    assert not (disk / "out" / "shardtools.manifest").exists()
    small_disk(1000)
    run([tmp_path / "a", tmp_path / "b"], disk / "out")
    run([tmp_path / "a", tmp_path / "b"], tmp_path / "clean")
    assert digests(disk / "out") == digests(tmp_path / "clean")
