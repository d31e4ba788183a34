"""One image decoded, scaled and encoded by Pillow, or by pillow-simd, which stands in its place."""

from io import BytesIO
from typing import TYPE_CHECKING, Any, Protocol

from PIL import Image, JpegImagePlugin, __version__, features

from shardtools.errors import ShardtoolsError
from shardtools.transforms.images._soundness import count_frames, decode_all

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

MAX_PIXELS = 178_956_970
"""The most pixels that are decoded, all frames together: half a gigabyte as RGB, and what Pillow itself takes for an attack above."""
_EXIF_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What makes the pixels upright, by EXIF orientation."""
_GAP = 2.0
"""How many times the wanted size is kept for the filter, when libjpeg or a box filter halves the image first."""
_REDUCED_MODES = ("L", "RGB", "CMYK")


class Wanted(Protocol):
    """What is to be done to images."""

    @property
    def resize(self) -> int | None: ...
    @property
    def quality(self) -> int | None: ...
    @property
    def check(self) -> bool: ...


class BadImageError(Exception):
    """An image that is a bad sample."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(reason, sentence)
        self.reason = reason
        self.sentence = sentence


def libraries() -> str:
    """Pillow, and all that it decodes and encodes with, by version."""
    is_turbo, is_ng = features.check_feature("libjpeg_turbo"), features.check_feature("zlib_ng")
    jpeg = f"libjpeg-turbo {features.version_feature('libjpeg_turbo')}" if is_turbo else f"libjpeg {features.version_codec('jpg')}"
    zlib = f"zlib-ng {features.version_feature('zlib_ng')}" if is_ng else f"zlib {features.version_codec('zlib')}"
    # pillow-simd's versions end in .postN, which Pillow's own never do.
    name = "pillow-simd" if ".post" in __version__ else "pillow"
    return f"{name} {__version__}, {jpeg}, {zlib}, libwebp {features.version_module('webp')}"


def changed(data: bytes, kind: str, wanted: Wanted) -> bytes:
    """The image as it is to be stored: ``data`` itself where nothing changes. Raises BadImageError."""
    try:
        image = Image.open(BytesIO(data), formats=[kind.upper()])
        num_frames = count_frames(image, kind)
        if image.width * image.height * num_frames > MAX_PIXELS:
            raise _too_large(f"{image.width} x {image.height}" + (f" in {num_frames:,} frames" if num_frames > 1 else ""))
        is_resized = wanted.resize is not None and num_frames == 1 and min(image.size) > wanted.resize
        if wanted.check:
            decode_all(image, data, kind, num_frames)
        return _resized(image, data, kind, wanted) if is_resized else data
    except (BadImageError, MemoryError):
        raise
    except Image.DecompressionBombError:
        raise _too_large("one of more") from None
    except Exception as error:  # Pillow raises whatever its parsers raise
        if kind == "WebP" and not features.check_module("webp"):
            raise ShardtoolsError(f"expected a Pillow that reads WebP, got {libraries()}; install one with libwebp") from None
        why = str(error).partition("<")[0].strip() or type(error).__name__
        raise BadImageError("damaged-image", f"expected a {kind} that decodes, got a damaged one: {why}; replace it") from None


def _too_large(got: str) -> BadImageError:
    return BadImageError("image-too-large", f"expected an image of at most {MAX_PIXELS:,} pixels, got {got}; make it smaller first")


def _resized(image: "PilImage", data: bytes, kind: str, wanted: Wanted) -> bytes:
    side = wanted.resize or 0
    short = min(image.size)
    width, height = ((2 * length * side + short) // (2 * short) for length in image.size)
    options = _encoding_options(image, data, kind, wanted.quality)
    if kind == "JPEG":
        image.draft(None, (int(width * _GAP), int(height * _GAP)))
    image.load()
    if kind == "PNG" and data[24] == 16 and (image.mode != "I;16" or "transparency" in image.info):
        raise BadImageError(
            "deep-image", "expected a PNG of at most 8 bits a colour, or 16 in opaque grey, got one of 16, which cannot be kept; convert it"
        )
    turn = _TURNS.get(_orientation(image))
    image = _scalable(image)
    # Sharper filters overshoot, which only pixels of 32 bits do not cut off.
    filter_ = Image.Resampling.BILINEAR if image.mode == "I" else Image.Resampling.LANCZOS
    scaled = image.resize((width, height), filter_, reducing_gap=_GAP if image.mode in _REDUCED_MODES else None)
    if turn is not None:
        scaled = scaled.transpose(turn)
    scaled.info = {}
    output = BytesIO()
    scaled.save(output, kind.upper(), **options)
    return output.getvalue()


def _encoding_options(image: "PilImage", data: bytes, kind: str, quality: int | None) -> dict[str, Any]:
    profile = image.info.get("icc_profile") or None
    if kind == "PNG":
        return {"icc_profile": profile}
    if kind == "JPEG":
        return {"icc_profile": profile, "quality": quality, "subsampling": JpegImagePlugin.get_sampling(image)}
    return {"icc_profile": profile or b"", "quality": quality, "lossless": data[12:16] == b"VP8L"}


def _orientation(image: "PilImage") -> int:
    """1, upright, where EXIF is damaged: so do viewers."""
    try:
        return int(image.getexif().get(_EXIF_ORIENTATION, 1))
    except Exception:  # whatever the parsers raise
        return 1


def _scalable(image: "PilImage") -> "PilImage":
    """Pixels of which means can be made: no palette, no colour that stands for transparent, no single bits."""
    if "transparency" in image.info and image.mode in ("1", "L", "P", "RGB"):
        return image.convert("LA" if image.mode in ("1", "L") else "RGBA")
    return image.convert({"1": "L", "P": "RGB", "PA": "RGBA"}.get(image.mode, image.mode))
