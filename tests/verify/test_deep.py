"""Stops values that lie whole in their shard and cannot be used: cut images, broken JSON, text in another encoding."""

import io
import json
import struct
import tarfile
import zlib

import numpy as np
import pytest
from PIL import Image

from shardtools.formats.mds import Mds
from shardtools.verify import VerifyOptions, verify

DEEP = VerifyOptions(workers=1, deep=True)


def image(kind: str, pixels: int = 24) -> bytes:
    buffer = io.BytesIO()
    shade = np.arange(pixels * pixels, dtype=np.uint32).reshape(pixels, pixels) % 251
    Image.fromarray(shade.astype(np.uint8)).save(buffer, kind)
    return buffer.getvalue()


def array(values) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def png_without_rows(lost: int, pixels: int = 24) -> bytes:
    """A grey PNG whose chunks and checksums are right, and whose last rows are not there."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", pixels, pixels, 8, 0, 0, 0, 0)
    rows = (b"\0" + b"\x7f" * pixels) * (pixels - lost)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


SOUND = {
    "a.jpg": image("JPEG"),
    "a.png": image("PNG"),
    "a.webp": image("WEBP"),
    "a.json": b'{"x": NaN}',
    "a.txt": "Grüße".encode(),
    "a.cls": b"17\n",
    "a.npy": array(np.zeros((3, 4), np.float32)),
    "a.bin": b"\xff\x00",
}


def folder_of(tmp_path, members) -> str:
    with tarfile.open(tmp_path / "x-000000.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return str(tmp_path)


def test_sound_values(tmp_path):
    verdict = verify(folder_of(tmp_path, SOUND), DEEP)
    assert verdict.findings == ()
    assert verdict.unchecked_fields == ("bin",)
    assert "Every value decodes." in verdict.closing()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.jpg", SOUND["a.jpg"][:-200]),
        ("a.jpg", SOUND["a.jpg"][:-200] + b"\xff\xd9"),
        ("a.jpg", SOUND["a.png"]),
        ("a.jpg", b""),
        ("a.png", SOUND["a.png"][:60]),
        ("a.png", SOUND["a.png"][:60] + b"\0" * 8 + SOUND["a.png"][68:]),
        ("a.png", png_without_rows(1)),
        ("a.webp", SOUND["a.webp"][:40]),
        ("a.json", b'{"x": '),
        ("a.json", b"[" * 100_000),
        ("a.txt", "Grüße".encode("latin-1")),
        ("a.cls", b"seven"),
        ("a.cls", b"1.0"),
        ("a.npy", SOUND["a.npy"][:-1]),
        ("a.npy", SOUND["a.npy"] + b"x"),
        ("a.npy", b"no array"),
    ],
)
def test_a_value_that_does_not_decode(tmp_path, name, data):
    members = {**SOUND, name: data, "b.txt": b"sound"}
    folder = folder_of(tmp_path, dict(sorted(members.items())))
    (finding,) = verify(folder, DEEP).findings
    assert (finding.kind, finding.key, finding.shard) == ("undecodable-value", "a", "x-000000.tar")
    assert repr(name.partition(".")[2]) in finding.detail
    assert " object at 0x" not in finding.detail, "an address in memory is another in every run"
    assert verify(folder, VerifyOptions(workers=1)).findings == ()


def test_a_png_with_all_its_rows_is_sound(tmp_path):
    assert verify(folder_of(tmp_path, {"a.png": png_without_rows(0)}), DEEP).findings == ()


def test_an_image_that_claims_to_be_huge_is_not_decoded(tmp_path):
    """A PNG header of 13 bytes may claim 2^31 pixels a side."""
    data = bytearray(image("PNG"))
    data[16:24] = (1 << 20).to_bytes(4, "big") * 2
    (finding,) = verify(folder_of(tmp_path, {"a.png": bytes(data)}), DEEP).findings
    assert finding.kind == "undecodable-value"


def test_pickled_arrays_are_not_loaded(tmp_path):
    data = array(np.array([{"a": 1}], dtype=object))
    assert verify(folder_of(tmp_path, {"a.npy": data}), DEEP).findings == ()


def test_many_faults_are_counted_and_some_listed(tmp_path):
    members = {f"k{i:03d}.json": b"{" for i in range(30)}
    verdict = verify(folder_of(tmp_path, members), VerifyOptions(workers=1, deep=True, max_findings=4))
    assert len(verdict.findings) == 5
    assert "26 more" in verdict.findings[-1].detail


def test_mds_images(tmp_path, build, rows):
    columns = {"image": [SOUND["a.jpg"], SOUND["a.jpg"][:-300]], "meta": [{"i": 1}, {"i": 2}], "raw": [b"1", b"2"]}
    source = rows([b"k0", b"k1"], columns, {"image": "jpeg", "meta": "json", "raw": "bytes"})
    (tmp_path / "src").mkdir()
    build(tmp_path / "src", tmp_path / "out", Mds(), source=source)
    verdict = verify(str(tmp_path / "out"), DEEP)
    (finding,) = verdict.findings
    assert (finding.kind, finding.key) == ("undecodable-value", "k1")
    assert verdict.unchecked_fields == ("raw",)
    assert verify(str(tmp_path / "out"), VerifyOptions(workers=1)).findings == ()


def test_images_in_columns_of_bytes(tmp_path, build, rows):
    """MDS has no image column whose images may be absent, or of two kinds: they are bytes there."""
    values = [SOUND["a.jpg"], b"", SOUND["a.png"], SOUND["a.webp"], SOUND["a.jpg"][:-300], b"RIFF0000WAVE"]
    source = rows([b"k%d" % i for i in range(6)], {"image": values, "thumb": [*values[:4], b"", b""]}, {"image": "bytes", "thumb": "bytes"})
    (tmp_path / "src").mkdir()
    build(tmp_path / "src", tmp_path / "out", Mds(), source=source)
    verdict = verify(str(tmp_path / "out"), DEEP)
    (finding,) = verdict.findings
    assert (finding.kind, finding.key) == ("undecodable-value", "k4")
    assert verdict.unchecked_fields == ("image",)


def test_a_check_is_looked_up_by_the_last_extension(tmp_path):
    folder = folder_of(tmp_path, {"a.left.json": b"{"})
    assert [finding.kind for finding in verify(folder, DEEP).findings] == ["undecodable-value"]
    assert json.dumps(verify(folder, DEEP).as_json())
