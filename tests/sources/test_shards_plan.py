"""Shards that are cut otherwise than they should be, found where they are not, or passed over in a list of them."""

import gzip
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from shardtools import partitions
from shardtools.build.order import OrderWords, detect_source, order_of
from shardtools.build.run import build as build_order
from shardtools.engines.processes import Processes
from shardtools.errors import UsageError
from shardtools.formats.mds import Mds as MdsFormat
from shardtools.manifest import Manifest
from shardtools.sources import _shard_pieces, resolve_inputs
from shardtools.sources.jsonl import Jsonl
from shardtools.sources.mds import Mds
from shardtools.sources.wds import Wds

Build = Callable[..., Any]


def files(count: int, begin: int = 0) -> dict[str, bytes]:
    return {f"d/{i:05d}.{field}": b"%d " % i * (40 + i % 50) for i in range(begin, begin + count) for field in ("bin", "txt")}


def counts(folder: Path) -> list[int]:
    return [shard.num_samples for shard in Manifest.parse((folder / "shardtools.manifest").read_bytes()).shards]


def members(folder: Path, read_tars: Any) -> list[tuple[str, bytes]]:
    return list(read_tars(folder).items())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions and pieces of a few samples."""
    monkeypatch.setattr(partitions, "MIN_PARTITION_BYTES", 9000)
    monkeypatch.setattr(_shard_pieces, "PIECE_BYTES", 2500)


KINDS = ["own tars", "foreign tars", "compressed tars", "rows", "compressed rows"]


@pytest.fixture(params=KINDS)
def shards(request: Any, tree: Any, build: Build, tmp_path: Path, ustar: Any) -> tuple[Path, Any]:
    """A dataset of 100 samples in several shards, and its source."""
    kind = request.param
    folder = tmp_path / "shards"
    if kind == "own tars":
        build(tree(files(100)), folder, "wds", shard_samples=30)
    elif "tars" in kind:
        folder.mkdir()
        for k in range(4):
            data = ustar(sorted(files(25, 25 * k).items()))
            name, data = (f"s-{k}.tar", data) if kind == "foreign tars" else (f"s-{k}.tar.gz", gzip.compress(data, mtime=0))
            (folder / name).write_bytes(data)
    else:
        order = order_of([], OrderWords("mds", "files", {"compression": "zstd"} if "compressed" in kind else {}, shard_samples=30))
        build_order([str(tree(files(100)))], str(folder), order)
    return folder, Mds() if "rows" in kind else Wds()


@pytest.mark.usefixtures("small")
def test_every_cut_keeps_the_samples_and_their_order(shards: tuple[Path, Any], build: Build, tmp_path: Path, read_tars: Any) -> None:
    folder, source = shards
    result = build(folder, tmp_path / "out", "wds", source=source)
    assert result.manifest.ledger.num_written == 100
    assert members(tmp_path / "out", read_tars) == sorted(files(100).items())
    assert len(result.survey.partitions) > 2


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("shards", ["own tars", "foreign tars", "rows"], indirect=True)
def test_the_bytes_are_the_same_with_any_number_of_workers(shards: tuple[Path, Any], build: Build, tmp_path: Path) -> None:
    folder, source = shards
    build(folder, tmp_path / "one", "mds", source=source)
    build(folder, tmp_path / "several", "mds", source=source, engine=Processes(3))
    ours, theirs = ([path.read_bytes() for path in sorted((tmp_path / name).glob("*.mds"))] for name in ("one", "several"))
    assert len(ours) > 2 and ours == theirs


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("num", [7, 100, 500])
def test_every_shard_has_as_many_samples_as_were_asked_for(
    shards: tuple[Path, Any], build: Build, tmp_path: Path, read_tars: Any, num: int
) -> None:
    folder, source = shards
    build(folder, tmp_path / "out", "wds", source=source, shard_samples=num)
    assert counts(tmp_path / "out") == [num] * (100 // num) + ([100 % num] if 100 % num else [])
    assert members(tmp_path / "out", read_tars) == sorted(files(100).items())


@pytest.mark.usefixtures("small")
def test_parts_of_a_shard_are_read_alone(tree: Any, build: Build, tmp_path: Path) -> None:
    build(tree(files(100)), tmp_path / "tars", "wds", shard_samples=100)
    planned = build(tmp_path / "tars", tmp_path / "out", source=Wds()).survey.partitions
    pieces = [_shard_pieces.Piece.unpacked(packed) for part in planned for packed in part.extents]
    assert pieces[0].begin == 0 and pieces[-1].end == 100
    assert all(a.end == b.begin and a.end_byte == b.first_byte for a, b in pairwise(pieces))
    assert max((piece.end_byte or 0) - (piece.first_byte or 0) for piece in pieces) <= 2500 and len(pieces) > 30
    assert sum(part.num_samples for part in planned) == 100


@pytest.mark.usefixtures("small")
def test_offsets_of_another_dataset_are_not_believed(tree: Any, build: Build, tmp_path: Path, read_tars: Any) -> None:
    build(tree(files(100)), tmp_path / "tars", "wds", shard_samples=50)
    offsets = tmp_path / "tars" / "shardtools.offsets"
    known = offsets.read_bytes()
    member = 512 * 2  # where no sample begins
    offsets.write_bytes(known[:80] + (int.from_bytes(known[80:88], "little") + member).to_bytes(8, "little") + known[88:])
    build(tmp_path / "tars", tmp_path / "out", "wds", source=Wds())
    assert members(tmp_path / "out", read_tars) == sorted(files(100).items())


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_rows_without_keys_are_named_by_their_place_however_they_are_cut(
    build: Build, tmp_path: Path, read_tars: Any, compression: str | None
) -> None:
    """MDSWriter stores no keys: numbers that began anew in each piece would be alike."""
    (tmp_path / "r.jsonl").write_text("".join(json.dumps({"n": i, "text": "x" * 90}) + "\n" for i in range(250)))
    keyless = MdsFormat(compression, key_column=None)
    build(tmp_path / "r.jsonl", tmp_path / "rows", keyless, source=Jsonl(), shard_samples=200)
    for name in ("shardtools.manifest", "shardtools.offsets"):
        (tmp_path / "rows" / name).unlink()
    expected = [f"0000{i // 200}/{i % 200:08d}.json" for i in range(250)]
    for num in (None, 30):
        result = build(tmp_path / "rows", tmp_path / f"out{num}", "wds", source=Mds(), shard_samples=num)
        found = read_tars(tmp_path / f"out{num}")
        assert [(name, json.loads(data)["n"]) for name, data in found.items()] == list(zip(expected, range(250), strict=True))
        assert len(result.survey.partitions) > 1


def test_a_folder_of_shards_is_told_by_its_names(shards: tuple[Path, Any]) -> None:
    folder, source = shards
    assert detect_source(resolve_inputs([str(folder)])) == ("mds" if isinstance(source, Mds) else "wds")


def test_tars_among_other_files_are_a_mixture(tree: Any, ustar: Any, one_sentence: Any) -> None:
    source = tree({"a.jpg": b"1", "b.tar": ustar([("x.txt", b"1")])})
    with pytest.raises(UsageError) as caught:
        detect_source(resolve_inputs([str(source)]))
    assert "--from files or --from wds" in one_sentence(caught.value)


def test_an_index_without_shards_is_a_file(tree: Any) -> None:
    assert detect_source(resolve_inputs([str(tree({"index.json": b"{}"}))])) == "files"


def test_patterns_and_lists_name_shards(tree: Any, build: Build, tmp_path: Path, read_tars: Any, monkeypatch: Any) -> None:
    build(tree(files(60)), tmp_path / "tars", "wds", shard_samples=10)
    expected = sorted(files(60).items())
    for name, word in (("braces", "train-{000001..000003}.tar"), ("wildcard", "train-00000[123].tar")):
        inputs = resolve_inputs([f"{tmp_path}/tars/{word}"])
        assert detect_source(inputs) == "wds"
        build_order(inputs, str(tmp_path / name), order_of(inputs, OrderWords("wds")))
        assert members(tmp_path / name, read_tars) == expected[20:80]
    (tmp_path / "list").write_text("".join(f"{tmp_path}/tars/train-00000{i}.tar\n" for i in (4, 2)))
    build(f"@{tmp_path}/list", tmp_path / "listed", "wds", source=Wds())
    assert members(tmp_path / "listed", read_tars) == expected[80:100] + expected[40:60]
    monkeypatch.chdir(tmp_path)
    build("tars/train-000005.tar", tmp_path / "one", "wds", source=Wds())
    assert members(tmp_path / "one", read_tars) == expected[100:]
    build(tree(files(60)), tmp_path / "rows", "mds", shard_samples=10)
    build("rows/shard.{00001..00002}.mds", tmp_path / "some", "wds", source=Mds())
    assert list(dict.fromkeys(name.partition(".")[0] for name in read_tars(tmp_path / "some"))) == [f"d/{i:05d}" for i in range(10, 30)]


@pytest.mark.parametrize("word", ["train-{000004..000006}.tar", "nothing-*.tar", "train-{000004.tar"])
def test_a_pattern_that_names_what_is_not_there_is_refused(tree: Any, build: Build, tmp_path: Path, one_sentence: Any, word: str) -> None:
    build(tree(files(60)), tmp_path / "tars", "wds", shard_samples=10)
    with pytest.raises(UsageError) as caught:
        resolve_inputs([f"{tmp_path}/tars/{word}"])
    assert word in one_sentence(caught.value)


def test_a_source_of_the_other_format_is_named(tree: Any, build: Build, tmp_path: Path, one_sentence: Any) -> None:
    build(tree(files(9)), tmp_path / "tars", "wds")
    with pytest.raises(UsageError) as caught:
        build(tmp_path / "tars", tmp_path / "out", "mds", source=Mds())
    assert "--from wds" in one_sentence(caught.value)


def test_several_datasets_follow_each_other(tree: Any, build: Build, tmp_path: Path, read_tars: Any) -> None:
    for k in range(3):
        build(tree(files(20, 20 * k), f"src{k}"), tmp_path / f"rows{k}", "mds", shard_samples=8)
    build([tmp_path / f"rows{k}" for k in (2, 0, 1)], tmp_path / "out", "wds", source=Mds())
    expected = sorted(files(60).items())
    assert members(tmp_path / "out", read_tars) == expected[80:] + expected[:80]


def test_inputs_of_other_columns_are_refused(build: Build, tmp_path: Path, one_sentence: Any) -> None:
    for name, value in (("a", 1), ("b", "text")):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"x": value}) + "\n")
        build(tmp_path / f"{name}.jsonl", tmp_path / name, "mds", source=Jsonl())
    with pytest.raises(UsageError) as caught:
        build([tmp_path / "a", tmp_path / "b"], tmp_path / "out", "wds", source=Mds())
    assert "'x' as int" in one_sentence(caught.value) and "as str" in str(caught.value)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("shards", ["own tars", "compressed tars", "rows"], indirect=True)
def test_shards_in_a_bucket_are_those_of_the_folder(
    shards: tuple[Path, Any], bucket: Any, build: Build, tmp_path: Path, read_tars: Any
) -> None:
    folder, source = shards
    uri = bucket.copy_of(folder)
    build(uri, tmp_path / "out", "wds", source=source, shard_samples=40)
    assert members(tmp_path / "out", read_tars) == sorted(files(100).items())
    assert detect_source(resolve_inputs([uri])) == ("mds" if isinstance(source, Mds) else "wds")


def test_the_same_command_again_is_complete_and_a_changed_shard_is_not(tree: Any, build: Build, tmp_path: Path) -> None:
    build(tree(files(60)), tmp_path / "tars", "wds", shard_samples=30)
    build(tmp_path / "tars", tmp_path / "out", "mds", source=Wds())
    assert build(tmp_path / "tars", tmp_path / "out", "mds", source=Wds()).already_complete
    build(tree(files(70)), tmp_path / "tars", "wds", shard_samples=30, overwrite=True)
    with pytest.raises(UsageError, match=r"inputs? (?:added|changed|gone)"):
        build(tmp_path / "tars", tmp_path / "out", "mds", source=Wds())
