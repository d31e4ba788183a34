"""Whether every pixel of an image is there: decoders paint what is missing, in black or grey, and say nothing."""

from io import BytesIO
from typing import TYPE_CHECKING

from PIL import Image

from shardtools.transforms.images._png_rows import lacks_rows

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

_JPEG_END = b"\xff\xd9"
_SCAN, _RESTARTS = b"\xff\xda", tuple(bytes((0xFF, 0xD0 + i)) for i in range(8))
_FILLING = bytes((37 * i + 148) % 251 for i in range(256))
"""No marker, and pixels of many values, the first of them not grey."""
_EARLY_END = "its pixel data ends before the image does"


def count_frames(image: "PilImage", kind: str) -> int:
    """A JPEG's further pictures, such as a depth map, are no frames."""
    return 1 if kind == "JPEG" else getattr(image, "n_frames", 1)


def decode_all(image: "PilImage", data: bytes, kind: str, num_frames: int) -> None:
    """Decode every frame of an image just opened, whose bytes are ``data``.

    Raises ValueError where pixels are missing, and whatever Pillow raises of data that do not decode.
    """
    if kind == "PNG":
        # Decoding passes over the checksums of chunks.
        Image.open(BytesIO(data), formats=["PNG"]).verify()
    if kind == "JPEG":
        _refuse_early_end(data)
        return
    for frame in range(num_frames):
        if frame:
            image.seek(frame)
        image.load()
    # Rows that are missing are black, the last first; to inflate all of it again, in order to count, takes half as long as to decode it.
    if kind == "PNG" and (num_frames > 1 or image.info.get("interlace") or not _has_last_row(image)) and lacks_rows(data):
        raise ValueError(_EARLY_END)


def _has_last_row(image: "PilImage") -> bool:
    return any(image.crop((0, image.height - 1, *image.size)).tobytes())


def _refuse_early_end(data: bytes) -> None:
    """Of pixels that are not there, libjpeg makes grey ones without a word; only then do bytes that follow change the image."""
    end = data.rfind(_JPEG_END)
    if _decoded(data).tobytes() != _decoded(data[:end] + _filling(data, end) + data[end:]).tobytes():
        raise ValueError(_EARLY_END)


def _filling(data: bytes, end: int) -> bytes:
    """What goes on where the image's pixels end at ``end``: also behind a restart marker, up to which all others are passed over.

    Source: ITU-T T.81, F.2.1.3.1: restart markers are numbered 0 to 7, then 0 again, in each scan.
    """
    begin = data.rfind(_SCAN, 0, end)
    last, number = max((data.rfind(marker, begin, end), i) for i, marker in enumerate(_RESTARTS))
    return _FILLING + _RESTARTS[(number + 1) % len(_RESTARTS) if last >= 0 else 0] + _FILLING


def _decoded(data: bytes) -> "PilImage":
    """An eighth of the size, where that reads every coefficient all the same, at half the cost, and shows what fills a gap."""
    image = Image.open(BytesIO(data), formats=["JPEG"])
    if not image.info.get("progressive"):  # there, later scans hold nothing that an eighth would show
        image.draft(None, (1, 1))
    image.load()
    return image
