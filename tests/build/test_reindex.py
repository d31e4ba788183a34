"""Whatever describes sound shards can be made again, and nothing else is made: stops an index over damaged, missing or other shards."""

import hashlib
import io
import json
import os
import shutil
import tarfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shardtools.build.existing.admit import UnsoundShardsError
from shardtools.build.reindex import Reindexed, ReindexOptions, reindex
from shardtools.errors import DuplicateKeyError, ShardtoolsError, UsageError
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds
from shardtools.manifest import Manifest
from shardtools.verify import verify

COUNT = 20


def index(folder: Path, *sidecars: str) -> Reindexed:
    return reindex(str(folder), ReindexOptions(tuple(sidecars)))


def manifest_of(folder: Path) -> Manifest:
    return Manifest.parse((folder / "shardtools.manifest").read_bytes())


def shards_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if ".mds" in path.name or ".tar" in path.name}


def assert_sound(folder: Path) -> None:
    assert [str(finding) for finding in verify(str(folder)).findings] == []


@pytest.fixture
def own(tmp_path: Path, build: Callable[..., Any], rows: Callable[..., Any]) -> Callable[..., Path]:
    """20 samples packed here into five shards, one more row rejected."""

    def make(kind: str) -> Path:
        formats = {"wds": Wds(), "mds": Mds(), "zstd": Mds(compression="zstd:4", hashes=("sha1", "xxh64")), "id": Mds(key_column="id")}
        (tmp_path / "src").mkdir(exist_ok=True)
        keys = [f"k/{i:02d}".encode() for i in range(COUNT)] + [b"bad"]
        columns = {"json": [{"i": i} for i in range(len(keys))], "txt": [None if i % 3 == 0 else "t" * i for i in range(len(keys))]}
        source = rows(keys, columns, {"json": "json", "txt": "str"})
        build(tmp_path / "src", tmp_path / kind, formats[kind], source=source, shard_samples=4, max_bad="1")
        return tmp_path / kind

    return make


OWN = ["wds", "mds", "zstd", "id"]
HARMS: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "changed": lambda path: path.write_bytes(b"{" + path.read_bytes()[1:-1] + b"!"),
    "empty": lambda path: path.write_bytes(b""),
}


# Datasets of this package.


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", ["shardtools.offsets", "index.json"])
@pytest.mark.parametrize("kind", OWN)
def test_under_a_sound_manifest_everything_comes_back_byte_for_byte(own, digests, kind, name, harm):
    folder = own(kind)
    if not (folder / name).exists():
        return
    before = digests(folder)
    HARMS[harm](folder / name)
    done = index(folder)
    assert digests(folder) == before
    assert (done.made, done.replaced) == (((name,), ()) if harm == "gone" else ((), (name,)))


@pytest.mark.parametrize("kind", OWN)
def test_a_sound_dataset_stays_as_it_is(own, digests, kind):
    folder = own(kind)
    before = digests(folder)
    done = index(folder)
    assert (done.made, done.replaced, done.adopted) == ((), (), ()) and digests(folder) == before


@pytest.mark.parametrize("others", [(), ("index.json", "shardtools.offsets")], ids=["alone", "with all others"])
@pytest.mark.parametrize("harm", ["gone", "cut", "empty"])
@pytest.mark.parametrize("kind", ["wds", "mds", "zstd"])
def test_a_lost_manifest_is_made_anew_and_says_so(own, kind, harm, others):
    folder = own(kind)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "shardtools.manifest"}
    old = manifest_of(folder)
    HARMS[harm](folder / "shardtools.manifest")
    for name in others:
        (folder / name).unlink(missing_ok=True)
    index(folder)
    assert_sound(folder)
    new = manifest_of(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "shardtools.manifest"} == before
    assert new.recipe["source"] == {"name": "index", "canonical": True} and new.is_canonical
    assert new.ledger.as_json() == {"read": COUNT, "written": COUNT, "rejected": 0, "filtered": 0, "rejects": {}}
    assert new.shards == old.shards and {file.name for file in new.files} == {file.name for file in old.files} - {".shardtools/rejects"}
    again = (folder / "shardtools.manifest").read_bytes()
    assert index(folder).replaced == () and (folder / "shardtools.manifest").read_bytes() == again


def test_rejects_cannot_be_made_of_shards(own):
    folder = own("wds")
    (folder / ".shardtools" / "rejects").unlink()
    with pytest.raises(ShardtoolsError, match=r"expected .shardtools/rejects .* which no shard tells; restore it"):
        index(folder)


def test_a_manifest_that_has_another_digest_than_the_shards_give_is_not_followed(own, digests):
    folder = own("mds")
    manifest = manifest_of(folder)
    files = tuple(replace(file, sha256="0" * 64) if file.name == "index.json" else file for file in manifest.files)
    (folder / "shardtools.manifest").write_bytes(replace(manifest, files=files).serialize())
    before = digests(folder)
    with pytest.raises(ShardtoolsError, match=r"expected the index.json that the manifest .* and the shards give another; restore"):
        index(folder)
    assert digests(folder) == before


@pytest.mark.parametrize("has_manifest", [True, False])
@pytest.mark.parametrize("kind", ["wds", "zstd"])
def test_every_damaged_shard_is_refused_by_name_and_nothing_written(own, digests, kind, has_manifest):
    folder = own(kind)
    names = sorted(shards_of(folder))
    data = (folder / names[1]).read_bytes()
    (folder / names[1]).write_bytes(data[: len(data) // 3])
    (folder / names[3]).write_bytes(b"")
    (folder / "shardtools.offsets").unlink()
    if not has_manifest:
        (folder / "shardtools.manifest").unlink()
    before = digests(folder)
    with pytest.raises(UnsoundShardsError) as caught:
        index(folder)
    assert [fault.split(": ")[0] for fault in caught.value.faults] == [str(folder / names[1]), str(folder / names[3])]
    assert digests(folder) == before


def test_a_flipped_bit_that_only_the_manifest_can_tell_is_refused(own):
    folder = own("wds")
    data = bytearray((folder / "train-000002.tar").read_bytes())
    data[data.index(b"tttt") + 1] ^= 1
    (folder / "train-000002.tar").write_bytes(data)
    (folder / "shardtools.offsets").unlink()
    with pytest.raises(UnsoundShardsError, match=r"train-000002.tar: expected the SHA-256 \w+ as in the manifest"):
        index(folder)


@pytest.mark.parametrize(("kind", "number"), [("wds", 2), ("mds", 0), ("zstd", 3)])
def test_a_missing_shard_is_refused_with_and_without_a_manifest(own, kind, number):
    folder = own(kind)
    name = sorted(shards_of(folder))[number]
    (folder / name).unlink()
    with pytest.raises(UnsoundShardsError, match=f"expected the file {name}"):
        index(folder)
    for other in ("shardtools.manifest", "shardtools.offsets", "index.json"):
        (folder / other).unlink(missing_ok=True)
    with pytest.raises(ShardtoolsError, match=r"numbered without a gap, got none named .*0" + str(number)):
        index(folder)


def test_a_shard_in_other_bytes_than_this_package_writes_is_refused_where_the_manifest_says_it_wrote_them(own):
    """Sound as a tar, and with the digest that a forged manifest records."""
    folder = own("wds")
    manifest, shard = manifest_of(folder), folder / "train-000001.tar"
    data = bytearray(shard.read_bytes())
    data[108:115] = b"0000001"  # the owner, and the checksum that counts it
    data[148:154] = b"%06o" % (int(data[148:154], 8) + 1)
    shard.write_bytes(data)
    forged = replace(manifest.shards[1], sha256=hashlib.sha256(data).hexdigest())
    files = (manifest.shards[0], forged, *manifest.shards[2:])
    (folder / "shardtools.manifest").write_bytes(replace(manifest, shards=files).serialize())
    with pytest.raises(UnsoundShardsError, match="expected the plain header this package writes"):
        index(folder)


def test_foreign_tars_may_begin_with_any_number_but_not_leave_one_out(tmp_path, ustar):
    (tmp_path / "d").mkdir()
    for number in (5, 6, 7):
        (tmp_path / "d" / f"train-00000{number}.tar").write_bytes(ustar([(f"{number}.txt", b"x")]))
    shutil.copytree(tmp_path / "d", tmp_path / "gap")
    index(tmp_path / "d")
    (tmp_path / "gap" / "train-000006.tar").unlink()
    with pytest.raises(ShardtoolsError, match=r"without a gap, got none named train-000006.tar"):
        index(tmp_path / "gap")


@pytest.mark.parametrize("kind", ["wds", "mds"])
def test_offsets_of_more_shards_than_there_are_tell_that_the_last_is_missing(own, kind):
    folder = own(kind)
    (folder / sorted(shards_of(folder))[-1]).unlink()
    for other in ("shardtools.manifest", "index.json"):
        (folder / other).unlink(missing_ok=True)
    with pytest.raises(ShardtoolsError, match=r"every shard that shardtools.offsets in .* knows, got none after .*03"):
        index(folder)


def test_a_file_that_the_manifest_does_not_name_is_refused(own):
    folder = own("wds")
    shutil.copy(folder / "train-000000.tar", folder / "train-000005.tar")
    with pytest.raises(ShardtoolsError, match=r"got 1 more file such as train-000005.tar; move"):
        index(folder)


def test_a_shard_twice_under_two_names_is_refused(own):
    folder = own("mds")
    shutil.copy(folder / "shard.00000.mds", folder / "shard.00005.mds")
    for other in ("shardtools.manifest", "index.json"):
        (folder / other).unlink()
    with pytest.raises(ShardtoolsError, match=r"every shard once, got .*/shard.00000.mds and .*/shard.00005.mds"):
        index(folder)


def test_an_unfinished_build_is_no_dataset(tmp_path, build, rows):
    (tmp_path / "src").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shardtools.build.publish.Publisher.publish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build(tmp_path / "src", tmp_path / "out", source=rows([b"a"], {"txt": ["x"]}, {"txt": "str"}))
    with pytest.raises(ShardtoolsError, match="got a build that is not finished"):
        index(tmp_path / "out")


# Foreign WDS.


def pax_tar(members: list[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 1.5
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture
def foreign_wds(tmp_path: Path) -> Path:
    """Seven tars by Python's tarfile, of two samples each, in folders of folders, with other files between them."""
    folder = tmp_path / "foreign"
    for number, name in enumerate(["10.tar", "9.tar", "a b/x.tar", "a b/10/x.tar", "a b/9/x.tar", "z/Ä.tar"]):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        members = [(f"{number}/{i}.{extension}", f"{number} {i}".encode()) for i in range(2) for extension in ("txt", "JPG", "cls")]
        (folder / name).write_bytes(pax_tar(members[: -1 if number == 3 else None]))
    (folder / "README.md").write_text("mine")
    (folder / "z" / "00000_stats.json").write_text("{}")
    return folder


def test_foreign_tars_stay_where_and_as_they_are(foreign_wds):
    before = shards_of(foreign_wds)
    done = index(foreign_wds)
    assert_sound(foreign_wds)
    assert shards_of(foreign_wds) == before
    manifest = manifest_of(foreign_wds)
    assert [shard.name for shard in manifest.shards] == ["9.tar", "10.tar", "a b/9/x.tar", "a b/10/x.tar", "a b/x.tar", "z/Ä.tar"]
    assert manifest.recipe["source"] == {"name": "index", "canonical": False} and not manifest.is_canonical
    assert [(field["name"], field["encoding"], field["optional"]) for field in manifest.recipe["fields"]] == [
        ("JPG", "jpeg", False),
        ("cls", "int", True),
        ("txt", "str", False),
    ]
    assert done.adopted == ("README.md", "z/00000_stats.json")
    assert done.made == ("shardtools.offsets", "shardtools.manifest")


def test_damage_after_that_is_found(foreign_wds):
    index(foreign_wds)
    data = bytearray((foreign_wds / "9.tar").read_bytes())
    data[data.index(b"1 0")] ^= 1
    (foreign_wds / "9.tar").write_bytes(data)
    assert {finding.kind for finding in verify(str(foreign_wds)).findings} == {"wrong-sha256"}


@pytest.mark.train
def test_webdataset_reads_them_all(foreign_wds, webdataset):
    index(foreign_wds)
    urls = [str(foreign_wds / shard.name) for shard in manifest_of(foreign_wds).shards]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keys = [sample["__key__"] for sample in webdataset.WebDataset(urls, shardshuffle=False)]
    assert keys == [f"{number}/{i}" for number in (1, 0, 4, 3, 2, 5) for i in range(2)]


def test_compressed_tars_are_indexed_too(tmp_path):
    import gzip

    (tmp_path / "d").mkdir()
    for i, suffix in enumerate([".tar.gz", ".tgz", ".tar"]):
        data = pax_tar([(f"{i}.txt", b"x" * i)])
        (tmp_path / "d" / f"{i}{suffix}").write_bytes(data if suffix == ".tar" else gzip.compress(data, mtime=0))
    index(tmp_path / "d")
    assert_sound(tmp_path / "d")


FAULTY = {
    "a key in two shards": (
        [("k.txt", b"1")],
        [("k.txt", b"2")],
        DuplicateKeyError,
        r"'k' in .*/0.tar at byte \d+ and in .*/1.tar at byte",
    ),
    "a sample in two pieces": (
        [("a.txt", b"1"), ("b.txt", b""), ("a.cls", b"2")],
        [("c.txt", b"")],
        DuplicateKeyError,
        r"'a' in .*/0.tar at byte \d+ and in .*/0.tar",
    ),
    "a field twice": ([("a.txt", b"1"), ("a.txt", b"2")], [("c.txt", b"")], UnsoundShardsError, "every field once"),
    "a name without a field": (
        [("a.txt", b"1"), ("README", b"2")],
        [("c.txt", b"")],
        UnsoundShardsError,
        "expected key.field, got 'README'",
    ),
    "no samples": ([("a.txt", b"1")], [], UnsoundShardsError, "at least one sample"),
    "a way out": ([("../a.txt", b"1")], [("c.txt", b"")], UnsoundShardsError, "below the dataset"),
}


@pytest.mark.parametrize("case", FAULTY)
def test_foreign_tars_with_faults_are_refused(tmp_path, digests, case):
    first, second, error, message = FAULTY[case]
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "0.tar").write_bytes(pax_tar(first))
    (tmp_path / "d" / "1.tar").write_bytes(pax_tar(second))
    before = digests(tmp_path / "d")
    with pytest.raises(error, match=message):
        index(tmp_path / "d")
    assert digests(tmp_path / "d") == before


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_a_folder_without_shards_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=name):
        index(tmp_path / name)
    assert not (tmp_path / "nothing").exists() and list((tmp_path / "empty").iterdir()) == []


# Foreign MDS, by the reference writer.


def write_mds(streaming: ModuleType, folder: Path, name: str, **options: Any) -> None:
    columns = {"id": "str", "x": "float32", "image": "jpeg", "p": "pkl", "m": "json"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with streaming.MDSWriter(out=str(folder), columns=columns, size_limit=500, **options) as writer:
            for i in range(12):
                writer.write({"id": f"{name}-{i}", "x": i / 4, "image": b"\xff\xd8\xff" + bytes(i), "p": b"\x80\x04N.", "m": {"i": i}})


OPTIONS = {"plain": {}, "hashes": {"hashes": ["sha1", "xxh3_128"]}, "zstd": {"compression": "zstd:6", "hashes": ["md5"]}}


@pytest.mark.train
@pytest.mark.parametrize("case", OPTIONS)
def test_a_lost_index_of_the_reference_writer_comes_back_byte_for_byte(tmp_path, streaming, case):
    write_mds(streaming, tmp_path / "d", "a", **OPTIONS[case])
    expected = (tmp_path / "d" / "index.json").read_bytes()
    assert len(json.loads(expected)["shards"]) > 2
    (tmp_path / "d" / "index.json").unlink()
    index(tmp_path / "d")
    assert (tmp_path / "d" / "index.json").read_bytes() == expected
    assert_sound(tmp_path / "d")


@pytest.mark.train
def test_folders_of_folders_without_an_index_are_one_dataset(tmp_path, streaming):
    for name in ("0", "1", "2/deep", "10", "11"):
        write_mds(streaming, tmp_path / "d" / name, name.replace("/", "-"))
        (tmp_path / "d" / name / "index.json").unlink()
    index(tmp_path / "d")
    assert_sound(tmp_path / "d")
    names = [entry["raw_data"]["basename"] for entry in json.loads((tmp_path / "d" / "index.json").read_text())["shards"]]
    assert list(dict.fromkeys(name.rpartition("/")[0] for name in names)) == ["0", "1", "2/deep", "10", "11"]


@pytest.mark.train
def test_streaming_reads_what_was_indexed(tmp_path, streaming, read_streaming):
    for name in ("0", "1/x"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with streaming.MDSWriter(out=str(tmp_path / "d" / name), columns={"id": "str"}, size_limit=300, compression="zstd") as writer:
                for i in range(10):
                    writer.write({"id": f"{name} {i}"})
        (tmp_path / "d" / name / "index.json").unlink()
    index(tmp_path / "d")
    assert_sound(tmp_path / "d")
    assert [row["id"] for row in read_streaming(tmp_path / "d")] == [f"{name} {i}" for name in ("0", "1/x") for i in range(10)]


@pytest.fixture
def indexed(own: Callable[..., Path]) -> Path:
    """An MDS folder as others have it: shards and their index alone."""
    folder = own("mds")
    (folder / "shardtools.manifest").unlink()
    (folder / "shardtools.offsets").unlink()
    shutil.rmtree(folder / ".shardtools")
    return folder


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((folder / "index.json").read_text())
    change(content)
    (folder / "index.json").write_text(json.dumps(content))


def test_a_sound_index_stays_byte_for_byte_even_in_other_words(indexed):
    text = json.dumps(json.loads((indexed / "index.json").read_text()), indent=2).encode()
    (indexed / "index.json").write_bytes(text)
    index(indexed)
    assert (indexed / "index.json").read_bytes() == text
    assert_sound(indexed)


def test_the_order_of_an_index_is_the_order_of_the_dataset(indexed):
    edit(indexed, lambda content: content["shards"].reverse())
    index(indexed)
    assert [shard.name for shard in manifest_of(indexed).shards] == [f"shard.0000{i}.mds" for i in (4, 3, 2, 1, 0)]
    assert_sound(indexed)


DISAGREEING: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "fewer shards": (lambda content: content["shards"].pop(), "to name every shard there, got shard.00004.mds"),
    "another count": (lambda content: content["shards"][1].update(samples=3), "shard.00001.mds: expected 3 samples as recorded, got 4"),
    "another length": (lambda content: content["shards"][1]["raw_data"].update(bytes=7), "shard.00001.mds: expected 7 bytes"),
    "another header": (lambda content: content["shards"][2].update(size_limit=9), "shard.00002.mds: .*size_limit 9 as in the index"),
    "a shard twice": (lambda content: content["shards"].append(content["shards"][0]), "expected every shard once"),
    "a key too many": (lambda content: content["shards"][0].update(extra=1), "move it away"),
    "a shard that is gone": (
        lambda content: content["shards"][0]["raw_data"].update(basename="x.mds"),
        "(x.mds|to name every shard there, got shard.00000.mds)",
    ),
}


@pytest.mark.parametrize("case", DISAGREEING)
def test_a_sound_index_that_means_something_else_is_never_replaced(indexed, digests, case):
    change, message = DISAGREEING[case]
    edit(indexed, change)
    before = digests(indexed)
    with pytest.raises(ShardtoolsError, match=message):
        index(indexed)
    assert digests(indexed) == before


@pytest.mark.parametrize("text", [b"", b"{", b'{"shards": 3}', b'{"shards": [{}], "version": 2}', b"[]"])
def test_a_damaged_index_is_replaced_and_said(indexed, text):
    expected = (indexed / "index.json").read_bytes()
    (indexed / "index.json").write_bytes(text)
    done = index(indexed)
    assert "index.json" in done.replaced and (indexed / "index.json").read_bytes() == expected
    assert_sound(indexed)


def test_unpacked_copies_beside_compressed_shards_are_refused(own):
    import zstandard

    folder = own("zstd")
    (folder / "shardtools.manifest").unlink()
    data = zstandard.decompress((folder / "shard.00001.mds.zstd").read_bytes())
    (folder / "shard.00001.mds").write_bytes(data)
    with pytest.raises(ShardtoolsError, match=r"got shard.00001.mds beside shard.00001.mds.zstd"):
        index(folder)


def test_an_unpacked_shard_without_its_compressed_one_is_refused(own):
    """StreamingDataset would delete it: it takes it for a leftover."""
    import zstandard

    folder = own("zstd")
    for name in ("shardtools.manifest", "index.json"):
        (folder / name).unlink()
    packed = folder / "shard.00001.mds.zstd"
    (folder / "shard.00001.mds").write_bytes(zstandard.decompress(packed.read_bytes()))
    packed.unlink()
    with pytest.raises(UnsoundShardsError, match=r"shard.00001.mds: .*compression 'zstd:4'"):
        index(folder)


def test_columns_that_differ_are_refused(own):
    folder = own("mds")
    (own("id") / "shard.00000.mds").rename(folder / "shard.00005.mds")
    for name in ("shardtools.manifest", "index.json"):
        (folder / name).unlink()
    with pytest.raises(ShardtoolsError, match="same columns in every shard"):
        index(folder)


# Kills.


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


def stop_after(monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    """Lets so many changes on the disk happen, then stops everything."""
    count = 0
    for name in ("replace", "unlink", "fsync"):
        real = getattr(os, name)

        def counted(*arguments: Any, real: Any = real, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count > last:
                raise Killed
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, counted)


@pytest.mark.parametrize("kind", ["wds", "mds", "foreign_wds"])
def test_it_can_stop_at_any_step_and_be_repeated(request, own, tmp_path, digests, kind):
    folder = request.getfixturevalue(kind) if kind.startswith("foreign") else own(kind)
    for name in ("shardtools.manifest", "index.json", "shardtools.offsets"):
        (folder / name).unlink(missing_ok=True)
    shutil.copytree(folder, tmp_path / "clean")
    index(tmp_path / "clean")
    clean = digests(tmp_path / "clean")
    last, is_finished = 0, False
    while not is_finished:
        copy = tmp_path / f"{last}"
        shutil.copytree(folder, copy)
        with pytest.MonkeyPatch.context() as patch:
            stop_after(patch, last)
            try:
                index(copy)
                is_finished = True
            except Killed:
                pass
        index(copy)
        assert digests(copy) == clean
        last += 1
    assert last > 4
