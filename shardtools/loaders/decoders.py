"""From stored bytes to what training takes: plain functions of one sample, a dict of ``__key__`` and fields."""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
import orjson

from shardtools import plugins
from shardtools.errors import UsageError
from shardtools.formats import MEMBER_ENCODINGS, ShardFormat
from shardtools.sample import Field

Sample = dict[str, Any]
Decode = Callable[[Sample], Any]
"""Any exception makes the sample a bad one."""

_ONE_SHORT_AXIS = bytes([1 << 2])
"""How arrays of one axis shorter than 256 begin, the size a byte. Source: mosaicml/streaming, format/mds/encodings.py, NDArray."""
_NAMES = ("pil", "rgb", "tokens")
_IMAGES = ("jpeg", "png")
_IMAGE_EXTENSIONS = ("webp", "gif", "bmp", "tif", "tiff", "ppm")


class FieldDecoder:
    """Values, bytes or memoryviews, by the encoding of their field: text, numbers, JSON, arrays; images as ``image`` makes them.

    Picklable. Arrays lie in what they were made of, and are read-only. Members of WDS go by their extension, as WebDataset's
    readers do; columns of MDS by ``encodings``, in MDS's words, and those that are not in it are bytes.
    """

    def __init__(self, format_name: str, encodings: Mapping[str, str], image: Callable[[bytes], Any] | None) -> None:
        self._format_name = format_name
        self._encodings = dict(encodings)
        self._image = image
        self._names: frozenset[str] = frozenset()
        self._decoders: list[tuple[str, Callable[[bytes], Any]]] = []
        """For the names the last sample had, which most samples have in common."""

    def __call__(self, sample: Sample) -> Sample:
        if sample.keys() != self._names:
            self._names = frozenset(sample)
            self._decoders = [(name, self._decoder(name)) for name in sample if name != "__key__"]
        for name, decode in self._decoders:
            sample[name] = decode(sample[name])
        return sample

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_names": frozenset(), "_decoders": []}

    def _decoder(self, name: str) -> Callable[[bytes], Any]:
        extension = name.rpartition(".")[2].lower()
        encoding = MEMBER_ENCODINGS.get(extension, "bytes") if self._format_name == "wds" else self._encodings.get(name, "bytes")
        if self._image is not None and (encoding in _IMAGES or (encoding == "bytes" and extension in _IMAGE_EXTENSIONS)):
            return self._image
        if encoding == "bytes" and extension == "npy":
            return decode_npy
        if encoding == "json":
            return orjson.loads
        shard_format = _format(self._format_name)
        if encoding.startswith("ndarray:"):
            return _array_decoder(Field(name, encoding), shard_format)
        return _by_format(shard_format, Field(name, encoding))


def decoder_of(decode: str | Decode | None, format_name: str, encodings: Mapping[str, str]) -> Decode | None:
    """The function a name stands for; a function is itself. Raises UsageError for another name.

    ``pil``: images as loaded ``PIL.Image``; ``rgb``: images as uint8 tensors [3, H, W]; ``tokens``: arrays as numpy arrays, images
    as bytes. With all three, text, numbers and JSON become Python values.
    """
    if decode is None or callable(decode):
        return decode
    if decode not in _NAMES:
        raise UsageError(f"expected decode as one of {', '.join(_NAMES)}, a function or None, got {decode!r}")
    images: dict[str, Callable[[bytes], Any]] = {"pil": decode_pil, "rgb": decode_rgb}
    return FieldDecoder(format_name, encodings, images.get(decode))


def decode_pil(data: bytes) -> Any:
    """The image, all its pixels read: ``PIL.Image.Image`` in the mode it was stored in."""
    from PIL import Image

    image = Image.open(BytesIO(data))
    image.load()
    return image


def decode_rgb(data: bytes) -> Any:
    """The image as RGB: ``torch.Tensor`` [3, height, width] uint8."""
    import torch

    pixels = np.array(decode_pil(data).convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def decode_npy(data: bytes) -> Any:
    """The array of a ``.npy`` file; one of Python objects, which would be unpickled, is refused with ValueError.

    Source: numpy.lib.format, "Format Version 1.0".
    """
    head = int.from_bytes(data[8:10], "little") + 10
    if data[:8] != b"\x93NUMPY\x01\0":
        return np.load(BytesIO(data), allow_pickle=False)
    dtype, shape = _npy_header(bytes(data[:head]))
    return np.frombuffer(data, dtype, -1, head).reshape(shape) if shape is not None else np.load(BytesIO(data), allow_pickle=False)


@lru_cache(1 << 8)
def _npy_header(head: bytes) -> tuple[Any, tuple[int, ...] | None]:
    """dtype and shape; no shape where the bytes behind it lie in another order."""
    file = BytesIO(head)
    np.lib.format.read_magic(file)  # type: ignore[no-untyped-call]
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)  # type: ignore[no-untyped-call]
    return dtype, None if is_fortran else shape


def _array_decoder(field: Field, shard_format: ShardFormat) -> Callable[[bytes], Any]:
    """Of ``ndarray:DTYPE``, whose bytes begin with the shape, and ``ndarray:DTYPE:d0,d1``, whose bytes are the data alone."""
    _, name, *sizes = field.encoding.split(":")
    dtype = np.dtype(name).newbyteorder("<")
    if sizes:
        shape = tuple(map(int, sizes[0].split(",")))
        if len(shape) == 1:
            return lambda data: np.frombuffer(data, dtype, shape[0])
        return lambda data: np.frombuffer(data, dtype, math.prod(shape)).reshape(shape)
    return lambda data: np.frombuffer(data, dtype, -1, 2) if data[:1] == _ONE_SHORT_AXIS else shard_format.decode(field, bytes(data))


def _by_format(shard_format: ShardFormat, field: Field) -> Callable[[bytes], Any]:
    return lambda data: shard_format.decode(field, bytes(data))


def _format(name: str) -> ShardFormat:
    made: ShardFormat = plugins.load("formats", name)()
    return made
