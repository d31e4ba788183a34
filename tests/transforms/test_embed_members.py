"""``--embed``: what becomes of records that point at media; stops bytes that are not the file's, and members or columns that readers miss.

Shards are read with tarfile, struct and the reference readers.
"""

import json
import os
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from step_orders import pack, tar_samples

from shardtools import partitions as partitions_module
from shardtools.build import sight
from shardtools.engines.processes import Processes
from shardtools.engines.serial import Serial
from shardtools.errors import StorageError, UsageError
from shardtools.manifest import MANIFEST_NAME, REJECTS_NAME
from shardtools.verify import verify
from shardtools.verify.options import VerifyOptions

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def records(tree: Callable[..., Path]) -> Callable[..., Path]:
    """Write records as ``d.jsonl`` beside files."""

    def make(rows: Sequence[Mapping[str, Any]], files: Mapping[str, bytes], name: str = "src") -> Path:
        lines = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
        return tree({"d.jsonl": lines, **files}, name)

    return make


def media(count: int, ending: str = "jpg", seed: int = 3) -> dict[str, bytes]:
    numbers = random.Random(seed)
    magic = PNG if ending == "png" else JPEG
    return {f"img/{'ab'[i % 2]}/{i:03d}.{ending}": magic + numbers.randbytes(numbers.randint(10, 3000)) for i in range(count)}


def encodings(folder: Path) -> dict[str, str]:
    shard = json.loads((folder / "index.json").read_text())["shards"][0]
    return dict(zip(shard["column_names"], shard["column_encodings"], strict=True))


def test_a_file_is_a_member_by_its_own_extension_beside_the_record(records: Any, tmp_path: Path) -> None:
    files = {**media(5), **media(4, "png"), "img/x.tar.GZ": b"gz", "img/plain": b"no extension"}
    rows = [{"image": name, "n": i} for i, name in enumerate(files)]
    source = records(rows, files)
    result = pack(source / "d.jsonl", tmp_path / "out", embed="image")
    assert "media: image=bin|gz|jpg|png" in result.survey.notes
    lines = (source / "d.jsonl").read_bytes().splitlines()
    samples = list(tar_samples(tmp_path / "out").values())
    assert [list(sample) for sample in samples] == [
        sorted(["json", {"plain": "bin", "GZ": "gz"}.get(name.rpartition(".")[2], name.rpartition(".")[2])])
        if "." in name
        else ["bin", "json"]
        for name in files
    ]
    for sample, line, data in zip(samples, lines, files.values(), strict=True):
        assert sample.pop("json") == line
        assert list(sample.values()) == [data]


def test_several_fields_lists_and_nested_ones_are_told_apart(records: Any, tmp_path: Path) -> None:
    files = {**media(6), **media(6, "png")}
    jpgs, pngs = sorted(media(6)), sorted(media(6, "png"))
    rows = [{"Image": jpgs[i], "frames": pngs[: i % 3], "meta": {"mask": pngs[i]}, "deep": [{"a": 1}]} for i in range(6)]
    pack(records(rows, files) / "d.jsonl", tmp_path / "out", embed="Image, frames ,meta.mask")
    for row, sample in zip(rows, tar_samples(tmp_path / "out").values(), strict=True):
        expected = {"image.jpg": files[row["Image"]], "meta.mask.png": files[row["meta"]["mask"]]}
        expected |= {f"frames.{i}.png": files[name] for i, name in enumerate(row["frames"])}
        assert json.loads(sample.pop("json")) == row
        assert sample == expected


def test_columns_take_the_place_of_their_paths(records: Any, tmp_path: Path, read_mds_raw: Any) -> None:
    files = {**media(6), **media(6, "png")}
    jpgs, pngs = sorted(media(6)), sorted(media(6, "png"))
    rows = [{"image": jpgs[i], "frames": pngs[: i % 3], "pair": pngs[i % 3 : i % 3 + 2], "mixed": [jpgs, pngs][i % 2][i]} for i in range(6)]
    source = records(rows, files)
    pack(source / "d.jsonl", tmp_path / "out", "mds", embed="image,frames,pair,mixed")
    assert encodings(tmp_path / "out") == {
        "frames.0": "bytes",
        "frames.1": "bytes",
        "image": "jpeg",
        "key": "str",
        "mixed": "bytes",
        "pair.0": "png",
        "pair.1": "png",
    }
    for row, stored in zip(rows, read_mds_raw(tmp_path / "out"), strict=True):
        stored.pop("key")
        expected = {"image": files[row["image"]], "mixed": files[row["mixed"]]}
        expected |= {f"pair.{i}": files[name] for i, name in enumerate(row["pair"])}
        expected |= {f"frames.{i}": files[row["frames"][i]] if i < len(row["frames"]) else b"" for i in range(2)}
        assert stored == expected
    pack(source / "d.jsonl", tmp_path / "typed", "mds", embed="image", columns="image=bytes")
    assert encodings(tmp_path / "typed")["image"] == "bytes"
    assert [row["image"] for row in read_mds_raw(tmp_path / "typed")] == [files[row["image"]] for row in rows]


def test_what_may_be_missing_is_said_with_a_question_mark(records: Any, tmp_path: Path, read_mds_raw: Any) -> None:
    files = media(2)
    a, b = sorted(files)
    rows = [{"image": a}, {"image": None}, {}, {"image": b}]
    source = records(rows, files)
    result = pack(source / "d.jsonl", tmp_path / "strict", embed="image", max_bad="2")
    assert dict(result.manifest.ledger.rejects) == {"no-media": 2}
    pack(source / "d.jsonl", tmp_path / "out", embed="image?")
    assert [list(sample) for sample in tar_samples(tmp_path / "out").values()] == [["jpg", "json"], ["json"], ["json"], ["jpg", "json"]]
    pack(source / "d.jsonl", tmp_path / "mds", "mds", embed="image?")
    assert [row["image"] for row in read_mds_raw(tmp_path / "mds")] == [files[a], b"", b"", files[b]]
    for name in ("strict", "out", "mds"):
        assert not verify(str(tmp_path / name), VerifyOptions(against=(str(source / "d.jsonl"),))).findings


def test_what_the_first_records_did_not_show_is_typed(records: Any, tmp_path: Path) -> None:
    files = {**media(3), "img/late.webp": b"RIFF"}
    a, b, c = sorted(media(3))
    rows = [{"m": [a, b]}] * 1000 + [{"m": [a, b, c]}, {"m": [a]}, {"m": [a, "img/late.webp"]}]
    source = records(rows, files) / "d.jsonl"
    result = pack(source, tmp_path / "out", embed="m", max_bad="3")
    assert dict(result.manifest.ledger.rejects) == {"media-count": 2, "media-extension": 1}
    rejects = (tmp_path / "out" / REJECTS_NAME).read_text()
    assert "m:3 in --embed takes so many" in rejects
    assert "m? in --embed takes fewer" in rejects
    assert "m=jpg|webp in --embed takes it" in rejects
    pack(source, tmp_path / "all", embed="m:3=jpg|webp?")
    assert [sorted(sample) for sample in tar_samples(tmp_path / "all").values()][-3:] == [
        ["json", "m.0.jpg", "m.1.jpg", "m.2.jpg"],
        ["json", "m.0.jpg"],
        ["json", "m.0.jpg", "m.1.webp"],
    ]


def test_records_that_are_left_out_settle_what_no_other_does(records: Any, tmp_path: Path) -> None:
    """None of the first 1,000 is taken: what media are called must not depend on finding one that is."""
    files = media(2)
    a, b = sorted(files)
    source = records([{"image": a, "n": i} for i in range(1001)] + [{"image": b, "n": -1}], files)
    result = pack(source / "d.jsonl", tmp_path / "out", embed="image", where="n < 0")
    assert [sample["jpg"] for sample in tar_samples(tmp_path / "out").values()] == [files[b]]
    assert dict(result.manifest.ledger.filters) == {"where": 1001}


def test_each_input_is_the_root_of_its_own_paths(records: Any, tmp_path: Path) -> None:
    """The same relative names below two inputs: no sample may take the other's."""
    rows = [{"image": "img/a/000.jpg", "n": i} for i in range(2)]
    first, second = records(rows, media(1, seed=1), "one"), records(rows, media(1, seed=2), "two")
    os.rename(second / "d.jsonl", second / "e.jsonl")
    pack([first, second], tmp_path / "out", source="jsonl", embed="image", where="n = 0")
    found = {key: sample["jpg"] for key, sample in tar_samples(tmp_path / "out").items()}
    expected = [media(1, seed=seed)["img/a/000.jpg"] for seed in (1, 2)]
    assert found == {"d/000000000000": expected[0], "e/000000000000": expected[1]}


def test_the_folder_of_media_is_no_part_of_the_dataset(records: Any, tmp_path: Path, digests: Any) -> None:
    rows = [{"image": name.removeprefix("img/")} for name in media(5)]
    source = records([*rows, {"image": "no.jpg"}], media(5))
    os.rename(source / "img", tmp_path / "elsewhere")
    words = {"embed": "image", "max_bad": "1"}
    pack(source / "d.jsonl", tmp_path / "out", media_root=tmp_path / "elsewhere", **words)
    assert not verify(
        str(tmp_path / "out"), VerifyOptions(against=(str(source / "d.jsonl"),), media_root=str(tmp_path / "elsewhere"))
    ).findings
    os.rename(tmp_path / "elsewhere", tmp_path / "moved")
    pack(source / "d.jsonl", tmp_path / "again", media_root=f"{tmp_path}/moved/", **words)
    assert digests(tmp_path / "out") == digests(tmp_path / "again")
    for name in (MANIFEST_NAME, REJECTS_NAME):
        assert str(tmp_path) not in (tmp_path / "out" / name).read_text()
    for data in (tmp_path / "moved/a/000.jpg",):
        data.write_bytes(JPEG + b"other")
    verdict = verify(str(tmp_path / "out"), VerifyOptions(against=(str(source / "d.jsonl"),), media_root=str(tmp_path / "moved")))
    assert verdict.findings


def test_bytes_do_not_depend_on_workers(records: Any, tmp_path: Path, digests: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small records and large media: parts are cut by what they take in, so that all cores have some."""
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 16 << 10)
    files = media(120)
    source = records([{"image": name, "n": i} for i, name in enumerate(files)], files) / "d.jsonl"
    one = pack(source, tmp_path / "one", embed="image", where="n != 7", shard_size="40KiB")
    pack(source, tmp_path / "two", embed="image", where="n != 7", shard_size="40KiB", engine=Processes(2))
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert len(one.survey.partitions) > 5
    assert one.manifest.ledger.num_written == 119
    assert 0.5 < one.survey.expected_bytes / sum(shard.num_bytes for shard in one.manifest.shards) < 2


@dataclass(frozen=True)
class Elsewhere(Serial):
    """Stands for an engine with workers on other machines."""

    spans_machines: ClassVar[bool] = True


def test_a_machine_that_does_not_see_the_media_fails_in_one_sentence(
    records: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_sentence: Any
) -> None:
    """Else every record it works on would be a bad sample."""
    source, root = records([{"image": "a/000.jpg"}], media(1)), tmp_path / "src/img"
    real_look = sight._look

    def look(landmarks: Any) -> None:
        # By now the media are known here, and "there" they are not.
        if root.exists():
            os.rename(root, tmp_path / "unmounted")
        real_look(landmarks)

    monkeypatch.setattr(sight, "_look", look)
    with pytest.raises(StorageError, match="expected every machine that works for this run to see") as caught:
        pack(source / "d.jsonl", tmp_path / "out", embed="image", media_root=root, max_bad="100%", engine=Elsewhere())
    assert str(root) in one_sentence(caught.value)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ({"embed": "image,image"}, "every field once"),
        ({"embed": "image=jpg,,b"}, "--embed like"),
        ({"embed": "image:0"}, "--embed like"),
        ({"embed": ""}, "--embed like"),
        ({"embed": "image=J$G"}, "--embed like"),
        ({"embed": "other"}, "expected a field 'other' in the first records, got image, key, n"),
        ({"embed": "n"}, "expected paths of media in the field 'n' of the first records, got 3"),
        ({"media_root": "."}, "expected --embed FIELD with --media-root"),
        ({"embed": "image", "media_root": "/nowhere/at/all"}, "a folder that exists"),
        ({"embed": "image", "media_root": "/"}, "got none of them there"),
        ({"embed": "image", "source__map": "jpg=image"}, "got 'jpg' twice"),
    ],
)
def test_words_that_do_not_fit_are_refused(words: dict[str, Any], wanted: str, records: Any, tmp_path: Path, one_sentence: Any) -> None:
    source = records([{"image": "img/a/000.jpg", "n": 3}], media(1)) / "d.jsonl"
    with pytest.raises(UsageError) as caught:
        pack(source, tmp_path / "out", **words)
    assert wanted in one_sentence(caught.value)


@pytest.mark.train
def test_the_reference_readers_decode_what_was_taken_in(image_pairs: Any, tmp_path: Path, webdataset: Any, read_streaming: Any) -> None:
    source = image_pairs(6, kinds=("jpg", "png"))
    paths = sorted(str(path.relative_to(source)) for path in [*source.rglob("*.jpg"), *source.rglob("*.png")])
    lines = tmp_path / "d.jsonl"
    lines.write_text("".join(json.dumps({"image": path, "both": [path, paths[0]], "n": i}) + "\n" for i, path in enumerate(paths)))
    pack(lines, tmp_path / "wds", embed="image,both", media_root=source)
    urls = [str(path) for path in (tmp_path / "wds").glob("*.tar")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = list(webdataset.WebDataset(urls, shardshuffle=False, empty_check=False).decode("pil"))
    for path, sample in zip(paths, read, strict=True):
        ending = path.rpartition(".")[2]
        assert sample["json"]["image"] == path
        assert sample[f"image.{ending}"].size == sample[f"both.0.{ending}"].size == (24, 18)
    jpgs = [path for path in paths if path.endswith("jpg")]
    lines.write_text("".join(json.dumps({"image": path, "n": i}) + "\n" for i, path in enumerate(jpgs)))
    pack(lines, tmp_path / "mds", "mds", embed="image", media_root=source)
    assert [(row["image"].size, row["n"]) for row in read_streaming(tmp_path / "mds")] == [((24, 18), i) for i in range(len(jpgs))]
