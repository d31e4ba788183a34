"""What is no image, packed under ``--image-check`` because of where it came from or what its field is called: training meets it."""

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from shardtools.build.order import OrderWords, order_of
from shardtools.build.run import Result, RunOptions, build
from shardtools.engines.serial import Serial
from shardtools.errors import BadSampleError, UsageError
from shardtools.manifest import MANIFEST_NAME, Manifest
from shardtools.sources import resolve_inputs
from shardtools.units import Budget

NO_IMAGES = {5: b"<html>not found</html>", 10: b""}
"""By their number, among twelve."""


def image(i: int, kind: str | None = None) -> bytes:
    output = BytesIO()
    Image.new("RGB", (9 + i, 7), (20 * i, 9, 9)).save(output, kind or ("JPEG" if i % 2 else "PNG"))
    return output.getvalue()


def packed(source: Path, out: Path, format_: str, max_bad: str = "12", **options: Any) -> Result:
    options.setdefault("image_options", {"image_check": ""})
    order = order_of(resolve_inputs([str(source)]), OrderWords(format_, **options))
    return build([str(source)], str(out), order, RunOptions(Serial(), Budget.parse(max_bad)))


def name_of(i: int) -> str:
    return f"{i:02d}.{'jpg' if i % 2 else 'png'}"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for i in range(12):
        (folder / name_of(i)).write_bytes(NO_IMAGES.get(i, image(i)))
    return folder


def table(tmp_path: Path, cell: Callable[[int, bytes], Any]) -> Path:
    rows = [cell(i, NO_IMAGES.get(i, image(i))) for i in range(12)]
    (tmp_path / "table").mkdir()
    pq.write_table(pa.table({"image": rows, "n": list(range(12))}), tmp_path / "table/t.parquet")
    return tmp_path / "table"


CELLS: dict[str, Callable[[int, bytes], Any]] = {
    "structs": lambda i, data: {"bytes": data, "path": name_of(i)},
    "structs-without-paths": lambda _, data: {"bytes": data, "path": None},
    "binary": lambda _, data: data,
}


@pytest.mark.parametrize("format_", ["wds", "mds"])
@pytest.mark.parametrize("way", ["files", "aliases", "records", "wds", "mds", *CELLS])
def test_what_is_no_image_is_found_however_it_comes(tmp_path: Path, files: Path, format_: str, way: str) -> None:
    source, options = files, {}
    if way == "aliases":
        options = {"source_options": {"fields": "photo=jpg|png"}}
    elif way == "records":
        source, options = files / "r.jsonl", {"embed_options": {"embed": "photo"}}
        source.write_text("".join(json.dumps({"photo": name_of(i)}) + "\n" for i in range(12)))
    elif way in ("wds", "mds"):
        source = tmp_path / way
        packed(files, source, way, image_options={})
    elif way in CELLS:
        source = table(tmp_path, CELLS[way])
    result = packed(source, tmp_path / "out", format_, **options)
    assert dict(result.manifest.ledger.rejects) == {"not-an-image": 2}
    assert [note for note in result.survey.notes if note.startswith("images: ")], "what was looked at is said"
    stored = b"".join(path.read_bytes() for path in (tmp_path / "out").iterdir() if path.suffix in (".tar", ".mds"))
    assert all((image(i) in stored) == (i not in NO_IMAGES) for i in range(12)) and b"<html>" not in stored


def test_an_image_that_is_absent_is_not_a_damaged_one(tmp_path: Path, files: Path) -> None:
    """MDS holds empty bytes in its place; a file without bytes is damaged all the same."""
    rows = [{"photo": None if i in NO_IMAGES or i % 4 == 0 else name_of(i), "n": i} for i in range(12)]
    (files / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = {"embed_options": {"embed": "photo?"}}
    for place in ("mds", "again"):
        source = files / "r.jsonl" if place == "mds" else tmp_path / "mds"
        result = packed(source, tmp_path / place, "mds", "0", **(words if place == "mds" else {}))
        assert result.manifest.ledger.num_written == 12
    (files / "01.jpg").write_bytes(b"")
    with pytest.raises(BadSampleError, match=r"line 2 .*field 'photo': expected an image, got no bytes; replace it"):
        packed(files / "r.jsonl", tmp_path / "out", "mds", "0", **words)


@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_image_behind_the_first_samples_is_not_passed_over(tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that is none of images at first: whoever packs it has to say what it is."""
    monkeypatch.setattr("shardtools.build.looking._FIRST_SAMPLES", 6)
    source = tmp_path / "t"
    source.mkdir()
    thumbs = [None] * 8 + [image(i) for i in range(8, 12)]
    pq.write_table(pa.table({"photo": [image(i) for i in range(12)], "thumb": thumbs}), source / "t.parquet")
    sentence = r"field 'thumb': expected no image, as in the first samples, got a PNG; name the fields that hold images with --image-fields"
    words = {"map": "photo=photo,thumb=thumb?"}
    with pytest.raises(BadSampleError, match=sentence):
        packed(source, tmp_path / "out", format_, "0", source_options=words)
    named = {"image_check": "", "image_fields": "photo, thumb"}
    result = packed(source, tmp_path / "named", format_, "0", source_options=words, image_options=named)
    assert result.manifest.ledger.num_written == 12
    (step,) = Manifest.parse((tmp_path / "named" / MANIFEST_NAME).read_bytes()).recipe["steps"]
    assert (step["chosen"], step["found"]) == (["photo", "thumb"], [])


def test_fields_that_are_named_are_the_only_ones_looked_at(tmp_path: Path, files: Path) -> None:
    for i in range(12):
        (files / f"{i:02d}.dat").write_bytes(image(i, "GIF") if i % 2 else b"text")
        (files / name_of(i)).write_bytes(image(i))
    words = {"image_check": "", "image_fields": "image"}
    with pytest.raises(BadSampleError, match=r"field 'dat': expected an image, got bytes that begin with b'text'; .*a field of its own"):
        packed(files, tmp_path / "out", "mds", "0")
    assert packed(files, tmp_path / "named", "mds", "0", image_options=words).manifest.ledger.num_written == 12


@pytest.mark.parametrize("kind", ["GIF", "BMP", "TIFF", "AVIF", "JPEG2000"])
def test_kind_of_image_that_is_not_decoded_is_refused(tmp_path: Path, kind: str) -> None:
    """By its extension before anything is done, by its bytes when it is met."""
    folder = tmp_path / "src"
    folder.mkdir()
    extension = {"JPEG2000": "jp2"}.get(kind, kind.lower())
    (folder / "a.jpg").write_bytes(image(1))
    (folder / f"b.{extension}").write_bytes(image(2, kind))
    with pytest.raises(
        UsageError, match=rf"JPEG, PNG, WebP, .* got the field '{extension}' \(bytes\); name the others with --image-fields"
    ):
        packed(folder, tmp_path / "out", "wds")
    named = {"image_check": "", "image_fields": "jpg"}
    assert packed(folder, tmp_path / "named", "wds", "0", image_options=named).manifest.ledger.num_written == 2
    assert dict(packed(folder, tmp_path / "column", "mds").manifest.ledger.rejects) == {"unknown-image": 1}


@pytest.mark.train
def test_pixels_and_lists_of_images_are_refused(tmp_path: Path) -> None:
    streaming = pytest.importorskip("streaming")
    with streaming.MDSWriter(out=str(tmp_path / "src"), columns={"photo": "jpeg", "raw": "pil"}) as writer:
        for i in range(3):
            raw = Image.open(BytesIO(image(i, "JPEG")))
            writer.write({"photo": raw, "raw": raw})
    with pytest.raises(UsageError, match=r"got the field 'raw' \(pil\); name the others with --image-fields, and it stays as it is"):
        packed(tmp_path / "src", tmp_path / "mds", "mds")
    with pytest.raises(UsageError, match=r"expected fields of bytes, jpeg or png in --image-fields, got 'raw'"):
        packed(tmp_path / "src", tmp_path / "mds", "mds", image_options={"image_check": "", "image_fields": "raw"})
    named = {"image_check": "", "image_fields": "photo"}
    assert packed(tmp_path / "src", tmp_path / "mds", "mds", image_options=named).manifest.ledger.num_written == 3


def test_where_the_first_samples_are_left_out_others_tell(tmp_path: Path) -> None:
    """What ``--where`` leaves out tells nothing of fields; where nothing is left of the first, the user has to."""
    source = tmp_path / "t"
    source.mkdir()
    values = [b"no image" if i < 4 else image(i) for i in range(12)]
    pq.write_table(pa.table({"photo": values, "n": list(range(12))}), source / "t.parquet")
    result = packed(source, tmp_path / "out", "mds", "0", select_options={"where": "n >= 4"})
    assert result.manifest.ledger.num_written == 8
    with pytest.raises(UsageError, match=r"expected a field that holds images, to resize or check them, got n \(int\), photo \(bytes\)"):
        packed(source, tmp_path / "none", "mds", "0", select_options={"where": "n < 4"})
