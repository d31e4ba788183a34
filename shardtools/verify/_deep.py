"""``--deep``: that values are what their encoding or extension says. Nothing stored is ever run or unpickled."""

import io
import json
import warnings
from collections.abc import Callable
from functools import partial

import orjson

from shardtools.datasets import Dataset, Shard

Check = Callable[[memoryview], str | None]
"""None for a value that decodes, else what was expected and what came."""

_IMAGES = {
    "jpg": "JPEG",
    "jpeg": "JPEG",
    "png": "PNG",
    "webp": "WEBP",
    "gif": "GIF",
    "bmp": "BMP",
    "tif": "TIFF",
    "tiff": "TIFF",
    "ppm": "PPM",
    "pgm": "PPM",
    "pbm": "PPM",
}
"""Pillow's name of the format, by extension or MDS encoding."""
_MAGIC = {b"\xff\xd8\xff": "JPEG", b"\x89PNG\r\n\x1a\n": "PNG", b"GIF87a": "GIF", b"GIF89a": "GIF", b"RIFF": "WEBP"}
"""What the images begin with that no other bytes are likely to begin with."""
_MAX_PIXELS = 1 << 28
"""A larger image is not decoded: what a few bytes of it claim would fill the memory."""
_SHOWN_BYTES = 16


def all_sound(value: memoryview) -> None:
    """The check of values that were decoded before."""


def check_of(dataset: Dataset, shard: Shard, name: str) -> Check | None:
    """How values of a field are decoded; None where nobody here can."""
    extension = name.rpartition(".")[2].lower()
    encoding = dataset.field(shard, name).encoding
    if dataset.format_name == "wds" and extension in _IMAGES:
        return partial(_check_image, _IMAGES[extension])
    if dataset.format_name == "wds" and extension == "npy":
        return _check_npy
    if dataset.format_name == "mds":
        # Text, JSON and arrays were decoded before; what is left of them is right.
        return partial(_check_image, _IMAGES[encoding]) if encoding in _IMAGES else None
    return {"json": _check_json, "str": _check_text, "int": _check_int}.get(encoding)


def check_by_content(value: memoryview) -> Check | None:
    """How a value is decoded whose field does not say what it holds: images show what they are, and of what is absent MDS has nothing."""
    if not value:
        return all_sound
    start = bytes(value[:12])
    kind = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)
    return None if kind is None or (kind == "WEBP" and start[8:] != b"WEBP") else partial(_check_image, kind)


def is_decoded_before(dataset: Dataset, shard: Shard, name: str) -> bool:
    """Whether every value of the field was decoded already, when the shard was parsed."""
    return dataset.format_name == "mds" and dataset.field(shard, name).encoding not in (*_IMAGES, "bytes", "pkl")


def _check_image(kind: str, value: memoryview) -> str | None:
    from PIL import Image, UnidentifiedImageError

    from shardtools.transforms.images import count_frames, decode_all

    data = bytes(value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=[kind]) as image:
                width, height = image.size
                num_frames = count_frames(image, kind)
                if width * height * num_frames > _MAX_PIXELS:
                    said = f"{width} x {height}" + (f" in {num_frames:,} frames" if num_frames > 1 else "")
                    return f"expected a {kind} of at most {_MAX_PIXELS:,} pixels, got one that says {said}"
                decode_all(image, data, kind, num_frames)
    except UnidentifiedImageError:  # whose text is the address of the buffer in memory
        return f"expected a {kind} image, got {_shown(value)}"
    except Exception as error:  # decoders raise whatever they stumble on
        return f"expected a {kind} image that decodes, got {_shown(value)}: {error or type(error).__name__}"
    return None


def _check_npy(value: memoryview) -> str | None:
    from numpy.lib import format as npy

    file = io.BytesIO(value)
    try:
        version = npy.read_magic(file)  # type: ignore[no-untyped-call]
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read_header(file)  # type: ignore[no-untyped-call]
    except (ValueError, EOFError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        return f"expected a NumPy array, got {_shown(value)}: {error}"
    if dtype.hasobject:
        return None  # a pickle, which is not looked into
    num_bytes = dtype.itemsize
    for length in shape:
        num_bytes *= length
    stored = len(value) - file.tell()
    return None if num_bytes == stored else f"expected {num_bytes:,} bytes of {dtype} in the shape {shape}, got {stored:,}"


def _check_json(value: memoryview) -> str | None:
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError:
        # Readers use Python's parser, which also takes NaN and numbers of any length.
        try:
            json.loads(bytes(value))
        except (ValueError, RecursionError) as error:
            return f"expected JSON, got {_shown(value)}: {error}"
    return None


def _check_text(value: memoryview) -> str | None:
    try:
        str(value, "utf-8")
    except UnicodeDecodeError as error:
        return f"expected text in UTF-8, got {_shown(value)}: {error}"
    return None


def _check_int(value: memoryview) -> str | None:
    try:
        int(bytes(value))
    except ValueError:
        return f"expected a whole number, got {_shown(value)}"
    return None


def _shown(value: memoryview) -> str:
    more = "..." if len(value) > _SHOWN_BYTES else ""
    return f"{len(value):,} bytes {bytes(value[:_SHOWN_BYTES])!r}{more}"
