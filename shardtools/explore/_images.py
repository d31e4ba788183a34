"""Images by kind and pixel size, damaged ones too."""

import warnings
from io import BytesIO

from shardtools.formats import IMAGE_MAGIC
from shardtools.units import format_bytes

_MAGICS = {
    **{magic: encoding.upper() for encoding, magic in IMAGE_MAGIC.items()},
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"BM": "BMP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
}
# Above this many pixels an image is only measured: decoding it would take seconds and gigabytes.
_MAX_DECODED_PIXELS = 64 << 20


def image_facts(data: memoryview) -> str | None:
    """``JPEG 640x480 RGB, 31.2 KiB``, with what is wrong if it does not decode; None for bytes that begin like no image."""
    kind = image_kind(data)
    return None if kind is None else f"{kind}{_pixels(bytes(data))}"


def image_kind(data: memoryview) -> str | None:
    """The kind of image these bytes begin like."""
    start = bytes(data[:12])
    if start[:4] == b"RIFF" and start[8:] == b"WEBP":
        return "WEBP"
    return next((kind for magic, kind in _MAGICS.items() if start.startswith(magic)), None)


def _pixels(data: bytes) -> str:
    length = format_bytes(len(data))
    try:
        from PIL import Image
    except ImportError:
        return f", {length}"
    try:
        with warnings.catch_warnings():
            # A size that may be a decompression bomb is a warning there; it is never decoded here.
            warnings.simplefilter("ignore")
            image = Image.open(BytesIO(data))
    except Exception as error:  # Pillow raises whatever its parsers raise
        return f", {length}, damaged: {_reason(error)}"
    text = f" {image.width}x{image.height} {image.mode}, {length}"
    if image.width * image.height > _MAX_DECODED_PIXELS:
        return text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image.load()
    except Exception as error:
        return f"{text}, damaged: {_reason(error)}"
    return text


def _reason(error: Exception) -> str:
    text = str(error).partition("<")[0].strip()
    return text or type(error).__name__
