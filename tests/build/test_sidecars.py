"""Sidecars are what their readers expect, byte by byte: stops an index that points beside the samples."""

import hashlib
import json
import struct
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardtools.build.merge import merge
from shardtools.build.order import OrderWords, order_of
from shardtools.build.reindex import ReindexOptions, reindex
from shardtools.build.run import Result, RunOptions
from shardtools.build.run import build as run_build
from shardtools.build.sidecars import StoredTar, parse_kinds, sidecar_files
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.manifest import Manifest
from shardtools.sources import resolve_inputs
from shardtools.verify import verify

ALL = "energon,dali,wids"


@pytest.fixture
def source(tree: Callable[..., Path]) -> Path:
    """Ten samples of two files, some of them empty or of more than a block."""
    files = {f"d/{i}.txt": b"t" * (i * 130) for i in range(10)} | {f"d/{i}.seg.bin": b"b" * i for i in range(10)}
    return tree(files)


def pack(source: Path, out: Path, sidecars: str | None, to: str = "wds", overwrite: bool = False) -> Result:
    inputs = resolve_inputs([str(source)])
    order = order_of(inputs, OrderWords(to, shard_samples=4, sidecars=sidecars))
    return run_build(inputs, str(out), order, RunOptions(overwrite=overwrite))


def index(folder: Path, sidecars: str) -> None:
    reindex(str(folder), ReindexOptions(parse_kinds(sidecars)))


def members_of(tar: Path) -> list[tarfile.TarInfo]:
    with tarfile.open(tar, "r:") as archive:
        return archive.getmembers()


def assert_sound(folder: Path) -> None:
    assert [str(finding) for finding in verify(str(folder)).findings] == []


def test_dali_gets_the_place_of_every_member(source, tmp_path):
    pack(source, tmp_path / "out", "dali")
    tars = sorted((tmp_path / "out").glob("*.tar"))
    assert len(tars) == 3
    for tar in tars:
        lines = []
        for info in members_of(tar):
            key, _, field = info.name.partition(".")
            if not lines or lines[-1][0] != key:
                lines.append((key, []))
            lines[-1][1].append(f"{field} {info.offset_data} {info.size} {info.name}")
        expected = f"v1.2 {len(lines)}\n" + "".join(" ".join(parts) + "\n" for _, parts in lines)
        assert tar.with_suffix(".idx").read_text() == expected
    # By hand: a header is 512 bytes, and so is what one byte of data takes.
    assert tars[0].with_suffix(".idx").read_text().splitlines()[:3] == [
        "v1.2 4",
        "seg.bin 512 0 d/0.seg.bin txt 1024 0 d/0.txt",
        "seg.bin 1536 1 d/1.seg.bin txt 2560 130 d/1.txt",
    ]
    assert_sound(tmp_path / "out")


def test_energon_gets_the_begin_of_every_sample_and_the_end_of_the_last(source, tmp_path):
    pack(source, tmp_path / "out", "energon")
    counts = {}
    for tar in sorted((tmp_path / "out").glob("*.tar")):
        infos = members_of(tar)
        begins = [info.offset for info in infos[::2]]
        end = infos[-1].offset_data + -(-infos[-1].size // 512) * 512
        assert struct.unpack(f"<{len(begins) + 1}Q", (tar.parent / f"{tar.name}.idx").read_bytes()) == (*begins, end)
        counts[tar.name] = len(begins)
    assert list(counts.values()) == [4, 4, 2]
    assert json.loads((tmp_path / "out" / ".nv-meta" / ".info.json").read_text()) == {"shard_counts": counts}
    assert_sound(tmp_path / "out")


def test_wids_gets_the_digest_of_every_shard(source, tmp_path):
    pack(source, tmp_path / "out", "wids")
    content = json.loads((tmp_path / "out" / "shardindex.json").read_text())
    shards = content.pop("shardlist")
    assert content == {"__kind__": "wids-shard-index-v1", "wids_version": 1}
    for shard, count in zip(shards, [4, 4, 2], strict=True):
        data = (tmp_path / "out" / shard["url"]).read_bytes()
        assert shard == {"url": shard["url"], "md5sum": hashlib.md5(data).hexdigest(), "nsamples": count, "filesize": len(data)}
    assert_sound(tmp_path / "out")


@pytest.mark.train
def test_the_wids_reader_reads_every_sample_by_its_number(source, tmp_path, monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wids = pytest.importorskip("wids", reason="wids is not installed: pip install wids")
    monkeypatch.setenv("WIDS_CACHE", str(tmp_path / "cache"))
    pack(source, tmp_path / "out", "wids")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = wids.ShardListDataset(str(tmp_path / "out" / "shardindex.json"), transformations=[], keep=True)
        found = [(dataset[i]["__key__"], dataset[i][".txt"].read()) for i in range(len(dataset))]
    assert found == [(f"d/{i}", b"t" * (i * 130)) for i in range(10)]


def test_index_makes_the_very_bytes_that_pack_makes(source, tmp_path, digests):
    pack(source, tmp_path / "packed", ALL)
    pack(source, tmp_path / "later", None)
    index(tmp_path / "later", ALL)
    packed, later = digests(tmp_path / "packed"), digests(tmp_path / "later")
    # The recipes differ, and with them the manifests and plans: one was asked for sidecars.
    for name in ("shardtools.manifest", ".shardtools/plan"):
        assert packed.pop(name) != later.pop(name)
    assert packed == later
    assert_sound(tmp_path / "later")
    manifest = Manifest.parse((tmp_path / "later" / "shardtools.manifest").read_bytes())
    assert {file.name: file.sha256 for file in manifest.files if "idx" in file.name or ".json" in file.name} == {
        name: digest for name, digest in later.items() if "idx" in name or ".json" in name
    }


def test_a_plan_without_sidecars_is_what_it_was(source, tmp_path):
    plain = pack(source, tmp_path / "plain", None)
    assert "sidecars" not in plain.manifest.recipe
    assert pack(source, tmp_path / "with", "dali").manifest.recipe["sidecars"] == ["dali"]
    with pytest.raises(UsageError, match=r"sidecars was None, is \['dali'\]"):
        pack(source, tmp_path / "plain", "dali")
    assert pack(source, tmp_path / "with", "dali").already_complete


@pytest.mark.parametrize("kind", ["dali", "wids", "energon"])
def test_a_lost_or_damaged_sidecar_is_found_and_made_again(source, tmp_path, digests, kind):
    folder = tmp_path / "out"
    pack(source, folder, kind)
    before = digests(folder)
    names = [name for name in before if name.endswith((".idx", ".json"))]
    (folder / names[0]).unlink()
    (folder / names[-1]).write_text("other")
    assert verify(str(folder)).findings != ()
    reindex(str(folder))
    assert digests(folder) == before


def test_overwriting_takes_the_sidecars_of_an_unfinished_publication_away(source, tmp_path, digests):
    folder = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shardtools.build.publish.Publisher._check_sizes", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            pack(source, folder, ALL)
    assert (folder / "shardindex.json").exists()
    pack(source, folder, None, overwrite=True)
    pack(source, tmp_path / "clean", None)
    assert digests(folder) == digests(tmp_path / "clean")


def test_a_foreign_folder_gets_sidecars(tmp_path, ustar):
    (tmp_path / "d" / "x").mkdir(parents=True)
    (tmp_path / "d" / "x" / "0.tar").write_bytes(ustar([("a.jpg", b"1" * 600), ("a.cls", b"2"), ("b.jpg", b"")]))
    (tmp_path / "d" / "shardindex.json").write_text("{}")
    done = reindex(str(tmp_path / "d"), ReindexOptions(("dali", "energon", "wids")))
    assert done.replaced == ("shardindex.json",)
    assert (tmp_path / "d" / "x" / "0.idx").read_text() == "v1.2 2\njpg 512 600 a.jpg cls 2048 1 a.cls\njpg 3072 0 b.jpg\n"
    assert (tmp_path / "d" / "x" / "0.tar.idx").read_bytes() == struct.pack("<3Q", 0, 2560, 3072)
    assert_sound(tmp_path / "d")


def test_names_that_break_the_index_of_dali_are_refused_before_anything_is_written(tmp_path, ustar, digests):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "0.tar").write_bytes(ustar([("a.jpg", b"1")]))
    (tmp_path / "d" / "1.tar").write_bytes(ustar([("b c.jpg", b"1")]))
    before = digests(tmp_path / "d")
    with pytest.raises(ShardtoolsError, match=r"without white space for DALI, got 'b c.jpg' in 1.tar"):
        index(tmp_path / "d", "energon,dali")
    assert digests(tmp_path / "d") == before


@pytest.mark.parametrize("words", ["tfrecord", "dali,", ""])
def test_unknown_sidecars_are_refused(source, tmp_path, words):
    with pytest.raises(UsageError, match="expected --sidecars of dali, wids, energon"):
        pack(source, tmp_path / "out", words)


def test_sidecars_are_for_wds_alone(source, tmp_path):
    with pytest.raises(UsageError, match="with WDS alone, got dali"):
        pack(source, tmp_path / "out", "dali", to="mds")
    pack(source, tmp_path / "mds", None, to="mds")
    with pytest.raises(UsageError, match="with WDS alone, got energon"):
        index(tmp_path / "mds", "energon")


def test_compressed_tars_have_none(tmp_path):
    with pytest.raises(ShardtoolsError, match=r"plain tars, got a.tar.gz"):
        list(sidecar_files(("energon",), str(tmp_path), [StoredTar("a.tar.gz", 1, Any)]))  # type: ignore[arg-type]


def test_a_merge_says_that_sidecars_are_made_by_index(tree, tmp_path):
    """They name shards that have other names now; those made anew are found by the readers."""
    for name in ("a", "b"):
        pack(tree({f"{name}/{i}.txt": name.encode() * i for i in range(6)}, f"in-{name}"), tmp_path / name, "wids,energon")
    done = merge([str(tmp_path / "a"), str(tmp_path / "b")], str(tmp_path / "all"))
    command = f"shardtools index {tmp_path / 'all'} --sidecars energon,wids"
    assert done.warnings == [f"the sidecars of the inputs are not merged; {command} makes them"]
    index(tmp_path / "all", "energon,wids")
    assert_sound(tmp_path / "all")
    shards = json.loads((tmp_path / "all" / "shardindex.json").read_text())["shardlist"]
    assert [(shard["url"], shard["nsamples"]) for shard in shards] == [(f"train-{i:06d}.tar", n) for i, n in enumerate([4, 2, 4, 2])]
    for shard in shards:
        begins = struct.unpack(f"<{shard['nsamples'] + 1}Q", (tmp_path / "all" / f"{shard['url']}.idx").read_bytes())
        members = members_of(tmp_path / "all" / shard["url"])
        assert list(begins[:-1]) == [info.offset for info in members]
