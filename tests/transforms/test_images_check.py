"""A damaged image that is packed all the same, or one that ends the run with a traceback: training would meet it, or nobody could go on."""

import random
import re
import struct
import zlib
from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest
from PIL import Image

from shardtools.errors import ShardtoolsError, UsageError
from shardtools.sample import Batch, Field, Reject
from shardtools.transforms import PartitionWork
from shardtools.transforms.images import Images

CHECK = Images(check=True, found=("jpg",))
RESIZE = Images(64, 92)
KINDS = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP"}


def outcome(images: Images, name: str, data: bytes) -> tuple[str, str] | bytes:
    """Reason and sentence of the reject, or the bytes that stay, of a value in a field of images."""
    rejects: list[Reject] = []
    batches = list(
        replace(images, found=(name,)).apply(iter([Batch([b"k"], {name: [data]}, lambda i: f"file {i}")]), PartitionWork(0, rejects.append))
    )
    if not rejects:
        value: bytes = batches[0].columns[name][0]
        return value
    (reject,) = rejects
    assert [len(batch) for batch in batches] == [0]
    assert reject.where == "file 0" and reject.head == data[:64]
    assert reject.sentence.startswith(f"field {name!r}: expected ") and ", got " in reject.sentence and "; " in reject.sentence
    assert "\n" not in reject.sentence and "0x" not in reject.sentence
    return reject.reason, reject.sentence


def picture(name: str, size: tuple[int, int] = (200, 150), **options: Any) -> bytes:
    output = BytesIO()
    Image.effect_noise(size, 50).convert("RGB").save(output, KINDS[name], **options)
    return output.getvalue()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("images", [CHECK, RESIZE, Images(64, 92, check=True)])
def test_images_cut_anywhere_are_rejected(name: str, images: Images) -> None:
    data = picture(name)
    assert isinstance(outcome(images, name, data), bytes)
    # The last chunk of a PNG holds nothing: that it is cut only the check sees.
    ends = (100, 40) if name == "png" and not images.check else (100, 10)
    for num_bytes in (20, len(data) // 10, len(data) // 2, *(len(data) - end for end in ends)):
        found = outcome(images, name, data[:num_bytes])
        assert found[0] == "damaged-image", num_bytes


@pytest.mark.parametrize("name", KINDS)
def test_small_image_that_is_cut_is_found_by_the_check_alone(name: str) -> None:
    data = picture(name, (40, 30))[:-20]
    assert outcome(CHECK, name, data)[0] == "damaged-image"
    if name != "webp":  # its header is read together with its pixels
        assert outcome(RESIZE, name, data) == data


def test_progressive_jpeg_that_is_cut_is_rejected() -> None:
    data = picture("jpg", progressive=True)
    assert outcome(CHECK, "jpg", data) == data
    assert outcome(CHECK, "jpg", data[: len(data) // 2])[0] == "damaged-image"


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"restart_marker_rows": 1}, {"optimize": True}])
def test_jpeg_that_lost_its_pixels_but_not_its_end_is_rejected(options: dict[str, Any]) -> None:
    """libjpeg paints what is missing grey, and Pillow says nothing."""
    data = picture("jpg", **options)
    assert outcome(CHECK, "jpg", data) == data
    assert outcome(CHECK, "jpg", data + b"more than an image") == data + b"more than an image"
    for part in (0.3, 0.6, 0.9):
        damaged = data[: int(part * len(data))] + b"\xff\xd9"
        found = outcome(CHECK, "jpg", damaged)
        assert found[0] == "damaged-image" and "its pixel data ends before the image does" in str(found[1])


@pytest.mark.parametrize("options", [{}, {"progressive": True}], ids=["sequential", "progressive"])
@pytest.mark.parametrize("restart", ["restart_marker_rows", "restart_marker_blocks"])
def test_jpeg_cut_where_it_restarts_is_rejected(restart: str, options: dict[str, Any]) -> None:
    """Up to the marker that has to come next, libjpeg passes over all that follows."""
    data = picture("jpg", (80, 64), **{restart: 1}, **options)
    begin = data.rindex(b"\xff\xda")
    restarts = [match.start() for match in re.finditer(rb"\xff[\xd0-\xd7]", data) if match.start() > begin]
    assert len(restarts) > 2 and outcome(CHECK, "jpg", data) == data
    for end in restarts:
        assert outcome(CHECK, "jpg", data[:end] + b"\xff\xd9")[0] == "damaged-image", end


def test_sound_jpegs_of_every_kind_pass() -> None:
    numbers = random.Random(4)
    for i in range(60):
        output = BytesIO()
        size = numbers.randint(1, 90), numbers.randint(1, 90)
        image = Image.effect_noise(size, numbers.randint(0, 90)).convert(numbers.choice(["L", "RGB", "CMYK"]))
        restarts = {"restart_marker_blocks": numbers.randint(1, 9)} if i % 4 == 1 else {}
        image.save(output, "JPEG", quality=numbers.randint(1, 100), progressive=i % 2 == 0, optimize=i % 3 == 0, **restarts)
        assert outcome(CHECK, "jpg", output.getvalue()) == output.getvalue(), (i, size)


def test_png_with_a_wrong_checksum_is_rejected() -> None:
    data = bytearray(picture("png"))
    at = data.index(b"IDAT")
    (length,) = struct.unpack(">I", data[at - 4 : at])
    data[at + 4 + length] ^= 1
    assert outcome(CHECK, "png", bytes(data))[0] == "damaged-image"


def test_damage_anywhere_is_a_reject_or_an_image_never_an_error() -> None:
    numbers = random.Random(20)
    for name in KINDS:
        data = picture(name, (100, 80))
        for _ in range(60):
            damaged = bytearray(data)
            for _ in range(numbers.randint(1, 8)):
                damaged[numbers.randrange(len(damaged))] = numbers.randrange(256)
            assert outcome(Images(32, 92, check=True), name, bytes(damaged))


@pytest.mark.parametrize(
    ("name", "data", "got"),
    [
        ("jpg", picture("png", (8, 8)), "got a PNG"),
        ("png", picture("webp", (8, 8)), "got a WebP"),
        ("thumb.webp", b"<html>not found</html>", "got bytes that begin with b'<html>no'"),
        ("jpeg", b"", "got no bytes"),
    ],
)
def test_file_that_is_no_such_image_is_rejected(name: str, data: bytes, got: str) -> None:
    reason, sentence = outcome(CHECK, name, data)
    assert reason == "not-an-image" and got in str(sentence)
    # Readers go by the first bytes: what is an image of another kind can be made smaller as well.
    assert outcome(RESIZE, name, data) == (data if got in ("got a PNG", "got a WebP") else (reason, sentence))


def bomb(width: int, height: int) -> bytes:
    """A PNG of one colour that takes next to nothing as it lies."""
    return png((width, height), bytes(1 + width // 8), 1, 0)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(size: tuple[int, int], pixels: bytes, depth: int = 8, colour: int = 2, interlace: int = 0) -> bytes:
    """A PNG whose chunks are sound, of rows as they are filtered, however many."""
    stream = zlib.compress(pixels, 1)
    halves = chunk(b"IDAT", stream[: len(stream) // 2]) + chunk(b"IDAT", stream[len(stream) // 2 :])
    header = struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, interlace)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + halves + chunk(b"IEND", b"")


ENDS_EARLY = "its pixel data ends before the image does"


@pytest.mark.parametrize(
    ("size", "depth", "colour", "interlace", "rows"),
    [
        ((5, 4), 8, 2, 0, [16] * 4),
        ((5, 4), 16, 6, 0, [41] * 4),
        ((9, 3), 1, 0, 0, [3] * 3),
        ((5, 4), 2, 0, 0, [3] * 4),
        # Passes of 1 x 1, 1 x 1, 2 x 0, 1 x 1, 3 x 1, 2 x 2 and 5 x 2 pixels.
        ((5, 4), 8, 0, 1, [2, 2, 2, 4, 3, 3, 6, 6]),
        ((1, 1), 8, 0, 1, [2]),
    ],
)
def test_black_png_of_too_few_rows_is_rejected(size: tuple[int, int], depth: int, colour: int, interlace: int, rows: list[int]) -> None:
    """Decoders leave black what is not there: only the count of bytes tells it from an image that is black."""
    data = png(size, bytes(sum(rows)), depth, colour, interlace)
    assert outcome(CHECK, "png", data) == data
    for num_rows in range(len(rows)):
        found = outcome(CHECK, "png", png(size, bytes(sum(rows[:num_rows])), depth, colour, interlace))
        assert found[0] == "damaged-image", num_rows


@pytest.mark.parametrize(("depth", "colour", "pixel"), [(8, 2, 3), (8, 0, 1), (8, 6, 4), (16, 0, 2), (8, 4, 2)])
@pytest.mark.parametrize("images", [CHECK, Images(8, 92, check=True)])
def test_png_that_lost_rows_is_rejected(images: Images, depth: int, colour: int, pixel: int) -> None:
    rows = b"".join(b"\0" + random.Random(y).randbytes(30 * pixel) for y in range(20))
    assert isinstance(outcome(images, "png", png((30, 20), rows, depth, colour)), bytes)
    row = 30 * pixel + 1
    for num_missing in (1, row - 1, row, row + 1, 5 * row, 19 * row):
        assert outcome(images, "png", png((30, 20), rows[:-num_missing], depth, colour))[0] == "damaged-image", num_missing


def test_animation_whose_frame_lost_rows_is_rejected() -> None:
    output = BytesIO()
    frames = [Image.effect_noise((40, 30), 80) for _ in range(3)]
    frames[0].save(output, "PNG", save_all=True, append_images=frames[1:])
    data = output.getvalue()
    assert outcome(CHECK, "png", data) == data
    at = data.rindex(b"fdAT") - 4
    (length,) = struct.unpack_from(">I", data, at)
    rows = zlib.decompress(data[at + 12 : at + 8 + length])
    shorter = chunk(b"fdAT", data[at + 8 : at + 12] + zlib.compress(rows[:-41]))
    found = outcome(CHECK, "png", data[:at] + shorter + data[at + 12 + length :])
    assert found[0] == "damaged-image" and ENDS_EARLY in str(found[1])


@pytest.mark.parametrize(("colour", "channels"), [(2, 3), (4, 2), (6, 4)])
def test_sixteen_bits_of_colour_are_never_cut_to_eight(colour: int, channels: int) -> None:
    data = png((30, 20), b"".join(b"\0" + bytes(30 * channels * 2) for _ in range(20)), 16, colour)
    assert outcome(Images(20, 92, check=True), "png", data) == data
    assert outcome(Images(10, 92), "png", data)[0] == "deep-image"


@pytest.mark.parametrize("images", [CHECK, RESIZE])
def test_bombs_are_never_decoded(images: Images) -> None:
    reason, sentence = outcome(images, "png", bomb(30_000, 30_000))
    assert reason == "image-too-large" and "at most 178,956,970 pixels, got one of more" in str(sentence)
    assert outcome(images, "png", bomb(2**31 - 1, 2**31 - 1))[0] in ("image-too-large", "damaged-image")


def test_limit_of_pillow_itself_may_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    reason, sentence = outcome(CHECK, "png", bomb(30_000, 30_000))
    assert reason == "image-too-large" and "got 30000 x 30000" in str(sentence)


def test_frames_count_as_pixels() -> None:
    output = BytesIO()
    frame = Image.new("L", (64, 48))
    frame.save(output, "PNG", save_all=True, append_images=[frame.point(lambda _, i=i: i) for i in range(1, 3)], duration=40)
    data = output.getvalue()
    at = data.index(b"acTL") + 4
    many = data[:at] + struct.pack(">I", 100_000) + data[at + 4 :]
    body = many[at - 4 : at + 8]
    many = many[: at + 8] + struct.pack(">I", zlib.crc32(body)) + many[at + 12 :]
    assert outcome(CHECK, "png", data) == data
    assert "got 64 x 48 in 100,000 frames" in outcome(CHECK, "png", many)[1]


def test_absent_and_other_values_are_left_alone() -> None:
    batch = Batch([b"a", b"b"], {"jpg": [None, picture("jpg")], "n": [1, 2]}, str)
    (found,) = CHECK.apply(iter([batch]), PartitionWork(0, lambda reject: pytest.fail(str(reject))))
    assert found.columns["jpg"][0] is None and found.columns["n"] == [1, 2]


def test_sound_samples_beside_a_bad_one_keep_their_places() -> None:
    good = picture("jpg", (9, 9))
    batch = Batch([b"a", b"b", b"c"], {"jpg": [good, good[:30], good], "i": [0, 1, 2]}, lambda i: "abc"[i])
    rejects: list[Reject] = []
    (found,) = CHECK.apply(iter([batch]), PartitionWork(0, rejects.append))
    assert found.keys == [b"a", b"c"] and found.columns["i"] == [0, 2] and found.where(1) == "c"
    assert [reject.where for reject in rejects] == ["b"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ({"image_resize": "0"}, "--image-resize of 1 to 65,535, got '0'"),
        ({"image_resize": "big"}, "got 'big'"),
        ({"image_resize": "-1"}, "got '-1'"),
        ({"image_resize": "٣"}, "got '٣'"),
        ({"image_resize": "9", "image_quality": "101"}, "--image-quality of 1 to 100, got '101'"),
        ({"image_quality": "90"}, "expected --image-quality with --image-resize"),
        ({"image_quality": "90", "image_check": ""}, "expected --image-quality with --image-resize, got it alone"),
        ({"image_fields": "jpg,", "image_check": ""}, "expected --image-fields as NAME,NAME, got 'jpg,'"),
        ({"image_fields": "jpg"}, "expected --image-fields with --image-resize or --image-check, got it alone"),
    ],
)
def test_options_out_of_range_are_named(words: dict[str, str], named: str) -> None:
    with pytest.raises(UsageError) as fault:
        Images.from_options(words)
    assert named in str(fault.value)


def test_fields_without_images_are_refused() -> None:
    assert CHECK.fields((Field("txt", "str"), Field("jpg", "jpeg"))) == (Field("txt", "str"), Field("jpg", "jpeg"))
    given = (Field("txt", "str"), Field("n", "int"))
    with pytest.raises(UsageError, match=r"got txt \(str\), n \(int\); name the fields that hold images with --image-fields, or leave"):
        Images(check=True).fields(given)
    with pytest.raises(UsageError, match=r"jpeg or png in --image-fields, got 'n'; the fields are txt \(str\), n \(int\)"):
        Images(check=True, chosen=("n",)).fields(given)


def test_other_libraries_than_the_plan_was_made_with_are_refused() -> None:
    planned = Images(64, 92)
    object.__setattr__(planned, "libraries", "pillow 1.0")
    with pytest.raises(ShardtoolsError, match=r"pillow 1\.0, got pillow.* on this machine: .*; install"):
        list(planned.apply(iter([]), PartitionWork(0, lambda _: None)))
