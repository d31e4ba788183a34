"""Samples of a damaged, changed or odd shard that vanish without a word, or half of one that is taken for a whole."""

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from shardtools.errors import BadSampleError, UsageError
from shardtools.formats.mds import Mds as MdsFormat
from shardtools.sources._grouping import parse_field_rules
from shardtools.sources.jsonl import Jsonl
from shardtools.sources.mds import Mds
from shardtools.sources.wds import Wds

Build = Callable[..., Any]
Members = Sequence[tuple[str, bytes]]


def members(count: int, begin: int = 0) -> list[tuple[str, bytes]]:
    return [(f"s{i:04d}.{field}", b"%d" % i * 300) for i in range(begin, begin + count) for field in ("bin", "txt")]


def names_of(folder: Path) -> list[str]:
    found = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as archive:
            found += archive.getnames()
    return found


@pytest.fixture
def foreign(tmp_path: Path, ustar: Any) -> Callable[..., Path]:
    """A folder of tars by Python's tarfile."""

    def make(*shards: Members, name: str = "src") -> Path:
        folder = tmp_path / name
        folder.mkdir()
        for i, shard in enumerate(shards):
            (folder / f"s-{i}.tar").write_bytes(ustar(shard))
        return folder

    return make


def edit(path: Path, at: int, data: bytes) -> None:
    whole = bytearray(path.read_bytes())
    whole[at : at + len(data)] = data
    status = path.stat()
    path.write_bytes(whole)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


BLOCK = 512
SAMPLE_BLOCKS = {i: 2 * (2 + (len(str(i)) * 300 - 1) // 512) for i in range(100)}


def header_of(sample: int, member: int) -> int:
    before = sum(SAMPLE_BLOCKS[i] for i in range(sample))
    return BLOCK * (before + member * SAMPLE_BLOCKS[sample] // 2)


@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_a_damaged_header_stops_the_run_in_one_sentence(
    foreign: Any, build: Build, tmp_path: Path, one_sentence: Any, format_: str
) -> None:
    source = foreign(members(30), members(30, 30))
    edit(source / "s-1.tar", header_of(0, 0) + 5, b"\xff")
    with pytest.raises(BadSampleError) as caught:
        build(source, tmp_path / "out", format_, source=Wds())
    text = one_sentence(caught.value)
    assert "s-1.tar" in text and "checksum" in text and "--max-bad" in text
    assert not (tmp_path / "out" / "shardtools.manifest").exists()


@pytest.mark.parametrize("member", [0, 1])
def test_behind_damage_reading_goes_on_and_no_half_sample_is_taken(
    foreign: Any, build: Build, tmp_path: Path, read_tars: Any, member: int
) -> None:
    source = foreign(members(30))
    edit(source / "s-0.tar", header_of(10, member) + 5, b"\xff")
    fields = parse_field_rules("bin?,txt?")
    result = build(source, tmp_path / "out", "wds", source=Wds(fields=fields), max_bad="5")
    found = read_tars(tmp_path / "out")
    whole = dict(members(30))
    assert all(whole[name] == data for name, data in found.items())
    stems = {name.partition(".")[0] for name in found}
    assert all(f"{stem}.bin" in found and f"{stem}.txt" in found for stem in stems), "a half sample"
    lost = {f"s{i:04d}" for i in range(30)} - stems
    assert "s0010" in lost and lost <= {"s0009", "s0010", "s0011"}
    ledger = result.manifest.ledger
    assert ledger.num_written == len(stems) and ledger.rejects["damaged-shard"] >= len(lost)


@pytest.mark.parametrize("cut", [BLOCK * 7, BLOCK * 7 + 100, BLOCK * 6 + 1])
def test_a_tar_that_ends_early_is_damaged(foreign: Any, build: Build, tmp_path: Path, cut: int) -> None:
    """Readers take the end of the file for the end of the archive."""
    source = foreign(members(30))
    path = source / "s-0.tar"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(BadSampleError, match=r"s-0\.tar"):
        build(source, tmp_path / "out", "wds", source=Wds())


def test_of_an_own_dataset_every_lost_sample_is_counted(tree: Any, build: Build, tmp_path: Path) -> None:
    build(tree(dict(members(40))), tmp_path / "tars", "wds", shard_samples=20)
    path = tmp_path / "tars" / "train-000001.tar"
    edit(path, 0, bytes(path.stat().st_size))
    result = build(tmp_path / "tars", tmp_path / "out", "wds", source=Wds(), max_bad="20")
    ledger = result.manifest.ledger
    assert (ledger.num_read, ledger.num_written, dict(ledger.rejects)) == (40, 20, {"damaged-shard": 20})


@pytest.mark.parametrize(("at", "data", "word"), [(0, b"\x07", "rows"), (4, b"\xff\xff", "offset"), (-3, b"", "bytes")])
def test_a_damaged_shard_of_rows_is_counted_row_by_row(
    build: Build, tmp_path: Path, one_sentence: Any, at: int, data: bytes, word: str
) -> None:
    (tmp_path / "r.jsonl").write_text("".join(json.dumps({"text": f"{i:05d}"}) + "\n" for i in range(60)))
    build(tmp_path / "r.jsonl", tmp_path / "rows", "mds", source=Jsonl(), shard_samples=20)
    path = tmp_path / "rows" / "shard.00001.mds"
    if data:
        edit(path, at, data)
    else:
        path.write_bytes(path.read_bytes()[:at])
        with pytest.raises(UsageError, match="restore it") as caught:
            build(tmp_path / "rows", tmp_path / "out", "wds", source=Mds())
        assert word in one_sentence(caught.value)
        return
    with pytest.raises(BadSampleError, match=word):
        build(tmp_path / "rows", tmp_path / "out", "wds", source=Mds())
    result = build(tmp_path / "rows", tmp_path / "tolerant", "wds", source=Mds(), max_bad="20")
    ledger = result.manifest.ledger
    assert (ledger.num_read, ledger.num_written, dict(ledger.rejects)) == (60, 40, {"damaged-shard": 20})


def test_one_row_that_does_not_add_up_is_one_bad_sample(build: Build, tmp_path: Path, read_tars: Any) -> None:
    (tmp_path / "r.jsonl").write_text("".join(json.dumps({"text": f"{i:05d}"}) + "\n" for i in range(20)))
    build(tmp_path / "r.jsonl", tmp_path / "rows", "mds", source=Jsonl())
    path = tmp_path / "rows" / "shard.00000.mds"
    edit(path, int.from_bytes(path.read_bytes()[4 + 4 * 7 : 8 + 4 * 7], "little"), b"\xff")
    result = build(tmp_path / "rows", tmp_path / "out", "wds", source=Mds(), max_bad="1")
    assert result.manifest.ledger.num_written == 19 and result.manifest.ledger.num_rejected == 1
    texts = [json.loads(data)["text"] for data in read_tars(tmp_path / "out").values()]
    assert texts == [f"{i:05d}" for i in range(20) if i != 7]


def test_a_bad_row_is_named_by_its_place_in_the_shard_where_pieces_are_read(
    build: Build, tmp_path: Path, one_sentence: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "r.jsonl").write_text("".join(json.dumps({"text": f"{i:05d}"}) + "\n" for i in range(60)))
    build(tmp_path / "r.jsonl", tmp_path / "rows", MdsFormat(key_column=None), source=Jsonl())
    monkeypatch.setattr("shardtools.sources._shard_pieces.PIECE_BYTES", 100)
    path = tmp_path / "rows" / "shard.00000.mds"
    at = int.from_bytes(path.read_bytes()[4 + 4 * 47 : 8 + 4 * 47], "little")
    edit(path, at, b"\xff")
    with pytest.raises(BadSampleError) as caught:
        build(tmp_path / "rows", tmp_path / "out", "wds", source=Mds())
    assert f"shard.00000.mds, byte {at:,}: expected a sound sample 47, got" in one_sentence(caught.value)


def test_an_index_that_hides_rows_is_told(build: Build, tmp_path: Path) -> None:
    """StreamingDataset reads as many as the index says, and passes over the others."""
    (tmp_path / "r.jsonl").write_text("".join(json.dumps({"text": f"{i:05d}"}) + "\n" for i in range(20)))
    build(tmp_path / "r.jsonl", tmp_path / "rows", "mds", source=Jsonl())
    for name in ("shardtools.manifest", "shardtools.offsets"):
        (tmp_path / "rows" / name).unlink()
    index = tmp_path / "rows" / "index.json"
    index.write_text(index.read_text().replace('"samples": 20', '"samples": 12'))
    with pytest.raises(BadSampleError, match="expected 12 rows"):
        build(tmp_path / "rows", tmp_path / "out", "wds", source=Mds())


def test_columns_that_are_not_those_of_the_index_are_told(build: Build, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text("".join(json.dumps({"n": i}) + "\n" for i in range(20)))
    build(tmp_path / "r.jsonl", tmp_path / "rows", "mds", source=Jsonl())
    for path in ("shardtools.manifest", "shardtools.offsets"):
        (tmp_path / "rows" / path).unlink()
    index = tmp_path / "rows" / "index.json"
    index.write_text(index.read_text().replace('"int"', '"float64"'))
    with pytest.raises(BadSampleError, match="column 'n' of 'float64'"):
        build(tmp_path / "rows", tmp_path / "out", "wds", source=Mds())


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ([("x.bin", b"1")], "missing-field"),
        ([("x.bin", b"1"), ("x.txt", b"2"), ("x.new", b"3")], "unknown-field"),
        ([("x.bin", b"1"), ("x.txt", b"2"), ("x.TXT", b"3")], "two-files-one-field"),
        ([("x.bin", b"1"), ("x.txt", b"2"), ("x.a b", b"3")], "illegal-field"),
        ([("x.bin", b"1"), ("x.bin", b"2"), ("x.txt", b"2")], "field-twice"),
    ],
)
def test_a_sample_of_other_members_is_bad_by_itself(
    foreign: Any, build: Build, tmp_path: Path, odd: Members, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardtools.sources._shard_survey.FIRST_ROWS", 10)
    source = foreign([*members(20), *odd, *members(3, 50)])
    with pytest.raises(BadSampleError, match=r"s-0\.tar, sample x"):
        build(source, tmp_path / "out", "wds", source=Wds())
    result = build(source, tmp_path / "tolerant", "wds", source=Wds(), max_bad="1")
    assert dict(result.manifest.ledger.rejects) == {reason: 1} and result.manifest.ledger.num_written == 23
    assert names_of(tmp_path / "tolerant") == [name for name, _ in [*members(20), *members(3, 50)]]


def test_a_member_without_a_dot_and_a_link_are_told(tmp_path: Path, build: Build) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in members(5):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("z.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "s0000.bin"
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("README"))
    (tmp_path / "a.tar").write_bytes(buffer.getvalue())
    result = build(tmp_path / "a.tar", tmp_path / "out", "wds", source=Wds(), max_bad="2")
    assert dict(result.manifest.ledger.rejects) == {"not-a-file": 1, "no-field": 1}
    assert result.manifest.ledger.num_written == 5


def test_a_truncated_compressed_tar_is_damaged(foreign: Any, build: Build, tmp_path: Path, ustar: Any) -> None:
    source = foreign(members(5))
    packed = gzip.compress(ustar(members(40, 50)), mtime=0)
    (source / "t.tar.gz").write_bytes(packed[:-200])
    with pytest.raises(BadSampleError, match=r"t\.tar\.gz.*compressed stream"):
        build(source, tmp_path / "out", "wds", source=Wds())
    (source / "t.tar.gz").write_bytes(packed)
    build(source, tmp_path / "sound", "wds", source=Wds())
    assert names_of(tmp_path / "sound") == [name for name, _ in [*members(5), *members(40, 50)]]


def test_a_shard_that_changes_after_planning_is_told(foreign: Any, build: Build, tmp_path: Path) -> None:
    from shardtools.build import run

    source = foreign(members(20))

    def touch(_: Any) -> None:
        path = source / "s-0.tar"
        edit(path, 600, b"!")
        os.utime(path, ns=(1, 1))

    with pytest.raises(BadSampleError, match="when the run was planned"):
        build(source, tmp_path / "out", "wds", source=Wds(), listener=run.Listener(on_plan=touch))


def test_a_value_that_its_column_cannot_hold_is_bad_by_itself(foreign: Any, build: Build, tmp_path: Path) -> None:
    numbers = [(f"s{i}.cls", b"%d" % i if i != 4 else b"four") for i in range(9)]
    source = foreign(numbers)
    result = build(source, tmp_path / "out", "mds", source=Wds(), max_bad="1")
    assert result.manifest.ledger.num_written == 8 and result.manifest.ledger.rejects.total() == 1


def test_a_missing_shard_of_a_published_dataset_is_told_at_once(tree: Any, build: Build, tmp_path: Path, one_sentence: Any) -> None:
    build(tree(dict(members(40))), tmp_path / "tars", "wds", shard_samples=20)
    (tmp_path / "tars" / "train-000001.tar").unlink()
    with pytest.raises(UsageError) as caught:
        build(tmp_path / "tars", tmp_path / "out", "wds", source=Wds())
    assert "train-000001.tar" in one_sentence(caught.value)


def test_keys_that_repeat_over_shards_are_told(foreign: Any, build: Build, tmp_path: Path) -> None:
    from shardtools.errors import DuplicateKeyError

    with pytest.raises(DuplicateKeyError, match=r"s-0\.tar, sample s000[345]"):
        build(foreign(members(9), members(3, 3)), tmp_path / "out", "wds", source=Wds())
