"""A dataset that is its source, said not to be, because of how its samples were chosen, parted, changed or ordered; or one that is
said to be without a look at the order.

Every source, in every order and selection; the answer has to be the whole proof each time.
"""

import csv
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from shardtools import partitions as partitions_module
from shardtools.errors import UsageError
from shardtools.verify import VerifyOptions, verify

NUM = 120
SPLIT = {"split": "train=0.7,val=0.3"}
CHOICES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "shuffled": {"shuffle": True, "seed": 3},
    "in splits": {"select_options": SPLIT},
    "the first ones": {"select_options": {"limit": "50"}},
    "all at once": {
        "shuffle": True,
        "seed": 2**64 - 1,
        "select_options": {**SPLIT, "group_by": "group", "where": "group < 15", "dedup": "content", "limit": "70"},
    },
}
SOURCES = ["jsonl", "csv", "parquet", "files", "wds", "mds"]
NUM_READ = {"the first ones": 50, "all at once": 70}


@pytest.fixture(autouse=True)
def many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 2048)


def rows(count: int = NUM) -> list[dict[str, Any]]:
    return [{"id": f"r{i:04d}", "text": "ein Täxt " * (1 + i % 9), "count": i - 5, "score": i / 8, "group": i % 17} for i in range(count)]


@pytest.fixture
def source(tmp_path: Path, tree: Any, pack: Any) -> Any:
    """An input of each kind, of as many samples."""

    def files() -> Path:
        pairs = ((f"{i:03d}", json.dumps(row).encode()) for i, row in enumerate(rows()))
        return Path(tree({f"{name}.{kind}": data for name, data in pairs for kind in ("json", "txt")}, "files"))

    def make(kind: str) -> Path:
        folder = tmp_path / f"source-{kind}"
        folder.mkdir()
        if kind == "jsonl":
            (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
        elif kind == "csv":
            with open(folder / "a.csv", "w", newline="") as file:
                writer = csv.DictWriter(file, rows()[0].keys())
                writer.writeheader()
                writer.writerows(rows())
        elif kind == "parquet":
            parquet = pytest.importorskip("pyarrow.parquet")
            table = pytest.importorskip("pyarrow").Table.from_pylist(rows())
            parquet.write_table(table, folder / "a.parquet", row_group_size=20)
        elif kind == "files":
            return files()
        else:
            return Path(pack(files(), kind, f"source-{kind}/shards", shard_samples=30))
        return folder

    return make


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_chosen_and_ordered_in_every_way_is_proved(source: Any, pack: Any, against: Any, kind: str, choice: str) -> None:
    given = source(kind)
    format_ = "wds" if (SOURCES.index(kind) + list(CHOICES).index(choice)) % 2 else "mds"
    folder = pack(given, format_, source=kind, shard_samples=9, **CHOICES[choice])
    seen = against(folder, given)
    assert seen.seen == []
    split = ", in the split it belongs to" if "splits" in choice or "all" in choice else ""
    made = f"each of the {NUM_READ.get(choice, NUM)} samples it makes is in the dataset exactly once, byte for byte{split}"
    assert f"The recipe was run again on the source: {made}, in the order of the plan, and the ledger closes: " in seen.proved
    assert "order" not in seen.not_proved
    assert f"written {NUM_READ.get(choice, NUM)} + rejected 0 + filtered" in seen.proved


def test_several_workers_see_the_same(source: Any, pack: Any, against: Any) -> None:
    given = source("jsonl")
    folder = pack(given, "mds", shard_samples=9, **CHOICES["all at once"])
    seen = against(folder, given, workers=2)
    assert seen.seen == [] and "in the order of the plan" in seen.proved


def test_a_dataset_of_the_other_format_is_another_dataset_not_the_source(source: Any, pack: Any, against: Any) -> None:
    """Tars were converted to MDS, and back: the first is the source of the second, the third is compared as a dataset."""
    tars = source("wds")
    converted = pack(tars, "mds", "converted")
    assert "The recipe was run again" in against(converted, tars).proved
    back = pack(converted, "wds", "back")
    assert "The recipe was run again" in against(back, converted).proved
    assert "are in the dataset exactly once" in against(back, tars).proved and against(back, tars).seen == []


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(12):
        output = BytesIO()
        Image.effect_noise((60 + i, 50), 60).convert("RGB").save(output, "JPEG")
        data = output.getvalue()
        (folder / f"{i:03d}.jpg").write_bytes(data[:200] if i == 5 else data)
        (folder / f"{i:03d}.txt").write_text(f"photo {i}")
    return folder


def test_images_are_made_again(photos: Path, pack: Any, against: Any) -> None:
    folder = pack(
        photos, "wds", max_bad="1", shard_samples=4, image_options={"image_resize": "32", "image_check": ""}, shuffle=True, seed=1
    )
    seen = against(folder, photos)
    assert seen.seen == [] and "samples read 12 = written 11 + rejected 1 + filtered 0" in seen.proved


def test_images_of_another_pillow_are_not_compared(photos: Path, pack: Any, against: Any, edit_manifest: Any) -> None:
    """What differs would be the library, and no fault of the dataset."""
    folder = pack(photos, "wds", max_bad="1", image_options={"image_resize": "32"})
    edit_manifest(folder, lambda content: content["recipe"]["steps"][0].update(libraries="pillow 1.0"))
    with pytest.raises(UsageError, match=r"expected for images the libraries that the dataset was packed with, pillow 1\.0, got pillow"):
        against(folder, photos)


@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_media_are_read_again(photos: Path, tmp_path: Path, pack: Any, format_: str) -> None:
    (tmp_path / "records").mkdir()
    source = tmp_path / "records/a.jsonl"
    source.write_text("".join(json.dumps({"image": f"{i:03d}.jpg", "n": i}) + "\n" for i in range(12)))
    words = {"embed": "image", "media_root": str(photos)}
    folder = pack(source, format_, shard_samples=4, embed_options=words, select_options={**SPLIT, "where": "n != 5"}, shuffle=True, seed=5)
    verdict = verify(str(folder), VerifyOptions(workers=1, against=(str(source),), media_root=str(photos)))
    assert not verdict.findings
    assert "samples read 12 = written 11 + rejected 0 + filtered 1" in " ".join(text for proof in verdict.proofs for text in proof.proved)
    (photos / "003.jpg").write_bytes((photos / "004.jpg").read_bytes())
    verdict = verify(str(folder), VerifyOptions(workers=1, against=(str(source),), media_root=str(photos)))
    assert [finding.kind for finding in verdict.findings] == ["changed-sample"]
