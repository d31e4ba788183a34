"""Compressed shards that unpack to far more than they are: stops a verify that fills memory or disk with them."""

import gzip
import json
import struct
import zlib

import pytest
import zstandard

pytestmark = pytest.mark.timeout(120)
MIB = 1 << 20


def gzip_of(block: bytes, times: int) -> bytes:
    """A stream of one block over and over, made without holding it."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(block) for _ in range(times)) + packer.flush()


def zstd_of(block: bytes, times: int) -> bytes:
    packer = zstandard.ZstdCompressor(3).compressobj()
    return b"".join(packer.compress(block) for _ in range(times)) + packer.flush()


def test_a_gzip_bomb_of_zeros(folder, command):
    """All zeros would be an archive of nothing."""
    (folder / "x.tar.gz").write_bytes(gzip_of(bytes(MIB), 128))
    outcome = command("verify")
    assert (outcome.code, "damaged-shard" in outcome.stdout) == (1, True)
    assert outcome.peak_mib < 400


def test_a_gzip_bomb_that_is_a_sound_tar(folder, header, command):
    block = header(b"a.bin", b"%011o\0" % (128 * MIB))
    (folder / "x.tgz").write_bytes(gzip_of(block, 1) + gzip_of(b"A" * MIB, 128) + gzip_of(bytes(1024), 1))
    outcome = command("verify")
    assert outcome.code == 1
    assert outcome.peak_mib < 400


def test_a_gzip_bomb_in_a_gzip_bomb(folder, command):
    (folder / "x.tar.gz").write_bytes(gzip.compress(gzip_of(bytes(MIB), 100)))
    assert command("verify").code == 1


@pytest.fixture
def zipped(folder, mds_entry):
    """Write an index that says a stream unpacks to so many bytes."""

    def write(stream: bytes, raw_bytes: int) -> None:
        entry = mds_entry({"x": "bytes"}, raw_bytes, 1, compression="zstd")
        entry["zip_data"] = {"basename": "shard.00000.mds.zstd", "bytes": len(stream), "hashes": {}}
        (folder / "index.json").write_text(json.dumps({"shards": [entry], "version": 2}))
        (folder / "shard.00000.mds.zstd").write_bytes(stream)

    return write


def test_a_zstd_bomb_beyond_what_the_index_says(zipped, command):
    zipped(zstd_of(bytes(MIB), 512), 1000)
    outcome = command("verify", most_file_mib=2)
    assert (outcome.code, "more comes out of it" in outcome.stdout) == (1, True)
    assert outcome.peak_mib < 300


def test_a_zstd_bomb_of_many_frames(zipped, command):
    zipped(zstd_of(bytes(MIB), 16) * 200, 1000)
    assert command("verify", most_file_mib=2).code == 1


def test_a_zstd_bomb_that_the_index_agrees_with(zipped, command):
    """1 GiB in 33 KB: the index says so, but the first bytes show that it is no shard, long before a disk is full."""
    zipped(zstd_of(bytes(MIB), 1024), 1024 * MIB)
    outcome = command("verify")
    assert outcome.code == 1
    assert outcome.peak_mib < 400


@pytest.mark.parametrize("size", [2**32, 2**62, 2**64 - 1], ids=["4 GiB", "4 EiB", "16 EiB"])
def test_a_zstd_frame_that_declares_a_size_that_cannot_be(zipped, command, size):
    """Eight bytes of content size, a window of the same, and one raw block."""
    frame = zstandard.FRAME_HEADER + b"\xe0" + struct.pack("<Q", size) + b"\x01\x00\x00"
    zipped(frame, 1000)
    outcome = command("verify")
    assert outcome.code == 1
    assert outcome.peak_mib < 300


def test_a_zstd_frame_that_declares_a_window_of_terabytes(zipped, command):
    zipped(zstandard.FRAME_HEADER + b"\x00" + b"\xff" + b"\x01\x00\x00", 1000)
    outcome = command("verify")
    assert outcome.code in (1, 3)
    assert outcome.peak_mib < 300


def test_a_sparse_file_of_a_terabyte(folder, command):
    """A tar whose length is real and whose bytes are not there."""
    with open(folder / "x.tar", "wb") as file:
        file.truncate(1 << 40)
        file.seek(0)
        file.write(b"x" * 512)
    outcome = command("verify")
    assert outcome.code == 1
    assert outcome.peak_mib < 300


def image_bombs():
    """Pictures of 100,000 x 100,000 pixels in a few bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">2I5B", 100_000, 100_000, 8, 2, 0, 0, 0))
    png = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", gzip_of(b"", 1)[:2] + zlib.compress(bytes(10 * MIB))) + chunk(b"IEND", b"")
    text = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(200 * MIB)))
    small = chunk(b"IHDR", struct.pack(">2I5B", 1, 1, 8, 2, 0, 0, 0))
    yield "a.png", png
    yield "b.png", b"\x89PNG\r\n\x1a\n" + small + text + chunk(b"IDAT", zlib.compress(bytes(4))) + chunk(b"IEND", b"")
    yield "c.gif", b"GIF89a" + struct.pack("<2H", 65535, 65535) + b"\xf7\0\0" + bytes(768) + b"\x2c" + bytes(9) + b"\x08\x00\x3b"
    yield "d.bmp", b"BM" + bytes(12) + struct.pack("<I2i2H", 40, 100_000, 100_000, 1, 24) + bytes(24)
    yield "e.ppm", b"P6 99999 99999 255\n" + bytes(100)


def test_images_of_ten_billion_pixels(folder, tar, command):
    (folder / "x.tar").write_bytes(tar(list(image_bombs())))
    outcome = command("verify", "--deep")
    assert outcome.code == 1
    assert outcome.peak_mib < 700
