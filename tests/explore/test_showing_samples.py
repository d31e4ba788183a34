"""Values are shown short and true; stops a display that floods the terminal, hides damage or loads pickles."""

import hashlib
import io
import json
import sys

import numpy as np
import pytest

from shardtools.datasets import open_dataset
from shardtools.errors import UsageError
from shardtools.explore._images import image_facts
from shardtools.explore.extract import ExtractOptions, extract
from shardtools.explore.show import find, head


def encoded(kind, width=64, height=48, mode="RGB"):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: it makes the images").new(mode, (width, height))
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


@pytest.fixture
def shown(tmp_path, ustar):
    """How one tar member of the given field and bytes is shown."""

    def call(field, data):
        (tmp_path / "a.tar").write_bytes(ustar([(f"a.{field}", data)]))
        (sample,) = head(open_dataset(str(tmp_path)), 1)
        return sample.values[0].text

    return call


@pytest.mark.parametrize(
    ("field", "data", "text"),
    [
        ("txt", b"short", '"short"'),
        ("txt", b"two\nlines", '"two\\nlines"'),
        ("cls", b"7\n", "7"),
        ("json", b'{"b": [1, 2], "a": "\xc3\xbc"}', '{"b":[1,2],"a":"ü"}'),
        ("bin", b"", "0 B"),
        ("bin", bytes(range(20)), "20 B: 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f ..."),
        ("pkl", b"cos\nsystem", "9 B: 63 6f 73 0a 73 79 73 74 65 6d"),
    ],
)
def test_values_of_tars(shown, field, data, text):
    if field == "pkl":
        text = text.replace("9 B", "10 B")
    assert shown(field, data) == text


def test_a_long_text_is_cut(shown):
    assert shown("txt", b"x" * 5000) == '"' + "x" * 119 + "... (5,002 characters)"


def test_damaged_values_say_so(shown):
    assert shown("json", b"{").startswith("1 B: 7b, damaged: expected json, got 1 bytes")
    assert "damaged" in shown("txt", b"\xff\xfe")
    assert shown("jpg", b"GIF? no") == "7 B: 47 49 46 3f 20 6e 6f, damaged: no JPEG"


@pytest.mark.parametrize(("kind", "mode"), [("JPEG", "RGB"), ("PNG", "RGBA"), ("GIF", "L"), ("WEBP", "RGB"), ("BMP", "RGB"), ("TIFF", "L")])
def test_images_by_kind_and_pixels(kind, mode):
    data = encoded(kind, mode=mode)
    text = image_facts(memoryview(data))
    assert text is not None
    assert text.startswith(f"{kind} 64x48 ")
    assert "damaged" not in text


def test_a_cut_image_says_so(shown):
    data = encoded("JPEG", 640, 480)
    text = shown("jpg", data[: len(data) // 2])
    assert text.startswith("JPEG 640x480 RGB, ")
    assert "damaged: " in text
    assert "damaged: " in shown("png", encoded("PNG")[:20])


def test_an_image_that_claims_too_many_pixels_is_measured_and_not_decoded(shown):
    """20,000 x 20,000 pixels would take a gigabyte."""
    data = bytearray(encoded("PNG"))
    data[16:24] = (20_000).to_bytes(4, "big") * 2
    import zlib

    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    assert shown("png", bytes(data)).startswith(("PNG 20000x20000 RGB", "PNG, "))


def test_images_are_told_by_their_magic_without_pillow(monkeypatch):
    data = encoded("JPEG")
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert image_facts(memoryview(data)) == f"JPEG, {len(data)} B"


def test_bytes_that_are_no_image():
    assert image_facts(memoryview(b"hello")) is None
    assert image_facts(memoryview(b"")) is None


def test_values_of_mds(build, rows, tmp_path):
    (tmp_path / "src").mkdir()
    columns = {"a": [np.arange(12, dtype=np.int16).reshape(3, 4)], "f": [0.5], "n": [-3], "s": ["text"]}
    encodings = {"a": "ndarray", "f": "float32", "n": "int", "s": "str"}
    build(tmp_path / "src", tmp_path / "out", "mds", source=rows([b"k"], columns, encodings))
    (sample,) = head(open_dataset(str(tmp_path / "out")), 5)
    assert {value.name: value.text for value in sample.values} == {
        "a": "int16 [3, 4]: 0, 1, 2, 3, 4, 5, 6, 7, ...",
        "f": "0.5",
        "key": '"k"',
        "n": "-3",
        "s": '"text"',
    }
    assert json.loads(json.dumps(sample.as_json()))["shard"] == "shard.00000.mds"


@pytest.mark.train
def test_a_pickle_is_shown_and_not_loaded(streaming, tmp_path):
    import os
    import warnings

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "trapped"),)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with streaming.MDSWriter(out=str(tmp_path / "out"), columns={"x": "pkl"}) as sink:
            sink.write({"x": Trap()})
    (sample,) = head(open_dataset(str(tmp_path / "out")), 1)
    assert sample.values[0].text.endswith(", a pickle, not loaded")
    assert not (tmp_path / "trapped").exists()


@pytest.fixture
def keyed(tmp_path, ustar):
    (tmp_path / "a.tar").write_bytes(ustar([(f"cats/{i:04d}.txt", b"%d" % i) for i in range(30)]))
    return open_dataset(str(tmp_path))


def test_a_sample_is_found_by_its_key(keyed):
    sample = find(keyed, "cats/0017")
    assert (sample.key, sample.shard, sample.offset) == ("cats/0017", "a.tar", 17 * 1024)
    assert sample.values[0].text == '"17"'


def test_a_missing_key_names_near_ones(keyed, one_sentence):
    with pytest.raises(UsageError) as caught:
        find(keyed, "cats/00017")
    assert "near it are " in one_sentence(caught.value)
    assert "cats/0017" in str(caught.value)
    with pytest.raises(UsageError) as caught:
        find(keyed, "?")
    assert "keys look like cats/0000" in one_sentence(caught.value)


RAW_KEYS = {"a b": "a=20b", "ü": "=C3=BC", "e=q": "e=3Dq", "two\nlines": "two=0Alines", "_x//y": "=5Fx/=2Fy", "\udcff": "=FF"}


def test_a_sample_is_found_by_the_key_it_had_before_it_was_escaped(tmp_path, ustar, one_sentence):
    """Users know their own names; a name stored as it is comes first."""
    long = "q" * 81
    escaped = [*RAW_KEYS.values(), "q" * 46 + "=x" + hashlib.blake2b(long.encode(), digest_size=16).hexdigest()]
    (tmp_path / "a.tar").write_bytes(ustar([(f"{key}.txt", b"x") for key in [*escaped, "e=qq"]]))
    dataset = open_dataset(str(tmp_path))
    for raw, stored in zip([*RAW_KEYS, long], escaped, strict=True):
        assert find(dataset, raw).key == find(dataset, stored).key == stored
    assert find(dataset, "e=qq").key == "e=qq"
    done = extract(dataset, str(tmp_path / "out"), ExtractOptions(keys=[*RAW_KEYS, "e=3Dq", "e=qq"]))
    assert done.num_files == len(RAW_KEYS) + 1
    for missing in ("a c", "", "k" * 200_000, "a\0b"):
        with pytest.raises(UsageError) as caught:
            find(dataset, missing)
        assert len(one_sentence(caught.value)) < 500
        with pytest.raises(UsageError) as caught:
            extract(dataset, str(tmp_path / "out"), ExtractOptions(keys=[missing]))
        assert len(one_sentence(caught.value)) < 500


def test_names_that_are_no_text_can_be_printed(tmp_path, ustar):
    data = bytearray(ustar([("?.txt", b"x")]))
    data[0] = 0xFF
    data[148:156] = b"%06o\0 " % (sum(data[:148]) + 8 * 32 + sum(data[156:512]))
    (tmp_path / "a.tar").write_bytes(data)
    (sample,) = head(open_dataset(str(tmp_path)), 1)
    json.dumps(sample.as_json(), ensure_ascii=False).encode()
    assert sample.as_json()["key"] == "\\xff"
