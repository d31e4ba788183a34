"""Datasets of other writers: sound ones pass, damaged ones do not; stops a verify that only knows its own bytes."""

import gzip
import io
import json
import os
import shutil
import tarfile
import warnings

import pytest

from shardtools.datasets import _unpack
from shardtools.verify import VerifyOptions, verify


def kinds_of(folder):
    return [finding.kind for finding in verify(str(folder), VerifyOptions(workers=1)).findings]


@pytest.fixture
def foreign_wds(webdataset, tmp_path):
    """Two tars of webdataset's own writer, with the extension headers it writes by default, one in a folder of its own."""
    for name, keys in (("a-000.tar", "abc"), ("sub/b-000.tar", "def")):
        (tmp_path / "foreign" / name).parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with webdataset.TarWriter(str(tmp_path / "foreign" / name)) as sink:
                for key in keys:
                    sink.write({"__key__": f"x/{key}" + "y" * 120, "txt": "tëxt", "json": {"k": key}, "cls": 3})
    return tmp_path / "foreign"


@pytest.mark.train
def test_tars_of_the_reference_writer_are_sound(foreign_wds):
    verdict = verify(str(foreign_wds))
    assert verdict.findings == ()
    assert (verdict.is_published, verdict.num_shards, verdict.num_samples) == (False, 2, 6)
    assert "no manifest to compare with" in verdict.closing()


@pytest.mark.train
def test_a_key_in_two_tars_of_the_reference_writer(foreign_wds):
    shutil.copy(foreign_wds / "a-000.tar", foreign_wds / "c.tar")
    assert kinds_of(foreign_wds) == ["duplicate-key"] * 3


@pytest.mark.train
def test_a_cut_tar_of_the_reference_writer(foreign_wds):
    data = (foreign_wds / "a-000.tar").read_bytes()
    (foreign_wds / "a-000.tar").write_bytes(data[: 3 * 512])
    assert kinds_of(foreign_wds) == ["damaged-shard"]


def test_gnu_tars_with_folders_and_long_names_are_sound(gnu_tar, tree, tmp_path):
    root = tree({f"d/{'n' * 150}{i}.txt": b"x" for i in range(3)})
    (tmp_path / "out").mkdir()
    gnu_tar("--format=gnu", "--sort=name", "-cf", tmp_path / "out/x.tar", "-C", root, "./d")
    gnu_tar("--format=pax", "--sort=name", "-czf", tmp_path / "out/y.tar.gz", "--transform=s,d,e,", "-C", root, "d")
    verdict = verify(str(tmp_path / "out"))
    assert verdict.findings == ()
    assert verdict.num_samples == 6


@pytest.mark.parametrize("num_lost", [1, 9, 300])
def test_a_cut_gzip_stream_is_damaged(tmp_path, tar_of, num_lost):
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(tar_of([(f"{i}.bin", os.urandom(700)) for i in range(3)]))[:-num_lost])
    assert kinds_of(tmp_path) == ["damaged-shard"]


def test_a_gzip_stream_that_grows_without_end_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(_unpack, "_MIN_LIMIT_BYTES", 1 << 20)
    (tmp_path / "x.tgz").write_bytes(gzip.compress(bytes(64 << 20)))
    (found,) = verify(str(tmp_path)).findings
    assert (found.kind, found.offset) == ("damaged-shard", (tmp_path / "x.tgz").stat().st_size * 200)


def test_extension_headers_of_hostile_sizes(tmp_path, tar_of):
    """A length of thousands of digits, a record longer than the header, a size that is no number."""
    for record in (b"9" * 5000 + b" path=x\n", b"999 path=x\n", b"12 size=abc\n", b"25 size=" + b"9" * 16 + b"\n", b"0 \n", b"x"):
        data = tar_of([("a.txt", b"x")])
        info = tarfile.TarInfo("pax")
        info.type, info.size = b"x", len(record)
        buffer = io.BytesIO(info.tobuf(tarfile.USTAR_FORMAT) + record + bytes(-len(record) % 512) + data)
        (tmp_path / "x.tar").write_bytes(buffer.getvalue())
        assert kinds_of(tmp_path) == ["damaged-shard"], record[:20]


def test_an_extension_header_without_a_member(tmp_path):
    info = tarfile.TarInfo("pax")
    info.type, info.size = b"x", 9
    (tmp_path / "x.tar").write_bytes(info.tobuf(tarfile.USTAR_FORMAT) + b"9 path=x\n" + bytes(512 - 9) + bytes(1024))
    assert kinds_of(tmp_path) == ["damaged-shard"]


def test_a_link_is_a_finding_and_a_folder_is_not(tmp_path, tar_of):
    link, folder = tarfile.TarInfo("b.txt"), tarfile.TarInfo("d")
    link.type, link.linkname, folder.type = tarfile.LNKTYPE, "a.txt", tarfile.DIRTYPE
    (tmp_path / "x.tar").write_bytes(tar_of([folder, ("a.txt", b"x"), link]))
    assert kinds_of(tmp_path) == ["not-a-file"]


def test_pickles_are_never_loaded(tmp_path, tar_of):
    trap = b"cos\nsystem\n(S'touch " + str(tmp_path / "trapped").encode() + b"'\ntR."
    (tmp_path / "x.tar").write_bytes(tar_of([("a.pkl", trap), ("a.pyd", trap), ("a.pth", trap)]))
    assert kinds_of(tmp_path) == []
    assert not (tmp_path / "trapped").exists()


# MDS.


def write_mds(streaming, folder, rows, columns, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with streaming.MDSWriter(out=str(folder), columns=columns, **options) as sink:
            for row in rows:
                sink.write(row)


@pytest.fixture
def merged(streaming, tmp_path):
    """Two folders of MDSWriter under one index, as its merge makes them."""
    for part in ("p0", "p1"):
        rows = [{"x": i, "s": f"{part} {i}"} for i in range(20)]
        write_mds(streaming, tmp_path / "foreign" / part, rows, {"x": "int", "s": "str"}, size_limit=400, hashes=["sha1", "xxh128"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        streaming.base.util.merge_index(str(tmp_path / "foreign"))
    return tmp_path / "foreign"


@pytest.mark.train
def test_merged_folders_of_the_reference_writer_are_sound(merged):
    verdict = verify(str(merged))
    assert verdict.findings == ()
    assert verdict.num_samples == 40
    assert not verdict.has_keys


@pytest.mark.train
@pytest.mark.parametrize("compression", ["zstd", "zstd:7"])
def test_compressed_shards_of_the_reference_writer_are_sound(streaming, tmp_path, compression):
    rows = [{"key": f"k{i}", "v": b"x" * i} for i in range(50)]
    write_mds(streaming, tmp_path / "f", rows, {"key": "str", "v": "bytes"}, size_limit=500, compression=compression, hashes=["md5"])
    verdict = verify(str(tmp_path / "f"))
    assert verdict.findings == ()
    assert (verdict.num_samples, verdict.has_keys) == (50, True)


@pytest.mark.train
def test_a_compression_that_is_not_supported_is_said_so(streaming, tmp_path):
    write_mds(streaming, tmp_path / "f", [{"v": b"x"}], {"v": "bytes"}, compression="gz")
    verdict = verify(str(tmp_path / "f"))
    assert [finding.kind for finding in verdict.findings] == ["could-not-look"]
    assert "'gz', which is not supported" in verdict.findings[0].detail
    assert verdict.exit_code == 3


@pytest.mark.train
def test_every_encoding_of_the_reference_writer_is_sound_and_pickles_stay_closed(streaming, tmp_path):
    columns = {"a": "pkl", "b": "str_int", "c": "str_float", "d": "ndarray", "e": "json", "key": "str"}
    import numpy as np

    row = {"a": {"x": 1}, "b": 7, "c": 0.5, "d": np.ones((2, 3), np.int16), "e": {"n": float("nan")}, "key": "k"}
    write_mds(streaming, tmp_path / "f", [row], columns)
    verdict = verify(str(tmp_path / "f"))
    assert verdict.findings == ()
    assert verdict.unchecked_fields == ("a",)
    assert "about the values of a, which are not decoded" in verdict.closing()


@pytest.mark.train
@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("missing-file", lambda folder: (folder / "p0/shard.00000.mds").unlink()),
        ("extra-file", lambda folder: shutil.copy(folder / "p0/shard.00000.mds", folder / "p0/shard.00077.mds")),
        ("wrong-size", lambda folder: os.truncate(folder / "p0/shard.00000.mds", 100)),
        ("wrong-hash", lambda folder: flip_last(folder / "p1/shard.00001.mds")),
        ("index-damaged", lambda folder: edit(folder, lambda shards: shards[0].update(size=1))),
        ("index-damaged", lambda folder: edit(folder, lambda shards: shards[0]["raw_data"].update(basename="../x.mds"))),
        ("index-damaged", lambda folder: edit(folder, lambda shards: shards.append(shards[0]))),
        ("index-damaged", lambda folder: edit(folder, lambda shards: shards[0].update(format="csv"))),
        ("index-damaged", lambda folder: (folder / "index.json").write_bytes(b"")),
        ("wrong-count", lambda folder: edit(folder, lambda shards: shards[0].update(samples=1))),
        ("wrong-config", lambda folder: edit(folder, lambda shards: shards[0].update(size_limit=1))),
        ("index-contradiction", lambda folder: edit(folder, lambda shards: shards[0].update(hashes=["sha1"]))),
    ],
)
def test_damage_of_every_kind(merged, kind, change):
    change(merged)
    assert kind in kinds_of(merged)


def edit(folder, change):
    content = json.loads((folder / "index.json").read_text())
    change(content["shards"])
    (folder / "index.json").write_text(json.dumps(content))


def flip_last(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.train
def test_folders_of_other_columns_under_one_index(streaming, tmp_path):
    """The reference merge accepts them; rows then have two shapes."""
    write_mds(streaming, tmp_path / "f/p0", [{"x": 1}], {"x": "int"})
    write_mds(streaming, tmp_path / "f/p1", [{"y": 1}], {"y": "int"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        streaming.base.util.merge_index(str(tmp_path / "f"))
    assert kinds_of(tmp_path / "f") == ["index-contradiction"]


def test_an_extension_header_of_megabytes_is_not_read_into_memory(tmp_path, tar_of):
    record = b"2000000 comment=" + b"x" * (2_000_000 - 17) + b"\n"
    info = tarfile.TarInfo("pax")
    info.type, info.size = b"x", len(record)
    data = info.tobuf(tarfile.USTAR_FORMAT) + record + bytes(-len(record) % 512) + tar_of([("a.txt", b"x")])
    (tmp_path / "x.tar").write_bytes(data)
    (found,) = verify(str(tmp_path)).findings
    assert (found.kind, found.offset) == ("damaged-shard", 0)
    assert "an extension header of 2000000 bytes" in found.detail


# Datasets named by patterns, and partitions without an index above them.


@pytest.fixture
def numbered(tmp_path, ustar):
    """Tars ``t/train-000000.tar`` and so on, one sample each."""

    def write(*numbers):
        (tmp_path / "t").mkdir(exist_ok=True)
        for number in numbers:
            (tmp_path / f"t/train-{number:06d}.tar").write_bytes(ustar([(f"k{number}.txt", b"x")]))
        return tmp_path / "t"

    return write


def test_shards_by_a_brace_list_and_by_wildcards(numbered):
    folder = numbered(0, 1, 2)
    for pattern in ("train-{000000..000002}.tar", "*.tar", f"train-000000.tar::{folder}/train-00000[12].tar"):
        verdict = verify(f"{folder}/{pattern}", VerifyOptions(workers=1))
        assert verdict.findings == ()
        assert (verdict.num_shards, verdict.num_samples) == (3, 3)


def test_a_shard_of_a_brace_list_that_is_not_there(numbered):
    folder = numbered(0, 2)
    verdict = verify(f"{folder}/train-{{000000..000002}}.tar", VerifyOptions(workers=1))
    (found,) = verdict.findings
    assert (found.kind, found.shard, verdict.exit_code) == ("missing-file", "train-000001.tar", 1)
    assert verdict.num_samples == 2


def test_a_gap_in_the_numbers_of_a_folder_is_a_note(numbered):
    verdict = verify(str(numbered(0, 1, 3)), VerifyOptions(workers=1))
    (found,) = verdict.notes
    assert (found.kind, found.is_note, found.level) == ("number-gap", True, 1)
    assert "train-000002.tar" in found.detail
    assert verdict.exit_code == 0
    assert verify(str(numbered(2)), VerifyOptions(workers=1)).findings == ()


def test_a_shard_named_twice_delivers_every_key_twice(numbered):
    folder = numbered(0)
    verdict = verify(f"{folder}/train-000000.tar::{folder}/train-000000.tar", VerifyOptions(workers=1))
    assert [finding.kind for finding in verdict.findings] == ["duplicate-key"]


def test_what_lies_beside_a_selection_is_none_of_it(mds):
    (mds / "shardtools.manifest").unlink()
    verdict = verify(f"{mds}/shard.0000[0-2].mds", VerifyOptions(workers=1))
    assert verdict.findings == ()
    assert verdict.num_shards == 3


def test_mds_files_without_an_index(mds):
    for name in ("shardtools.manifest", "index.json"):
        (mds / name).unlink()
    verdict = verify(f"{mds}/*.mds", VerifyOptions(workers=1))
    assert verdict.findings == ()
    assert (verdict.num_samples, verdict.has_keys) == (40, True)
    flip_last(mds / "shard.00001.mds")
    data = (mds / "shard.00002.mds").read_bytes()
    (mds / "shard.00002.mds").write_bytes(data[:-1])
    assert "damaged-shard" in kinds_of(f"{mds}/*.mds")


@pytest.fixture
def unmerged(streaming, tmp_path):
    """Three folders of MDSWriter, one of them deeper, and no index above them."""
    for part in ("p0", "p1", "deep/er/p2"):
        rows = [{"x": i, "key": f"{part} {i}"} for i in range(20)]
        write_mds(streaming, tmp_path / "foreign" / part, rows, {"x": "int", "key": "str"}, size_limit=400, hashes=["sha1"])
    return tmp_path / "foreign"


@pytest.mark.train
def test_partitions_without_an_index_above_them_are_sound(unmerged):
    verdict = verify(str(unmerged), VerifyOptions(workers=1))
    assert verdict.findings == ()
    assert verdict.num_samples == 60
    part = verify(f"{unmerged}/p*", VerifyOptions(workers=1))
    assert (part.findings, part.num_samples) == ((), 40)


@pytest.mark.train
@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("missing-file", lambda folder: (folder / "p0/shard.00000.mds").unlink()),
        ("extra-file", lambda folder: (folder / "p1/index.json").unlink()),  # a writer that was killed leaves none
        ("extra-file", lambda folder: shutil.copy(folder / "p0/shard.00000.mds", folder / "deep/er/p2/shard.00077.mds")),
        ("wrong-size", lambda folder: os.truncate(folder / "deep/er/p2/shard.00000.mds", 100)),
        ("wrong-hash", lambda folder: flip_last(folder / "p1/shard.00001.mds")),
        ("index-damaged", lambda folder: edit(folder / "p1", lambda shards: shards[0].update(size=1))),
        ("index-contradiction", lambda folder: edit(folder / "p1", lambda shards: shards[0].update(hashes=[]))),
        ("duplicate-key", lambda folder: shutil.copytree(folder / "p1", folder / "p3")),
    ],
)
def test_damage_of_partitions(unmerged, kind, change):
    change(unmerged)
    assert kind in kinds_of(unmerged)


@pytest.mark.train
def test_partitions_of_other_columns(streaming, unmerged):
    write_mds(streaming, unmerged / "p4", [{"y": 1}], {"y": "int"})
    assert kinds_of(unmerged) == ["index-contradiction"]


def test_targets_are_part_of_verify(tmp_path, tar_of):
    (tmp_path / "x.tar").write_bytes(tar_of([("a.JPG", b"x")]))
    verdict = verify(str(tmp_path), VerifyOptions(workers=1, targets=("webdataset", "energon")))
    (found,) = verdict.findings
    assert (found.kind, found.level, found.shard, found.offset) == ("target-renames", 7, "x.tar", 0)
    sound = verify(str(tmp_path), VerifyOptions(workers=1, targets=("energon",)))
    assert sound.findings == ()
    assert "megatron-energon 7.4.1 takes every sample as it is" in sound.closing()
