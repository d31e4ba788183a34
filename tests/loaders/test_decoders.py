"""Stops values that come out of a decoder otherwise than they went in: arrays, numbers, images, and what must stay bytes."""

import io
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra train")
pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

from shardtools.errors import UsageError  # noqa: E402
from shardtools.loaders.decoders import decode_npy, decoder_of  # noqa: E402

pytestmark = pytest.mark.train

ARRAYS = [
    np.arange(6, dtype=np.uint16),
    np.arange(6, dtype=">i4").reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.zeros((0, 4), np.int8),
    np.array(7, np.int64),
    np.array([(1, 2.5)], [("a", "<i2"), ("b", "<f8")]),
]


def stored(array: Any, version: tuple[int, int] | None = None) -> bytes:
    """By numpy."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version, allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize("array", ARRAYS, ids=str)
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy(array: Any, version: tuple[int, int]) -> None:
    for data in (stored(array, version), memoryview(stored(array, version))):
        found = decode_npy(data)
        assert (found.dtype, found.shape, found.tolist()) == (array.dtype, array.shape, array.tolist())


@pytest.mark.parametrize("data", [stored(np.array([{}], object)), stored(ARRAYS[0])[:-1], b"", b"\x93NUMPY\x01\0"])
def test_npy_of_objects_or_cut_off_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, EOFError)):
        decode_npy(data)


COLUMNS = [
    ("bytes", b"x", b"x"),
    ("str", "\u00e4".encode(), "\u00e4"),
    ("int", b"\xfe" + b"\xff" * 7, -2),
    ("uint8", b"\xfe", 254),
    ("float32", b"\0\0\x80\x3f", 1.0),
    ("json", b'{"a": [1]}', {"a": [1]}),
    # The kind of sizes, then the sizes; Source: mosaicml/streaming, format/mds/encodings.py, NDArray.
    ("ndarray:uint16", b"\x04\x02\x01\x00\x02\x00", [1, 2]),
    ("ndarray:uint16:2", b"\x01\x00\x02\x00", [1, 2]),
    ("ndarray:uint16:2,1", b"\x01\x00\x02\x00", [[1], [2]]),
]


@pytest.mark.parametrize(("encoding", "data", "value"), COLUMNS)
@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_columns_go_by_their_encoding(encoding: str, data: bytes, value: Any, kind: Any) -> None:
    # By its name it would be an image in WDS.
    decode: Any = pickle.loads(pickle.dumps(decoder_of("pil" if encoding != "bytes" else "tokens", "mds", {"gif": encoding})))
    found = decode({"__key__": "a", "gif": kind(data)})
    assert found["__key__"] == "a"
    found = found["gif"]
    assert (found.tolist() if isinstance(found, np.ndarray) else found) == value
    assert type(found) in (type(value), np.ndarray)


def test_members_go_by_their_extension() -> None:
    decode: Any = decoder_of("tokens", "wds", {})
    array = stored(ARRAYS[0])
    sample = {"__key__": "a", "txt": b"7", "cls": b"7", "x.JSON": b"7.5", "npy": array, "x.npy": array, "jpg": b"7", "bin": b"7"}
    found = decode(dict(sample))
    arrays = [found.pop("npy"), found.pop("x.npy")]
    assert [one.tolist() for one in arrays] == [[0, 1, 2, 3, 4, 5]] * 2
    assert found == {"__key__": "a", "txt": "7", "cls": 7, "x.JSON": 7.5, "jpg": b"7", "bin": b"7"}
    # Another sample may have other fields.
    assert decode({"__key__": "b", "json": b"[]"}) == {"__key__": "b", "json": []}


@pytest.mark.parametrize(("name", "mode"), [("png", "L"), ("webp", "RGB"), ("gif", "P"), ("seg.PNG", "I;16")])
def test_images(name: str, mode: str) -> None:
    file = io.BytesIO()
    pillow.new(mode, (5, 3)).save(file, name.rpartition(".")[2].lower())
    image, pixels = (decoder_of(decode, "wds", {})({"__key__": "a", name: file.getvalue()})[name] for decode in ("pil", "rgb"))  # type: ignore[misc]
    assert (image.size, image.mode) == ((5, 3), mode)
    assert (pixels.dtype, pixels.tolist()) == (torch.uint8, [[[0] * 5] * 3] * 3)


def test_names_and_functions() -> None:
    assert decoder_of(None, "wds", {}) is None
    assert decoder_of(len, "wds", {}) is len
    with pytest.raises(UsageError, match="expected decode as one of pil, rgb, tokens, a function or None, got 'torch'"):
        decoder_of("torch", "wds", {})


def test_loaders_import_torch_and_nothing_else_heavy() -> None:
    heavy = "{'PIL', 'boto3', 'gigatoken', 'pandas', 'pyarrow', 'ray', 'streaming', 'tokenizers', 'torchdata', 'torchvision', 'webdataset'}"
    script = f"import shardtools.loaders, sys; assert 'torch' in sys.modules; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
