"""Two datasets taken for equal that are not, or for different that mean the same; told by readers that owe nothing to this package."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardtools.errors import UsageError

Pairs = Callable[..., Path]
JSONL = {"source_options": {"key": "id"}, "shard_samples": 13}


@pytest.fixture
def both(many_records: Any, records: Any, pack: Any) -> Callable[..., Path]:
    """Records in either format; ``change`` edits them before."""

    def make(format_: str, name: str, change: Callable[[list[Any]], object] = lambda _: None, **words: Any) -> Path:
        values = many_records(60)
        change(values)
        folder: Path = pack(records(values, f"in-{name}/records.jsonl"), format_, name, **{**JSONL, **words})
        return folder

    return make


def test_both_formats_of_one_source_are_equal(both: Any, against: Any) -> None:
    wds, mds = both("wds", "w"), both("mds", "m")
    for folder, source in ((wds, mds), (mds, wds), (wds, wds), (mds, mds)):
        seen = against(folder, source)
        assert seen.seen == []
        assert "The 60 samples of" in seen.proved and "each under its key and with equal values in every field" in seen.proved


@pytest.mark.parametrize(
    "words",
    [
        {"columns": "count=int16,score=float32"},
        {"columns": "mixed=json,score=json,count=json,text=json,good=json"},
        {"format_options": {"compression": "zstd", "hashes": "sha1"}},
        {"format_options": {"key_column": "id"}},
        {"source_options": {"key": "id", "keep_path": ""}},
    ],
    ids=["narrow", "json", "zstd", "key-column", "path"],
)
def test_other_columns_of_the_same_meaning(both: Any, against: Any, words: dict[str, Any]) -> None:
    source_options = {"source_options": words["source_options"]} if "source_options" in words else {}
    other = both("mds", "other", **words)
    assert against(other, both("wds", "w", **source_options)).seen == []
    if not source_options and "key_column" not in words.get("format_options", {}):
        assert against(both("mds", "m"), other).seen == []


def test_mapped_members(both: Any, against: Any) -> None:
    mapping = {"source_options": {"key": "id", "map": "txt=text,cls=count,meta=meta,note=note?,good=good,score=score"}}
    assert against(both("wds", "w", **mapping), both("mds", "m", **mapping)).seen == []


CHANGES: dict[str, tuple[Callable[[list[Any]], object], list[tuple[str, str]], str]] = {
    "text": (lambda r: r[7].update(text="ein Text "), [("changed-sample", "r0007")], "field 'text'"),
    "count": (lambda r: r[7].update(count=3), [("changed-sample", "r0007")], "field 'count': expected 3, got 2"),
    "score": (lambda r: r[7].update(score=0.876), [("changed-sample", "r0007")], "field 'score': expected 0.876, got 0.875"),
    "good": (lambda r: r[7].update(good=True), [("changed-sample", "r0007")], "field 'good'"),
    "inner": (lambda r: r[7]["meta"]["a"].update(i=8), [("changed-sample", "r0007")], "field 'meta'"),
    "null": (lambda r: r[7].update(note="was null"), [("changed-sample", "r0007")], "field 'note': expected 'was null', got"),
    "two": (lambda r: r[7].update(count=3, text=""), [("changed-sample", "r0007")], "field 'count': expected 3, got 2, field 'text'"),
    "gone": (lambda r: r.pop(7), [("foreign-sample", "r0007")], "expected only samples of the source"),
    "added": (lambda r: r.append({**r[7], "id": "x"}), [("missing-sample", "x")], "expected the sample in the dataset"),
    "key": (lambda r: r[7].update(id="x"), [("foreign-sample", "r0007"), ("missing-sample", "x")], ""),
    "exchanged": (
        lambda r: (r[7].update(id="r0008"), r[8].update(id="r0007")),
        [("changed-sample", "r0007"), ("changed-sample", "r0008")],
        "",
    ),
}


@pytest.mark.parametrize("formats", [("wds", "wds"), ("mds", "mds"), ("wds", "mds"), ("mds", "wds")], ids="-".join)
@pytest.mark.parametrize("name", CHANGES)
def test_each_difference_is_found(both: Any, against: Any, name: str, formats: tuple[str, str]) -> None:
    change, expected, detail = CHANGES[name]
    seen = against(both(formats[0], "out"), both(formats[1], "other", change))
    assert seen.seen == expected
    if formats != ("wds", "wds") and detail:
        assert detail in seen.verdict.findings[0].detail
    assert seen.proved == ""


def test_random_differences_by_independent_readers(
    pairs: Pairs,
    pack: Any,
    against: Any,
    read_tars: Callable[[Path], dict[str, bytes]],
    read_mds_raw: Callable[[Path], list[dict[str, bytes]]],
) -> None:
    """Random edits to files; which samples differ is told by tarfile and struct alone."""
    for seed in range(6):
        numbers = random.Random(seed)
        changes: dict[str, bytes | None] = {}
        for i in numbers.sample(range(30), 8):
            kind = numbers.choice(["change", "remove", "add"])
            stem = f"s{i:03d}" if kind != "add" else f"s9{i:03d}"
            changes |= {f"{stem}_json": None if kind == "remove" else b'{"i":-1}', f"{stem}_txt": None if kind == "remove" else b"other"}
        wds = pack(pairs(30, f"src{seed}"), "wds", f"w{seed}", shard_samples=4)
        mds = pack(pairs(30, f"edited{seed}", **changes), "mds", f"m{seed}", shard_samples=9, shuffle=True, seed=seed)
        ours: dict[str, dict[str, bytes]] = {}
        for name, data in read_tars(wds).items():
            key, _, field = name.partition(".")
            ours.setdefault(key, {})[field] = data
        theirs = {row.pop("key").decode(): row for row in read_mds_raw(mds)}
        expected = [("changed-sample", key) for key in ours.keys() & theirs.keys() if ours[key] != theirs[key]]
        expected += [("foreign-sample", key) for key in ours.keys() - theirs.keys()]
        expected += [("missing-sample", key) for key in theirs.keys() - ours.keys()]
        assert expected, f"seed {seed}"
        assert against(wds, mds).seen == sorted(expected), f"seed {seed}"


@pytest.mark.train
def test_equal_by_the_reference_readers(both: Any, against: Any, read_webdataset: Any, read_streaming: Any) -> None:
    """What verify calls equal, and the one sample it calls changed, are so to webdataset and StreamingDataset."""
    wds, mds = both("wds", "w"), both("mds", "m", lambda r: r[33].update(text="ganz anders"))
    ours = {sample["__key__"]: json.loads(sample["json"]) for sample in read_webdataset(wds)}
    theirs = {sample["key"]: sample for sample in read_streaming(mds)}
    differing = {key for key in ours for name, value in ours[key].items() if theirs[key][name] != value}
    assert ours.keys() == theirs.keys() and differing == {"r0033"}
    assert against(wds, mds).seen == [("changed-sample", "r0033")]


@pytest.mark.train
def test_shards_of_the_reference_writer(
    tmp_path: Path, streaming: Any, many_records: Any, both: Any, against: Any, webdataset: Any
) -> None:
    """Foreign MDS with other encodings, and foreign WDS with headers of its own, against ours."""
    columns = {"key": "str", "text": "str", "count": "int32", "score": "float64", "good": "uint8", "meta": "json", "mixed": "float64"}
    with streaming.MDSWriter(out=str(tmp_path / "foreign"), columns=columns) as writer:
        for record in many_records(60):
            values = {name: record[name] for name in columns if name != "key"}
            writer.write({**values, "key": record["id"], "good": int(record["good"]), "mixed": float(record["mixed"])})
    (tmp_path / "tars").mkdir()
    with webdataset.TarWriter(str(tmp_path / "tars/x.tar")) as tar:
        for record in reversed(many_records(60)):
            tar.write({"__key__": record["id"], "json": record})
    mapping = "text=text,count=count,score=score,good=good,meta=meta,mixed=mixed"
    ours = both("mds", "ours", source_options={"key": "id", "map": mapping})
    assert against(ours, tmp_path / "foreign").seen == []
    assert against(both("wds", "w"), tmp_path / "tars").seen != []  # webdataset's json.dumps writes other bytes
    assert against(both("mds", "m"), tmp_path / "tars").seen == []


def test_images_of_two_kinds_share_a_column(image_pairs: Callable[..., Path], pack: Any, against: Any) -> None:
    source = image_pairs(12, ("jpg", "png"))
    options = {"source_options": {"label_from": "dir", "fields": "image=jpg|png,json"}, "shuffle": True, "seed": 1}
    wds, mds = pack(source, "wds", "w", **options), pack(source, "mds", "m", **options)
    assert against(wds, mds).seen == [] and against(mds, wds).seen == []
    image = source / "dogs/0001.png"
    image.write_bytes(image.read_bytes() + b"x")
    seen = against(wds, pack(source, "mds", "m2", **options))
    assert seen.seen == [("changed-sample", "dogs/0001")]
    assert "field 'image': expected 1," in seen.detail("changed-sample")


def test_optional_files_are_empty_columns(tree: Any, pack: Any, against: Any) -> None:
    source = tree({f"{i:02d}.{field}": b"{}" for i in range(10) for field in ("json", "txt") if field == "txt" or i % 2})
    options = {"source_options": {"fields": "txt,json?"}}
    seen = against(pack(source, "wds", "w", **options), pack(source, "mds", "m", **options))
    assert seen.seen == [] and "empty or absent" in seen.not_proved


def test_without_keys_samples_are_told_by_content(both: Any, against: Any) -> None:
    keyless = {"format_options": {"key_column": "none"}}
    wds, mds = both("wds", "w"), both("mds", "m", **keyless)
    seen = against(mds, both("mds", "again", **keyless))
    assert seen.seen == [] and "stores no keys" in seen.not_proved
    changed = both("mds", "changed", lambda r: r[20].update(count=99), **keyless)
    seen = against(changed, mds)
    assert seen.seen == [("foreign-sample", "00001/00000007"), ("missing-sample", "00001/00000007")]
    assert against(wds, wds).seen == []


def test_foreign_datasets_compare_with_datasets_only(both: Any, against: Any, pairs: Pairs) -> None:
    wds = both("wds", "w")
    foreign = wds.parent / "foreign"
    foreign.mkdir()
    for path in wds.glob("*.tar"):
        shutil.copy(path, foreign)
    assert against(foreign, wds).seen == []
    assert against(wds, foreign).seen == []
    assert against(wds, f"{foreign}/train-*.tar").seen == []
    with pytest.raises(UsageError, match="expected one other dataset"):
        against(foreign, pairs(3), wds)


def test_tars_are_files_where_the_recipe_packed_tars(tree: Any, pack: Any, against: Any, tar_of: Any) -> None:
    source = tree({f"{i}.tar": tar_of([(f"{i}.txt", b"x")]) for i in range(4)})
    folder = pack(source, "wds", source="files", source_options={"group": "file"})
    seen = against(folder, source)
    assert seen.seen == [] and "The recipe was run again" in seen.proved


def test_a_folder_with_a_tar_beside_its_files_is_input(pairs: Pairs, pack: Any, against: Any, tar_of: Any) -> None:
    source = pairs(5)
    (source / "backup.tar").write_bytes(tar_of([("x.txt", b"x")]))
    folder = pack(source, "wds", source="files", source_options={"fields": "json,txt"})
    seen = against(folder, source)
    assert seen.seen == [] and "The recipe was run again" in seen.proved


def test_a_damaged_source_is_said_to_be(both: Any, against: Any) -> None:
    ours, other = both("mds", "ours"), both("mds", "other")
    shard = other / "shard.00001.mds"
    shard.write_bytes(shard.read_bytes()[:-9])
    seen = against(ours, other)
    assert "shard.00001.mds" in seen.detail("could-not-look")
    assert seen.seen == [("could-not-look", None)]
    assert f"the 13 samples of shard.00001.mds in {other}, which cannot be read" in seen.not_proved
    assert seen.proved == ""
    seen = against(other, ours)
    assert not any(kind in ("missing-sample", "foreign-sample", "changed-sample") for kind, _ in seen.seen)
    assert seen.detail("could-not-look").endswith(f": without the 13 samples of shard.00001.mds in {other}")


def test_foreign_samples_are_counted_beyond_what_could_not_be_read(both: Any, against: Any) -> None:
    ours, other = both("mds", "ours"), both("mds", "other", lambda r: r.pop(2))
    shard = other / "shard.00001.mds"
    shard.write_bytes(shard.read_bytes()[:-9])
    seen = against(ours, other)
    assert seen.seen == [("could-not-look", None), ("foreign-sample", None)]
    assert seen.detail("foreign-sample").endswith("got 14; which is which is unknown")


def test_tars_of_unknown_count_explain_whatever_is_unmatched(both: Any, against: Any) -> None:
    """Nothing says how many samples a tar without a manifest should have."""
    ours, other = both("wds", "ours"), both("wds", "other")
    foreign = other.parent / "foreign"
    foreign.mkdir()
    for path in other.glob("*.tar"):
        shutil.copy(path, foreign)
    shard = foreign / "train-000001.tar"
    shard.write_bytes(shard.read_bytes()[:1500])
    seen = against(ours, foreign)
    assert seen.seen == [("could-not-look", None)]
    assert f"the samples of train-000001.tar in {foreign}, which cannot be read" in seen.not_proved


@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_a_dataset_among_several_sources_is_refused(both: Any, against: Any, format_: str) -> None:
    """It would be passed over in silence, since the recipe packs no shards."""
    ours, other = both("wds", "ours"), both(format_, "other")
    foreign = ours.parent / "foreign"
    foreign.mkdir()
    for path in [*other.glob("*.tar"), *other.glob("*.mds")]:
        shutil.copy(path, foreign)
    source = ours.parent / "in-ours/records.jsonl"
    assert against(ours, source).seen == []
    for word in (other, foreign, next(iter(foreign.iterdir()))):
        with pytest.raises(UsageError, match="compare with one dataset at a time") as refused:
            against(ours, source, word)
        assert f"got the dataset {word} among 2 sources" in str(refused.value)
    with pytest.raises(UsageError, match="compare with one dataset at a time"):
        against(ours, other, other)


def test_worker_processes_see_the_same(both: Any, against: Any) -> None:
    seen = against(both("wds", "w"), both("mds", "m", lambda r: r.pop(5)), workers=2)
    assert seen.seen == [("foreign-sample", "r0005")]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [({"a": b"x"}, {"b": b"x"}), ({"a": b"xy", "b": b"z"}, {"a": b"x", "b": b"yz"}), ({"a": b"x", "b": b""}, {"a": b"x"})],
    ids=["moved", "cut-elsewhere", "gone"],
)
def test_equal_bytes_in_other_fields(tree: Any, pack: Any, against: Any, ours: dict[str, bytes], theirs: dict[str, bytes]) -> None:
    folders = []
    for name, fields in (("ours", ours), ("theirs", theirs)):
        source = tree({"same.a": b"1", "same.b": b"2", **{f"k.{field}": data for field, data in fields.items()}}, f"src-{name}")
        folders.append(pack(source, "wds", name, source_options={"fields": "a?,b?"}))
    assert against(*folders).seen == [("changed-sample", "k")]


def test_splits_of_another_dataset_are_not_compared_and_said_not_to_be(records: Any, pack: Any, against: Any, many_records: Any) -> None:
    source = records(many_records(20), "in/records.jsonl")
    ours, theirs = (
        pack(source, "mds", share, select_options={"split": f"train={share},val={1 - float(share):.1f}"}) for share in ("0.5", "0.7")
    )
    seen = against(ours, theirs)
    assert seen.seen == [] and "whether each sample is in the same split of both" in seen.not_proved
