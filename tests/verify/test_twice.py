"""Stops samples that are in a dataset twice: under one key, or the same content under two."""

import io
import re
import tarfile

import pytest

from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds
from shardtools.verify import VerifyOptions, verify
from shardtools.verify._unique import find_repeats

# The delivery proof has tests of its own.
CONTENTS = VerifyOptions(workers=1, no_dup=True)


def tar(path, members, kind=tarfile.USTAR_FORMAT):
    with tarfile.open(path, "w", format=kind) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def kinds(found):
    return [finding.kind for finding in found]


@pytest.fixture(params=["USTAR_FORMAT", "PAX_FORMAT"])
def two_shards(request, tmp_path):
    """Samples whose contents repeat, in plain tars and in such as only the slow look takes."""
    kind = getattr(tarfile, request.param)
    # PAX writes an extension header only where it needs one.
    rare = [("Ä" * 60 + ".txt", b"rare")] if kind == tarfile.PAX_FORMAT else []
    tar(tmp_path / "x-0.tar", [("a.cls", b"1"), ("a.txt", b"same"), ("b.cls", b"2"), ("b.txt", b"same"), *rare], kind)
    tar(tmp_path / "x-1.tar", [("c.cls", b"1"), ("c.txt", b"same"), ("d.txt", b"same"), ("e.txt", b"1same")], kind)
    return str(tmp_path)


def test_equal_content_under_two_keys_is_a_note(two_shards):
    verdict = verify(two_shards, CONTENTS)
    (note,) = [note for note in verdict.notes if note.level == 4]
    assert (note.kind, note.shard, note.key, note.offset) == ("duplicate-content", "x-1.tar", "c", 0)
    assert "'a' in x-0.tar at byte 0" in note.detail
    assert (verdict.findings, verdict.exit_code) == ((), 0)
    assert "No content occurs under two keys" not in verdict.closing()


def test_strict_makes_it_a_finding(two_shards):
    verdict = verify(two_shards, VerifyOptions(workers=1, no_dup=True, strict=True))
    assert "duplicate-content" in kinds(verdict.findings)
    assert (verdict.exit_code, verdict.notes) == (1, ())


def test_nobody_looks_without_being_asked(two_shards):
    verdict = verify(two_shards, VerifyOptions(workers=1))
    assert verdict.notes == ()
    assert "--no-dup" in verdict.closing()


def test_the_same_key_twice_is_no_equal_content(tmp_path):
    tar(tmp_path / "x-0.tar", [("a.txt", b"1"), ("b.txt", b"2")])
    tar(tmp_path / "x-1.tar", [("a.txt", b"1"), ("c.txt", b"3")])
    verdict = verify(str(tmp_path), CONTENTS)
    assert kinds(verdict.findings) == ["duplicate-key"]
    assert [note for note in verdict.notes if note.level == 4] == []


def test_fields_of_other_names_are_other_content(tmp_path):
    tar(tmp_path / "x-0.tar", [("a.txt", b"1"), ("b.text", b"1"), ("c.txt", b""), ("c.x", b"1"), ("d.txt", b"1"), ("d.x", b"")])
    assert [note for note in verify(str(tmp_path), CONTENTS).notes if note.level == 4] == []


@pytest.mark.parametrize("shard_format", [Wds(), Mds(), Mds(key_column=None), Mds(compression="zstd")], ids=str)
def test_in_every_format(tmp_path, build, rows, shard_format):
    texts = [f"text {i}" for i in range(50)]
    texts[33] = texts[4]
    (tmp_path / "src").mkdir()
    source = rows([b"k%03d" % i for i in range(50)], {"txt": texts}, {"txt": "str"})
    build(tmp_path / "src", tmp_path / "out", shard_format, source=source, shard_bytes=10240 if shard_format == Wds() else 1000)
    (note,) = [note for note in verify(str(tmp_path / "out"), CONTENTS).notes if note.level == 4]
    is_keyless = shard_format == Mds(key_column=None)
    assert note.key is not None
    assert re.fullmatch("[0-9]{5}/[0-9]{8}" if is_keyless else "k033", note.key)


def test_many_are_counted_and_some_listed(tmp_path):
    tar(tmp_path / "x-0.tar", [(f"k{i:03d}.txt", b"%d" % (i // 3)) for i in range(30)])
    verdict = verify(str(tmp_path), VerifyOptions(workers=1, no_dup=True, max_findings=4))
    details = [note.detail for note in verdict.notes if note.level == 4]
    assert len(details) >= 5
    assert sum("more" in detail for detail in details) >= 1


def test_places_of_a_key_stored_many_times(tmp_path):
    for i in range(5):
        tar(tmp_path / f"x-{i}.tar", [("a.txt", b"%d" % i), (f"b{i}.txt", b"b%d" % i)])
    found = verify(str(tmp_path), VerifyOptions(workers=1)).findings
    assert kinds(found) == ["duplicate-key"] * 4
    assert [finding.shard for finding in found] == [f"x-{i}.tar" for i in range(1, 5)]


def test_a_key_of_very_many_samples_is_counted_to_the_last(tmp_path):
    """Beyond the hundred places that are named."""
    tar(tmp_path / "x-0.tar", [member for i in range(150) for member in (("a.txt", b"1"), (f"b{i}.txt", b"2"))])
    found = verify(str(tmp_path), VerifyOptions(workers=1, max_findings=1000)).findings
    assert kinds(found) == ["duplicate-key"] * 100
    assert found[-1].detail == "expected every key once, got 50 more samples whose key another has, not listed"


def test_repeats_are_counted_exactly():
    from shardtools.digests import DigestTable

    table = DigestTable(24)
    digests = [bytes([i]) * 16 for i in (1, 2, 2, 3, 4, 4, 4, 5)]
    for row, digest in enumerate(digests):
        table.add(digest + (0).to_bytes(4, "little") + row.to_bytes(4, "little"))
    repeats = find_repeats(table, 100)
    assert (repeats.num_digests, repeats.num_surplus) == (2, 3)
    assert repeats.listed == {digests[1]: [(0, 1), (0, 2)], digests[4]: [(0, 4), (0, 5), (0, 6)]}
    assert len(find_repeats(table, 1).listed) == 1
