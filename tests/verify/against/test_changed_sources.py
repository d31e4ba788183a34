"""Samples lost, added, changed or doubled between a source and its shards without a finding, or with the wrong one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardtools.build.order import OrderWords, order_of
from shardtools.build.run import build
from shardtools.errors import UsageError

FORMATS = pytest.mark.parametrize(
    ("format_", "words"),
    [
        ("wds", {"shard_samples": 7}),
        ("wds", {"shard_size": "20480", "shuffle": True, "seed": 3}),
        ("mds", {"shard_size": "4096"}),
        ("mds", {"shard_samples": 7, "format_options": {"compression": "zstd"}}),
    ],
    ids=["wds", "wds-shuffled", "mds", "mds-zstd"],
)
Pairs = Callable[..., Path]


@FORMATS
def test_source_changed_after_packing(pairs: Pairs, pack: Any, against: Any, format_: str, words: dict[str, Any]) -> None:
    source = pairs()
    folder = pack(source, format_, **words)
    (source / "a/007.json").write_bytes(b'{"i":9}')
    seen = against(folder, source)
    assert seen.seen == [("changed-sample", "a/007")]
    assert seen.detail("changed-sample") == "field 'json': expected {'i': 9}, got {'i': 7}"
    assert seen.proved == ""


@FORMATS
def test_source_lost_a_sample(pairs: Pairs, pack: Any, against: Any, format_: str, words: dict[str, Any]) -> None:
    source = pairs()
    folder = pack(source, format_, **words)
    for name in ("a/012.json", "a/012.txt"):
        (source / name).unlink()
    seen = against(folder, source)
    assert seen.seen == [("changed-source", None), ("foreign-sample", "a/012")]
    assert "1 input gone: a/012" in seen.detail("changed-source")
    (foreign,) = [finding for finding in seen.verdict.findings if finding.kind == "foreign-sample"]
    assert foreign.shard is not None and foreign.offset is not None and foreign.level == 6


@FORMATS
def test_source_gained_a_sample(pairs: Pairs, pack: Any, against: Any, format_: str, words: dict[str, Any]) -> None:
    source = pairs()
    folder = pack(source, format_, **words)
    (source / "a/0125.json").write_bytes(b"{}")
    (source / "a/0125.txt").write_bytes(b"new")
    seen = against(folder, source)
    assert seen.seen == [("changed-source", None), ("missing-sample", "a/0125")]
    assert "1 input added: a/0125" in seen.detail("changed-source")
    assert "made of a/0125.json" in seen.detail("missing-sample")


@FORMATS
def test_source_has_a_file_of_another_length(pairs: Pairs, pack: Any, against: Any, format_: str, words: dict[str, Any]) -> None:
    source = pairs()
    folder = pack(source, format_, **words)
    (source / "a/000.txt").write_bytes(b"was empty")
    seen = against(folder, source)
    assert seen.seen == [("changed-sample", "a/000"), ("changed-source", None)]
    assert "1 input changed: a/000" in seen.detail("changed-source")


@FORMATS
def test_shards_lost_a_sample(pairs: Pairs, pack: Any, against: Any, claim: Any, format_: str, words: dict[str, Any]) -> None:
    source = pairs()
    honest = pack(source, format_, "honest", **words)
    forged = pack(pairs(name="fewer", s017_json=None, s017_txt=None), format_, "forged", **words)
    claim(forged, honest)
    assert against(forged, source).seen == [("missing-sample", "a/017")]


@FORMATS
def test_shards_gained_a_sample(pairs: Pairs, pack: Any, against: Any, claim: Any, format_: str, words: dict[str, Any]) -> None:
    source = pairs()
    honest = pack(source, format_, "honest", **words)
    forged = pack(pairs(name="more", s0175_json=b"{}", s0175_txt=b""), format_, "forged", **words)
    claim(forged, honest)
    assert against(forged, source).seen == [("foreign-sample", "a/0175")]


@FORMATS
def test_shards_hold_another_value(pairs: Pairs, pack: Any, against: Any, claim: Any, format_: str, words: dict[str, Any]) -> None:
    source = pairs()
    honest = pack(source, format_, "honest", **words)
    forged = pack(pairs(name="other", s017_txt=b"t" * (17 * 37 % 400 - 1) + b"T"), format_, "forged", **words)
    claim(forged, honest)
    seen = against(forged, source)
    assert seen.seen == [("changed-sample", "a/017")]
    assert seen.detail("changed-sample").startswith("field 'txt': expected 'tttt")
    assert seen.detail("changed-sample").endswith("got other bytes from byte 228 on")


@FORMATS
def test_shards_hold_a_sample_under_another_key(
    pairs: Pairs, pack: Any, against: Any, claim: Any, format_: str, words: dict[str, Any]
) -> None:
    source = pairs()
    honest = pack(source, format_, "honest", **words)
    value = {"s017_json": None, "s017_txt": None, "s0170_json": b'{"i":17}', "s0170_txt": b"t" * (17 * 37 % 400)}
    claim(forged := pack(pairs(name="renamed", **value), format_, "forged", **words), honest)
    assert against(forged, source).seen == [("foreign-sample", "a/0170"), ("missing-sample", "a/017")]


def test_two_samples_that_changed_places(pairs: Pairs, pack: Any, against: Any, claim: Any) -> None:
    source = pairs()
    honest = pack(source, "wds", "honest", shard_samples=7)
    exchanged = pack(pairs(name="exchanged", s003_json=b'{"i":4}', s004_json=b'{"i":3}'), "wds", "forged", shard_samples=7)
    claim(exchanged, honest)
    assert against(exchanged, source).seen == [("changed-sample", "a/003"), ("changed-sample", "a/004")]


@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_same_samples_in_another_order(pairs: Pairs, pack: Any, against: Any, claim: Any, format_: str) -> None:
    source = pairs()
    honest = pack(source, format_, "honest", shard_samples=7, shuffle=True, seed=1)
    claim(forged := pack(source, format_, "forged", shard_samples=7, shuffle=True, seed=2), honest)
    assert against(forged, source).seen == [("changed-order", None)]


@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_whole_shards_in_another_order(pairs: Pairs, pack: Any, against: Any, claim: Any, format_: str) -> None:
    """Ten files a shard: those of folder b come before those of folder a in the forged dataset."""
    source = pairs(20)
    honest = pack(source, format_, "honest", shard_samples=10)
    names = {f"s{i:03d}_{field}": (source / f"a/{(i + 10) % 20:03d}.{field}").read_bytes() for i in range(20) for field in ("json", "txt")}
    forged = pack(pairs(20, "turned", **names), format_, "forged", shard_samples=10)
    claim(forged, honest)
    seen = against(forged, source)
    assert {kind for kind, _ in seen.seen} == {"changed-sample"} and len(seen.seen) == 20


@pytest.mark.parametrize(("format_", "key"), [("wds", "id"), ("mds", "id"), ("mds", None)])
def test_records(many_records: Any, records: Any, pack: Any, against: Any, claim: Any, format_: str, key: str | None) -> None:
    """One line lost, one changed, one added, all in a file of the same name and key order."""
    options = {"source_options": {"key": "id"} if key else {}, "shard_samples": 20}
    source = records(many_records(100))
    honest = pack(source, format_, "honest", **options)
    changed = many_records(100)
    changed[50]["text"] = "zwei!" if not changed[50]["text"] else changed[50]["text"].replace("Täxt", "Text")
    forged = pack(records(changed, "changed/records.jsonl"), format_, "forged", **options)
    claim(forged, honest)
    seen = against(forged, source)
    if key:
        assert seen.seen == [("changed-sample", "r0050")]
        assert ("'json'" if format_ == "wds" else "'text'") in seen.detail("changed-sample")
    else:
        # Keys are byte offsets here, so every line after a shorter one has another.
        assert {kind for kind, _ in seen.seen} == {"changed-sample", "foreign-sample", "missing-sample"}
        assert sum(kind == "missing-sample" for kind, _ in seen.seen) == 49


def test_record_twice_in_the_source(records: Any, many_records: Any, pack: Any, against: Any) -> None:
    path = records(many_records(30))
    folder = pack(path, "mds", source_options={"key": "id"})
    with path.open("a") as file:
        file.write(json.dumps(many_records(30)[4]) + "\n")
    seen = against(folder, path)
    assert seen.seen == [("changed-source", None), ("missing-sample", "r0004")]
    assert "expected the sample made of records.jsonl, line" in seen.detail("missing-sample")
    assert "2 times, as the source has it, got it once" in seen.detail("missing-sample")


def test_sample_twice_in_the_shards(
    records: Any, many_records: Any, pack: Any, against: Any, members_of: Any, tar_of: Any, forge: Any
) -> None:
    path = records(many_records(30))
    honest = pack(path, "wds", source_options={"key": "id"}, shard_samples=10)
    name = "train-000001.tar"
    members = members_of(honest / name)
    forge(honest, name, tar_of([*members, members[0]]))
    seen = against(honest, path)
    assert ("foreign-sample", "r0010") in seen.seen
    assert {kind for kind, key in seen.seen if key is not None} == {"duplicate-key", "foreign-sample"}
    assert seen.detail("foreign-sample") == "expected the sample once, as the source has it, got it 2 times"


def test_sample_of_one_shard_again_in_another(
    records: Any, many_records: Any, pack: Any, against: Any, members_of: Any, tar_of: Any, forge: Any
) -> None:
    """The shard it belongs to is sound, and still it must not be said that the source does not have it."""
    path = records(many_records(30))
    folder = pack(path, "wds", source_options={"key": "id"}, shard_samples=10)
    first, second = members_of(folder / "train-000000.tar"), members_of(folder / "train-000001.tar")
    forge(folder, "train-000001.tar", tar_of([*second, first[3]]))
    seen = against(folder, path)
    assert [key for kind, key in seen.seen if kind == "foreign-sample"] == ["r0003"]
    assert seen.detail("foreign-sample") == "expected the sample once, as the source has it, got it 2 times"


@pytest.mark.parametrize(("num_source", "num_stored", "kind"), [(40, 30, "missing-sample"), (30, 40, "foreign-sample")])
def test_shards_of_equal_bytes_count_each(
    records: Any, pack: Any, against: Any, claim: Any, num_source: int, num_stored: int, kind: str
) -> None:
    options = {"format_options": {"key_column": "none"}, "shard_samples": 10}
    source = records([{"text": "same"}] * num_source)
    honest = pack(source, "mds", "honest", **options)
    claim(forged := pack(records([{"text": "same"}] * num_stored, "changed/records.jsonl"), "mds", "forged", **options), honest)
    seen = against(forged, source)
    assert {found for found, _ in seen.seen} == {kind}
    listed = sum("not listed" not in finding.detail for finding in seen.verdict.findings)
    rest = [int(finding.detail.split()[6]) for finding in seen.verdict.findings if "not listed" in finding.detail]
    assert listed + sum(rest) == 10


def test_datasets_without_keys_are_told_by_content(many_records: Any, records: Any, pack: Any, against: Any, claim: Any) -> None:
    options = {"format_options": {"key_column": "none"}, "shard_samples": 10}
    source = records(many_records(40))
    honest = pack(source, "mds", "honest", **options)
    changed = many_records(40)
    changed[17]["count"] = 99
    claim(forged := pack(records(changed, "changed/records.jsonl"), "mds", "forged", **options), honest)
    seen = against(forged, source)
    assert [kind for kind, _ in seen.seen] == ["foreign-sample", "missing-sample"]
    assert dict(seen.seen)["foreign-sample"] == "00001/00000007"
    assert "line 18" in seen.detail("missing-sample")


def test_the_ledger_must_close(records: Any, pack: Any, against: Any, edit_manifest: Any) -> None:
    path = records([{"id": i} for i in range(1010)])
    with path.open("a") as file:
        file.write("not json\n")
    folder = pack(path, "mds", max_bad="1")

    def forget(content: dict[str, Any]) -> None:
        content["ledger"].update(read=1010, rejected=0, rejects={})

    edit_manifest(folder, forget)
    seen = against(folder, path)
    assert ("ledger-open", None) in seen.seen
    details = [finding.detail for finding in seen.verdict.findings if finding.kind == "ledger-open"]
    assert details == ["expected 0 rejected as invalid-json, as the manifest says, got 1 from the source"]


def test_a_record_became_bad(records: Any, pack: Any, against: Any) -> None:
    path = records([{"id": f"k{i}", "n": i % 10} for i in range(1200)])
    folder = pack(path, "mds", source_options={"key": "id"})
    lines = path.read_text().splitlines()
    lines[1100] = lines[1100].replace('"n": 0', '"n":"0"'[:6])
    path.write_text("\n".join(lines) + "\n")
    seen = against(folder, path)
    assert ("foreign-sample", "k1100") in seen.seen and ("ledger-open", None) in seen.seen


@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_counts_are_exact_where_the_list_is_short(pairs: Pairs, pack: Any, against: Any, claim: Any, format_: str) -> None:
    source = pairs()
    honest = pack(source, format_, "honest", shard_samples=7)
    changes = {f"s{i:03d}_json": b'{"j":%d}' % i for i in range(20)} | {f"s9{i:02d}_{f}": b"{}" for i in range(9) for f in ("json", "txt")}
    gone = {f"s{i:03d}_{f}": None for i in range(30, 36) for f in ("json", "txt")}
    claim(forged := pack(pairs(name="other", **changes, **gone), format_, "forged", shard_samples=7), honest)
    seen = against(forged, source, limit=3)
    for kind, total in (("changed-sample", 20), ("foreign-sample", 9), ("missing-sample", 6)):
        found = [finding for finding in seen.verdict.findings if finding.kind == kind]
        assert sum(finding.key is not None for finding in found) == 3
        (rest,) = [finding for finding in found if finding.key is None]
        assert rest.detail == f"expected none of this kind, got {total - 3} more, not listed"


def test_another_source_altogether(pairs: Pairs, tree: Any, pack: Any, against: Any) -> None:
    folder = pack(pairs(3), "wds")
    other = tree({"b/x.json": b"{}", "b/x.txt": b""}, "other")
    seen = against(folder, other)
    assert seen.seen == [
        ("changed-source", None),
        ("foreign-sample", "a/000"),
        ("foreign-sample", "a/001"),
        ("foreign-sample", "a/002"),
        ("missing-sample", "b/x"),
    ]


def test_without_the_kept_plan_the_change_is_found_all_the_same(pairs: Pairs, pack: Any, against: Any) -> None:
    source = pairs(3)
    folder = pack(source, "wds")
    (folder / ".shardtools/plan").unlink()
    assert against(folder, source).seen == []
    (source / "a/000.txt").write_bytes(b"longer")
    seen = against(folder, source)
    assert seen.seen == [("changed-sample", "a/000"), ("changed-source", None)]
    assert ".shardtools/plan" in seen.detail("changed-source")


def test_a_key_that_two_files_have_by_now(pairs: Pairs, tmp_path: Path, pack: Any, against: Any) -> None:
    source = pairs(3)
    folder = pack(source, "wds")
    other = tmp_path / "second/a"
    other.mkdir(parents=True)
    (other / "000.txt").write_bytes(b"x")
    seen = against(folder, source, tmp_path / "second")
    assert [kind for kind, _ in seen.seen] == ["changed-source"]
    assert "cannot be packed" in seen.detail("changed-source")
    assert seen.not_proved.startswith("whether the samples of the source")


def test_sources_in_another_order(pairs: Pairs, tmp_path: Path, tree: Any, against: Any) -> None:
    first, second = pairs(3), tree({"b/x.json": b"{}", "b/x.txt": b"x"}, "second")
    build([str(first), str(second)], str(tmp_path / "out"), order_of([], OrderWords("wds", source="files")))
    assert against(tmp_path / "out", first, second).seen == []
    seen = against(tmp_path / "out", second, first)
    assert seen.seen == [("changed-source", None)]
    assert "in another order" in seen.detail("changed-source")


def test_a_recipe_that_cannot_be_replayed_is_wrong_use(pairs: Pairs, pack: Any, against: Any, edit_manifest: Any) -> None:
    folder = pack(pairs(3), "wds")
    edit_manifest(folder, lambda content: content["recipe"].update(source={"name": "merge"}))
    with pytest.raises(UsageError, match="got one that merge made of shards that were there; verify each of its parts"):
        against(folder, folder.parent / "src")
    edit_manifest(folder, lambda content: content["recipe"].pop("source"))
    with pytest.raises(UsageError, match="whose recipe can be run again"):
        against(folder, folder.parent / "src")


def test_sources_of_another_kind_are_wrong_use(
    pairs: Pairs, records: Any, many_records: Any, pack: Any, against: Any, tmp_path: Path
) -> None:
    files, lines = pairs(3), records(many_records(3))
    of_files, of_lines = pack(files, "wds", "of-files"), pack(lines, "mds", "of-lines")
    with pytest.raises(UsageError, match="expected a source of the kind 'files'"):
        against(of_files, lines.parent)
    with pytest.raises(UsageError, match=r"expected \.jsonl or \.ndjson files"):
        against(of_lines, files)
    with pytest.raises(UsageError, match="does not exist"):
        against(of_files, tmp_path / "nowhere")


def test_samples_that_cannot_be_read_are_not_said_to_be_missing(pairs: Pairs, pack: Any, against: Any) -> None:
    source = pairs()
    folder = pack(source, "mds", shard_samples=10)
    break_shard(folder / "shard.00002.mds")
    seen = against(folder, source)
    assert not any(kind in OF_SAMPLES for kind, _ in seen.seen)
    assert seen.detail("could-not-look").endswith(f": without the 10 samples of shard.00002.mds in {folder}")
    assert f"the 10 samples of shard.00002.mds in {folder}, which cannot be read" in seen.not_proved
    assert seen.proved == ""


def test_more_is_missing_than_cannot_be_read(pairs: Pairs, pack: Any, against: Any, claim: Any) -> None:
    """How many is told; which, nobody can know. What is changed or foreign is named all the same."""
    source = pairs()
    honest = pack(source, "mds", "honest", shard_samples=10)
    folder = pack(
        pairs(40, "edited", s001_json=None, s001_txt=None, s002_txt=b"other", s900_json=b"{}", s900_txt=b"x"), "mds", shard_samples=10
    )
    claim(folder, honest)
    break_shard(folder / "shard.00002.mds")
    seen = against(folder, source)
    assert {pair for pair in seen.seen if pair[0] in OF_SAMPLES} == {
        ("missing-sample", None),
        ("changed-sample", "a/002"),
        ("foreign-sample", "a/900"),
    }
    assert seen.detail("missing-sample") == (
        f"expected at most the 10 samples of shard.00002.mds in {folder} without a match, since they cannot be read, got 11; "
        "which is which is unknown"
    )


def test_one_damaged_row_hides_no_other(pairs: Pairs, pack: Any, against: Any) -> None:
    """Rows before the damage are not counted again when reading goes on after it."""
    source = pairs()
    folder = pack(source, "mds", shard_samples=10)
    path = folder / "shard.00001.mds"
    data = bytearray(path.read_bytes())
    row = int.from_bytes(data[4 + 4 * 4 : 8 + 4 * 4], "little")
    data[row : row + 4] = (1 << 20).to_bytes(4, "little")
    path.write_bytes(data)
    seen = against(folder, source)
    assert not any(kind in OF_SAMPLES for kind, _ in seen.seen)
    assert seen.detail("could-not-look").endswith(f": without the 1 sample of shard.00001.mds in {folder}")


OF_SAMPLES = ("missing-sample", "changed-sample", "foreign-sample", "ledger-open")


def break_shard(path: Path) -> None:
    """So that no sample of it can be read."""
    data = bytearray(path.read_bytes())
    data[0] = 200
    path.write_bytes(data)


def test_the_ledger_counts_what_is_there(pairs: Pairs, pack: Any, against: Any, edit_manifest: Any) -> None:
    folder = pack(pairs(), "wds")
    edit_manifest(folder, lambda content: content["ledger"].update(read=41, written=41))
    seen = against(folder, folder.parent / "src")
    assert seen.detail("ledger-open") == "expected 41 samples, as the manifest says was written, got 40 in the shards"
