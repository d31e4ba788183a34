"""An image that comes out turned, in other colours, larger than it was, or encoded anew for nothing: training sees other pictures.

What is expected is arithmetic on pixels that were drawn here, and what Pillow's own ``ImageOps`` and ``ImageChops`` say.
"""

from dataclasses import replace
from io import BytesIO
from itertools import product
from typing import Any

import pytest
from PIL import Image, ImageChops, ImageCms, ImageOps, JpegImagePlugin

from shardtools.sample import Batch, Reject
from shardtools.transforms import PartitionWork
from shardtools.transforms.images import Images

EXIF_ORIENTATION = 0x0112
RED, GREEN, BLUE, WHITE = (220, 20, 20), (20, 200, 20), (20, 20, 220), (250, 250, 250)


def applied(images: Images, data: bytes, name: str = "jpg") -> bytes:
    """What becomes of one image that is sound."""
    rejects: list[Reject] = []
    work = PartitionWork(0, rejects.append)
    images = replace(images, found=(name,))
    (batch,) = images.apply(iter([Batch([b"a"], {name: [data], "txt": ["text"]}, lambda i: f"row {i}")]), work)
    assert rejects == [] and not work.counts
    assert batch.keys == [b"a"] and batch.columns["txt"] == ["text"]
    (value,) = batch.columns[name]
    assert type(value) is bytes
    return value


def encoded(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    output = BytesIO()
    image.save(output, kind, **options)
    return output.getvalue()


def decoded(data: bytes) -> Image.Image:
    image = Image.open(BytesIO(data))
    image.load()
    return image


def corners(width: int, height: int) -> Image.Image:
    """Red, green, blue and white quarters: every way to turn it shows."""
    image = Image.new("RGB", (width, height))
    for colour, (x, y) in zip((RED, GREEN, BLUE, WHITE), product((0, 1), (0, 1)), strict=True):
        image.paste(colour, (x * width // 2, y * height // 2, width, height if y else height // 2))
    return image


def largest_difference(a: Image.Image, b: Image.Image) -> int:
    extrema: Any = ImageChops.difference(a.convert("RGB"), b.convert("RGB")).getextrema()
    return max(high for _, high in extrema)


def mean_difference(a: Image.Image, b: Image.Image) -> float:
    pixels = ImageChops.difference(a.convert("L"), b.convert("L")).tobytes()
    return sum(pixels) / len(pixels)


@pytest.mark.parametrize(
    ("given", "expected"),
    [((800, 600), (341, 256)), ((600, 800), (256, 341)), ((257, 257), (256, 256)), ((3001, 300), (2561, 256)), ((300, 2999), (256, 2559))],
)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_shorter_side_is_as_asked(given: tuple[int, int], expected: tuple[int, int], kind: str) -> None:
    image = decoded(applied(Images(256, 92), encoded(corners(*given), kind), kind.lower()))
    assert image.size == expected
    assert image.format == kind
    assert mean_difference(image, corners(*expected)) < 2.5


@pytest.mark.parametrize("given", [(256, 256), (256, 4000), (100, 80), (1, 1)])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("check", [False, True])
def test_image_small_enough_passes_byte_for_byte(given: tuple[int, int], kind: str, check: bool) -> None:
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = 6
    data = encoded(corners(*given), kind, exif=exif)
    assert applied(Images(256, 50, check), data, kind.lower()) == data


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_image_is_turned_as_exif_says_and_says_no_more(orientation: int, kind: str) -> None:
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = orientation
    data = encoded(corners(640, 480), kind, exif=exif)
    image = decoded(applied(Images(64, 95), data, kind.lower()))
    assert image.getexif().get(EXIF_ORIENTATION, 1) == 1
    upright = ImageOps.exif_transpose(decoded(data))
    assert image.size == ((85, 64) if orientation < 5 else (64, 85))
    assert mean_difference(image, upright.resize(image.size)) < 3
    for x, y in product((0.2, 0.8), (0.2, 0.8)):
        ours: Any = image.convert("RGB").getpixel((int(x * image.width), int(y * image.height)))
        theirs: Any = upright.convert("RGB").getpixel((int(x * upright.width), int(y * upright.height)))
        assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) < 12


def test_damaged_exif_means_upright() -> None:
    data = encoded(corners(64, 48), exif=b"Exif\0\0II*\0\xff\xff\xff\x7f\1\2")
    assert decoded(applied(Images(24, 92), data)).size == (32, 24)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_colour_profile_is_kept_and_other_metadata_is_not(kind: str) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    exif = Image.Exif()
    exif[0x010F] = "a camera"
    options = {"comment": b"a comment"} if kind == "JPEG" else {}
    image = decoded(applied(Images(24, 92), encoded(corners(64, 48), kind, icc_profile=profile, exif=exif, **options), kind.lower()))
    assert image.info["icc_profile"] == profile
    assert not image.getexif() and "comment" not in image.info


@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_subsampling_is_kept(subsampling: int) -> None:
    made = applied(Images(100, 92), encoded(corners(640, 480), subsampling=subsampling))
    assert JpegImagePlugin.get_sampling(decoded(made)) == subsampling


def test_quality_is_as_asked() -> None:
    data = encoded(Image.effect_noise((640, 480), 80), quality=99)
    sizes = [len(applied(Images(256, quality), data)) for quality in (10, 50, 92)]
    assert sizes == sorted(sizes) and sizes[0] < sizes[2] / 3
    tables = decoded(applied(Images(256, 92), data)).quantization  # type: ignore[attr-defined]
    assert tables == decoded(encoded(Image.new("L", (8, 8)), quality=92)).quantization  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_jpeg_keeps_its_colours(mode: str) -> None:
    image = decoded(applied(Images(48, 95), encoded(corners(640, 480).convert(mode))))
    assert image.mode == mode
    assert mean_difference(image, corners(64, 48).convert(mode)) < 4


def test_palettes_bits_and_transparency_become_colours_that_can_be_mixed() -> None:
    palette = corners(640, 480).quantize(16)
    clear = corners(640, 480).convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize((640, 480)))
    cases: list[tuple[Image.Image, str, dict[str, Any]]] = [
        (palette, "RGB", {}),
        (palette, "RGBA", {"transparency": 0}),
        (corners(640, 480), "RGBA", {"transparency": RED}),
        (corners(640, 480).convert("L"), "LA", {"transparency": 20}),
        (corners(640, 480).convert("1"), "L", {}),
        (clear, "RGBA", {}),
        (clear.convert("LA"), "LA", {}),
    ]
    for image, mode, options in cases:
        made = decoded(applied(Images(48, 92), encoded(image, "PNG", **options), "png"))
        assert (made.mode, made.size) == (mode, (64, 48))
    made = decoded(applied(Images(48, 92), encoded(clear, "PNG"), "png"))
    assert largest_difference(made.getchannel("A"), clear.getchannel("A").resize((64, 48))) < 6
    assert decoded(applied(Images(48, 92), encoded(clear, "WEBP"), "webp")).mode == "RGBA"


def test_sixteen_bits_stay_sixteen() -> None:
    image = Image.linear_gradient("L").resize((640, 480)).convert("I").point(lambda value: value * 257 + 0).convert("I;16")
    made = decoded(applied(Images(48, 92), encoded(image, "PNG"), "png"))
    assert (made.mode, made.size) == ("I;16", (64, 48))
    values = [made.getpixel((32, y)) for y in range(48)]
    assert values == sorted(values) and values[0] < 1500 and values[-1] > 64_000  # type: ignore[type-var,operator]


def test_lossless_webp_stays_lossless() -> None:
    image = corners(640, 480)
    made = applied(Images(48, 1), encoded(image, "WEBP", lossless=True), "webp")
    assert made[12:16] == b"VP8L"
    assert largest_difference(decoded(made), image.resize((64, 48), Image.Resampling.LANCZOS, reducing_gap=2.0)) == 0


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_animations_pass_byte_for_byte(kind: str) -> None:
    frames = [corners(640, 480), corners(640, 480).rotate(180)]
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
    assert decoded(data).n_frames == 2  # type: ignore[attr-defined]
    assert applied(Images(48, 92, check=True), data, kind.lower()) == data


def test_first_picture_of_a_jpeg_with_several_is_the_image() -> None:
    data = encoded(corners(640, 480), "MPO", save_all=True, append_images=[corners(640, 480).rotate(180)])
    image = decoded(applied(Images(48, 92, check=True), data))
    assert (image.format, image.size) == ("JPEG", (64, 48))
    assert mean_difference(image, corners(64, 48)) < 4


def test_scaled_decoding_loses_nothing_that_shows() -> None:
    noise = Image.effect_noise((2048, 1536), 60).convert("RGB")
    data = encoded(noise, quality=95)
    made = decoded(applied(Images(192, 95), data))
    assert made.size == (256, 192)
    assert mean_difference(made, decoded(data).resize((256, 192), Image.Resampling.LANCZOS)) < 3


def test_field_of_images_may_have_any_name() -> None:
    image = encoded(corners(64, 48), "WEBP")
    assert decoded(applied(Images(24, 92), image, "photo")).size == (32, 24)
