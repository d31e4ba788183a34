"""Files missing, cut, swapped, edited or added; stops a verify that believes what a folder looks like."""

import os
import random

import pytest

from shardtools.verify import VerifyOptions, verify

FIRST = "train-000000.tar"


def test_a_missing_shard(wds, kinds):
    (wds / FIRST).unlink()
    assert kinds(wds) == {"missing-file": 1}


def test_a_missing_offsets_file(wds, kinds):
    (wds / "shardtools.offsets").unlink()
    assert kinds(wds) == {"missing-file": 1}


def test_a_fifo_in_place_of_a_shard_is_a_missing_file(wds, kinds):
    (wds / FIRST).unlink()
    os.mkfifo(wds / FIRST)
    assert kinds(wds) == {"missing-file": 1}


def test_a_shard_without_bytes(wds, kinds):
    (wds / FIRST).write_bytes(b"")
    assert kinds(wds) == {"wrong-size": 1, "damaged-shard": 1}


def test_a_longer_shard(wds, kinds):
    with open(wds / FIRST, "ab") as file:
        file.write(b"x")
    assert kinds(wds) == {"wrong-size": 1, "damaged-shard": 1}


def test_a_flipped_bit_in_a_value(wds, findings):
    data = bytearray((wds / FIRST).read_bytes())
    data[512 + 3] ^= 1
    (wds / FIRST).write_bytes(data)
    (found,) = findings(wds)
    assert (found.kind, found.shard, found.level) == ("wrong-sha256", FIRST, 2)


def test_swapped_shards(wds, kinds):
    (wds / FIRST).rename(wds / "x")
    (wds / "train-000001.tar").rename(wds / FIRST)
    (wds / "x").rename(wds / "train-000001.tar")
    assert kinds(wds)["wrong-sha256"] == 2


def test_an_extra_file(wds, findings):
    (wds / "sub").mkdir()
    (wds / "sub/train-000009.tar").write_bytes(b"")
    (found,) = findings(wds)
    assert (found.kind, found.shard) == ("extra-file", "sub/train-000009.tar")


def test_what_lies_in_the_private_folder_is_no_part_of_the_dataset(wds, kinds):
    (wds / ".shardtools/build").mkdir()
    (wds / ".shardtools/build/plan").write_bytes(b"left over")
    assert kinds(wds) == {}


def test_an_edited_manifest(wds, kinds):
    path = wds / "shardtools.manifest"
    path.write_text(path.read_text().replace('"filtered": 0', '"filtered": 1'))
    assert kinds(wds) == {"manifest-damaged": 1}


def test_a_cut_manifest_does_not_hide_what_else_is_wrong(mds, kinds):
    path = mds / "shardtools.manifest"
    path.write_text(path.read_text()[:-40])
    (mds / "shard.00001.mds").unlink()
    assert kinds(mds) == {"manifest-damaged": 1, "missing-file": 1}


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["ledger"].update(read=41),
        lambda content: content["ledger"].update(rejected=1),
        lambda content: content["shards"][0]["field_sets"].update(txt=1),
        lambda content: content["files"].clear(),
        lambda content: content["files"].append(content["files"][0]),
        lambda content: content["ledger"].update(rejects={"invalid-json": 1}, rejected=1, read=41),
    ],
    ids=["ledger read", "ledger rejected", "field sets", "no offsets", "file twice", "no rejects file"],
)
def test_a_manifest_that_contradicts_itself(wds, kinds, edit_manifest, change):
    edit_manifest(wds, change)
    assert kinds(wds)["manifest-contradiction"] >= 1


def test_a_manifest_of_other_types_is_damaged(wds, kinds, edit_manifest):
    edit_manifest(wds, lambda content: content["shards"][0].update(bytes="20480"))
    assert kinds(wds) == {"manifest-damaged": 1}


def test_a_manifest_that_names_files_outside_is_unsafe(wds, kinds, edit_manifest, tmp_path):
    (tmp_path / "outside.tar").write_bytes((wds / FIRST).read_bytes())
    edit_manifest(wds, lambda content: content["shards"][0].update(name="../outside.tar"))
    found = kinds(wds)
    assert (found["unsafe-name"], found["extra-file"]) == (1, 1)


def test_a_rejects_file_with_a_line_too_few(build, rows, tmp_path, forge, kinds):
    (tmp_path / "src").mkdir()
    source = rows([b"a", b"bad1", b"bad2"], {"bin": [b"1", b"2", b"3"]}, {"bin": "bytes"})
    build(tmp_path / "src", tmp_path / "out", "wds", source=source, max_bad="2")
    lines = (tmp_path / "out/.shardtools/rejects").read_bytes().splitlines(keepends=True)
    forge(tmp_path / "out", ".shardtools/rejects", lines[0])
    assert kinds(tmp_path / "out") == {"manifest-contradiction": 1}


def test_wrong_offsets(wds, findings, forge):
    data = bytearray((wds / "shardtools.offsets").read_bytes())
    data[8] ^= 2
    forge(wds, "shardtools.offsets", bytes(data))
    (found,) = findings(wds)
    assert (found.kind, found.shard, found.offset) == ("wrong-offsets", "shardtools.offsets", 8)


def test_a_file_that_cannot_be_read_is_no_finding_against_the_data(wds, monkeypatch):
    """Exit code 3, not 1: nothing is known about the data."""
    from shardtools.datasets import Dataset
    from shardtools.errors import StorageError

    def refuse(_, shard):
        raise StorageError(f"could not read {shard.name}: Permission denied; check its permissions and the disk")

    monkeypatch.setattr(Dataset, "stored", refuse)
    verdict = verify(str(wds), VerifyOptions(workers=1))
    assert {finding.kind for finding in verdict.findings} == {"could-not-look"}
    assert verdict.exit_code == 3
    assert verdict.closing().startswith("Not everything could be looked at")


@pytest.mark.parametrize("name", ["wds", "mds", "zipped"])
def test_any_flipped_bit_in_any_file_is_found(name, request):
    folder = request.getfixturevalue(name)
    seed = 20240611
    numbers = random.Random(seed)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "plan"]
    for _ in range(40):
        path = numbers.choice(files)
        sound = path.read_bytes()
        damaged = bytearray(sound)
        at = numbers.randrange(len(damaged))
        damaged[at] ^= 1 << numbers.randrange(8)
        path.write_bytes(damaged)
        assert verify(str(folder), VerifyOptions(workers=1)).exit_code == 1, f"seed {seed}: byte {at} of {path.name}"
        path.write_bytes(sound)
    assert verify(str(folder)).findings == ()
