"""Resized images that depend on who did the work, a damaged one that is neither packed nor counted, a run taken up with another Pillow."""

import re
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from token_oracle import small_tokenizer

from shardtools import partitions as partitions_module
from shardtools.build.order import Order, OrderWords, order_of
from shardtools.build.run import Result, RunOptions, build
from shardtools.engines.processes import Processes
from shardtools.engines.serial import Serial
from shardtools.errors import BadSampleError, UsageError
from shardtools.manifest import MANIFEST_NAME, REJECTS_NAME, Manifest
from shardtools.sources import resolve_inputs
from shardtools.transforms import images as images_module
from shardtools.units import Budget


def photos(folder: Path, count: int = 24, damaged: int | None = None) -> Path:
    for i in range(count):
        output = BytesIO()
        Image.effect_noise((300 + i, 200), 60).convert("RGB").save(output, "JPEG" if i % 3 else "PNG")
        data = output.getvalue()
        path = folder / f"{i:03d}.{'jpg' if i % 3 else 'png'}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data[: len(data) // 2] if i == damaged else data)
        (folder / f"{i:03d}.txt").write_text(f"photo {i}")
    return folder


def ordered(source: Path, format_: str, **words: str) -> Order:
    return order_of(resolve_inputs([str(source)]), OrderWords(format_, image_options=words, shard_samples=5))


def packed(source: Path, out: Path, order: Order, engine: Any = None, max_bad: str = "0") -> Result:
    return build([str(source)], str(out), order, RunOptions(engine or Serial(), Budget.parse(max_bad)))


def sizes(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in folder.glob("*.tar"):
        with tarfile.open(path) as archive:
            for member in archive:
                opened = archive.extractfile(member)
                if opened is not None and not member.name.endswith(".txt"):
                    found[member.name] = Image.open(opened).size
    return found


@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_same_bytes_whoever_does_the_work(tmp_path: Path, digests: Any, format_: str) -> None:
    source = photos(tmp_path / "src")
    order = ordered(source, format_, image_resize="64", image_quality="80", image_check="")
    packed(source, tmp_path / "a", order)
    packed(source, tmp_path / "b", order, Processes(2))
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    manifest = Manifest.parse((tmp_path / "a" / MANIFEST_NAME).read_bytes())
    assert manifest.ledger.num_written == 24
    (step,) = manifest.recipe["steps"]
    own = {"name": "images", "resize": 64, "quality": 80, "check": True, "chosen": []}
    assert step == {**own, "found": ["jpg", "png"] if format_ == "wds" else ["image"], "libraries": step["libraries"]}
    assert re.fullmatch(r"pillow(-simd)? [\d.]+(post\d+)?, libjpeg(-turbo)? [\w.]+, zlib(-ng)? [\w.]+, libwebp [\w.]+", step["libraries"])


def test_images_in_the_shards_have_the_size_asked_for(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", 12)
    packed(source, tmp_path / "out", ordered(source, "wds", image_resize="64"))
    expected = {f"{i:03d}.{'jpg' if i % 3 else 'png'}": ((2 * (300 + i) * 64 + 200) // 400, 64) for i in range(12)}
    assert sizes(tmp_path / "out") == expected


def test_damaged_image_is_counted_and_named(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", 9, damaged=4)
    order = ordered(source, "wds", image_check="")
    with pytest.raises(BadSampleError, match=r"004.*expected a JPEG that decodes, got a damaged one: .*; replace it; --max-bad"):
        packed(source, tmp_path / "out", order)
    result = packed(source, tmp_path / "out", order, max_bad="1")
    ledger = result.manifest.ledger
    assert (ledger.num_read, ledger.num_written, dict(ledger.rejects)) == (9, 8, {"damaged-image": 1})
    assert "004" in (tmp_path / "out" / REJECTS_NAME).read_text()
    assert "004.jpg" not in sizes(tmp_path / "out") and len(sizes(tmp_path / "out")) == 8


def test_check_alone_changes_no_byte(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", 9)
    packed(source, tmp_path / "out", ordered(source, "wds", image_check=""))
    packed(source, tmp_path / "plain", ordered(source, "wds"))
    for path in (tmp_path / "plain").glob("*.tar"):
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    assert "steps" not in Manifest.parse((tmp_path / "plain" / MANIFEST_NAME).read_bytes()).recipe


def test_another_pillow_does_not_go_on_where_one_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = photos(tmp_path / "src", 3)
    packed(source, tmp_path / "out", ordered(source, "wds", image_resize="64"))
    monkeypatch.setattr(images_module, "libraries", lambda: "pillow 1.0")
    with pytest.raises(UsageError, match=r"steps\.images\.libraries was 'pillow.*', is 'pillow 1\.0'"):
        packed(source, tmp_path / "out", ordered(source, "wds", image_resize="64"))


def test_text_has_no_images(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    order = order_of(resolve_inputs([str(tmp_path / "a.jsonl")]), OrderWords("mds", image_options={"image_resize": "64"}))
    with pytest.raises(UsageError, match=r"expected a field that holds images, to resize or check them, got text \(str\)"):
        packed(tmp_path / "a.jsonl", tmp_path / "out", order)


def test_tokens_are_no_images(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    words = {"tokenizer": str(small_tokenizer(tmp_path / "tokenizer"))}
    with pytest.raises(UsageError, match="expected no --image-check with --tokenizer, which stores tokens alone, got it; leave it out"):
        order_of(resolve_inputs([str(tmp_path / "a.jsonl")]), OrderWords("mds", token_options=words, image_options={"image_check": ""}))


@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_images_of_every_source_are_made_smaller(tmp_path: Path, format_: str) -> None:
    """However they came in: as members, as columns, in tables, or behind a path."""
    output = BytesIO()
    Image.effect_noise((90, 80), 60).convert("RGB").save(output, "JPEG")
    photo = output.getvalue()
    for name in ("files", "records"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jpg").write_bytes(photo)
    (tmp_path / "records/r.jsonl").write_text('{"photo": "a.jpg"}\n')
    (tmp_path / "table").mkdir()
    table = pytest.importorskip("pyarrow").table({"image": [{"bytes": photo, "path": "a.jpg"}], "n": [1]})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "table/t.parquet")
    for kind in ("wds", "mds"):
        packed(tmp_path / "files", tmp_path / kind, order_of(resolve_inputs([str(tmp_path / "files")]), OrderWords(kind)))
    for source in ("files", "records/r.jsonl", "table", "wds", "mds"):
        embed = {"embed": "photo"} if "records" in source else {}
        words = OrderWords(format_, image_options={"image_resize": "20", "image_check": ""}, embed_options=embed)
        out = tmp_path / f"{source.partition('/')[0]}-out"
        packed(tmp_path / source, out, order_of(resolve_inputs([str(tmp_path / source)]), words))
        shard = next(path for path in sorted(out.iterdir()) if path.suffix in (".tar", ".mds")).read_bytes()
        begin = shard.index(b"\xff\xd8\xff")
        image = Image.open(BytesIO(shard[begin:]))
        image.load()
        assert image.size == (23, 20), source


def test_shards_of_resized_images_are_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are cut by what images become: by what they are, each would fill an eighth of a shard."""
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 64 << 10)
    output = BytesIO()
    Image.effect_noise((400, 300), 90).convert("RGB").save(output, "JPEG", quality=92)
    source = tmp_path / "src"
    source.mkdir()
    for i in range(300):
        (source / f"{i:03d}.jpg").write_bytes(output.getvalue())
    words = OrderWords("wds", image_options={"image_resize": "64"}, shard_size="32KiB")
    result = packed(source, tmp_path / "out", order_of(resolve_inputs([str(source)]), words))
    shards = result.manifest.shards
    assert max(shard.num_bytes for shard in shards) <= 32 << 10
    assert sum(shard.num_bytes for shard in shards) / len(shards) > 0.8 * (32 << 10)
    assert len({shard.num_samples for shard in shards[:-1]}) <= 2
