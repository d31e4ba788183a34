"""False alarms against the very source a dataset was packed from, for every kind of recipe; with them nobody would look again."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardtools import plugins
from shardtools.build.order import OrderWords, order_of
from shardtools.build.run import build
from shardtools.datasets import survey_dataset
from shardtools.errors import UsageError
from shardtools.verify.against._recipe import restored_recipe

IN_ORDER = "byte for byte, in the order of the plan"


@pytest.mark.parametrize("format_", ["wds", "mds"])
@pytest.mark.parametrize(
    "words",
    [
        {},
        {"shard_size": "20480"},
        {"shard_samples": 7},
        {"shuffle": True, "seed": 5, "shard_size": "20480"},
        {"source_options": {"keep_path": "", "label_from": "dir"}, "shard_samples": 9},
        {"source_options": {"fields": "text=txt,json?"}},
        {"source_options": {"group": "file"}, "shard_samples": 11},
    ],
    ids=["plain", "by-size", "by-count", "shuffled", "labels", "fields", "each-file"],
)
def test_files(pairs: Callable[..., Path], pack: Any, against: Any, format_: str, words: dict[str, Any]) -> None:
    source = pairs()
    seen = against(pack(source, format_, **words), source)
    assert seen.seen == []
    assert IN_ORDER in seen.proved and seen.not_proved == ""


@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_images_of_two_kinds(image_pairs: Callable[..., Path], pack: Any, against: Any, format_: str) -> None:
    source = image_pairs(20, ("jpg", "png"))
    options = {"source_options": {"label_from": "dir"}, "shuffle": True, "seed": 1, "shard_samples": 6}
    seen = against(pack(source, format_, **options), source)
    assert seen.seen == [] and IN_ORDER in seen.proved


@pytest.mark.parametrize(
    ("format_", "words"),
    [
        ("wds", {"shard_size": "20480"}),
        ("wds", {"source_options": {"map": "txt=text,cls=count,meta.json=meta,note=note?"}}),
        ("wds", {"source_options": {"key": "id", "keep_path": ""}, "shard_samples": 10}),
        ("mds", {}),
        ("mds", {"shard_samples": 10, "source_options": {"key": "id"}}),
        ("mds", {"columns": "count=int16,score=float32,meta=json", "source_options": {"key": "id"}}),
        ("mds", {"format_options": {"compression": "zstd:7", "hashes": "sha1,xxh64"}, "shard_size": "8192"}),
        ("mds", {"format_options": {"key_column": "none"}, "shard_samples": 30}),
        ("mds", {"format_options": {"key_column": "id"}, "source_options": {"key": "id"}}),
    ],
)
def test_records(many_records: Any, records: Any, pack: Any, against: Any, format_: str, words: dict[str, Any]) -> None:
    source = records(many_records(200))
    seen = against(pack(source, format_, **words), source)
    assert seen.seen == [] and IN_ORDER in seen.proved
    assert ("stores no keys" in seen.not_proved) == (words.get("format_options", {}).get("key_column") == "none")


@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_bad_samples_are_counted_again(records: Any, pack: Any, against: Any, format_: str) -> None:
    path = records([{"id": i, "n": i} for i in range(1100)])
    with path.open("a") as file:
        file.write('not json\n{"id": 3, "n": "text"}\n{"id": 4\n\n[1]\n')
    folder = pack(path, format_, max_bad="10")
    seen = against(folder, path)
    assert seen.seen == []
    rejected = 4 if format_ == "mds" else 3
    written = 1100 if format_ == "mds" else 1101
    assert f"read 1,104 = written {written:,} + rejected {rejected} + filtered 0" in seen.proved
    assert IN_ORDER in seen.proved


def test_the_place_of_the_source_does_not_matter(pairs: Callable[..., Path], tmp_path: Path, pack: Any, against: Any) -> None:
    source = pairs()
    folder = pack(source, "wds")
    moved = tmp_path / "elsewhere"
    shutil.move(source, moved)
    assert against(folder, moved).seen == []


def test_several_words_as_pack_takes_them(many_records: Any, records: Any, tmp_path: Path, against: Any) -> None:
    first, second = records(many_records(20), "in/a.jsonl"), records(many_records(30), "other/b.jsonl")
    build([str(first), str(second)], str(tmp_path / "out"), order_of([], OrderWords("mds", source="jsonl")))
    assert against(tmp_path / "out", first, second).seen == []
    fewer = against(tmp_path / "out", first)
    assert {kind for kind, _ in fewer.seen} == {"changed-source", "foreign-sample"}
    assert len(fewer.seen) == 1 + 30


def test_other_times_are_no_change(pairs: Callable[..., Path], pack: Any, against: Any) -> None:
    source = pairs()
    folder = pack(source, "wds")
    for path in source.rglob("*.txt"):
        path.touch()
    assert against(folder, source).seen == []


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_worker_processes_see_the_same(pairs: Callable[..., Path], pack: Any, against: Any, format_: str) -> None:
    source = pairs(400)
    folder = pack(source, format_, shard_samples=30)
    assert IN_ORDER in against(folder, source, workers=2).proved
    (source / "a/007.json").write_bytes(b'{"i":8}')
    (source / "a/009.json").write_bytes(b'{"i":8}')
    assert against(folder, source, workers=2).seen == [("changed-sample", "a/007"), ("changed-sample", "a/009")]


def test_recipes_come_back_from_json_as_they_were(
    pairs: Callable[..., Path], many_records: Any, records: Any, pack: Any, image_pairs: Callable[..., Path]
) -> None:
    """What is restored must say of itself what the manifest says, to the last option."""
    lines = records(many_records(50))
    folders = [
        pack(pairs(), "wds", "a", source_options={"fields": "text=txt,json?", "keep_path": ""}),
        pack(image_pairs(6, ("jpg", "png")), "mds", "b", source_options={"label_from": "dir"}),
        pack(lines, "mds", "c", source_options={"key": "id", "map": "t=text,n=note?"}, format_options={"hashes": "xxh64"}),
        pack(lines, "wds", "d", shard_samples=5, sidecars="dali,wids"),
    ]
    for folder in folders:
        manifest = survey_dataset(str(folder)).manifest
        assert manifest is not None
        assert json.loads(json.dumps(restored_recipe(manifest).as_json())) == manifest.recipe
        assert plugins.name_of(restored_recipe(manifest).source) == manifest.recipe["source"]["name"]


def test_a_recipe_with_transforms_is_refused_before_every_sample_is_called_changed(pairs: Callable[..., Path], pack: Any) -> None:
    manifest = survey_dataset(str(pack(pairs(), "wds"))).manifest
    assert manifest is not None
    with pytest.raises(UsageError, match=r"expected --tokenizer FILE"):
        restored_recipe(replace(manifest, recipe={**manifest.recipe, "transforms": [{"name": "tokenize"}, {"name": "packing"}]}))


def test_columns_that_only_the_recipe_remembers(tree: Any, pack: Any, against: Any) -> None:
    """Planned anew from the names alone, an optional image could be no MDS column at all."""
    source = tree({f"{i}.{field}": b"\x89PNG\r\n\x1a\n" for i in range(6) for field in ("png", "txt2") if field == "txt2" or i % 2})
    folder = pack(source, "mds", columns="png=bytes", source_options={"fields": "txt2,png?"})
    seen = against(folder, source)
    assert seen.seen == [] and IN_ORDER in seen.proved
